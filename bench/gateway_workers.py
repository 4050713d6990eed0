"""Throughput of a gateway with more workers: `python -m bench.gateway_workers [--rounds 3] [--seconds 2]`.

One Kafka, and before it a gateway with each number of `--workers`, without and with the guards of `bench.gateway`.
Produce and fetch of 1 KiB records in batches of 64 KiB over 12 connections, five requests in flight on each when
producing. The load generator stays on one core; Kafka and the workers share the machine with it.

On a machine with fewer cores than workers, Kafka and the client need together, the measured rate says what more workers
cost, not what they give. So beside it stand the processor time of all workers for each megabyte, which holds on any
machine, and a model made of it: `workers × 1000 / (ms of CPU per MB)`, what they pass on if each has a core of its own,
and Kafka and the clients keep up. Workers share nothing but the accept queue, so the time per megabyte should not grow
with their number; where it does, the model has it. `Kafka's` is the processor time that Kafka takes meanwhile: with
`1000 / it` MB/s for each of its cores, it says how many cores the cluster needs for the rate of the model.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import frames
from bench.gateway import Gateway
from bench.load import WARMUP_S, Load, LoadResult, run_load
from bench.peers import SETTINGS, cpu_seconds, cpu_seconds_of
from bench.suites import PARTITIONS, create_topic, delete_topic, end_offsets, touch_memory
from bench.workers import processes
from tests.peers.kafka_server import KafkaServer
from tests.peers.server import HOST

BATCH_KIB = 64
CONNECTIONS = 12
_FETCHED = "fetched"
_PRODUCED = "produced"


class Row(NamedTuple):
    """One round: MB/s, and the ms of processor time per MB of all workers and of Kafka."""

    mb_per_s: float
    cpu_ms_per_mb: float
    kafka_ms_per_mb: float


class WorkerGateway(Gateway):
    """The gateway with so many workers."""

    def __init__(self, directory: Path, bootstrap: str, workers: int, *, guarded: bool) -> None:
        super().__init__(directory, bootstrap, guarded=guarded)
        self.settings["server.workers"] = str(workers)
        self._workers = workers

    def cpu_seconds(self) -> float:
        """Return the processor time of all workers."""
        return sum(map(cpu_seconds_of, processes(self.pid, self._workers)))


def load(what: str, gateway: Gateway, batch: bytes, seconds: float) -> LoadResult:
    """One run of the load generator."""
    address = HOST, gateway.port
    if what == "Fetch":
        requests = [frames.fetch(_FETCHED, partition, 1 << 20) for partition in range(PARTITIONS)]
        end_offset = min(end_offsets(gateway, _FETCHED))
        return run_load(address, requests, Load(CONNECTIONS), seconds, end_offset=end_offset)
    create_topic(gateway, _PRODUCED)
    touch_memory()
    try:
        requests = [frames.produce(_PRODUCED, partition, batch) for partition in range(PARTITIONS)]
        return run_load(address, requests, Load(CONNECTIONS, depth=5), seconds)
    finally:
        delete_topic(gateway, _PRODUCED)


def measure(what: str, gateway: WorkerGateway, kafka: KafkaServer, batch: bytes, seconds: float) -> Row:
    """One round."""
    before_s, kafka_before_s = gateway.cpu_seconds(), cpu_seconds(kafka)
    result = load(what, gateway, batch, seconds)
    used_s, kafka_s = gateway.cpu_seconds() - before_s, cpu_seconds(kafka) - kafka_before_s
    mb_per_s = result.records_mb_per_s if what == "Fetch" else result.sent_mb_per_s
    moved_mb = mb_per_s * (result.seconds + WARMUP_S)
    return Row(mb_per_s, used_s * 1000 / moved_mb, kafka_s * 1000 / moved_mb)


def fill(kafka: KafkaServer, batch: bytes) -> None:
    """Write the records that the benchmark fetches."""
    create_topic(kafka, _FETCHED)
    requests = [frames.produce(_FETCHED, partition, batch) for partition in range(PARTITIONS)]
    run_load((HOST, kafka.port), requests, Load(PARTITIONS, depth=5), 1.0)


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway_workers", description="more workers of the gateway")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round of each benchmark")
    chosen = parser.parse_args(arguments)
    counts = [int(one) for one in chosen.workers.split(",")]
    batch = frames.record_batch(BATCH_KIB * 1024 // 1034, 1024)
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder, ExitStack() as stack:
        kafka = stack.enter_context(KafkaServer(Path(folder) / "kafka", SETTINGS))
        fill(kafka, batch)
        gateways = {}
        for guarded in (False, True):
            for count in counts:
                directory = Path(folder) / f"{count}-{guarded}"
                made = WorkerGateway(directory, kafka.bootstrap, count, guarded=guarded)
                gateways[count, guarded] = stack.enter_context(made)
        print("| | guarded | workers | MB/s | ms of CPU per MB | Kafka's | model, MB/s |")
        print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
        for what in ("Produce", "Fetch"):
            rounds: dict[tuple[int, bool], list[Row]] = {key: [] for key in gateways}
            for gateway in gateways.values():
                load(what, gateway, batch, chosen.seconds / 2)
            for _ in range(chosen.rounds):
                for key, gateway in gateways.items():
                    rounds[key].append(measure(what, gateway, kafka, batch, chosen.seconds))
            for (count, guarded), found in rounds.items():
                row = Row(*(median(values) for values in zip(*found, strict=True)))
                cells = [what, "yes" if guarded else "no", str(count), f"{row.mb_per_s:,.0f}"]
                cells += [f"{row.cpu_ms_per_mb:.2f}", f"{row.kafka_ms_per_mb:.2f}"]
                print(f"| {' | '.join(cells)} | {count * 1000 / row.cpu_ms_per_mb:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
