"""Responses that grow with the state are refused before they are built. Other responses name each thing once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from klamm.api.pending import AnswerTooLargeError
from klamm.wire.messages import (
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_share_group_offsets,
    describe_transactions,
    describe_user_scram_credentials,
    init_producer_id,
    join_group,
    list_groups,
    metadata,
    offset_commit,
    offset_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from klamm_broker.handlers import (
    k03_metadata,
    k09_offset_fetch,
    k61_describe_producers,
    k65_describe_transactions,
    k90_describe_share_group_offsets,
)
from tests.unit.broker.broker_harness import BrokerHarness, Reply
from tests.unit.broker.test_acls import authorize, create, creation, wanted
from tests.unit.broker.test_scram_credentials import SHA_512, alter, upsertion

LIMIT_BYTES = 1000
REPEATS = 2000
KEYS = 200


def settled(harness: BrokerHarness, request: Any, version: int) -> Reply:
    """Send a request, and let the store confirm its writes."""
    reply = harness.send(request, version)
    for _ in range(3):
        harness.broker.store.write_and_wait([])
    return reply


def partitions(harness: BrokerHarness) -> None:
    harness.create_topic("t", 100)


def offsets(harness: BrokerHarness) -> None:
    topic = offset_commit.OffsetCommitRequestTopic(
        "t",
        partitions=[
            offset_commit.OffsetCommitRequestPartition(index, 1, committed_metadata="m" * 50) for index in range(100)
        ],
    )
    harness.create_topic("t", 100)
    reply = settled(harness, offset_commit.OffsetCommitRequest("g", topics=[topic]), 8)
    assert {each.error_code for each in reply.response.topics[0].partitions} == {0}


def classic_member(harness: BrokerHarness) -> None:
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
    request = join_group.JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", protocols)
    settled(harness, request, 3)
    assert harness.broker.groups.administration.describe("g").members


def consumer(harness: BrokerHarness) -> None:
    harness.create_topic("t", 10)
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "m" * 22, 0, subscribed_topic_names=["t"], rebalance_timeout_ms=1000, topic_partitions=[]
    )
    assert settled(harness, request, 1).response.error_code == 0


def share_consumer(harness: BrokerHarness) -> None:
    harness.create_topic("t", 10)
    request = share_group_heartbeat.ShareGroupHeartbeatRequest("g", "m" * 22, 0, None, ["t"])
    assert settled(harness, request, 1).response.error_code == 0


def producer(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    assert harness.produce("t", b"v", producer_id=5, producer_epoch=0, base_sequence=0).error_code == 0


def transaction(harness: BrokerHarness) -> None:
    harness.create_topic("t", 50)
    made = settled(harness, init_producer_id.InitProducerIdRequest("x", 60_000), 4).response
    assert made.error_code == 0
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic("t", list(range(50)))
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=[topic],
    )
    assert settled(harness, request, 3).response.results_by_topic_v3_and_below


class Growing(NamedTuple):
    """A request whose response grows with the state.

    `maker` is the owner and name of the method that makes a part of it.
    """

    prepare: Callable[[BrokerHarness], None]
    request: Any
    version: int
    maker: Callable[[BrokerHarness], tuple[Any, str]]


def fetched(group: str, indexes: list[int] | None) -> offset_fetch.OffsetFetchRequest:
    topics = None if indexes is None else [offset_fetch.OffsetFetchRequestTopics("t", partition_indexes=indexes)]
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group, topics=topics)])


GROWING = {
    "Metadata": Growing(partitions, metadata.MetadataRequest(None), 9, lambda _: (k03_metadata, "_topic")),
    "OffsetFetch of one group": Growing(
        offsets,
        offset_fetch.OffsetFetchRequest("g", None),
        7,
        lambda _: (k09_offset_fetch, "OffsetFetchResponsePartition"),
    ),
    "OffsetFetch of one group, repeated partitions": Growing(
        offsets,
        offset_fetch.OffsetFetchRequest("g", [offset_fetch.OffsetFetchRequestTopic("t", [0] * REPEATS)]),
        7,
        lambda _: (k09_offset_fetch, "OffsetFetchResponsePartition"),
    ),
    "OffsetFetch of groups": Growing(
        offsets, fetched("g", None), 8, lambda _: (k09_offset_fetch, "OffsetFetchResponsePartitions")
    ),
    "OffsetFetch of groups, repeated partitions": Growing(
        offsets, fetched("g", [0] * REPEATS), 8, lambda _: (k09_offset_fetch, "OffsetFetchResponsePartitions")
    ),
    "DescribeGroups": Growing(
        classic_member,
        describe_groups.DescribeGroupsRequest(["g"] * REPEATS),
        5,
        lambda harness: (harness.broker.groups.administration, "describe"),
    ),
    "ConsumerGroupDescribe": Growing(
        consumer,
        consumer_group_describe.ConsumerGroupDescribeRequest(["g"] * REPEATS),
        1,
        lambda harness: (harness.broker.groups.consumers, "describe"),
    ),
    "ShareGroupDescribe": Growing(
        share_consumer,
        share_group_describe.ShareGroupDescribeRequest(["g"] * REPEATS),
        1,
        lambda harness: (harness.broker.groups.shares, "describe"),
    ),
    "DescribeShareGroupOffsets": Growing(
        share_consumer,
        describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            [describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup("g", None)] * REPEATS
        ),
        1,
        lambda _: (k90_describe_share_group_offsets, "_group"),
    ),
    "DescribeProducers": Growing(
        producer,
        describe_producers.DescribeProducersRequest([describe_producers.TopicRequest("t", [0] * REPEATS)]),
        0,
        lambda _: (k61_describe_producers, "_describe"),
    ),
    "DescribeTransactions": Growing(
        transaction,
        describe_transactions.DescribeTransactionsRequest(["x"] * REPEATS),
        0,
        lambda _: (k65_describe_transactions, "_describe"),
    ),
}


@pytest.mark.parametrize("case", GROWING.values(), ids=GROWING)
def test_a_response_that_would_be_too_large_is_refused_before_it_is_built(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch, case: Growing
) -> None:
    case.prepare(harness)
    harness.listener.max_answer_bytes = (LIMIT_BYTES,) * KEYS
    owner, name = case.maker(harness)
    make = getattr(owner, name)
    made = Counter[str]()

    def counted(*arguments: Any, **fields: Any) -> Any:
        made[name] += 1
        return make(*arguments, **fields)

    monkeypatch.setattr(owner, name, counted)
    with pytest.raises(AnswerTooLargeError):
        harness.send(case.request, case.version)
    assert made[name] <= LIMIT_BYTES // 16
    harness.listener.max_answer_bytes = ()
    assert harness.call(case.request, case.version)
    assert made[name], "it does not make the answer"


def test_groups_are_listed_once_even_if_a_filter_is_repeated(harness: BrokerHarness) -> None:
    offsets(harness)
    request = list_groups.ListGroupsRequest(["Empty", "empty"] * REPEATS, ["classic", "Classic"] * REPEATS)
    assert [each.group_id for each in harness.call(request, 5).groups] == ["g"]


def test_partitions_are_described_once_even_if_a_request_repeats_them(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    request = describe_log_dirs.DescribeLogDirsRequest(
        [describe_log_dirs.DescribableLogDirTopic("t", [0, 1] * REPEATS)] * 3
    )
    (topic,) = harness.call(request, 4).results[0].topics
    assert [each.partition_index for each in topic.partitions] == [0, 1]


def test_acls_are_listed_once(harness: BrokerHarness) -> None:
    authorize(harness)
    create(harness, *[creation(principal=f"User:{number % 3}") for number in range(30)])
    (resource,) = harness.call(wanted(), 3).resources
    assert sorted(each.principal for each in resource.acls) == ["User:0", "User:1", "User:2"]


def test_users_are_described_once_even_if_a_request_repeats_them(harness: BrokerHarness) -> None:
    assert alter(harness, upsertion("alice"), upsertion("bob", SHA_512)) == {"alice": 0, "bob": 0}
    users = [describe_user_scram_credentials.UserName(name) for name in ("alice", "bob", "nobody") * REPEATS]
    results = harness.call(describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users), 0).results
    assert [each.user for each in results] == ["alice", "bob", "nobody"]
