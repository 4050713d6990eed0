"""franz-go's kfake, a fake cluster in Go that keeps records in memory, as a child process. Needs Go, once."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.peers.builds import cached_program
from tests.peers.probe import answers_api_versions
from tests.peers.server import HOST, Server

SOURCE = Path(__file__).parent / "kfake"
"""The program; `go.mod` there says which version of kfake."""


def _build(_folder: Path, program: Path) -> None:
    subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCE, check=True, timeout=600)


class KfakeServer(Server):
    """Of the settings it follows `num.partitions`."""

    name = "kfake"
    start_timeout_s = 15.0

    def command(self) -> list[str]:
        program = cached_program("kfake", SOURCE, _build)
        return [str(program), "-port", str(self.port), "-partitions", self.settings.get("num.partitions", "1")]

    def answers(self) -> bool:
        return answers_api_versions(HOST, self.port)
