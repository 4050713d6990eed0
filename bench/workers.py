"""Throughput with more worker processes: `python -m bench.workers [--workers 1,2,4] [--seconds 5]`.

There is one row for each number of workers. It has requests per second (ApiVersions, 64 connections, one request each
at a time), connections per second (connect, ApiVersions, close; 8 at once), and the share of each worker in the
connections. The server has the handler set `echo`. The load generator stays on one core. On a machine with fewer cores
than workers and clients, the rows show the cost of workers, and not their gain.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.frames import Frame
from bench.load import IdleConnections, Load, run_load
from tests.peers.probe import API_VERSIONS_V0

_FILE = """
[server]
workers = {workers}

[listeners.front]
bind = "127.0.0.1:0"
api_set = "echo"
backlog = 500
"""
_START_WITHIN_S = 30.0
_IDLE = 200


@contextmanager
def serving(workers: int) -> Iterator[tuple[tuple[str, int], int]]:
    """Run a server, and yield its address and its process id."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-workers-") as folder:
        file, ready = Path(folder) / "klamm.toml", Path(folder) / "ready.json"
        file.write_text(_FILE.format(workers=workers))
        command = [sys.executable, "-m", "klamm", "serve", str(file), "--ready-file", str(ready)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                deadline = time.monotonic() + _START_WITHIN_S
                while not ready.exists():
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError("klamm does not start")
                    time.sleep(0.02)
                host, _, port = json.loads(ready.read_text())["listeners"]["front"].rpartition(":")
                yield (host, int(port)), process.pid
            finally:
                process.terminate()
                process.wait(_START_WITHIN_S)


def processes(pid: int, workers: int) -> list[int]:
    """Return the processes that serve: the workers, or the only process."""
    if workers == 1:
        return [pid]
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def sockets(pid: int) -> int:
    """Return the number of open sockets of a process."""
    folder = Path(f"/proc/{pid}/fd")
    return sum(os.readlink(one).startswith("socket:") for one in folder.iterdir())


def private_mib(pid: int) -> float:
    """Return the memory that a process shares with no other process."""
    rows = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return sum(int(row[1]) for row in rows if row[0] in ("Private_Clean:", "Private_Dirty:")) / 1024


def main() -> int:
    """Print one row for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    frame = Frame(API_VERSIONS_V0)
    print("workers | requests/s | p99 us | connections/s | private MiB each | connections each")
    for workers in map(int, options.workers.split(",")):
        with serving(workers) as (address, pid):
            pids = processes(pid, workers)
            requests = run_load(address, [frame], Load(64), options.seconds)
            connections = run_load(address, [frame], Load(8, reconnect=True), options.seconds)
            before = [sockets(one) for one in pids]
            with IdleConnections(address, _IDLE):
                shares = [sockets(one) - less for one, less in zip(pids, before, strict=True)]
            memory = "/".join(f"{private_mib(one):.0f}" for one in pids)
        row = f"{workers} | {requests.requests_per_s:,.0f} | {requests.p99_us:,.0f} | {connections.requests_per_s:,.0f}"
        print(f"{row} | {memory} | {'/'.join(map(str, shares))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
