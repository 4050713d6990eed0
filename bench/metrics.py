"""The cost of recording metrics: `python -m bench.metrics [--pairs 8] [--rounds 3]`.

Pairs of servers that differ in `[server] metrics` alone get the same load in turn. The table compares the server's
processor time per request, because on a busy machine this is steadier than requests per second. It has medians, and the
median ratio of recording to not recording with its spread.
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
    "ApiVersions v2, run by handlers, 50 connections × 1": ("pool", frames.api_versions(2), Load(50, 1)),
}


def cpu_s(server: Server) -> float:
    """Return the processor time of all threads of a server, in seconds."""
    threads = Path(f"/proc/{server.pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def cpu_us_per_request(server: Server, frame: frames.Frame, load: Load, seconds: float) -> float:
    """Return the server's processor time for one request, in microseconds."""
    before_s = cpu_s(server)
    result = run_load((HOST, server.port), [frame], load, seconds, warmup_s=0.0)
    return (cpu_s(server) - before_s) / result.requests * 1e6


def compare(
    dispatch: str, frame: frames.Frame, load: Load, pairs: int, rounds: int, seconds: float
) -> tuple[float, float, list[float]]:
    """Return the microseconds per request without and with recording, and the sorted ratios of the pairs of servers.

    Two processes with equal settings differ by some percent for as long as they live, so several pairs are compared.
    """
    medians: dict[bool, list[float]] = {False: [], True: []}
    for pair in range(pairs):
        # The order in which the two servers start makes a difference by itself.
        order = (False, True) if pair % 2 else (True, False)
        times: dict[bool, list[float]] = {False: [], True: []}
        with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
            servers = {}
            for recording in order:
                settings = {
                    **SETTINGS,
                    "server.metrics": str(recording).lower(),
                    "listeners.default.dispatch": dispatch,
                }
                servers[recording] = stack.enter_context(KlammServer(Path(directory) / str(recording), settings))
            for server in servers.values():
                create_topic(server, _TOPIC)
                cpu_us_per_request(server, frame, load, seconds)
            for number in range(rounds):
                for recording in order if number % 2 else reversed(order):
                    times[recording].append(cpu_us_per_request(servers[recording], frame, load, seconds))
        for recording, each in times.items():
            medians[recording].append(median(each))
    ratios = [recorded / bare for bare, recorded in zip(medians[False], medians[True], strict=True)]
    return median(medians[False]), median(medians[True]), sorted(ratios)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.metrics", description="what recording costs")
    parser.add_argument("--pairs", type=int, default=8, help="of servers")
    parser.add_argument("--rounds", type=int, default=3, help="of each pair")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each round")
    chosen = parser.parse_args(arguments)
    print("| server CPU per request, µs | metrics = false | metrics = true | ratio |\n| --- | --- | --- | --- |")
    for name, (dispatch, frame, load) in CASES.items():
        bare, recorded, ratios = compare(dispatch, frame, load, chosen.pairs, chosen.rounds, chosen.seconds)
        spread = f"{median(ratios):.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f})"
        print(f"| {name} | {bare:.2f} | {recorded:.2f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
