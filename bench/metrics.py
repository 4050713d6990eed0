"""What recording costs: `python -m bench.metrics [--rounds 9] [--seconds 0.7]`.

Two servers that differ in `[server] metrics` alone, each on its own port, run the whole time and get the same load in
turn. What is compared is the processor time that the server takes per request: on a machine that others use too it is
steadier than requests per second. Prints a Markdown table: medians of the rounds, and the ratio of recording to not.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench import frames
from bench.load import Load, run_load
from bench.peers import SETTINGS
from bench.suites import create_topic
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST, Server

_TOPIC = "small-requests"
CASES = {
    "ApiVersions v3, 50 connections × 1": ("hybrid", frames.api_versions(3), Load(50, 1)),
    "ApiVersions v3, 50 connections × 10": ("hybrid", frames.api_versions(3), Load(50, 10)),
    "Metadata v12, 50 connections × 1": ("hybrid", frames.metadata(_TOPIC), Load(50, 1)),
    "Metadata v12, 50 connections × 10": ("hybrid", frames.metadata(_TOPIC), Load(50, 10)),
    "ApiVersions v3, run by handlers, 50 connections × 1": ("pool", frames.api_versions(3), Load(50, 1)),
}


def cpu_s(server: Server) -> float:
    """Processor time of all threads of a server, in seconds."""
    threads = Path(f"/proc/{server.pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def cpu_us_per_request(server: Server, frame: frames.Frame, load: Load, seconds: float) -> float:
    """Processor time that one request costs, in microseconds."""
    before_s = cpu_s(server)
    result = run_load((HOST, server.port), [frame], load, seconds, warmup_s=0.0)
    return (cpu_s(server) - before_s) / result.requests * 1e6


def compare(dispatch: str, frame: frames.Frame, load: Load, rounds: int, seconds: float) -> tuple[float, float, float]:
    """Microseconds per request without and with recording, and the median of the rounds' ratios."""
    times: dict[str, list[float]] = {"false": [], "true": []}
    # Which server is started first makes a difference by itself: each is so once.
    for order in (("false", "true"), ("true", "false")):
        with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
            servers = {}
            for recording in order:
                settings = {**SETTINGS, "server.metrics": recording, "listeners.default.dispatch": dispatch}
                servers[recording] = stack.enter_context(KlammServer(Path(directory) / recording, settings))
            for server in servers.values():
                create_topic(server, _TOPIC)
                cpu_us_per_request(server, frame, load, seconds)
            for number in range(rounds):
                for recording in order if number % 2 else reversed(order):
                    times[recording].append(cpu_us_per_request(servers[recording], frame, load, seconds))
    ratios = [recorded / bare for bare, recorded in zip(times["false"], times["true"], strict=True)]
    return median(times["false"]), median(times["true"]), median(ratios)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.metrics", description="what recording costs")
    parser.add_argument("--rounds", type=int, default=9, help="of each of the two orders of starting")
    parser.add_argument("--seconds", type=float, default=0.7, help="of each round")
    chosen = parser.parse_args(arguments)
    print("| server CPU per request, µs | metrics = false | metrics = true | ratio |\n| --- | --- | --- | --- |")
    for name, (dispatch, frame, load) in CASES.items():
        bare, recorded, ratio = compare(dispatch, frame, load, chosen.rounds, chosen.seconds)
        print(f"| {name} | {bare:.2f} | {recorded:.2f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
