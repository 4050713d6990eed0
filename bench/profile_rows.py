"""A profile of the server's processor time: `python -m bench.profile_rows`, for the rows of small requests.

`perf` samples klamm while a benchmark of `bench.suites` runs. A sample in the kernel counts for the system call that it
belongs to, a sample in user space for the running program or library. Needs Linux and Debian's package linux-perf.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.audit import run
from bench.peers import SETTINGS
from bench.suites import SUITES, Benchmark
from tests.peers.klamm_server import KlammServer

SYSTEM_CALL = re.compile(r"__(?:x64|arm64)_sys_(\w+)")
SAMPLES_PER_S = 1999
LEAST_SHARE = 0.02
"""Smaller shares are added up as "other"."""


def place_of(stack: Sequence[str]) -> str:
    """Return the system call of a sample's stack, or the file that ran; `stack` has perf's lines, innermost first."""
    for line in stack:
        if found := SYSTEM_CALL.search(line):
            return f"kernel, {found[1]}"
    innermost = stack[0]
    if "[kernel" in innermost:
        return "kernel, interrupts and faults"
    return Path(innermost.rsplit("(", 1)[-1].rstrip(")")).name


def shares(report: Iterable[str]) -> dict[str, float]:
    """Return the share of each place in the output of `perf script`, the largest first."""
    counts: Counter[str] = Counter()
    stack: list[str] = []
    for line in [*report, ""]:
        if line.strip():
            stack.append(line.strip())
        elif stack:
            counts[place_of(stack)] += 1
            stack = []
    total = sum(counts.values()) or 1
    large = {place: count / total for place, count in counts.most_common() if count / total >= LEAST_SHARE}
    return large | {"other": max(0.0, 1 - sum(large.values()))}


def profile(benchmark: Benchmark, server: KlammServer, seconds: float) -> str:
    """Return a line with the server's processor time for each request, and one line for each place."""
    benchmark.run(server, seconds)
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/perf.data"
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(SAMPLES_PER_S), "-g", "-o", data]
        with subprocess.Popen([*command, "-p", str(server.pid)], stderr=subprocess.DEVNULL) as recorder:
            result = run(benchmark, server, seconds)
            recorder.terminate()
        script = ["perf", "script", "-i", data, "-F", "ip,sym,dso"]
        report = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    lines = [f"| {benchmark.name} | {result.cpu_us:.1f} µs a request |"]
    return "\n".join(lines + [f"| – {place} | {share:.0%} |" for place, share in shares(report.splitlines()).items()])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile_rows", description="where the time goes")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each benchmark, after a run of the same length")
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=["peers"])
    parser.add_argument("--only", default="", help="benchmarks with this in their name")
    chosen = parser.parse_args(arguments)
    print("| | of the server's processor time |\n| --- | ---: |")
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder,
        KlammServer(Path(folder), SETTINGS) as server,
    ):
        for benchmark in (one for suite in chosen.suites for one in SUITES[suite]() if chosen.only in one.name):
            print(profile(benchmark, server, chosen.seconds), flush=True)


if __name__ == "__main__":
    main()
