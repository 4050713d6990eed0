"""Tests of ShareFetch and ShareAcknowledge: sessions, waiting, locks, and restarts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.delete_groups import DeleteGroupsRequest
from klamm.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from klamm.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from klamm.wire.messages.list_groups import ListGroupsRequest
from klamm.wire.messages.share_acknowledge import AcknowledgementBatch as Acknowledged
from klamm.wire.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from klamm.wire.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from klamm.wire.messages.share_group_describe import ShareGroupDescribeRequest
from klamm.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from klamm.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from klamm.wire.records import decode_records
from klamm_broker.storage.store import StoreError
from tests.unit.broker.broker_harness import BrokerHarness, Reply
from tests.unit.broker.test_configs import GROUP, alter
from tests.waiting import wait_until

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class Shares:
    """A broker with one topic, and a share group that reads the topic from its start."""

    def __init__(self, path: Path) -> None:
        self.group = "g"
        self.harness = BrokerHarness(path)
        self.harness.open()
        self.topic_id = self.harness.create_topic("t", 2)
        assert alter(self.harness, GROUP, "g", ("share.auto.offset.reset", 0, "earliest")) == 0
        assert self.join("a").error_code == 0

    def settle(self) -> None:
        """Let the store confirm its writes, and run everything that follows."""
        for _ in range(3):
            self.harness.broker.store.write_and_wait([])

    def ask(self, request: Any, version: int = 1) -> Any:
        reply = self.harness.send(request, version)
        self.settle()
        return reply.response

    def join(self, member: str, epoch: int = 0, group: str = "g") -> Any:
        return self.ask(ShareGroupHeartbeatRequest(group, member, epoch, None, ["t"] if epoch == 0 else None))

    def send_fetch(
        self,
        member: str,
        epoch: int,
        *acknowledged: tuple[int, int, list[int]],
        wait_ms: int = 0,
        **fields: Any,
    ) -> Reply:
        batches = [AcknowledgementBatch(*each) for each in acknowledged]
        topics = [FetchTopic(self.topic_id, [FetchPartition(0, acknowledgement_batches=batches)])]
        fields = {"max_records": 500, "topics": topics} | fields
        return self.harness.send(ShareFetchRequest(self.group, member, epoch, wait_ms, 1, **fields), 2)

    def fetch(self, member: str, epoch: int, *acknowledged: tuple[int, int, list[int]], **fields: Any) -> Any:
        reply = self.send_fetch(member, epoch, *acknowledged, **fields)
        self.settle()
        return reply.response

    def acquired(self, member: str, epoch: int, *acknowledged: Any, **fields: Any) -> list[tuple[int, int, int]]:
        return acquired(self.fetch(member, epoch, *acknowledged, **fields))

    def acknowledge(self, member: str, epoch: int, *batches: tuple[int, int, list[int]], renew: bool = False) -> Any:
        partitions = [AcknowledgePartition(0, [Acknowledged(*each) for each in batches])]
        topics = [AcknowledgeTopic(self.topic_id, partitions)]
        return self.ask(ShareAcknowledgeRequest(self.group, member, epoch, is_renew_ack=renew, topics=topics), 2)

    def offsets(self, group: str = "g") -> dict[int, tuple[int, int]]:
        """Return start offset and lag by partition."""
        request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
        (described,) = self.ask(request, 1).groups
        return {
            each.partition_index: (each.start_offset, each.lag)
            for topic in described.topics
            for each in topic.partitions
        }

    def hold_the_store(self) -> threading.Event:
        """Hold all writes until the event is set."""
        held, goes_on = threading.Event(), threading.Event()

        def hold(_error: object) -> None:
            held.set()
            assert goes_on.wait(30)

        self.harness.broker.store.submit((), hold)
        assert held.wait(30)
        return goes_on

    def saved_partitions(self) -> int:
        """Return how many share partitions the store has."""
        (row,) = self.harness.broker.store.read("SELECT COUNT(*) FROM share_partitions")
        return int(row[0])

    def produce(self, *values: bytes) -> None:
        assert self.harness.produce("t", *values).error_code == 0


def acquired(response: Any) -> list[tuple[int, int, int]]:
    assert response.error_code == 0
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def test_a_member_gets_records_once_and_another_member_gets_released_ones(shares: Shares) -> None:
    shares.produce(b"0", b"1")
    shares.produce(b"2")
    response = shares.fetch("a", 0)
    assert acquired(response) == [(0, 2, 1)]
    data = response.responses[0].partitions[0].records
    assert [record.value for record in decode_records(memoryview(data))][:2] == [b"0", b"1"]
    assert shares.acquired("b", 0) == []
    assert shares.acquired("a", 1, (0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [REJECT])) in ([], [(1, 1, 2)])
    assert shares.offsets()[0] == (1, 1)


def test_a_fetch_waits_for_an_append_and_for_a_release(shares: Shares) -> None:
    waiting = shares.send_fetch("a", 0, wait_ms=10_000)
    assert waiting.pending
    shares.produce(b"0", b"1")
    shares.settle()
    assert acquired(waiting.response) == [(0, 1, 1)]
    other = shares.send_fetch("b", 0, wait_ms=10_000)
    assert other.pending
    shares.acknowledge("a", 1, (1, 1, [RELEASE]))
    assert acquired(other.response) == [(1, 1, 2)]
    late = shares.send_fetch("b", 1, wait_ms=500)
    shares.harness.advance_ms(499)
    assert late.pending
    shares.harness.advance_ms(1)
    assert acquired(late.response) == []


def test_locks_end_and_deliveries_are_limited(shares: Shares) -> None:
    shares.produce(b"0")
    for epoch in range(5):
        assert shares.acquired("a", epoch) == [(0, 0, epoch + 1)]
        shares.harness.advance_ms(29_999)
        assert shares.acquired("b", 0) == []
        shares.harness.advance_ms(1)
        shares.settle()
        shares.join("a", 2)
    assert shares.acquired("a", 5) == []
    assert shares.offsets()[0] == (1, 0)


def test_a_lock_can_be_extended(shares: Shares) -> None:
    shares.produce(b"0", b"1")
    assert shares.acquired("a", 0) == [(0, 1, 1)]
    shares.harness.advance_ms(20_000)
    assert shares.acknowledge("a", 1, (0, 0, [RENEW]), renew=True).responses[0].partitions[0].error_code == 0
    shares.harness.advance_ms(10_000)
    shares.settle()
    assert shares.acquired("b", 0) == [(1, 1, 2)]
    assert alter(shares.harness, GROUP, "g", ("share.renew.acknowledge.enable", 0, "false")) == 0
    answer = shares.acknowledge("a", 2, (0, 0, [RENEW]), renew=True).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.INVALID_RECORD_STATE


def test_share_sessions_have_epochs(shares: Shares) -> None:
    assert shares.fetch("a", 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert shares.fetch("a", -1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert shares.fetch("a", 0, (0, 0, [ACCEPT])).error_code == ErrorCode.INVALID_REQUEST
    assert shares.fetch("a", 0).error_code == 0
    assert shares.fetch("a", 2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert shares.acknowledge("a", 0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert shares.acknowledge("a", 1).error_code == 0
    assert shares.fetch("a", 2).error_code == 0
    assert shares.fetch("a", 3, is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST
    assert shares.fetch("a", -1).error_code == 0
    assert shares.fetch("a", 3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_the_number_of_share_sessions_is_limited(tmp_path: Path) -> None:
    shares = Shares(tmp_path)
    shares.harness.reopen(group_share_max_share_sessions=1)
    assert shares.fetch("a", 0).error_code == 0
    assert shares.fetch("b", 0).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert shares.fetch("a", 0).error_code == 0
    shares.harness.broker.close()


@pytest.mark.parametrize("topics", [{}, {"topics": []}], ids=["topics", "no topics"])
def test_sessions_of_groups_that_do_not_exist_take_no_room(tmp_path: Path, topics: dict[str, Any]) -> None:
    shares = Shares(tmp_path)
    shares.harness.reopen(group_share_max_share_sessions=2)
    for number in range(3):
        shares.group = f"invented-{number}"
        answer = shares.fetch("a", 0, **topics)
        found = [each.error_code for topic in answer.responses for each in topic.partitions]
        assert (answer.error_code, set(found)) == (0, set() if topics else {ErrorCode.GROUP_ID_NOT_FOUND})
        assert shares.fetch("a", 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert len(shares.harness.broker.shares.sessions) == 0
    shares.group = "g"
    assert shares.fetch("a", 0).error_code == 0
    assert shares.fetch("a", 1).error_code == 0
    shares.harness.broker.close()


@pytest.mark.parametrize("way", ["session", "connection", "member", "fenced"])
def test_records_of_a_member_are_released_when_it_leaves(shares: Shares, way: str) -> None:
    shares.produce(b"0")
    assert shares.acquired("a", 0) == [(0, 0, 1)]
    if way == "session":
        shares.fetch("a", -1)
    elif way == "connection":
        reply = shares.send_fetch("a", 1)
        context = shares.harness.context(reply, 78, 2)
        shares.harness.broker.connection_closed(context.connection)
    elif way == "member":
        assert shares.join("a", -1).error_code == 0
    else:
        assert alter(shares.harness, GROUP, "g", ("share.record.lock.duration.ms", 0, "60000")) == 0
        shares.harness.advance_ms(45_000)
    waiting = shares.send_fetch("b", 0, wait_ms=10_000)
    wait_until(lambda: not waiting.pending)
    assert acquired(waiting.response) == [(0, 0, 2)]


def test_acknowledgements_survive_a_restart(shares: Shares) -> None:
    shares.produce(b"0", b"1", b"2", b"3")
    assert shares.acquired("a", 0) == [(0, 3, 1)]
    shares.acknowledge("a", 1, (0, 0, [ACCEPT]), (2, 2, [REJECT]), (3, 3, [RELEASE]))
    shares.harness.reopen()
    assert shares.offsets()[0] == (1, 2)
    assert shares.join("a", 2).error_code == 0
    assert shares.acquired("a", 0) == [(1, 1, 1), (3, 3, 2)]


def test_acknowledgements_survive_if_a_log_cannot_be_opened_at_the_start(shares: Shares) -> None:
    shares.produce(b"0", b"1", b"2", b"3")
    assert shares.acquired("a", 0) == [(0, 3, 1)]
    shares.acknowledge("a", 1, (0, 0, [ACCEPT]), (2, 2, [REJECT]), (3, 3, [RELEASE]))
    shares.settle()
    shares.harness.broker.close()
    directory = shares.harness.data_dir / "t-0"
    aside = directory.rename(directory.with_name("aside"))
    directory.write_text("no directory")
    shares.harness.open()
    assert shares.join("a", 2).error_code == 0
    directory.unlink()
    aside.rename(directory)
    assert shares.acquired("a", 0) == [(1, 1, 1), (3, 3, 2)]


def test_acknowledgements_survive_even_if_the_group_could_not_be_written(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start deletes the read positions of groups that do not exist."""

    def fail(statements: Any, *, sync: bool) -> None:
        raise StoreError("disk full")

    shares.group = "late"
    assert alter(shares.harness, GROUP, "late", ("share.auto.offset.reset", 0, "earliest")) == 0
    shares.produce(b"0", b"1")
    with monkeypatch.context() as patch:
        patch.setattr(shares.harness.broker.store, "transact", fail)
        reply = shares.harness.send(ShareGroupHeartbeatRequest("late", "a", 0, None, ["t"]), 1)
        with pytest.raises(StoreError):
            shares.settle()
        assert reply.response.error_code == ErrorCode.NOT_COORDINATOR
    assert shares.acquired("a", 0) == [(0, 1, 1)]
    shares.acknowledge("a", 1, (0, 0, [ACCEPT]))
    shares.harness.reopen()
    assert shares.join("a", group="late").error_code == 0
    assert shares.acquired("a", 0) == [(1, 1, 1)]


