"""A data directory with many topics: `python -m bench.many_topics [--topics 2000] [--partitions 5] [--rounds 3]`.

Every partition has one batch of 10 records of 100 bytes. The rows are:

- the time from the creation of the process until a client has the answer to its first ApiVersions, after a clean stop
  and after a kill right after the last produce;
- the answer to Metadata of all topics: the first, and the fastest of ten later ones;
- the memory per partition: the resident memory beyond that of a server with one topic, divided by the number of
  partitions, with every log in use and after a start;
- the growth of that memory for each partition after those of the first 100 topics.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.frames import METADATA_VERSION, PRODUCE_VERSION, record_batch
from klamm.wire.errors import ErrorCode
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient

_TOPICS_A_REQUEST = 100
_SETTLE_S = 3.0
_CREATE_VERSION = 7


def first_answer_ms(server: Server) -> float:
    """Start the server, and return the milliseconds until its first answer. The server still runs afterwards."""
    begin = server.spawn()
    while True:
        try:
            with WireClient(HOST, server.port) as client:
                client.call(ApiVersionsRequest(), 0)
                return (time.monotonic() - begin) * 1000
        except OSError:
            if server.process.poll() is not None or time.monotonic() > begin + server.start_timeout_s:
                raise RuntimeError(f"{server.name} does not start:\n{server.log_tail()}") from None
            time.sleep(0.001)


def fill(server: Server, topics: int, partitions: int, first_topic: int = 0) -> None:
    """Create the topics from `first_topic` to `topics`, and produce a batch to each of their partitions."""
    batch = record_batch(10, 100)
    names = [f"topic-{number:05d}" for number in range(first_topic, topics)]
    with WireClient(HOST, server.port, 120) as client:
        for first in range(0, len(names), _TOPICS_A_REQUEST):
            some = names[first : first + _TOPICS_A_REQUEST]
            wanted = [CreatableTopic(name, partitions, 1) for name in some]
            for made in client.call(CreateTopicsRequest(wanted, timeout_ms=60_000), _CREATE_VERSION).topics:
                if made.error_code != ErrorCode.NONE:
                    raise RuntimeError(f"{made.name}: {made.error_message}")
            produce(client, some, partitions, batch)


def produce(client: WireClient, names: Sequence[str], partitions: int, batch: bytes) -> None:
    """Produce one batch to each partition, in one request."""
    data = [
        TopicProduceData(name, partition_data=[PartitionProduceData(index, batch) for index in range(partitions)])
        for name in names
    ]
    answer = client.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), PRODUCE_VERSION)
    if any(each.error_code for topic in answer.responses for each in topic.partition_responses):
        raise RuntimeError("a partition refuses records")


def metadata_ms(server: Server) -> tuple[float, float]:
    """Return the time until the last byte of Metadata for all topics: of the first, and of the fastest of ten more."""
    times = []
    with WireClient(HOST, server.port) as client:
        client.call(ApiVersionsRequest(), 0)
        for _ in range(11):
            begin = time.monotonic()
            client.exchange(MetadataRequest(None), METADATA_VERSION)
            times.append((time.monotonic() - begin) * 1000)
    return times[0], min(times[1:])


def _rss_alone(directory: Path) -> int:
    server = KlammServer(directory)
    first_answer_ms(server)
    fill(server, 1, 1)
    time.sleep(_SETTLE_S)
    resident = server.rss_bytes()
    server.stop()
    return resident


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.many_topics", description="A server with many topics")
    parser.add_argument("--topics", type=int, default=2000, help="more than 100")
    parser.add_argument("--partitions", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    count = chosen.topics * chosen.partitions
    clean, killed, first, later = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as name:
        alone = _rss_alone(Path(name) / "alone")
        server = KlammServer(Path(name) / "many")
        server.stop_timeout_s = 120
        first_answer_ms(server)
        fill(server, _TOPICS_A_REQUEST, chosen.partitions)
        some_in_use = server.rss_bytes()
        fill(server, chosen.topics, chosen.partitions, _TOPICS_A_REQUEST)
        in_use = server.rss_bytes()
        server.stop()
        for _ in range(chosen.rounds):
            clean.append(first_answer_ms(server))
            for values, value in zip((first, later), metadata_ms(server), strict=True):
                values.append(value)
            time.sleep(_SETTLE_S)
            started = server.rss_bytes()
            touched = [f"topic-{number:05d}" for number in range(chosen.topics)]
            with WireClient(HOST, server.port, 120) as client:
                batch = record_batch(10, 100)
                for at in range(0, chosen.topics, _TOPICS_A_REQUEST):
                    produce(client, touched[at : at + _TOPICS_A_REQUEST], chosen.partitions, batch)
            server.kill9()
            killed.append(first_answer_ms(server))
            server.stop()
    rows = [
        ("Process start to first answer, after a clean stop", clean, "ms"),
        ("Process start to first answer, after a kill", killed, "ms"),
        ("Metadata of all topics, the first", first, "ms"),
        ("Metadata of all topics, later", later, "ms"),
    ]
    print(f"{chosen.topics} topics of {chosen.partitions} partitions\n\n| | |\n| --- | --- |")
    for label, values, unit in rows:
        print(f"| {label} | {statistics.median(values):,.0f} ({min(values):,.0f}-{max(values):,.0f}) {unit} |")
    more = count - _TOPICS_A_REQUEST * chosen.partitions
    print(f"| Memory a partition, all logs in use | {(in_use - alone) / count / 1024:.1f} KiB |")
    print(f"| Of these for each one more | {(in_use - some_in_use) / more / 1024:.1f} KiB |")
    print(f"| Memory a partition, {_SETTLE_S:.0f} s after a start | {(started - alone) / count / 1024:.1f} KiB |")


if __name__ == "__main__":
    main()
