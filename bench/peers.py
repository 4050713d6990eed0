"""The servers that benchmarks compare, with settings that are as similar as possible."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.peers.kfake_server import KfakeOnDiskServer, KfakeServer
from tests.peers.mock_server import MockServer
from tests.peers.server import Server
from tests.peers.target import TARGETS

PEERS: dict[str, type[Server]] = {
    **TARGETS,
    "kfake": KfakeServer,
    "kfake-disk": KfakeOnDiskServer,
    "mock": MockServer,
}
"""Server classes by name. The mock cluster serves only some APIs, enough for the suite `peers`."""

SETTINGS = {
    "num.partitions": "3",
    "message.max.bytes": "8388608",
    "auto.create.topics.enable": "false",
    # Files of one round should not burden the disk during the next.
    "log.segment.delete.delay.ms": "100",
    # The batches carry an old timestamp, so that they are the same in every run.
    "log.retention.ms": "-1",
}


@contextmanager
def servers(targets: Sequence[str], directory: Path) -> Iterator[list[Server]]:
    """Start the servers one after the other. All of them run until the block ends."""
    with ExitStack() as stack:
        yield [stack.enter_context(PEERS[target](directory / target, SETTINGS)) for target in targets]


def cpu_seconds(server: Server) -> float:
    """Return the processor time that a server has used, in user and kernel mode."""
    return cpu_seconds_of(server.pid)


def cpu_seconds_of(pid: int) -> float:
    """Return the processor time that a process has used, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