def test_records_at_offsets_that_the_log_lost_in_a_crash_are_delivered(shares: Shares) -> None:
    for value in b"012345":
        shares.produce(bytes([value]))
    assert shares.acquired("a", 0) == [(0, 5, 1)]
    shares.acknowledge("a", 1, (0, 3, [RELEASE]), (4, 5, [ACCEPT]))
    shares.settle()
    shares.harness.broker.close()
    # A power cut: the log has lost records that the store knows as acknowledged.
    (file,) = (shares.harness.data_dir / "t-0").glob("*.log")
    (shares.harness.data_dir / ".kafka_cleanshutdown").unlink()
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 6 * 4])
    shares.harness.open()
    shares.settle()
    assert shares.offsets()[0] == (0, 4)
    shares.produce(b"new 4")
    shares.produce(b"new 5")
    shares.harness.reopen()
    assert shares.join("a", 2).error_code == 0
    assert shares.acquired("a", 0) == [(0, 3, 2), (4, 5, 1)]


def test_the_start_offset_of_a_group_survives_a_restart(shares: Shares) -> None:
    assert alter(shares.harness, GROUP, "g", ("share.auto.offset.reset", 0, "latest")) == 0
    shares.produce(b"0")
    assert shares.acquired("a", 0) == []
    shares.produce(b"1")
    shares.harness.reopen()
    assert shares.acquired("a", 0) == [(1, 1, 1)]


