"""The gateway before Apache Kafka, beside Kafka alone: `python -m bench.gateway [--rounds 5] [--seconds 4]`.

There is one Kafka. `kafka` is its own port, `klamm` a gateway in front of it, and `klamm-guarded` a gateway with an
authorizer, quotas and the audit, which decode every request. The environment variable `KLAMM_BENCH_PROXY` may name a
script for another proxy: `SCRIPT start DIR PORT HOST:PORT` starts one on PORT before the Kafka at HOST:PORT and prints
its process id, `SCRIPT stop DIR` stops it. All run the whole time, and each benchmark goes to them in turn
(`bench.run`). The load generator has a core of its own. Prints a Markdown table of medians with the least and the
largest value, and klamm's ratio to each of the others. Processor time and the memory at the end are the proxy's; in the
column `kafka` they are Kafka's.

`bench.gateway_tls` measures the gateway with TLS and SASL, `bench.gateway_workers` with several workers. With `--rounds
2 --seconds 1.5` each of the three takes less than five minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench import frames
from bench.load import WARMUP_S, Load, LoadResult, run_load
from bench.peers import SETTINGS, cpu_seconds
from bench.run import KLAMM, head, measure, row
from bench.suites import CONNECTIONS_PER_S, P50, P99, Benchmark, Measure, bulk, create_topic, paced_produce
from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST, Server, free_port, lasting_port

CPU_PER_MB = Measure("ms of CPU per MB", lambda result: result.server_cpu_us / 1e3, more_is_better=False)
_TOPIC: Final = "one-record"
GUARDS: Final = {
    "listeners.default.authorizer": "static",
    "listeners.default.static.rules": '["allow User:* ALL TOPIC:*", "allow User:* ALL CLUSTER:*"]',
    "listeners.default.throttles": '["client_quota"]',
    "listeners.default.client_quota.users": '{"<default>" = {producer_byte_rate = 1e12, consumer_byte_rate = 1e12}}',
    "listeners.default.observers": '["audit"]',
}


def gateway_settings(bootstrap: str) -> dict[str, str]:
    """Return the settings of a gateway in front of the Kafka at `bootstrap`, whose node id is 1."""
    return {
        "listeners.default.api_set": "gateway",
        "gateway.bootstrap": f'["{bootstrap}"]',
        "gateway.node_ports": str(lasting_port()),
        "gateway.first_node_id": "1",
    }


class Gateway(KlammServer):
    """A klamm gateway in front of a running Kafka."""

    def __init__(self, directory: Path, bootstrap: str, *, guarded: bool = False) -> None:
        super().__init__(directory, gateway_settings(bootstrap))
        if guarded:
            self.name = f"{KLAMM}-guarded"
            self.settings |= GUARDS | {"listeners.default.audit.spool": str(directory / "spool")}


class ScriptedProxy(Server):
    """A proxy that a script starts and stops."""

    name = "proxy"
    start_timeout_s = 120.0

    def __init__(self, directory: Path, script: str, bootstrap: str) -> None:
        super().__init__(directory, port=free_port())
        self.name = Path(script).stem
        self._script = script
        self._bootstrap = bootstrap
        self._pid = 0

    def command(self) -> list[str]:
        return [self._script, "start", str(self.directory), str(self.port), self._bootstrap]

    def answers(self) -> bool:
        return self._pid > 0

    @property
    def pid(self) -> int:
        return self._pid

    def start(self) -> None:
        done = subprocess.run(self.command(), check=True, capture_output=True, text=True, timeout=self.start_timeout_s)
        self._pid = int(done.stdout)

    def stop(self) -> None:
        subprocess.run([self._script, "stop", str(self.directory)], check=True, timeout=self.stop_timeout_s)

    def __exit__(self, *_: object) -> None:
        self.stop()


def with_cpu_per_mb(benchmark: Benchmark) -> Benchmark:
    """Return the same benchmark, with the server's processor time per megabyte that it has received or sent."""

    def run(server: Server, seconds: float) -> LoadResult:
        before_s = cpu_seconds(server)
        result = benchmark.run(server, seconds)
        used_s = (cpu_seconds(server) - before_s) * result.seconds / (result.seconds + WARMUP_S)
        moved_mb = max(result.sent_mb_per_s, result.received_mb_per_s) * result.seconds
        return replace(result, server_cpu_us=used_s / moved_mb * 1e6)

    return Benchmark(benchmark.name, (*benchmark.measures, CPU_PER_MB), run)


