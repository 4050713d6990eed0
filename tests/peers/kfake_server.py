"""franz-go's kfake in a child process: a fake cluster in Go that keeps records in memory or on disk. Needs Go, once."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.peers.builds import cached_program
from tests.peers.probe import answers_api_versions
from tests.peers.server import HOST, Server

SOURCE = Path(__file__).parent / "kfake"
"""The folder of the program. Its `go.mod` has the version of kfake."""


def _build(_folder: Path, program: Path) -> None:
    subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCE, check=True, timeout=600)


class KfakeServer(Server):
    """A kfake server. It uses only `num.partitions` of the settings."""

    name = "kfake"
    start_timeout_s = 15.0

    def command(self) -> list[str]:
        program = cached_program("kfake", SOURCE, _build)
        return [str(program), "-port", str(self.port), "-partitions", self.settings.get("num.partitions", "1")]

    def answers(self) -> bool:
        return answers_api_versions(HOST, self.port)


class KfakeOnDiskServer(KfakeServer):
    """A kfake server that also writes its records to files, without syncs, as klamm and Kafka do."""

    name = "kfake-disk"

    def command(self) -> list[str]:
        return [*super().command(), "-datadir", str(self.directory / "data")]