def test_deleted_records_are_skipped(shares: Shares) -> None:
    shares.produce(b"0", b"1")
    shares.produce(b"2")
    assert shares.acquired("a", 0, max_records=2) == [(0, 1, 1)]
    deletion = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 2)])], 1000)
    assert shares.ask(deletion, 2).topics[0].partitions[0].error_code == 0
    assert shares.acquired("b", 0) == [(2, 2, 1)]
    assert shares.acknowledge("a", 1, (0, 1, [ACCEPT])).responses[0].partitions[0].error_code == 0
    assert shares.offsets()[0] == (2, 1)


def test_administrators_move_and_delete_offsets_of_empty_groups(shares: Shares) -> None:
    shares.produce(b"0", b"1", b"2")
    assert shares.acquired("a", 0) == [(0, 2, 1)]
    shares.acknowledge("a", 1, (0, 2, [ACCEPT]))
    assert shares.offsets() == {0: (3, 0), 1: (-1, -1)}
    partitions = [AlterShareGroupOffsetsRequestPartition(0, 1), AlterShareGroupOffsetsRequestPartition(7, 1)]
    back = AlterShareGroupOffsetsRequest("g", [AlterShareGroupOffsetsRequestTopic("t", partitions)])
    forget = DeleteShareGroupOffsetsRequest(
        "g", [DeleteShareGroupOffsetsRequestTopic("t"), DeleteShareGroupOffsetsRequestTopic("none")]
    )
    for request in (back, forget):
        assert shares.ask(request, 0).error_code == ErrorCode.NON_EMPTY_GROUP
    assert shares.ask(DeleteGroupsRequest(["g"]), 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert shares.join("a", -1).error_code == 0
    answered = shares.ask(back, 0).responses[0].partitions
    assert [each.error_code for each in answered] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    shares.harness.reopen()
    assert shares.offsets()[0] == (1, 2)
    answered = shares.ask(forget, 0).responses
    assert [each.error_code for each in answered] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert shares.offsets() == {}
    assert shares.ask(DeleteGroupsRequest(["g"]), 2).results[0].error_code == 0
    assert shares.ask(ShareGroupDescribeRequest(["g"])).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    shares.harness.reopen()
    assert shares.ask(ListGroupsRequest([], ["share"]), 5).groups == []


def test_an_altered_offset_stays_even_if_records_are_released_meanwhile(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares.produce(b"0", b"1", b"2")
    assert shares.acquired("b", 0) == [(0, 2, 1)]
    assert shares.join("a", -1).error_code == 0
    store, (live,) = shares.harness.broker.store, shares.harness.broker.shares.of_group("g")
    write_and_wait = store.write_and_wait

    def then_release(statements: Any) -> None:
        write_and_wait(statements)
        live.release("b")

    partitions = [AlterShareGroupOffsetsRequestPartition(0, 2)]
    request = AlterShareGroupOffsetsRequest("g", [AlterShareGroupOffsetsRequestTopic("t", partitions)])
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_and_wait", then_release)
        assert shares.ask(request, 0).responses[0].partitions[0].error_code == 0
    shares.harness.reopen()
    assert shares.offsets()[0] == (2, 1)


def test_a_group_stays_if_its_deletion_cannot_be_written(shares: Shares) -> None:
    assert shares.join("a", -1).error_code == 0
    store = shares.harness.broker.store
    store.write_and_wait(
        [("CREATE TRIGGER refuse BEFORE DELETE ON share_groups BEGIN SELECT RAISE(ABORT, 'refused'); END", ())]
    )
    assert shares.ask(DeleteGroupsRequest(["g"]), 2).results[0].error_code == ErrorCode.NOT_COORDINATOR
    store.write_and_wait([("DROP TRIGGER refuse", ())])
    shares.harness.broker.groups.offsets.expire()
    shares.settle()
    (group,) = shares.ask(ListGroupsRequest([], ["share"]), 5).groups
    assert group.group_id == "g"
    assert shares.ask(DeleteGroupsRequest(["g"]), 2).results[0].error_code == 0
    assert shares.ask(ListGroupsRequest([], ["share"]), 5).groups == []


def test_a_group_that_gets_a_member_while_it_is_deleted_stays_until_it_is_deleted_again(shares: Shares) -> None:
    assert shares.join("a", -1).error_code == 0
    goes_on = shares.hold_the_store()
    replies = [
        shares.harness.send(DeleteGroupsRequest(["g"]), 2),
        shares.harness.send(ShareGroupHeartbeatRequest("g", "b", 0, None, ["t"]), 1),
        shares.harness.send(ShareGroupHeartbeatRequest("g", "b", -1, None, None), 1),
    ]
    goes_on.set()
    shares.settle()
    assert not any(reply.pending for reply in replies)
    shares.harness.broker.groups.offsets.expire()
    shares.settle()
    assert [each.group_id for each in shares.ask(ListGroupsRequest([], ["share"]), 5).groups] == ["g"]


def test_a_fetch_while_its_group_is_deleted_leaves_nothing(shares: Shares) -> None:
    shares.produce(b"0")
    assert shares.join("a", -1).error_code == 0
    goes_on = shares.hold_the_store()
    deletion = shares.harness.send(DeleteGroupsRequest(["g"]), 2)
    fetch = shares.send_fetch("a", 0)
    goes_on.set()
    shares.settle()
    assert deletion.response.results[0].error_code == 0
    assert not fetch.pending
    assert shares.saved_partitions() == 0


def test_a_fetch_that_finds_its_group_deleted_midway_leaves_nothing(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares.produce(b"0")
    assert shares.join("a", -1).error_code == 0
    partitions = shares.harness.broker.shares
    get_or_create = partitions.get_or_create

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(partitions, "get_or_create", get_or_create)
        assert shares.ask(DeleteGroupsRequest(["g"]), 2).results[0].error_code == 0
        return get_or_create(*arguments)

    monkeypatch.setattr(partitions, "get_or_create", late)
    (partition,) = shares.fetch("a", 0).responses[0].partitions
    assert partition.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert partitions.all() == []
    assert shares.saved_partitions() == 0


def test_the_state_of_a_group_that_does_not_exist_is_removed_at_a_start(shares: Shares) -> None:
    shares.produce(b"0")
    assert shares.acquired("a", 0) == [(0, 0, 1)]
    assert shares.saved_partitions() == 1
    shares.harness.broker.store.write_and_wait([("DELETE FROM share_groups", ())])
    shares.harness.reopen()
    shares.settle()
    assert shares.harness.broker.shares.all() == []
    assert shares.saved_partitions() == 0


def test_a_fetch_that_waits_ends_when_its_group_is_deleted(shares: Shares) -> None:
    waiting = shares.send_fetch("a", 0, wait_ms=10_000)
    assert shares.join("a", -1).error_code == 0
    assert waiting.pending
    assert shares.ask(DeleteGroupsRequest(["g"]), 2).results[0].error_code == 0
    (partition,) = waiting.response.responses[0].partitions
    assert partition.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_fetch_that_waits_ends_when_its_groups_offsets_are_deleted(shares: Shares) -> None:
    waiting = shares.send_fetch("a", 0, wait_ms=10_000)
    assert shares.join("a", -1).error_code == 0
    assert waiting.pending
    deleted = shares.ask(DeleteShareGroupOffsetsRequest("g", [DeleteShareGroupOffsetsRequestTopic("t")]), 0)
    assert deleted.error_code == 0
    (partition,) = waiting.response.responses[0].partitions
    assert partition.error_code == 0


def test_overlapping_batches_of_acknowledgements_are_refused(shares: Shares) -> None:
    shares.produce(*[b"v"] * 5)
    assert shares.acquired("a", 0) == [(0, 4, 1)]
    for epoch, (second, code) in enumerate(
        [((2, 3, [ACCEPT]), ErrorCode.INVALID_RECORD_STATE), ((1, 3, [ACCEPT]), ErrorCode.INVALID_REQUEST)], 1
    ):
        (partition,) = shares.acknowledge("a", epoch, (0, 2, [ACCEPT]), second).responses[0].partitions
        assert partition.error_code == code
    (partition,) = shares.acknowledge("a", 3, (0, 2, [ACCEPT]), (3, 4, [ACCEPT])).responses[0].partitions
    assert partition.error_code == 0


def test_requests_are_counted_once_for_each_topic(shares: Shares) -> None:
    shares.produce(b"0", b"1")
    topic = shares.harness.broker.topics.get("t")
    assert topic is not None
    traffic = topic.traffic
    shares.fetch("a", 0)
    assert (traffic.share_fetch_requests, traffic.share_acknowledgement_requests) == (1, 0)
    shares.fetch("a", 1, (0, 0, [ACCEPT]))
    shares.acknowledge("a", 2, (1, 1, [ACCEPT]))
    assert (traffic.share_fetch_requests, traffic.share_acknowledgement_requests) == (2, 2)
    assert traffic.failed_share_acknowledgement_requests == 0
    shares.acknowledge("a", 3, (5, 5, [ACCEPT]))
    assert (traffic.share_acknowledgement_requests, traffic.failed_share_acknowledgement_requests) == (3, 1)
    waiting = shares.send_fetch("a", 4, wait_ms=10_000)
    topic.partitions[0].leadership = topic.partitions[0].leadership._replace(leader_id=7)
    topic.partitions[0].wake_fetches()
    assert not waiting.pending
    assert traffic.failed_share_fetch_requests == 1


def test_a_fetch_that_waits_ends_when_the_leader_moves(shares: Shares) -> None:
    waiting = shares.send_fetch("a", 0, wait_ms=10_000)
    shares.settle()
    assert waiting.pending
    topic = shares.harness.broker.topics.get("t")
    assert topic is not None
    moved, other = topic.partitions
    other.wake_fetches()
    assert waiting.pending
    moved.leadership = moved.leadership._replace(leader_id=moved.leadership.leader_id + 1, epoch=5)
    moved.wake_fetches()
    (partition,) = waiting.response.responses[0].partitions
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 5)


def test_members_share_partitions_and_groups_are_described(shares: Shares) -> None:
    (group,) = shares.ask(ListGroupsRequest([], ["share"]), 5).groups
    assert (group.group_id, group.protocol_type, group.group_state) == ("g", "share", "Stable")
    for member in ("b", "c"):
        assert shares.join(member).error_code == 0
    (described,) = shares.ask(ShareGroupDescribeRequest(["g"])).groups
    assert (described.group_state, described.assignor_name, len(described.members)) == ("Stable", "simple", 3)
    for member in ("a", "b", "c"):
        epoch = next(each.member_epoch for each in described.members if each.member_id == member)
        assert shares.join(member, epoch).member_epoch == described.group_epoch
    (described,) = shares.ask(ShareGroupDescribeRequest(["g"])).groups
    given = [
        index
        for member in described.members
        for topic in member.assignment.topic_partitions
        for index in topic.partitions
    ]
    assert set(given) == {0, 1}
    assert len(given) >= 3, "each member has one"
    assert shares.join("a", 99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert shares.join("x", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shares.join("a", 3, "other").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_share_groups_can_be_switched_off(shares: Shares) -> None:
    off = UpdateFeaturesRequest(1000, [FeatureUpdateKey("share.version", 0, upgrade_type=2)])
    assert shares.ask(off, 1).error_code == 0
    assert shares.join("a").error_code == ErrorCode.UNSUPPORTED_VERSION
    assert shares.fetch("a", 0).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_acknowledgement_after_a_failed_write_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shares = Shares(tmp_path)
    shares.produce(b"1")
    shares.produce(b"2")
    assert [each[:2] for each in shares.acquired("a", 0)] == [(0, 1)]
    store = shares.harness.broker.store
    transact, refused = store.transact, list[Any]()

    def fail_first(statements: Any, *, sync: bool) -> None:
        refused.extend(statements[: not refused])
        if any(each is refused[0] for each in statements if refused):
            raise StoreError("disk full")
        transact(statements, sync=sync)

    goes_on = shares.hold_the_store()
    monkeypatch.setattr(store, "transact", fail_first)
    first = shares.send_fetch("a", 1, (0, 0, [ACCEPT]))
    second = shares.send_fetch("a", 2, (1, 1, [ACCEPT]))
    goes_on.set()
    shares.settle()
    codes = [each.response.responses[0].partitions[0].acknowledge_error_code for each in (first, second)]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    shares.harness.broker.close()


def test_an_acknowledgement_during_the_deletion_of_its_topic_is_answered(shares: Shares) -> None:
    """The request has found the partition before the partition is closed."""
    shares.produce(b"0")
    assert shares.acquired("a", 0) == [(0, 0, 1)]
    (live,) = shares.harness.broker.shares.of_group("g")
    live.close()
    (topic,) = shares.acknowledge("a", 1, (0, 0, [ACCEPT])).responses
    assert topic.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