def connections() -> list[Benchmark]:
    """Return benchmarks with a connection per request, which the gateway answers itself, or which a node answers."""
    topic = "connections"

    def benchmark(name: str, frame: frames.Frame) -> Benchmark:
        def run(server: Server, seconds: float) -> LoadResult:
            create_topic(server, topic)
            return run_load((HOST, server.port), [frame], Load(8, reconnect=True), seconds)

        return Benchmark(f"Connect, {name}, close, 8 at once", (CONNECTIONS_PER_S,), run)

    return [benchmark("ApiVersions", frames.api_versions(0)), benchmark("Metadata", frames.metadata(topic))]


def one_record() -> list[Benchmark]:
    """Return benchmarks with one record of 1 KiB a request, acks=all: one connection that waits, and a paced load."""

    def run(server: Server, seconds: float) -> LoadResult:
        create_topic(server, _TOPIC)
        return run_load(
            (HOST, server.port), [frames.produce(_TOPIC, 0, frames.record_batch(1, 1024))], Load(1), seconds
        )

    return [Benchmark("Produce, one record, acks=all, 1 connection × 1", (P50, P99), run), *paced_produce()]


def benchmarks(batches_kib: Sequence[int]) -> list[Benchmark]:
    """Return all benchmarks, the bulk ones once for each batch size."""
    large = [with_cpu_per_mb(one) for batch_kib in batches_kib for one in bulk(batch_kib)]
    return [*large, *connections(), *one_record()]


def memory_row(peers: Sequence[Server]) -> str:
    """Return a row with the current resident memory."""
    values = {peer.name: [peer.rss_bytes() / (1 << 20)] for peer in peers}
    return row("Resident at the end", "MiB", values, more_is_better=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks and print their table; the module's docstring describes them."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description="the gateway beside Kafka alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each round of each benchmark")
    parser.add_argument("--only", default="", help="benchmarks whose names have this in them")
    parser.add_argument("--batches-kib", nargs="+", type=int, default=[16, 64, 1000], help="of produce and fetch")
    parser.add_argument("--no-guards", action="store_true", help="leave klamm-guarded out")
    chosen = parser.parse_args(arguments)
    script = os.environ.get("KLAMM_BENCH_PROXY")
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder, ExitStack() as stack:
        directory = Path(folder)
        kafka = stack.enter_context(KafkaServer(directory / "kafka", SETTINGS))
        peers: list[Server] = [kafka, stack.enter_context(Gateway(directory / KLAMM, kafka.bootstrap))]
        if not chosen.no_guards:
            peers.append(stack.enter_context(Gateway(directory / "guarded", kafka.bootstrap, guarded=True)))
        if script:
            peers.append(stack.enter_context(ScriptedProxy(directory / "proxy", script, kafka.bootstrap)))
        print(head([peer.name for peer in peers]), flush=True)
        for benchmark in (one for one in benchmarks(chosen.batches_kib) if chosen.only in one.name):
            results = measure(benchmark, peers, chosen.rounds, chosen.seconds)
            for quantity in benchmark.measures:
                values = {name: [quantity.read(one) for one in rounds] for name, rounds in results.items()}
                print(row(benchmark.name, quantity.unit, values, more_is_better=quantity.more_is_better), flush=True)
        print(memory_row(peers), flush=True)


if __name__ == "__main__":
    main()
