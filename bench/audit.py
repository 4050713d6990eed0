"""The cost of the observer `audit`: `python -m bench.audit [--suites small paced] [--rounds 5]`.

Two servers, one without and one with the observer, run the whole time. The load goes to them in turn, so that other
work of the machine affects both alike. The column `cost` shows how much throughput the observer takes, or how much it
adds to the latency and to the processor time per request. The processor time is the most reliable if other programs run
too.

Then it prints the number of events in the spool, and two times per event without any server: on the thread that serves
requests, and on the observer's own thread. The last table has the time that the intent of a state change adds to it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.load import LoadResult
from bench.peers import SETTINGS, cpu_seconds
from bench.suites import SUITES, Benchmark, Measure
from klamm import (
    Address,
    ConnectionContext,
    ListenerContext,
    RequestContext,
    RequestEvent,
    RequestOutcome,
    ServerServices,
    StageTimes,
)
from klamm.wire.messages import create_topics, join_group, offset_commit, produce
from klamm.wire.struct_base import Message
from klamm_spark.observer.audit import AuditObserver
from klamm_spark.settings.audit import AuditSettings
from klamm_spark.spool.compression import decompress
from klamm_spark.spool.layout import open_segments, sealed_segments
from tests.peers.klamm_server import KlammServer
from tests.peers.server import Server

WARMUP_S = 0.5
_MICRO_EVENTS = 20_000
_MICRO_BATCH = 5
_INTENTS = 2000


@contextmanager
def off_and_on(directory: Path, more: dict[str, str]) -> Iterator[tuple[Server, Server]]:
    """Yield a server without the observer, and one with it that writes below `directory`."""
    audited = {
        "listeners.default.observers": "audit",
        "listeners.default.audit.spool": str(directory / "spool"),
        "listeners.default.audit.node": "bench",
    }
    with ExitStack() as stack:
        off = stack.enter_context(KlammServer(directory / "off", SETTINGS))
        on = stack.enter_context(KlammServer(directory / "on", {**SETTINGS, **audited, **more}))
        yield off, on


@dataclass(slots=True, frozen=True)
class Result:
    """The result of one run of a benchmark; `cpu_us` is the server's processor time per request."""

    load: LoadResult
    cpu_us: float


def run(benchmark: Benchmark, server: Server, seconds: float) -> Result:
    """Measure one run. The warm-up takes processor time too, at the same rate."""
    before = cpu_seconds(server)
    load = benchmark.run(server, seconds)
    taken = cpu_seconds(server) - before
    return Result(load, taken / (load.requests_per_s * (load.seconds + WARMUP_S)) * 1e6)


def measure(benchmark: Benchmark, servers: Sequence[Server], rounds: int, seconds: float) -> list[list[Result]]:
    """Return the results of each server. The servers take turns."""
    results: list[list[Result]] = [[] for _ in servers]
    for server in servers:
        benchmark.run(server, seconds)
    for _ in range(rounds):
        for number, server in enumerate(servers):
            results[number].append(run(benchmark, server, seconds))
    return results


def rows(benchmark: Benchmark, results: Sequence[Sequence[Result]]) -> Iterator[str]:
    """Yield the table's lines for one benchmark."""
    for quantity in benchmark.measures:
        read = [[quantity.read(result.load) for result in many] for many in results]
        yield _row(benchmark.name, quantity, read, 0)
    taken = Measure("processor, µs a request", lambda result: 0.0, more_is_better=False)
    yield _row(benchmark.name, taken, [[result.cpu_us for result in many] for many in results], 2)


def _row(name: str, quantity: Measure, values: list[list[float]], digits: int) -> str:
    off, on = (median(many) for many in values)
    cost = 1 - on / off if quantity.more_is_better else on / off - 1
    cells = [f"{median(many):,.{digits}f} ({min(many):,.{digits}f}–{max(many):,.{digits}f})" for many in values]
    return f"| {name} | {quantity.unit} | {cells[0]} | {cells[1]} | {cost:.1%} |"


def _events(listener: ListenerContext, count: int) -> list[RequestEvent]:
    connection = ConnectionContext("c", listener, Address("127.0.0.1", 9092), Address("10.1.2.3", 5000))
    topic = produce.TopicProduceData("orders", partition_data=[produce.PartitionProduceData(0, b"." * 200)])
    answered = produce.TopicProduceResponse(
        "orders", partition_responses=[produce.PartitionProduceResponse(0, 0, base_offset=1)]
    )
    request = produce.ProduceRequest(acks=1, topic_data=[topic])
    response = produce.ProduceResponse([answered])
    now_ns = time.monotonic_ns()
    times = StageTimes(now_ns, now_ns, now_ns, now_ns, now_ns, now_ns)
    contexts = (
        RequestContext(connection, None, 0, 9, number, "client", 300)  # type: ignore[arg-type]
        for number in range(count)
    )
    return [RequestEvent(each, RequestOutcome.ANSWERED, 0, request, response, 60, times) for each in contexts]


