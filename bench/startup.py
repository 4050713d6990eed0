"""Start-up time and idle memory: `python -m bench.startup [--target both] [--rounds 5]`.

The time runs from just before the process is created until the first ApiVersions answer has arrived; a client tries to
connect every millisecond. Memory is the resident set, three seconds later, and again with many idle connections. Each
round starts on a data directory without topics that is already formatted, as a user's second start would find it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.load import IdleConnections
from bench.peers import SETTINGS
from tests.peers.probe import answers_api_versions
from tests.peers.server import HOST, Server
from tests.peers.target import TARGETS

IDLE_S = 3.0
IDLE_CONNECTIONS = 5_000


@dataclass(slots=True, frozen=True)
class StartUp:
    """One start."""

    first_answer_ms: float
    idle_rss_mib: float
    crowded_rss_mib: float


def start_once(server: Server) -> StartUp:
    """Start, wait for the first answer, look at the memory, stop. TimeoutError after the server's own limit."""
    begin = server.spawn()
    while not answers_api_versions(HOST, server.port):
        if time.monotonic() - begin > server.start_timeout_s:
            raise TimeoutError(f"{server.name} does not answer:\n{server.log_tail()}")
        time.sleep(0.001)
    first_answer_ms = (time.monotonic() - begin) * 1000
    time.sleep(IDLE_S)
    idle_rss_mib = server.rss_bytes() / (1 << 20)
    with IdleConnections((HOST, server.port), IDLE_CONNECTIONS) as idle:
        crowded_rss_mib = server.rss_bytes() / (1 << 20)
        if idle.release() != IDLE_CONNECTIONS:
            raise RuntimeError(f"{server.name} has closed idle connections")
    server.stop()
    return StartUp(first_answer_ms, idle_rss_mib, crowded_rss_mib)


def _cell(values: Sequence[float]) -> str:
    return f"{median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description="Start-up time and idle memory")
    parser.add_argument("--target", choices=[*TARGETS, "both"], default="both")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args(arguments)
    targets = list(TARGETS) if chosen.target == "both" else [chosen.target]
    starts: dict[str, list[StartUp]] = {target: [] for target in targets}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        peers = [TARGETS[target](Path(directory) / target, SETTINGS) for target in targets]
        for peer in peers:
            peer.start()
            peer.stop()
        for _ in range(chosen.rounds):
            for peer in peers:
                starts[peer.name].append(start_once(peer))
    print(f"| | {' | '.join(targets)} |\n| --- |{' --- |' * len(targets)}")
    times = [_cell([one.first_answer_ms for one in starts[target]]) for target in targets]
    memory = [_cell([one.idle_rss_mib for one in starts[target]]) for target in targets]
    print(f"| process start to first answer, ms | {' | '.join(times)} |")
    crowded = [_cell([one.crowded_rss_mib for one in starts[target]]) for target in targets]
    print(f"| idle resident memory, MiB | {' | '.join(memory)} |")
    print(f"| the same with {IDLE_CONNECTIONS:,} idle connections, MiB | {' | '.join(crowded)} |")


if __name__ == "__main__":
    main()
