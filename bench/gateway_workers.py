"""Throughput of a gateway with more workers: `python -m bench.gateway_workers [--rounds 3] [--seconds 2]`.

There is one Kafka. In front of it runs one gateway for each number of `--workers`, without and with the guards of
`bench.gateway`. The load is Produce and Fetch of 1 KiB records in batches of 64 KiB over 12 connections; producing
keeps five requests in flight on each. The load generator stays on one core, and Kafka and the workers share the machine
with it.

If the machine has fewer cores than the workers, Kafka and the client need together, the measured rate shows the cost of
more workers, not their gain. So the table has two more numbers. The first is the processor time of all workers per
megabyte, which holds on any machine. The second is a model: `workers × 1000 / (ms of CPU per MB)`, the rate if each
worker has a core of its own and Kafka and the clients keep up. Workers share only the accept queue, so the time per
megabyte should not grow with their number; if it does, the model includes that. `Kafka's` is the processor time that
Kafka takes per megabyte. Divide the model's rate by `1000 / Kafka's` to get the number of cores that the cluster needs.
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
    """The gateway with a given number of workers."""

    def __init__(self, directory: Path, bootstrap: str, workers: int, *, guarded: bool) -> None:
        super().__init__(directory, bootstrap, guarded=guarded)
        self.settings["server.workers"] = str(workers)
        self._workers = workers

    def cpu_seconds(self) -> float:
        """Return the processor time of all workers."""
        return sum(map(cpu_seconds_of, processes(self.pid, self._workers)))


def load(what: str, gateway: Gateway, batch: bytes, seconds: float) -> LoadResult:
    """Run the load generator once."""
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
    """Measure one round."""
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
    """Run the benchmark and print its table; the module's docstring describes it."""
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
