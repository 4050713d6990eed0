"""The benchmarks of `bench.run`. Each prepares a server once, and then runs on it several times."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench import frames
from bench.load import WARMUP_S, Load, LoadResult, run_load
from bench.peers import cpu_seconds
from klamm.wire.compression import Codec
from klamm.wire.errors import ErrorCode
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.delete_topics import DeleteTopicsRequest
from klamm.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient

PARTITIONS = 3
CODEC_BATCH_BYTES = 16 * 1024
ROUND_BYTES = 3 << 30
VARIED_TOPICS = [f"varied-{number:02}" for number in range(32)]


@dataclass(slots=True, frozen=True)
class Measure:
    """One number of a result: its unit, the function that reads it, and True if more is better."""

    unit: str
    read: Callable[[LoadResult], float]
    more_is_better: bool = True


CONNECTIONS_PER_S = Measure("connections/s", lambda result: result.requests_per_s)
REQUESTS_PER_S = Measure("requests/s", lambda result: result.requests_per_s)
SENT_MB_PER_S = Measure("MB/s", lambda result: result.sent_mb_per_s)
RECORDS_MB_PER_S = Measure("MB/s", lambda result: result.records_mb_per_s)
SERVER_CPU = Measure("µs of the server's CPU per batch", lambda result: result.server_cpu_us, more_is_better=False)
P50 = Measure("p50, µs", lambda result: result.p50_us, more_is_better=False)
P99 = Measure("p99, µs", lambda result: result.p99_us, more_is_better=False)


@dataclass(slots=True, frozen=True)
class Benchmark:
    """A benchmark. `run(server, seconds)` may be called many times, because no call slows the next one."""

    name: str
    measures: tuple[Measure, ...]
    run: Callable[[Server, float], LoadResult]


def create_topic(server: Server, topic: str) -> None:
    """Create a topic with at least `PARTITIONS` partitions, and wait until the leader serves all of them.

    Raises TimeoutError after 30 s, and RuntimeError if the server refuses.
    """
    with WireClient(HOST, server.port) as client:
        if server.creates_topics_on_request:
            code = client.call(CreateTopicsRequest([CreatableTopic(topic, PARTITIONS, 1)]), 5).topics[0].error_code
        else:
            code = client.call(MetadataRequest([MetadataRequestTopic(name=topic)]), 12).topics[0].error_code
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise RuntimeError(f"{server.name} answers CreateTopics with {ErrorCode(code).name}")
    deadline = time.monotonic() + 30
    while -1 in end_offsets(server, topic):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{server.name} has no leader for {topic}")
        time.sleep(0.05)


def delete_topic(server: Server, topic: str) -> None:
    with WireClient(HOST, server.port) as client:
        client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 5)


def end_offsets(server: Server, topic: str) -> list[int]:
    """Return the latest offset of each partition, or -1 for a partition without a leader."""
    wanted = [ListOffsetsPartition(partition, timestamp=-1) for partition in range(PARTITIONS)]
    with WireClient(HOST, server.port) as client:
        answer = client.call(ListOffsetsRequest(topics=[ListOffsetsTopic(topic, wanted)]), 7)
    return [partition.offset for partition in sorted(answer.topics[0].partitions, key=lambda p: p.partition_index)]


def small_requests() -> list[Benchmark]:
    """Return benchmarks of ApiVersions, and of Metadata for one topic: 50 connections, each with 1 or 10 requests."""

    def benchmark(name: str, frame: frames.Frame, depth: int) -> Benchmark:
        def run(server: Server, seconds: float) -> LoadResult:
            create_topic(server, "small-requests")
            return run_load((HOST, server.port), [frame], Load(50, depth), seconds)

        return Benchmark(f"{name}, 50 connections × {depth}", (REQUESTS_PER_S, P99), run)

    kinds = [("ApiVersions v3", frames.api_versions(3)), ("Metadata v12", frames.metadata("small-requests"))]
    return [benchmark(name, frame, depth) for name, frame in kinds for depth in (1, 10)]


def peer_requests() -> list[Benchmark]:
    """Return benchmarks of connections, and of small requests that every peer serves: equal ones, then different ones.

    Different requests have a client id each and walk through `VARIED_TOPICS`, so that no response fits two of them.
    """

    def benchmark(name: str, topics: Sequence[str], requests: Sequence[frames.Frame], load: Load) -> Benchmark:
        def run(server: Server, seconds: float) -> LoadResult:
            for topic in topics:
                create_topic(server, topic)
            return run_load((HOST, server.port), requests, load, seconds)

        return Benchmark(name, (CONNECTIONS_PER_S if load.reconnect else REQUESTS_PER_S,), run)

    api_versions, topics = frames.api_versions(0), VARIED_TOPICS
    equal, varied = [api_versions], [frames.with_varied_client_id(api_versions)]
    all_varied = [frames.with_varied_client_id(frames.metadata(topic)) for topic in topics]
    metadata = f"Metadata v{frames.METADATA_VERSION}, 1 connection × 1"
    return [
        benchmark("Connect, ApiVersions v0, close, 8 at once", [], equal, Load(8, reconnect=True)),
        benchmark("ApiVersions v0, 1 connection × 1", [], equal, Load(1)),
        benchmark("ApiVersions v0, 50 connections × 1", [], equal, Load(50)),
        benchmark("ApiVersions v0, 50 connections × 10", [], equal, Load(50, 10)),
        benchmark(metadata, topics[:1], [frames.metadata(topics[0])], Load(1)),
        benchmark("ApiVersions v0, different, 1 connection × 1", [], varied, Load(1)),
        benchmark("ApiVersions v0, different, 50 connections × 1", [], varied, Load(50)),
        benchmark("ApiVersions v0, different, 50 connections × 10", [], varied, Load(50, 10)),
        benchmark(metadata.replace(",", ", different,"), topics, all_varied, Load(1, rotate=True)),
    ]


def paced_produce() -> list[Benchmark]:
    """Return benchmarks of one record of 1 KiB per request, acks=all, 200 and 2,000 requests a second over ten
    connections.
    """

    def benchmark(rate_per_s: int) -> Benchmark:
        def run(server: Server, seconds: float) -> LoadResult:
            create_topic(server, "paced")
            batch = frames.record_batch(1, 1024)
            requests = [frames.produce("paced", partition, batch) for partition in range(PARTITIONS)]
            return run_load((HOST, server.port), requests, Load(10, depth=5, rate_per_s=rate_per_s), seconds)

        return Benchmark(f"Produce, one record, acks=all, {rate_per_s:,}/s", (P50, P99), run)

    return [benchmark(200), benchmark(2_000)]


def touch_memory() -> None:
    """Touch as much memory as a round writes.

    A virtual machine gives free memory back to its host. To get it again sometimes takes many times longer than the
    write.
    """
    mmap.mmap(-1, ROUND_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def produce_of(name: str, topic: str, batch: bytes) -> Benchmark:
    """Return a benchmark of equal batches: three connections, with five requests in flight as a producer has."""

    def produce(server: Server, seconds: float) -> LoadResult:
        fresh = f"{topic}-{time.monotonic_ns()}"
        create_topic(server, fresh)
        requests = [frames.produce(fresh, partition, batch) for partition in range(PARTITIONS)]
        touch_memory()
        try:
            return run_load((HOST, server.port), requests, Load(PARTITIONS, depth=5), seconds)
        finally:
            delete_topic(server, fresh)

    return Benchmark(name, (SENT_MB_PER_S, P99), produce)


def codecs() -> list[Benchmark]:
    """Return benchmarks of compressed batches with 16 KiB of records, of one size or of many sizes."""
    return produce_by_codec({"1 KiB": range(1024, 1025), "100 to 300 bytes": range(100, 301)})


def keyed() -> list[Benchmark]:
    """Return benchmarks of compressed batches. Their records have many sizes, keys, and some have headers."""
    return produce_by_codec({"100 to 300 bytes with keys": range(100, 301)}, keys=True)


def produce_by_codec(shapes: dict[str, range], *, keys: bool = False) -> list[Benchmark]:
    """Return a benchmark for each codec and shape. A shape is the range of the values' sizes."""
    found = []
    for codec in Codec:
        for shape, sizes in shapes.items():
            count = CODEC_BATCH_BYTES // ((sizes[0] + sizes[-1]) // 2 + 10)
            batch = frames.text_batch(count, sizes, codec, keys=keys)
            name = f"Produce, {codec.name.lower()}, {count} records of {shape}, {len(batch):,} bytes a batch"
            found.append(_with_server_cpu(produce_of(name, f"codec-{codec.name.lower()}", batch)))
    return found


