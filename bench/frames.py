"""Prepared request frames for the load generator, and the positions of the numbers that it reads in the responses."""

from __future__ import annotations

import os
import random
import string
import struct
from dataclasses import dataclass, replace

import fastcrc

from klamm.wire.compression import Codec
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import Record, encode_batch
from tests.peers.wire_client import encode_frame

PRODUCE_VERSION = 9
FETCH_VERSION = 12
METADATA_VERSION = 12
_VARIED_BYTES = 16
_VOCABULARY = 300
_TIMESTAMP_MS = 1_700_000_000_000
_MARKED_OFFSET = 0x0123456789ABCDEF


@dataclass(slots=True, frozen=True)
class Frame:
    """A request frame, and positions of fields in it and in its response, in bytes.

    `error_at` and `records_at` count in the response, without its size field. `offset_at` and `vary_at` count in the
    request, with its size field. -1 means that the message has no such field, or none at a fixed place. The load
    generator writes 16 hexadecimal digits at `vary_at`, different ones for each request.
    """

    data: bytes
    error_at: int = -1
    offset_at: int = -1
    records_at: int = -1
    vary_at: int = -1


def _varint(number: int) -> bytes:
    """Return Kafka's zigzag varint of a number that is not negative."""
    number <<= 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def record_batch(record_count: int, value_bytes: int) -> bytes:
    """Return a batch of magic 2 with random values, without keys, compression and producer id."""
    records = bytearray()
    for offset_delta in range(record_count):
        value = os.urandom(value_bytes)
        body = b"\0\0" + _varint(offset_delta) + b"\1" + _varint(value_bytes) + value + b"\0"
        records += _varint(len(body)) + body
    checked = struct.pack(">hiqqqhii", 0, record_count - 1, _TIMESTAMP_MS, _TIMESTAMP_MS, -1, -1, -1, record_count)
    checked += records
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, fastcrc.crc32.iscsi(checked)) + checked


def text_batch(records: int, value_bytes: range, codec: Codec, *, keys: bool = False) -> bytes:
    """Return a batch of words, like logs and JSON, with sizes drawn from `value_bytes`: the same batch in each run.

    With `keys` each record has a key, and a time that is 1 ms later than that of the record before; every fourth has a
    header.
    """
    chance = random.Random(20)
    words = [
        "".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 9))).encode() for _ in range(_VOCABULARY)
    ]
    values = []
    for _ in range(records):
        size = chance.choice(value_bytes)
        values.append(b" ".join(chance.choices(words, k=size // 4 + 1))[:size])
    made = [Record(timestamp_ms=_TIMESTAMP_MS, value=value) for value in values]
    if keys:
        made = [
            Record(
                timestamp_ms=_TIMESTAMP_MS + number,
                key=b"customer-%d" % chance.randrange(10_000),
                value=value,
                headers=[("trace", chance.randbytes(16))] if number % 4 == 0 else [],
            )
            for number, value in enumerate(values)
        ]
    return bytes(encode_batch(made, codec=codec))


def api_versions(version: int) -> Frame:
    return Frame(encode_frame(ApiVersionsRequest("bench", "1"), version), error_at=4)


def metadata(topic: str) -> Frame:
    """Return a Metadata request for one topic."""
    topics = [MetadataRequestTopic(name=topic)]
    return Frame(encode_frame(MetadataRequest(topics, allow_auto_topic_creation=False), METADATA_VERSION))


def with_varied_client_id(frame: Frame) -> Frame:
    """Return the same request with a client id that the load generator changes for each request."""
    head = struct.Struct(">ihhih")
    size, api_key, version, correlation_id, id_size = head.unpack_from(frame.data)
    rest = frame.data[head.size + id_size :]
    size += _VARIED_BYTES - id_size
    data = head.pack(size, api_key, version, correlation_id, _VARIED_BYTES) + bytes(_VARIED_BYTES) + rest
    return replace(frame, data=data, vary_at=head.size)


def produce(topic: str, partition: int, batch: bytes) -> Frame:
    """Return a Produce request with acks=all and one batch for one partition."""
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
    head, arrays_and_name, index = 5, 3 + len(topic), 4
    return Frame(encode_frame(request, PRODUCE_VERSION), error_at=head + arrays_and_name + index)


def fetch(topic: str, partition: int, max_bytes: int) -> Frame:
    """Return a Fetch request without a session, for one partition. The load generator fills in the offset."""
    partitions = [FetchPartition(partition, fetch_offset=_MARKED_OFFSET, partition_max_bytes=max_bytes)]
    topics = [FetchTopic(topic, partitions=partitions)]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, topics=topics)
    frame = encode_frame(request, FETCH_VERSION)
    marked = struct.pack(">q", _MARKED_OFFSET)
    head, throttle, error, session, arrays_and_name, index = 5, 4, 2, 4, 3 + len(topic), 4
    error_at = head + throttle + error + session + arrays_and_name + index
    error_code, offsets, aborted, preferred_replica = 2, 24, 1, 4
    return Frame(
        frame.replace(marked, bytes(8)),
        error_at=error_at,
        offset_at=frame.index(marked),
        records_at=error_at + error_code + offsets + aborted + preferred_replica,
    )
