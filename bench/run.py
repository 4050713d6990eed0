"""klamm and its peers side by side: `python -m bench.run [--suites small paced bulk] [--targets klamm kafka]`.

All servers run the whole time. Each benchmark warms them up and then goes to them in turn, A B A B …, so that other
work of the machine affects all alike. Prints a Markdown table: the median of the rounds, their minimum and maximum, and
the ratio of the medians. A ratio above 1 means that klamm is better than that peer.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench.load import LoadResult, on_cores_for_servers
from bench.peers import PEERS, servers
from bench.suites import SUITES, Benchmark, Measure
from tests.peers.server import Server

KLAMM = "klamm"

Results = dict[str, list[LoadResult]]


def measure(benchmark: Benchmark, peers: Sequence[Server], rounds: int, seconds: float) -> Results:
    """Return the results of each peer by its name. A first, longer run lets a JVM compile the measured code."""
    results: Results = {peer.name: [] for peer in peers}
    for peer in peers:
        benchmark.run(peer, 2 * seconds)
    for _ in range(rounds):
        for peer in peers:
            results[peer.name].append(benchmark.run(peer, seconds))
    return results


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cell(values: Sequence[float]) -> str:
    """Return the median and, in parentheses, the least and the largest."""
    return f"{_number(median(values))} ({_number(min(values))}–{_number(max(values))})"


def head(names: Sequence[str]) -> str:
    """Return the table's first two lines: a column for each server, and one for klamm's ratio to each of the others."""
    columns = ["", "", *names, *[f"klamm : {name}" for name in ratio_names(names)]]
    return f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}"


def ratio_names(names: Sequence[str]) -> list[str]:
    """Return the names of the servers that klamm is compared with: none if klamm is not measured."""
    return [name for name in names if name != KLAMM] if KLAMM in names else []


def row(name: str, unit: str, values: dict[str, list[float]], *, more_is_better: bool) -> str:
    """Return one line of the table; `values` are the rounds of each server."""
    medians = {server: median(rounds) for server, rounds in values.items()}
    ratios = [
        medians[KLAMM] / medians[other] if more_is_better else medians[other] / medians[KLAMM]
        for other in ratio_names(list(values))
    ]
    cells = [*[cell(rounds) for rounds in values.values()], *[f"{ratio:.2f}" for ratio in ratios]]
    return f"| {name} | {unit} | {' | '.join(cells)} |"


def _values(quantity: Measure, results: Results) -> dict[str, list[float]]:
    return {name: [quantity.read(one) for one in rounds] for name, rounds in results.items()}


def measure_suites(
    suites: Sequence[str], only: str, peers: Sequence[Server], rounds: int, seconds: float
) -> dict[str, Results]:
    """Print the rows of the benchmarks with `only` in their name. Return all results by benchmark."""
    everything = {}
    for benchmark in (one for suite in suites for one in SUITES[suite]() if only in one.name):
        results = everything[benchmark.name] = measure(benchmark, peers, rounds, seconds)
        for quantity in benchmark.measures:
            values = _values(quantity, results)
            print(row(benchmark.name, quantity.unit, values, more_is_better=quantity.more_is_better), flush=True)
        busiest = max(one.client_cpu for many in results.values() for one in many)
        if busiest > 0.9:
            print(f"{benchmark.name}: the load generator used {busiest:.0%} of a core", file=sys.stderr)
    return everything


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description="klamm beside its peers")
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=["small", "paced", "bulk"])
    parser.add_argument("--only", default="", help="benchmarks whose names have this in them")
    parser.add_argument("--targets", nargs="+", choices=PEERS, default=["klamm", "kafka"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each round of each benchmark")
    parser.add_argument("--quick", action="store_true", help="two rounds of one second")
    parser.add_argument("--server-cores", type=int, help="so many for each server, none of them the load generator's")
    parser.add_argument("--data-dir", type=Path, help="of the servers; default: a temporary directory")
    parser.add_argument("--json", type=Path, help="write every result of every round there")
    chosen = parser.parse_args(arguments)
    rounds, seconds = (2, 1.0) if chosen.quick else (chosen.rounds, chosen.seconds)
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-", dir=chosen.data_dir) as directory,
        ExitStack() as running,
    ):
        with on_cores_for_servers(chosen.server_cores):
            peers = running.enter_context(servers(chosen.targets, Path(directory)))
        print(head(chosen.targets), flush=True)
        everything = measure_suites(chosen.suites, chosen.only, peers, rounds, seconds)
    if chosen.json:
        raw = {
            name: {server: [asdict(one) for one in many] for server, many in results.items()}
            for name, results in everything.items()
        }
        chosen.json.write_text(json.dumps(raw, indent=1))


if __name__ == "__main__":
    main()
