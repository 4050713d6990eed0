"""librdkafka's mock cluster in a child process: a cluster in C that keeps records in memory. Needs cargo, make and gcc,
once.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.peers.builds import cached_program
from tests.peers.librdkafka import librdkafka
from tests.peers.probe import answers_api_versions
from tests.peers.server import HOST, Server

SOURCE = Path(__file__).parent / "librdkafka_mock"

_WITHOUT = ["curl", "gssapi", "ssl", "zstd", "lz4-ext"]


def _build(folder: Path, program: Path) -> None:
    sources = librdkafka(folder)
    with (folder / "build.log").open("wb") as log:
        options = [f"--disable-{feature}" for feature in _WITHOUT]
        for command in (["./configure", *options, "--no-download"], ["make", "-j2", "-C", "src", "librdkafka.a"]):
            subprocess.run(command, cwd=sources, check=True, stdout=log, stderr=log, timeout=600)
    library = sources / "src"
    compiler = ["gcc", "-O2", "-Wl,--wrap=listen", f"-I{library}", "-o", str(program), str(SOURCE / "mock.c")]
    libraries = [str(library / "librdkafka.a"), "-lz", "-lm", "-ldl", "-lpthread", "-lrt"]
    subprocess.run([*compiler, *libraries], check=True)


class MockServer(Server):
    """A mock server. It uses no settings: topics are created on demand, with 4 partitions. It chooses a new port at
    each start.
    """

    name = "mock"
    start_timeout_s = 15.0
    creates_topics_on_request = False

    def command(self) -> list[str]:
        self.log_path.unlink(missing_ok=True)
        return [str(cached_program("librdkafka-mock", SOURCE, _build))]

    def spawn(self) -> float:
        """Start the process. Return once it has printed its port."""
        begin = super().spawn()
        while not (ports := self._printed_ports()):
            if self.process.poll() is not None or time.monotonic() > begin + self.start_timeout_s:
                raise RuntimeError(f"{self.name} has printed no port:\n{self.log_tail()}")
            time.sleep(0.001)
        (self.port,) = ports
        return begin

    def _printed_ports(self) -> list[int]:
        lines = self.log_path.read_text().splitlines(keepends=True)
        return [int(line.removeprefix("port ")) for line in lines if line.startswith("port ") and line.endswith("\n")]

    def answers(self) -> bool:
        return answers_api_versions(HOST, self.port)
