"""Compressed batches that unpack to very much: in no version of Produce, a network thread unpacks them, or they take
much memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.compression import Codec, compress
from klamm.wire.headers import encode_request_header
from klamm.wire.messages import metadata, produce
from klamm.wire.records import Record, encode_batch
from tests.faults.cost_meter import MEMORY_BUDGET_BYTES, NETWORK_BUDGET_MS, CostMeter
from tests.faults.costly_frames import TOPIC
from tests.unit.log.test_record_check import with_body

MIB = 1024 * 1024
UNPACKED_BYTES = {Codec.GZIP: 130 * MIB, Codec.SNAPPY: 16 * MIB, Codec.LZ4: 130 * MIB, Codec.ZSTD: 140 * MIB}
"""Unpacked sizes: one for a batch of about 1 MiB, and one that exceeds the limit of an unpacked batch."""
SMALL_UNPACKED_BYTES = {Codec.GZIP: 50 * MIB, Codec.SNAPPY: MIB, Codec.LZ4: 12 * MIB, Codec.ZSTD: 140 * MIB}
"""Unpacked size of a batch in a frame that a network thread handles itself."""
FIRST_VERSION_WITH_TOPIC_IDS = 13
MAGIC_AT = 16


@pytest.fixture(scope="module")
def meter() -> Iterator[tuple[CostMeter, bytes]]:
    with EmbeddedServer(["listeners.default.gates=[]"]) as server:
        made = CostMeter(server, topics=1)
        with RawClient(server.address()) as client:
            answer = client.call(metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)]), 12)
        yield made, answer.topics[0].topic_id


@cache
def bomb(codec: Codec, unpacked_bytes: int) -> bytes:
    return bytes(with_body(encode_batch([Record(value=b"x")], codec=codec), compress(codec, bytes(unpacked_bytes))))


def frame(version: int, batch: bytes, topic_id: bytes) -> bytes:
    data = [produce.PartitionProduceData(0, batch)]
    topic = produce.TopicProduceData(TOPIC, partition_data=data)
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        topic = produce.TopicProduceData(topic_id=topic_id, partition_data=data)
    body = produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]).encode(version)
    return encode_request_header(0, version, 1, "c") + body


@pytest.mark.parametrize(
    "version", [3, 12, *(pytest.param(each, marks=pytest.mark.slow) for each in range(4, 14) if each != 12)]
)
@pytest.mark.parametrize("codec", list(UNPACKED_BYTES), ids=lambda codec: codec.name)
def test_a_bomb_costs_a_network_thread_and_the_memory_little(
    meter: tuple[CostMeter, bytes], codec: Codec, version: int
) -> None:
    costs, topic_id = meter
    small = frame(version, bomb(codec, SMALL_UNPACKED_BYTES[codec]), topic_id)
    assert len(small) <= 64 * 1024
    for made in (small, frame(version, bomb(codec, UNPACKED_BYTES[codec]), topic_id)):
        assert costs.inline_ms(made) < NETWORK_BUDGET_MS
        assert costs.peak_bytes(made) < MEMORY_BUDGET_BYTES


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", list(UNPACKED_BYTES), ids=lambda codec: codec.name)
def test_a_batch_of_an_old_format_is_not_unpacked(meter: tuple[CostMeter, bytes], codec: Codec, magic: int) -> None:
    costs, topic_id = meter
    old = bytearray(bomb(codec, SMALL_UNPACKED_BYTES[codec]))
    old[MAGIC_AT] = magic
    made = frame(3, bytes(old), topic_id)
    assert costs.inline_ms(made) < NETWORK_BUDGET_MS
    assert costs.peak_bytes(made) < 2 * MIB
