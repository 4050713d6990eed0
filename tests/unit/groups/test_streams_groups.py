"""Tests of streams groups as members and administrators see them: epochs, topology, statuses, offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from groups_playbook import GROUP, Playbook, topic_id, unlimited
from streams_members import (
    COUNTS_T,
    FIRST,
    READS_T,
    InternalTopics,
    StreamsClient,
    active,
    settle,
    tasks,
)

from klamm import ErrorCode, KafkaError
from klamm_broker.configs.group_config_keys import (
    STREAMS_ASSIGNMENT_INTERVAL,
    STREAMS_INITIAL_REBALANCE_DELAY,
    STREAMS_NUM_STANDBY_REPLICAS,
    STREAMS_RACK_AWARE_TAGS,
)
from klamm_broker.groups.group import GroupLedgers
from klamm_broker.groups.offsets import PartitionCommit
from klamm_broker.groups.streams.requests import Endpoint, StatusCode
from klamm_broker.groups.streams.tasks import NONE, Tasks
from klamm_broker.groups.streams.topology import CopartitionGroup, Subtopology, Topology
from klamm_broker.limits.ledger import Ledger
from klamm_broker.storage.store import StoreError

TWO_TOPICS = Topology(0, (Subtopology("0", ("t", "u"), copartition_groups=(CopartitionGroup((0, 1)),)),))


@pytest.fixture
def play(make_playbook: Callable[..., Playbook]) -> Playbook:
    made = make_playbook()
    made.topics.set("t", 4)
    return made


def state(play: Playbook) -> str:
    return play.coordinator.streams.describe(GROUP).group.state


# Members


def test_members_share_the_tasks_and_give_them_back_one_by_one(play: Playbook) -> None:
    a, b = StreamsClient(play, "a"), StreamsClient(play, "b")
    assert a.beat().epoch == FIRST
    assert active(a) == [4]
    assert state(play) == "Stable"
    assert b.beat().assignment == NONE
    assert state(play) == "Reconciling"
    a.beat()
    # The other member does not get a task before the server knows that it was given back.
    assert b.beat().assignment is None
    settle(a, b)
    assert active(a, b) == [2, 2]
    assert (a.epoch, b.epoch, state(play)) == (FIRST + 1, FIRST + 1, "Stable")
    b.leave()
    assert a.beat().assignment == Tasks(tasks(0, 1, 2, 3))
    a.leave()
    assert state(play) == "Empty"


def test_an_answer_that_has_not_changed_names_no_tasks(play: Playbook) -> None:
    a = StreamsClient(play, "a")
    a.beat()
    assert a.beat().assignment is None


def test_the_previous_epoch_is_accepted_once_more(play: Playbook) -> None:
    a = StreamsClient(play, "a")
    a.beat()
    play.topics.set("t", 5)
    a.beat()
    a.epoch -= 1
    assert a.beat(owned=Tasks(tasks(0))).error_code is ErrorCode.NONE
    a.epoch -= 1
    assert a.beat(owned=Tasks(standby=tasks(0))).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.beat(owned=None).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    a.epoch = 9
    result = a.beat()
    assert result.error_code is ErrorCode.FENCED_MEMBER_EPOCH
    assert result.error_message is not None
    assert "greater member epoch (9)" in result.error_message


def test_a_silent_member_is_fenced(play: Playbook) -> None:
    a, b = StreamsClient(play, "a"), StreamsClient(play, "b")
    a.beat()
    settle(a, b)
    play.advance(40_000)
    a.beat()
    play.advance(40_000)
    settle(a)
    assert active(a) == [4]
    assert b.beat().error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_its_tasks_back_is_fenced(play: Playbook) -> None:
    a, b = StreamsClient(play, "a"), StreamsClient(play, "b")
    a.beat()
    b.beat()
    everything = a.owned
    a.beat()
    for _ in range(2):
        play.advance(30_000)
        b.beat()
        known = a.beat(owned=everything).error_code
    assert known is ErrorCode.UNKNOWN_MEMBER_ID
    settle(b)
    assert active(b) == [4]


def test_a_static_member_keeps_its_tasks_for_a_while(play: Playbook) -> None:
    a, b = StreamsClient(play, "a", instance_id="i", process_id="p"), StreamsClient(play, "b")
    a.beat()
    settle(a, b)
    held = a.owned
    again = StreamsClient(play, "a2", instance_id="i", process_id="p")
    assert again.beat().error_code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert a.leave(-2).epoch == -2
    epoch = b.epoch
    assert again.beat().assignment == held
    settle(again, b)
    assert (again.epoch, b.epoch) == (epoch, epoch)
    assert a.beat().error_code is ErrorCode.FENCED_INSTANCE_ID
    assert StreamsClient(play, "c", instance_id="other").leave(-2).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    again.leave(-2)
    play.advance(50_000)
    assert b.beat().error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_is_free_after_its_member_has_given_it_up(play: Playbook) -> None:
    a = StreamsClient(play, "a", instance_id="i")
    a.beat()
    assert StreamsClient(play, "a", instance_id="j").beat().error_code is ErrorCode.NONE
    b = StreamsClient(play, "b", instance_id="i")
    assert b.beat().error_code is ErrorCode.NONE
    b.leave()
    assert StreamsClient(play, "a", instance_id="j").leave().error_code is ErrorCode.NONE
    for instance_id in ("i", "j"):
        assert StreamsClient(play, "c", instance_id=instance_id).beat().error_code is ErrorCode.NONE


def test_a_refused_join_does_not_replace_a_static_member(play: Playbook) -> None:
    a = StreamsClient(play, "a", instance_id="i", process_id="p")
    a.beat()
    held = a.owned
    a.leave(-2)
    other = StreamsClient(
        play, "a2", instance_id="i", process_id="p", topology=Topology(0, (Subtopology("0", ("u",)),))
    )
    for _ in range(2):
        assert other.beat().error_code is ErrorCode.INVALID_REQUEST
    again = StreamsClient(play, "a3", instance_id="i", process_id="p")
    assert again.beat().assignment == held
    again.leave(-2)
    assert other.beat().error_code is ErrorCode.INVALID_REQUEST
    play.advance(50_000)
    assert state(play) == "Empty"


def test_a_member_that_replaces_a_static_member_leaves_its_own_place(play: Playbook) -> None:
    a, b = StreamsClient(play, "a", instance_id="i"), StreamsClient(play, "b")
    settle(a, b)
    a.leave(-2)
    both = StreamsClient(play, "b", instance_id="i")
    settle(both)
    assert active(both) == [4]


def test_the_number_of_members_is_limited(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(group_streams_max_size=1)
    play.topics.set("t", 1)
    a = StreamsClient(play, "a", instance_id="i")
    a.beat()
    assert StreamsClient(play, "b").beat().error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    a.leave(-2)
    assert StreamsClient(play, "a2", instance_id="i").beat().error_code is ErrorCode.NONE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": None}, "ActiveTasks must be empty when (re-)joining."),
        ({"owned": Tasks(standby=tasks(0))}, "StandbyTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"has_partial_tasks": True, "owned": None}, "If one task-type is non-null, all must be non-null."),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"epoch": 1}, "Topology can only be provided when (re-)joining."),
    ],
)
def test_a_refused_request_creates_no_group(play: Playbook, changes: dict[str, Any], message: str) -> None:
    result = StreamsClient(play, "a").beat(**changes)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert not play.coordinator.administration.list_groups()


@pytest.mark.parametrize("epoch", [1, -1])
def test_a_group_that_does_not_exist_or_is_another_is_not_found(play: Playbook, epoch: int) -> None:
    def ask() -> ErrorCode:
        return StreamsClient(play, "a").beat(epoch=epoch, topology=None, owned=None).error_code

    assert ask() is ErrorCode.GROUP_ID_NOT_FOUND
    play.beat("a", 0, topics=["t"], owned={})
    play.settle()
    assert ask() is ErrorCode.GROUP_ID_NOT_FOUND
    assert StreamsClient(play, "a").beat().error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_tasks_that_do_not_exist_are_refused(play: Playbook) -> None:
    a = StreamsClient(play, "a")
    a.beat()
    for wrong in (tasks(4), tasks(-1), tasks(0, subtopology_id="1")):
        assert a.beat(owned=Tasks(wrong)).error_code is ErrorCode.INVALID_REQUEST
    assert a.beat().error_code is ErrorCode.NONE


# Topics


def test_a_group_waits_for_its_topics(play: Playbook) -> None:
    internal = InternalTopics(play)
    internal.refusal = "; Unauthorized to CREATE on topics counts-changelog."
    play.topics.set("t", 0)
    a = StreamsClient(play, "a", topology=COUNTS_T, create_topics=internal)
    (status,) = a.beat(create_topics=internal).statuses
    assert status == (StatusCode.MISSING_SOURCE_TOPICS, "Source topics t are missing.")
    assert (state(play), a.owned) == ("NotReady", NONE)
    play.topics.set("t", 3)
    (status,) = a.beat(create_topics=internal).statuses
    assert status.code is StatusCode.MISSING_INTERNAL_TOPICS
    assert status.detail == "Internal topics are missing: counts-changelog" + internal.refusal
    internal.refusal = ""
    a.beat(create_topics=internal)
    assert a.owned == NONE
    assert a.beat().statuses == []
    assert (a.owned, state(play)) == (Tasks(tasks(0, 1, 2)), "Stable")
    # The changelog does not grow with its source topic.
    play.topics.set("t", 4)
    (status,) = a.beat().statuses
    assert status.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    a.beat()
    assert (a.owned, state(play)) == (NONE, "NotReady")


def test_topics_that_are_read_together_have_equally_many_partitions(play: Playbook) -> None:
    play.topics.set("u", 3)
    a = StreamsClient(play, "a", topology=TWO_TOPICS)
    (status,) = a.beat().statuses
    detail = "Following topics do not have the same number of partitions: [{t=4, u=3}]"
    assert status == (StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_a_member_with_an_older_topology_is_notified(play: Playbook) -> None:
    newer = READS_T._replace(epoch=1)
    a, b = StreamsClient(play, "a", topology=newer), StreamsClient(play, "b")
    a.beat()
    b.beat()
    assert b.statuses == {StatusCode.STALE_TOPOLOGY}
    assert a.statuses == set()
    result = StreamsClient(play, "c", topology=TWO_TOPICS._replace(epoch=2)).beat()
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Topology updates are not supported yet.",
    )


def test_an_invalid_topology_creates_no_group(play: Playbook) -> None:
    broken = Topology(0, (Subtopology("0", ("__consumer_offsets",)),))
    assert StreamsClient(play, "a", topology=broken).beat().error_code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert not play.coordinator.administration.list_groups()


# Assignment


def test_a_new_group_waits_for_more_members(play: Playbook) -> None:
    play.config_values[STREAMS_INITIAL_REBALANCE_DELAY] = 3_000
    a, b = StreamsClient(play, "a"), StreamsClient(play, "b")
    a.beat()
    b.beat()
    assert a.statuses == b.statuses == {StatusCode.ASSIGNMENT_DELAYED}
    assert (a.epoch, a.owned) == (1, NONE)
    play.advance(3_000)
    a.beat()
    b.beat()
    # No member had to give anything back.
    assert active(a, b) == [2, 2]


def test_assignments_are_at_least_an_interval_apart(play: Playbook) -> None:
    play.config_values[STREAMS_ASSIGNMENT_INTERVAL] = 1_000
    a, b = StreamsClient(play, "a"), StreamsClient(play, "b")
    a.beat()
    b.beat()
    assert b.statuses == {StatusCode.ASSIGNMENT_DELAYED}
    assert a.beat().epoch == FIRST
    play.advance(1_000)
    settle(a, b)
    assert active(a, b) == [2, 2]


def test_standby_copies_follow_the_config_and_take_over(play: Playbook) -> None:
    clients = [StreamsClient(play, name, topology=COUNTS_T, create_topics=InternalTopics(play)) for name in "abc"]
    play.topics.set("counts-changelog", 4)
    settle(*clients)
    assert not any(each.owned.standby for each in clients)
    play.config_values[STREAMS_NUM_STANDBY_REPLICAS] = 1
    settle(*clients)
    assert sum(len(each.owned.standby) for each in clients) == 4
    gone, *others = clients
    lost = gone.owned.active
    copies = {task: each for each in others for task in each.owned.standby if task in lost}
    assert copies.keys() == lost
    gone.leave()
    settle(*others)
    assert any(task in each.owned.active for task, each in copies.items())


def test_copies_go_to_other_zones(play: Playbook) -> None:
    play.config_values[STREAMS_NUM_STANDBY_REPLICAS] = 1
    play.config_values[STREAMS_RACK_AWARE_TAGS] = ("zone",)
    zones = {"a": "x", "b": "x", "c": "y", "d": "y"}
    play.topics.set("counts-changelog", 4)
    clients = [StreamsClient(play, name, topology=COUNTS_T, client_tags={"zone": zones[name]}) for name in zones]
    settle(*clients)
    places = [(task, zones[each.member_id]) for each in clients for task in each.owned.active | each.owned.standby]
    assert len(set(places)) == len(places) == 8
    untagged = StreamsClient(play, "e", topology=COUNTS_T)
    untagged.beat()
    assert StatusCode.MISSING_CLIENT_TAGS in untagged.statuses
    untagged.beat(knows_missing_tags=False)
    assert StatusCode.MISSING_CLIENT_TAGS not in untagged.statuses


def test_a_member_that_gives_up_ends_the_application(play: Playbook) -> None:
    a, b = StreamsClient(play, "a"), StreamsClient(play, "b")
    a.beat()
    b.beat()
    a.ask(epoch=-1, owned=None, shuts_down=True)
    b.beat()
    assert b.statuses == {StatusCode.SHUTDOWN_APPLICATION}
    b.leave()
    c = StreamsClient(play, "c")
    c.beat()
    assert c.statuses == set()


def test_endpoints_are_sent_when_they_change(play: Playbook) -> None:
    a, b = StreamsClient(play, "a", endpoint=Endpoint("host", 80)), StreamsClient(play, "b")
    (one,) = a.beat().endpoints or ()
    assert (one.endpoint, one.active, one.standby) == (Endpoint("host", 80), {"t": [0, 1, 2, 3]}, {})
    assert a.beat().endpoints is None
    assert b.beat().endpoints == [one]
    settle(a, b)
    (one,) = b.beat(endpoint_epoch=0).endpoints or ()
    assert len(one.active["t"]) == 2
    a.leave()
    assert b.beat().endpoints == []


# Offsets and administration


def commit(play: Playbook, client: StreamsClient, partition: int, **changes: Any) -> ErrorCode:
    wanted = PartitionCommit("t", partition, 7, topic_id=topic_id("t"))
    (code,) = play.commit(wanted, **{"member_id": client.member_id, "generation_id": client.epoch, **changes})
    return code


def test_members_commit_with_their_epoch_and_for_tasks_that_they_have_kept(play: Playbook) -> None:
    a, b = StreamsClient(play, "a"), StreamsClient(play, "b")
    a.beat()
    assert commit(play, a, 0) is ErrorCode.NONE
    old = a.epoch
    settle(a, b)
    kept = min(partition for _, partition in a.owned.active)
    given = min(partition for _, partition in b.owned.active)
    assert commit(play, a, kept, generation_id=old) is ErrorCode.NONE
    assert commit(play, a, given, generation_id=old) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(play, b, given, generation_id=old) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(play, a, kept, generation_id=a.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(play, a, kept, member_id="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(play, a, kept, knows_member_epochs=False) is ErrorCode.UNSUPPORTED_VERSION
    assert play.coordinator.offsets.check_fetch(GROUP, "a", a.epoch) is ErrorCode.NONE
    assert play.coordinator.offsets.check_fetch(GROUP, "a", old) is ErrorCode.STALE_MEMBER_EPOCH
    assert play.coordinator.offsets.check_fetch(GROUP, "x", old) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.coordinator.offsets.check_fetch(GROUP, None, -1) is ErrorCode.NONE


def test_a_topology_that_is_too_large_creates_no_group(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(group_max_bytes=2_000)
    play.topics.set("t", 5)
    large = READS_T._replace(
        subtopologies=tuple(each._replace(subtopology_id="s" * 2_000) for each in READS_T.subtopologies)
    )
    assert StreamsClient(play, "a", topology=large).beat().error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert play.coordinator.administration.list_groups() == []
    assert StreamsClient(play, "a").beat().error_code is ErrorCode.NONE


def test_groups_are_listed_deleted_and_replaced_when_they_are_empty(play: Playbook) -> None:
    a = StreamsClient(play, "a")
    a.beat()
    (listed,) = play.coordinator.administration.list_groups(types=["Streams"])
    assert (listed.protocol_type, listed.state, listed.group_type) == ("streams", "Stable", "streams")
    assert play.ask_join().result.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    a.leave()
    # A member of another kind takes over the group with its offsets, and back.
    promised = play.promised_id()
    assert play.coordinator.administration.list_groups()[0].group_type == "classic"
    play.coordinator.leave(GROUP, [], lambda _: None)
    assert promised
    with pytest.raises(KafkaError):
        play.coordinator.streams.describe(GROUP)
    again = StreamsClient(play, "b")
    assert again.beat().error_code is ErrorCode.NONE
    play.restart()
    assert play.coordinator.administration.list_groups()[0].group_type == "streams"


def test_offsets_that_members_report_are_described_for_their_tasks(play: Playbook) -> None:
    a = StreamsClient(play, "a")
    a.beat()
    a.beat(offsets={("0", 1): 5, ("9", 9): 5}, end_offsets={("0", 1): 8})
    a.beat(offsets={("0", 1): 6})
    (described,) = play.coordinator.streams.describe(GROUP).offsets.values()
    assert (described.offsets, described.end_offsets) == ({("0", 1): 6}, {("0", 1): 8})


# Limits and the store


def test_a_topology_and_members_have_limits(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(group_max_bytes=100)
    play.topics.set("t", 1)
    large = Topology(0, (Subtopology("0", ("t",), repartition_sink_topics=("x" * 100,)),))
    assert StreamsClient(play, "a", topology=large).beat().error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    a = StreamsClient(play, "a")
    a.beat()
    assert a.beat(client_tags={"k": "v" * 100}).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_memory_of_a_group_is_counted_and_released(make_playbook: Callable[..., Playbook]) -> None:
    def scarce() -> GroupLedgers:
        members = Ledger("group members", 30_000, error=ErrorCode.GROUP_MAX_SIZE_REACHED)
        return unlimited()._replace(members=members)

    play = make_playbook(make_ledgers=scarce)
    play.topics.set("t", 4)
    joined = [StreamsClient(play, f"m{number}") for number in range(8)]
    codes = [each.beat().error_code for each in joined]
    assert ErrorCode.GROUP_MAX_SIZE_REACHED in codes
    known = [each for each, code in zip(joined, codes, strict=True) if code is ErrorCode.NONE]
    settle(*known)
    used = play.ledgers.members.used
    play.restart()
    assert play.ledgers.members.used == used
    for each in known:
        each.leave()
    play.coordinator.administration.delete_groups([GROUP], lambda _: None)
    play.settle()
    assert play.ledgers.members.used == 0


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_members_continue_after_a_restart(play: Playbook, end: str) -> None:
    play.config_values[STREAMS_NUM_STANDBY_REPLICAS] = 1
    play.topics.set("counts-changelog", 4)
    a = StreamsClient(play, "a", topology=COUNTS_T, instance_id="i", endpoint=Endpoint("h", 1), client_tags={"k": "v"})
    b = StreamsClient(play, "b", topology=COUNTS_T, rack_id="r")
    settle(a, b)
    before = play.coordinator.streams.describe(GROUP)
    epochs = a.epoch, b.epoch
    getattr(play, end)()
    assert play.coordinator.streams.describe(GROUP) == before
    settle(a, b)
    assert (a.epoch, b.epoch) == epochs
    assert commit(play, a, min(partition for _, partition in a.owned.active)) is ErrorCode.NONE


def test_topics_that_change_while_the_server_is_down_are_noticed(play: Playbook) -> None:
    a = StreamsClient(play, "a")
    a.beat()
    play.topics.set("t", 5)
    play.crash()
    settle(a)
    assert active(a) == [5]


def test_a_change_that_cannot_be_written_is_not_answered_as_made(play: Playbook, monkeypatch: Any) -> None:
    def submit(statements: Any, on_durable: Any = None) -> None:
        if on_durable is not None:
            on_durable(StoreError("full"))

    a = StreamsClient(play, "a")
    with monkeypatch.context() as broken:
        broken.setattr(play.store, "submit", submit)
        assert a.beat().error_code is ErrorCode.NOT_COORDINATOR
    assert a.beat().error_code is ErrorCode.NONE
    play.crash()
    assert [member.member_id for member in play.coordinator.streams.describe(GROUP).group.members] == ["a"]
