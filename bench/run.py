"""klamm and Apache Kafka side by side: `python -m bench.run [--suites small paced bulk] [--target both] [--rounds 5]`.

Both servers run the whole time; each benchmark warms both up and then goes to them in turn, A B A B …, so that whatever
else the machine does hits both alike. Prints a Markdown table: the median of the rounds, their minimum and maximum, and
the ratio of the medians, above 1 where klamm is better.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench.load import LoadResult
from bench.peers import servers
from bench.suites import SUITES, Benchmark, Measure
from tests.peers.server import Server
from tests.peers.target import TARGETS

Results = dict[str, list[LoadResult]]


def measure(benchmark: Benchmark, peers: Sequence[Server], rounds: int, seconds: float) -> Results:
    """The results of each peer, by its name. A first, longer run lets a JVM compile what is going to be measured."""
    results: Results = {peer.name: [] for peer in peers}
    for peer in peers:
        benchmark.run(peer, 2 * seconds)
    for _ in range(rounds):
        for peer in peers:
            results[peer.name].append(benchmark.run(peer, seconds))
    return results


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cell(values: Sequence[float]) -> str:
    return f"{_number(median(values))} ({_number(min(values))}–{_number(max(values))})"


def ratio(quantity: Measure, results: Results) -> float:
    """klamm to Kafka, turned so that above 1 means that klamm is better."""
    klamm, kafka = (median([quantity.read(result) for result in results[name]]) for name in ("klamm", "kafka"))
    return klamm / kafka if quantity.more_is_better else kafka / klamm


def rows(benchmark: Benchmark, results: Results) -> list[str]:
    """One table row for each measure."""
    lines = []
    for quantity in benchmark.measures:
        cells = [_cell([quantity.read(result) for result in results[name]]) for name in results]
        compared = f"{ratio(quantity, results):.2f}" if len(results) == len(TARGETS) else ""
        lines.append(f"| {benchmark.name} | {quantity.unit} | {' | '.join(cells)} | {compared} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description="klamm beside Apache Kafka")
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--only", default="", help="benchmarks whose names have this in them")
    parser.add_argument("--target", choices=[*TARGETS, "both"], default="both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each round of each benchmark")
    parser.add_argument("--quick", action="store_true", help="two rounds of one second")
    parser.add_argument("--data-dir", type=Path, help="of both servers; default: a temporary directory")
    parser.add_argument("--json", type=Path, help="write every result of every round there")
    chosen = parser.parse_args(arguments)
    rounds, seconds = (2, 1.0) if chosen.quick else (chosen.rounds, chosen.seconds)
    targets = list(TARGETS) if chosen.target == "both" else [chosen.target]
    raw: dict[str, dict[str, list[dict[str, float]]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-", dir=chosen.data_dir) as directory,
        servers(targets, Path(directory)) as peers,
    ):
        print(f"| | | {' | '.join(targets)} | ratio |\n| --- | --- |{' --- |' * len(targets)} --- |", flush=True)
        for suite in chosen.suites:
            for benchmark in SUITES[suite]():
                if chosen.only not in benchmark.name:
                    continue
                results = measure(benchmark, peers, rounds, seconds)
                print("\n".join(rows(benchmark, results)), flush=True)
                raw[benchmark.name] = {name: [asdict(one) for one in results[name]] for name in results}
                busiest = max(one.client_cpu for many in results.values() for one in many)
                if busiest > 0.9:
                    print(f"{benchmark.name}: the load generator used {busiest:.0%} of a core", file=sys.stderr)
    if chosen.json:
        chosen.json.write_text(json.dumps(raw, indent=1))


if __name__ == "__main__":
    main()
