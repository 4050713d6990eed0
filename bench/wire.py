"""Messages decoded and encoded by klamm, kio and kafka-python: `python -m bench.wire [--rounds 15]`.

Each library reads the same bytes and writes the message again. A check before the rounds compares the written bytes
with the read ones. In a round, every library has a turn. The Markdown table has medians in microseconds, and for kio
and kafka-python also the multiple of klamm's time.
"""

from __future__ import annotations

import argparse
import importlib
import io
import re
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from klamm.wire.messages import api_versions, fetch, heartbeat, metadata, produce

ROUND_S = 0.02
Call = Callable[[], Any]


def messages() -> list[tuple[str, int, Any]]:
    """Return the measured messages: a title, the version, the message."""
    topic_id = bytes(range(16))
    partitions = [metadata.MetadataResponsePartition(0, number, 1, 0, [1], [1]) for number in range(3)]
    topics = [metadata.MetadataResponseTopic(0, f"topic-{n}", topic_id, False, partitions) for n in range(3)]
    records = bytes(1 << 20)
    produced = produce.TopicProduceData("topic", partition_data=[produce.PartitionProduceData(0, records)])
    appended = produce.TopicProduceResponse("topic", partition_responses=[produce.PartitionProduceResponse(0, 0, 5)])
    fetched = fetch.PartitionData(0, 0, 10, 10, 0, aborted_transactions=None, records=records)
    wanted = fetch.FetchTopic("topic", partitions=[fetch.FetchPartition(0, 3, 10, partition_max_bytes=1 << 20)])
    apis = [api_versions.ApiVersion(key, 0, 9) for key in range(60)]
    return [
        ("ApiVersions request", 3, api_versions.ApiVersionsRequest("a-client", "1.0")),
        ("ApiVersions response, 60 APIs", 3, api_versions.ApiVersionsResponse(0, apis)),
        ("Metadata request, 1 topic", 12, metadata.MetadataRequest([metadata.MetadataRequestTopic(name="topic")])),
        (
            "Metadata response, 3 topics of 3 partitions",
            12,
            metadata.MetadataResponse(0, [metadata.MetadataResponseBroker(1, "localhost", 9092)], "id", 1, topics),
        ),
        ("Produce request, 1 MiB", 9, produce.ProduceRequest(None, -1, 30000, [produced])),
        ("Produce response, 1 partition", 9, produce.ProduceResponse([appended])),
        ("Fetch request, 1 partition", 12, fetch.FetchRequest(topics=[wanted])),
        (
            "Fetch response, 1 MiB",
            12,
            fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("topic", partitions=[fetched])]),
        ),
        ("Heartbeat request", 4, heartbeat.HeartbeatRequest("group", 7, "member")),
    ]


def klamm_calls(version: int, message: Any, frame: bytearray) -> tuple[Call, Call]:
    """Return calls that decode and encode as the server does, without a copy of large records."""
    decode, view = type(message).decode, memoryview(frame)
    encode = getattr(message, "encode_chunks", message.encode)
    return lambda: decode(version, view), lambda: encode(version)


def kio_calls(version: int, name: str, frame: bytes) -> tuple[Call, Call]:
    from kio.serial import entity_reader, entity_writer

    api, kind = re.fullmatch(r"(\w+)(Request|Response)", name).groups()  # type: ignore[union-attr]
    package = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api).lower()
    entity = vars(importlib.import_module(f"kio.schema.{package}.v{version}.{kind.lower()}"))[name]
    read, write = entity_reader(entity), entity_writer(entity)
    decoded = read(frame, 0)[0]

    def encode() -> bytes:
        out = io.BytesIO()
        write(out, decoded)
        return out.getvalue()

    return lambda: read(frame, 0), encode


def kafka_python_calls(version: int, name: str, frame: bytes) -> tuple[Call, Call]:
    packages = ("metadata", "producer", "consumer")
    found = [vars(importlib.import_module(f"kafka.protocol.{package}")).get(name) for package in packages]
    message = next(each for each in found if each is not None)
    decoded = message.decode(frame, version=version)
    decoded._header = None  # encode() asks for it, decode() leaves it unset
    return lambda: message.decode(frame, version=version), lambda: decoded.encode(version=version)


def one_call_us(call: Call) -> float:
    """Return the microseconds of one call, measured over about `ROUND_S`."""
    count, spent = 1, 0.0
    while spent < ROUND_S:
        count *= 2
        started = time.perf_counter()
        for _ in range(count):
            call()
        spent = time.perf_counter() - started
    return spent / count * 1e6


def check(title: str, frame: bytes, calls: dict[str, tuple[Call, Call]]) -> None:
    for name, (_, encode) in calls.items():
        made = encode()
        if bytes(b"".join(made) if isinstance(made, list) else made) != frame:
            raise SystemExit(f"{title}: {name} writes other bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print("| message | | klamm µs | kio | kafka-python |\n| --- | --- | ---: | ---: | ---: |")
    for title, version, message in messages():
        frame, name = message.encode(version), type(message).__name__
        calls = {
            "klamm": klamm_calls(version, message, bytearray(frame)),
            "kio": kio_calls(version, name, frame),
            "kafka-python": kafka_python_calls(version, name, frame),
        }
        check(title, frame, calls)
        for which, word in enumerate(("decode", "encode")):
            taken: dict[str, list[float]] = {library: [] for library in calls}
            for _ in range(rounds):
                for library, pair in calls.items():
                    taken[library].append(one_call_us(pair[which]))
            own, *others = (median(each) for each in taken.values())
            ratios = " | ".join(f"{other:.3g} ({other / own:.1f}×)" for other in others)
            print(f"| {title} v{version} | {word} | {own:.3g} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
