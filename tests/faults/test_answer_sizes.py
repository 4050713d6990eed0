"""An answer that would exceed its limit is refused before it has been made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from klamm.testing import EmbeddedServer
from klamm.wire.headers import encode_request_header
from klamm.wire.messages import metadata, offset_commit, offset_fetch
from tests.faults.cost_meter import CostMeter
from tests.faults.costly_frames import GROUP, TOPIC

MAX_BYTES = 20_000
MAX_MEMORY_BYTES = 4_000_000
"""A refused request takes the memory of its elements, and of the answer up to the limit. The whole answers would take
30 MB.
"""


@pytest.fixture(scope="module")
def meter() -> Iterator[CostMeter]:
    limit = f"listeners.default.response_max_bytes={{default = {MAX_BYTES}}}"
    with EmbeddedServer(["listeners.default.gates=[]", limit]) as server:
        yield CostMeter(server, topics=200)


def frame(message: Any, version: int) -> bytes:
    return encode_request_header(message.API_KEY, version, 1, "c") + message.encode(version)


def commit_long_metadata(meter: CostMeter) -> None:
    partitions = [
        offset_commit.OffsetCommitRequestPartition(index, 1, committed_metadata="m" * 4000) for index in range(5)
    ]
    topics = [offset_commit.OffsetCommitRequestTopic(TOPIC, partitions=partitions)]
    meter.settle(frame(offset_commit.OffsetCommitRequest("long", -1, "", topics=topics), 8))


def all_offsets(count: int) -> offset_fetch.OffsetFetchRequest:
    groups = [offset_fetch.OffsetFetchRequestGroup(GROUP, topics=None) for _ in range(count)]
    return offset_fetch.OffsetFetchRequest(groups=groups)


def long_metadata(count: int) -> offset_fetch.OffsetFetchRequest:
    topics = [offset_fetch.OffsetFetchRequestTopics(TOPIC, partition_indexes=[0]) for _ in range(count)]
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("long", topics=topics)])


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (metadata.MetadataRequest(None), 12),
        (all_offsets(150), 8),
        (long_metadata(10), 8),
    ],
    ids=["all topics", "all offsets, often", "long metadata"],
)
def test_an_answer_beyond_its_limit_is_refused_before_it_is_made(meter: CostMeter, message: Any, version: int) -> None:
    commit_long_metadata(meter)
    refused = meter.runtime.requests.limits.counts.counters["response_bytes"]
    before = refused.value
    # The minimum of some attempts, because other threads of the server take memory too.
    assert min(meter.peak_bytes(frame(message, version)) for _ in range(3)) < MAX_MEMORY_BYTES
    assert refused.value == before + 3


@pytest.mark.parametrize(("topics", "on_handler"), [(40, False), (60, True)])
def test_metadata_of_many_partitions_leaves_the_network_thread(meter: CostMeter, topics: int, on_handler: bool) -> None:
    names = [metadata.MetadataRequestTopic(name=f"topic-{number}") for number in range(topics)]
    cost = meter.run(frame(metadata.MetadataRequest(names), 12))
    assert bool(cost.handler_ms) is on_handler
    assert cost.outcome == "answered"
