"""librdkafka's mock cluster, in C and with records in memory, as a child process. Needs cargo, make and gcc, once.

The crate `rdkafka-sys` carries librdkafka's sources; nothing of Rust is compiled.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

from tests.peers.builds import cached_program
from tests.peers.probe import answers_api_versions
from tests.peers.server import HOST, Server

CRATE_VERSION = "4.10.0"
"""Of `rdkafka-sys`; it has librdkafka 2.12.1."""

SOURCE = Path(__file__).parent / "librdkafka_mock"

_CARGO_TOML = f"""[package]
name = "peers"
version = "0.0.0"
edition = "2021"
[lib]
path = "unused.rs"
[dependencies]
rdkafka-sys = "={CRATE_VERSION}"
"""
_WITHOUT = ["curl", "gssapi", "ssl", "zstd", "lz4-ext"]


def _librdkafka(folder: Path) -> Path:
    """A copy of its sources in `folder`."""
    (folder / "Cargo.toml").write_text(_CARGO_TOML)
    command = ["cargo", "metadata", "--format-version", "1", "--quiet"]
    metadata = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, timeout=600).stdout
    (crate,) = (one for one in json.loads(metadata)["packages"] if one["name"] == "rdkafka-sys")
    return shutil.copytree(Path(crate["manifest_path"]).parent / "librdkafka", folder / "librdkafka")


def _build(folder: Path, program: Path) -> None:
    sources = _librdkafka(folder)
    with (folder / "build.log").open("wb") as log:
        options = [f"--disable-{feature}" for feature in _WITHOUT]
        for command in (["./configure", *options, "--no-download"], ["make", "-j2", "-C", "src", "librdkafka.a"]):
            subprocess.run(command, cwd=sources, check=True, stdout=log, stderr=log, timeout=600)
    library = sources / "src"
    compiler = ["gcc", "-O2", "-Wl,--wrap=listen", f"-I{library}", "-o", str(program), str(SOURCE / "mock.c")]
    libraries = [str(library / "librdkafka.a"), "-lz", "-lm", "-ldl", "-lpthread", "-lrt"]
    subprocess.run([*compiler, *libraries], check=True)


class MockServer(Server):
    """Follows no settings: topics are created on demand, with 4 partitions. It chooses its port anew at each start."""

    name = "mock"
    start_timeout_s = 15.0
    creates_topics_on_request = False

    def command(self) -> list[str]:
        self.log_path.unlink(missing_ok=True)
        return [str(cached_program("librdkafka-mock", SOURCE, _build))]

    def spawn(self) -> float:
        """Returns when it has said its port."""
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
