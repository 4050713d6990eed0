"""Records of groups and transactional ids in internal topics show the same as Describe APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.share_group_describe import ShareGroupDescribeRequest
from klamm.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from klamm.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from klamm.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from klamm_broker.share.persistence import SharePartitionKey, put
from klamm_broker.share.record_state import RecordState
from klamm_broker.share.state_changes import StateRow, StateUpdate
from klamm_broker.transactions.state import TransactionState
from tests.unit.broker.broker_harness import BrokerHarness
from tests.unit.broker.internal_records import Shown, raw_records, shown
from tests.unit.broker.state_generators import GENERATORS, ask, prepare
from tests.unit.broker.test_internal_topics import find

OFFSETS: Final = "__consumer_offsets"
TRANSACTIONS: Final = "__transaction_state"
SHARE_STATE: Final = "__share_group_state"
KINDS: Final[dict[ApiKey, tuple[str, set[str]]]] = {
    ApiKey.OFFSET_COMMIT: (OFFSETS, {"offset_commit"}),
    ApiKey.SYNC_GROUP: (OFFSETS, {"group_metadata"}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        OFFSETS,
        {
            "consumer_group_metadata",
            "consumer_group_member_metadata",
            "consumer_group_current_member_assignment",
            "consumer_group_target_assignment_metadata",
            "consumer_group_target_assignment_member",
        },
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: (
        OFFSETS,
        {
            "share_group_metadata",
            "share_group_member_metadata",
            "share_group_current_member_assignment",
            "share_group_target_assignment_metadata",
            "share_group_target_assignment_member",
        },
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (
        OFFSETS,
        {
            "streams_group_metadata",
            "streams_group_member_metadata",
            "streams_group_current_member_assignment",
            "streams_group_target_assignment_metadata",
            "streams_group_topology",
        },
    ),
    ApiKey.SHARE_FETCH: (SHARE_STATE, {"share_snapshot"}),
    ApiKey.INIT_PRODUCER_ID: (TRANSACTIONS, {"transaction_log"}),
    ApiKey.ADD_PARTITIONS_TO_TXN: (TRANSACTIONS, {"transaction_log"}),
    ApiKey.ADD_OFFSETS_TO_TXN: (TRANSACTIONS, {"transaction_log"}),
}


@pytest.mark.parametrize("api_key", KINDS, ids=lambda api_key: api_key.name)
def test_records_that_changes_write_equal_those_that_a_comparison_writes(
    harness: BrokerHarness, api_key: ApiKey
) -> None:
    """Each record is deleted with its subject, so a rewritten topic has no record of a deleted subject."""
    topic, kinds = KINDS[api_key]
    prepare(harness)
    for key_type in (0, 1):
        find(harness, key_type)
    harness.broker.auto_creation.require_internal(SHARE_STATE)
    harness.broker.auto_creation.wait()
    for number in range(2):
        GENERATORS[api_key](harness, number)
    found = shown(harness, topic)
    assert {each.kind for each in found.values()} >= kinds
    before = len(raw_records(harness, topic))
    for projection in harness.broker.internal_topics._projections.values():
        projection.compare_again()
    assert shown(harness, topic) == found
    assert len(raw_records(harness, topic)) == before
    tables = ("offsets", "groups", "group_members", "consumer_groups", "consumer_group_members", "share_groups")
    tables += ("consumer_group_targets", "share_group_members", "streams_groups", "streams_group_members")
    tables += ("streams_group_targets", "transactions", "added_partitions", "share_partitions")
    harness.broker.store.write_and_wait([(f"DELETE FROM {table}", ()) for table in tables])
    assert shown(harness, topic) == {}


def of_kind(harness: BrokerHarness, kind: str, topic: str = OFFSETS) -> Sequence[Shown]:
    return [each for each in shown(harness, topic).values() if each.kind == kind]


def test_a_consumer_group_is_written_as_it_is_described(harness: BrokerHarness) -> None:
    topic_id = harness.create_topic("t", 3)
    find(harness)
    joined = ask(
        harness,
        ConsumerGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
        ),
        1,
    )
    described = harness.call(ConsumerGroupDescribeRequest(["g"]), 1).groups[0]
    (group,) = of_kind(harness, "consumer_group_metadata")
    assert (group.key, group.value["epoch"]) == (("g",), described.group_epoch)
    (target,) = of_kind(harness, "consumer_group_target_assignment_metadata")
    assert target.value["assignment_epoch"] == described.assignment_epoch
    (member,) = described.members
    (metadata,) = of_kind(harness, "consumer_group_member_metadata")
    assert metadata.key == ("g", "m")
    assert metadata.value == {
        "instance_id": None,
        "rack_id": None,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": member.subscribed_topic_regex or "",
        "rebalance_timeout_ms": 1000,
        "server_assignor": None,
        "classic_member_metadata": None,
    }
    (current,) = of_kind(harness, "consumer_group_current_member_assignment")
    assert current.value == {
        "member_epoch": joined.member_epoch,
        "previous_member_epoch": 0,
        "state": 0,
        "assigned_partitions": [
            {"topic_id": topic_id, "partitions": [0, 1, 2], "assignment_epochs": [joined.member_epoch] * 3}
        ],
        "partitions_pending_revocation": [],
    }
    (of_target,) = of_kind(harness, "consumer_group_target_assignment_member")
    assert of_target.value == {"topic_partitions": [{"topic_id": topic_id, "partitions": [0, 1, 2]}]}
    ask(harness, ConsumerGroupHeartbeatRequest("g", "m", -1), 1)
    assert of_kind(harness, "consumer_group_member_metadata") == []
    assert of_kind(harness, "consumer_group_current_member_assignment") == []


def test_a_share_group_is_written_as_it_is_described(harness: BrokerHarness) -> None:
    topic_id = harness.create_topic("t", 2)
    find(harness)
    ask(harness, ShareGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=["t"]), 1)
    described = harness.call(ShareGroupDescribeRequest(["g"]), 1).groups[0]
    (group,) = of_kind(harness, "share_group_metadata")
    assert group.value["epoch"] == described.group_epoch
    (metadata,) = of_kind(harness, "share_group_member_metadata")
    (member,) = described.members
    assert (metadata.key, metadata.value["client_host"]) == (("g", "m"), member.client_host)
    assert metadata.value["subscribed_topic_names"] == ["t"]
    (current,) = of_kind(harness, "share_group_current_member_assignment")
    assert current.value["member_epoch"] == member.member_epoch
    assert current.value["assigned_partitions"] == [{"topic_id": topic_id, "partitions": [0, 1]}]


def test_a_streams_group_is_written_as_it_is_described(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    find(harness)
    request = StreamsGroupHeartbeatRequest(
        "g",
        "m",
        0,
        rebalance_timeout_ms=1000,
        topology=Topology(7, [Subtopology("0", ["t"])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="process",
        client_tags=[],
    )
    joined = ask(harness, request, 0)
    harness.advance_ms(3001)
    ask(harness, StreamsGroupHeartbeatRequest("g", "m", joined.member_epoch), 0)
    described = harness.call(StreamsGroupDescribeRequest(["g"]), 0).groups[0]
    (group,) = of_kind(harness, "streams_group_metadata")
    assert (group.value["epoch"], group.value["validated_topology_epoch"]) == (described.group_epoch, 7)
    (topology,) = of_kind(harness, "streams_group_topology")
    assert topology.value["epoch"] == 7
    assert [each["source_topics"] for each in topology.value["subtopologies"]] == [["t"]]
    (current,) = of_kind(harness, "streams_group_current_member_assignment")
    assert [(each["subtopology_id"], each["partitions"]) for each in current.value["active_tasks"]] == [("0", [0, 1])]
    (member,) = of_kind(harness, "streams_group_member_metadata")
    assert (member.value["process_id"], member.value["topology_epoch"]) == ("process", 7)


def test_a_transaction_is_written_as_it_is_described(harness: BrokerHarness) -> None:
    prepare(harness)
    find(harness, 1)
    GENERATORS[ApiKey.ADD_PARTITIONS_TO_TXN](harness, 0)

    def compare() -> Any:
        (record,) = of_kind(harness, "transaction_log", TRANSACTIONS)
        (transactional_id,) = record.key
        state = harness.call(DescribeTransactionsRequest([transactional_id]), 0).transaction_states[0]
        value = record.value
        assert [*TransactionState][value["transaction_status"]].value == state.transaction_state
        assert (value["producer_id"], value["producer_epoch"]) == (state.producer_id, state.producer_epoch)
        assert value["transaction_start_timestamp_ms"] == state.transaction_start_time_ms
        partitions = {each["topic"]: each["partition_ids"] for each in value["transaction_partitions"] or ()}
        assert partitions == {each.topic: sorted(each.partitions) for each in state.topics}
        return value, state

    ongoing, state = compare()
    assert (state.transaction_state, len(ongoing["transaction_partitions"][0]["partition_ids"])) == ("Ongoing", 100)
    ask(harness, InitProducerIdRequest("partitions-0", 1000), 4)
    compare()


def test_a_share_heartbeat_creates_the_topic_of_share_group_states(harness: BrokerHarness) -> None:
    ask(harness, ShareGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=["t"]), 1)
    harness.broker.auto_creation.wait()
    assert harness.broker.topics.get(SHARE_STATE) is None
    harness.create_topic("t", 2)
    ask(harness, ShareGroupHeartbeatRequest("h", "m", 0, subscribed_topic_names=["t"]), 1)
    harness.broker.auto_creation.wait()
    topic = harness.broker.topics.get(SHARE_STATE)
    assert topic is not None
    assert len(topic.partitions) == 50


def put_share_partition(harness: BrokerHarness, start: int, rows: Sequence[tuple[int, int, int]], end: int) -> None:
    """Write a share partition of group `g` to the store, as a share group does."""
    key = SharePartitionKey("g", b"i" * 16, 3)
    states = [StateRow(first, RecordState(state), count) for first, state, count in rows]
    update = StateUpdate(1, start, end, [(start, end)], states, is_whole=True)
    harness.broker.store.write_and_wait(put(key, update))


def test_the_state_of_a_share_partition_is_written_as_a_snapshot(harness: BrokerHarness) -> None:
    harness.broker.auto_creation.require_internal(SHARE_STATE)
    harness.broker.auto_creation.wait()
    put_share_partition(harness, 10, [(10, 2, 1), (13, 0, 2), (15, 4, 5)], 19)
    (record,) = shown(harness, SHARE_STATE).values()
    assert (record.kind, record.key, record.version) == ("share_snapshot", ("g", b"i" * 16, 3), 0)
    assert (record.value["start_offset"], record.value["delivery_complete_count"]) == (10, 3 + 5)
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    assert [tuple(each[name] for name in names) for each in record.value["state_batches"]] == [
        (10, 12, 2, 1),
        (13, 14, 0, 2),
        (15, 19, 4, 5),
    ]
    put_share_partition(harness, 20, [], 19)
    (record,) = shown(harness, SHARE_STATE).values()
    assert (record.value["start_offset"], record.value["state_batches"]) == (20, [])


def test_the_topic_of_share_groups_stays_short(harness: BrokerHarness) -> None:
    """The topic is not compacted. Old records are deleted, and the last state of each partition is kept."""
    harness.broker.auto_creation.require_internal(SHARE_STATE)
    harness.broker.auto_creation.wait()
    for offset in range(1100):
        put_share_partition(harness, offset, [], offset - 1)
        harness.broker.internal_topics.catch_up()
    (record,) = shown(harness, SHARE_STATE).values()
    assert record.value["start_offset"] == 1099
    assert len(raw_records(harness, SHARE_STATE)) < 200
