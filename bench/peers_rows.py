"""klamm beside Apache Kafka, kfake and librdkafka's mock cluster: `python -m bench.peers_rows [--rounds 5]`.

Prints one table: start-up first, while nothing else runs, then connections, small requests and a paced produce, in
rounds that take turns (`bench.run`). Needs Java and Maven for Kafka, Go for kfake, and cargo, make and gcc for the mock
cluster. The peers are fetched and built once, into the user's cache directory.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.peers import PEERS, servers
from bench.run import head, measure_suites
from bench.startup import StartUp, rows, starts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers_rows", description="klamm beside its peers")
    parser.add_argument("--targets", nargs="+", choices=PEERS, default=["kafka", "kfake", "mock", "klamm"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round of each benchmark")
    chosen = parser.parse_args(arguments)
    print(head(chosen.targets), flush=True)
    times: dict[str, list[StartUp]] = {target: [] for target in chosen.targets}
    with starts(chosen.targets, chosen.rounds) as all_starts:
        for server, started in all_starts:
            times[server.name].append(started)
    print(rows(times), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory,
        servers(chosen.targets, Path(directory)) as peers,
    ):
        measure_suites(["peers"], "", peers, chosen.rounds, chosen.seconds)


if __name__ == "__main__":
    main()