def micro(directory: Path, aggregate_above_per_second: int) -> tuple[float, float]:
    """Return the microseconds per event: first for handing it over, then for recording and writing it."""
    settings = AuditSettings(
        spool=directory,
        node="micro",
        queue_capacity=10 * _MICRO_EVENTS,
        flush_interval_ms=3_600_000,
        aggregate_above_per_second=aggregate_above_per_second,
    )
    services = ServerServices()
    listener = ListenerContext("bench", Address("", 0), Address("", 0), services=services)
    observer = AuditObserver(settings)
    observer.open(listener)
    events = _events(listener, _MICRO_EVENTS)
    batches = [events[start : start + _MICRO_BATCH] for start in range(0, _MICRO_EVENTS, _MICRO_BATCH)]
    begin = time.perf_counter()
    for batch in batches:
        observer.completed_many(batch)
    handed_over = time.perf_counter()
    # close() writes the queued events on the writer's thread. No other thread runs meanwhile.
    observer.close()
    written = time.perf_counter()
    return (handed_over - begin) / _MICRO_EVENTS * 1e6, (written - handed_over) / _MICRO_EVENTS * 1e6


_CHANGES = (
    offset_commit.OffsetCommitRequest(
        "group",
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                "orders", partitions=[offset_commit.OffsetCommitRequestPartition(0, 7)]
            )
        ],
    ),
    join_group.JoinGroupRequest("group", 45_000, 300_000, protocol_type="consumer"),
    create_topics.CreateTopicsRequest([create_topics.CreatableTopic("orders", 12, 3)]),
)


def intents(directory: Path, request: Message, sync_intents: str, threads: int) -> float:
    """Return the median of the microseconds that an intent adds to a state change, with `threads` changes at a time."""
    settings = AuditSettings(
        spool=directory,
        node="micro",
        sync_intents=sync_intents,
        intent_sync_interval_ms=0,
        flush_interval_ms=3_600_000,
    )
    listener = ListenerContext("bench", Address("", 0), Address("", 0), services=ServerServices())
    observer = AuditObserver(settings)
    observer.open(listener)
    connection = ConnectionContext("c", listener, Address("127.0.0.1", 9092), Address("10.1.2.3", 5000))
    times_ns: list[int] = []

    def run() -> None:
        for number in range(_INTENTS // threads):
            context = RequestContext(connection, None, request.API_KEY, 5, number, "client", 100)  # type: ignore[arg-type]
            begin_ns = time.perf_counter_ns()
            observer.starting(request, context)
            times_ns.append(time.perf_counter_ns() - begin_ns)

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    observer.close()
    return median(times_ns) / 1000


def intent_rows(directory: Path) -> Iterator[str]:
    """Yield the table's lines for the intents of state changes."""
    yield "\n| intent of | synced | 1 thread | 8 threads |\n| --- | --- | --- | --- |"
    for request in _CHANGES:
        name = type(request).__name__.removesuffix("Request")
        for sync_intents in ("none", "all"):
            folders = (directory / f"{name}-{sync_intents}-{threads}" for threads in (1, 8))
            cells = [intents(next(folders), request, sync_intents, threads) for threads in (1, 8)]
            yield f"| {name} | {'yes' if sync_intents == 'all' else 'no'} | {cells[0]:,.0f} µs | {cells[1]:,.0f} µs |"


def spooled(folder: Path) -> tuple[int, int]:
    """Return the number of events in a spool, and the number of requests that these events stand for."""
    events = requests = 0
    for path in (*sealed_segments(folder), *open_segments(folder)):
        for line in decompress(path.read_bytes(), path.suffix).splitlines():
            event = json.loads(line)
            events += 1
            requests += event.get("repeat_count", 1) if event["kind"] == "request" else 0
    return events, requests


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.audit", description="What the observer audit costs")
    parser.add_argument("--suites", nargs="*", choices=SUITES, default=["small", "paced"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round of each benchmark")
    parser.add_argument("--quick", action="store_true", help="three rounds of one second")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="of the audited server: KEY=VALUE")
    chosen = parser.parse_args(arguments)
    rounds, seconds = (3, 1.0) if chosen.quick else (chosen.rounds, chosen.seconds)
    more = dict(setting.split("=", 1) for setting in chosen.settings)
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        with off_and_on(Path(directory), more) as servers:
            print("| | | off | on | cost |\n| --- | --- | --- | --- | --- |", flush=True)
            for suite in chosen.suites:
                for benchmark in SUITES[suite]():
                    results = measure(benchmark, servers, rounds, seconds)
                    print("\n".join(rows(benchmark, results)), flush=True)
        events, requests = spooled(Path(directory) / "spool" / "bench")
        print(f"\n{events:,} events in the spool stand for {requests:,} requests and what came with them")
        for above, name in ((-1, "each by itself"), (10, "aggregated")):
            path_us, writer_us = micro(Path(directory) / f"micro{above}", above)
            print(f"{name}: {path_us:.2f} µs per event where requests are served, {writer_us:.2f} µs on the writer")
        print("\n".join(intent_rows(Path(directory))))


if __name__ == "__main__":
    main()