def _with_server_cpu(benchmark: Benchmark) -> Benchmark:
    """Add the server's processor time, because other programs on the machine change it less than the throughput."""

    def run(server: Server, seconds: float) -> LoadResult:
        before_s = cpu_seconds(server)
        result = benchmark.run(server, seconds)
        used_s = cpu_seconds(server) - before_s
        # The processor time includes the warm-up, so only the share of the measured time counts.
        measured = result.seconds / (result.seconds + WARMUP_S)
        return replace(result, server_cpu_us=used_s * measured / result.requests * 1e6)

    return Benchmark(benchmark.name, (*benchmark.measures, SERVER_CPU), run)


def bulk(batch_kib: int, record_bytes: int = 1024) -> list[Benchmark]:
    """Return benchmarks that produce batches of this size, and that fetch them."""
    topic = f"bulk-{batch_kib}"
    batch = frames.record_batch(batch_kib * 1024 // (record_bytes + 10), record_bytes)

    def fetch(server: Server, seconds: float) -> LoadResult:
        create_topic(server, topic)
        if not all(end_offsets(server, topic)):
            requests = [frames.produce(topic, partition, batch) for partition in range(PARTITIONS)]
            run_load((HOST, server.port), requests, Load(PARTITIONS, depth=5), 1.0)
        requests = [frames.fetch(topic, partition, 1 << 20) for partition in range(PARTITIONS)]
        end_offset = min(end_offsets(server, topic))
        return run_load((HOST, server.port), requests, Load(PARTITIONS), seconds, end_offset=end_offset)

    return [
        produce_of(f"Produce, 1 KiB records, batches of {batch_kib} KiB", topic, batch),
        Benchmark(f"Fetch, 1 KiB records, batches of {batch_kib} KiB, 1 MiB a request", (RECORDS_MB_PER_S,), fetch),
    ]


def bulk_all() -> Sequence[Benchmark]:
    """Return benchmarks with batches of 16 KiB (the old default), 64 KiB and 1 MiB."""
    return [benchmark for batch_kib in (16, 64, 1000) for benchmark in bulk(batch_kib)]


SUITES: dict[str, Callable[[], Sequence[Benchmark]]] = {
    "small": small_requests,
    "peers": lambda: [*peer_requests(), *paced_produce()],
    "paced": paced_produce,
    "bulk": bulk_all,
    "codecs": codecs,
    "keyed": keyed,
}
