"""Waiting times of a client beside hostile ones: `python -m bench.bystander [--apis Metadata Fetch] [--connections 1
8]`.

A client requests Metadata every 2 ms, while hostile clients send the costliest frame of one API without a pause. The
frames have three sizes: the largest that a network thread runs itself, one of 1,500 elements, and the largest that the
limits allow. Prints the client's p99 beside each frame, and its ratio to the p99 that the client had alone just before;
the ratio counts a lower p99 than 2 ms as 2 ms. The measuring code is in `tests/faults/worst_frames.py`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from bench.storm import have_priority
from klamm.wire.api_keys import spec_of
from tests.faults.hostile_load import HostileClients
from tests.faults.latency_meter import LatencyMeter, served_by
from tests.faults.worst_frames import SIZES, worst_frame
from tests.peers.klamm_server import KlammServer


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.bystander", description=__doc__)
    parser.add_argument("--apis", nargs="*", help="their names; unset, all")
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 8], help="hostile ones at once")
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--topics", type=int, default=60, help="topics of five partitions")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--priority", action="store_true", help="for the server too: on a machine that others use")
    parser.add_argument("--set", nargs="*", default=[])
    chosen = parser.parse_args()
    if chosen.priority:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    else:
        have_priority()
    print("| API | size | connections | frames/s | quiet p99, ms | p99 beside, ms | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="klamm-bystander-") as folder:
        settings = {"listeners.default.gates": "[]"} | dict(text.split("=", 1) for text in chosen.set)
        with (
            KlammServer(Path(folder) / "server", settings) as server,
            HostileClients(server.port, Path(folder)) as hostile,
        ):
            meter = LatencyMeter(server, hostile, chosen.topics)
            for api_key, versions in served_by(server):
                name = spec_of(api_key).name
                if chosen.apis and name not in chosen.apis:
                    continue
                for size in chosen.sizes:
                    frame = worst_frame(api_key, versions[-1], size)
                    for connections in chosen.connections:
                        beside = meter.beside(frame, connections, chosen.seconds)
                        print(
                            f"| {name} | {size} | {connections} | {hostile.answers / chosen.seconds:.0f} |"
                            f" {beside.quiet_p99_ms:.2f} | {beside.p99_ms:.2f} | {beside.ratio():.1f} |",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
