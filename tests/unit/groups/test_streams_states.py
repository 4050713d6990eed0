"""Tests of the states of streams groups, and of rules that hold after any actions of members."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from groups_playbook import GROUP, Playbook, topic_id
from hypothesis import given, settings
from hypothesis import strategies as st
from streams_members import COUNTS_T, InternalTopics, StreamsClient, settle, tasks

from klamm import ErrorCode, KafkaError
from klamm_broker.configs.group_config_keys import STREAMS_NUM_STANDBY_REPLICAS
from klamm_broker.groups.offsets import PartitionCommit
from klamm_broker.groups.state import IllegalTransitionError
from klamm_broker.groups.streams.group import StreamsGroup, StreamsGroupState
from klamm_broker.groups.streams.member import StreamsMember
from klamm_broker.groups.streams.reconciliation import next_step
from klamm_broker.groups.streams.tasks import NONE, Task, Tasks
from klamm_broker.groups.targeted_members import MemberState

ACTIONS = ["beat", "quiet", "leave", "crash", "grow", "wait", "rejoin", "commit"]
STEP = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3))
REFUSED = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
UNREVOKED, UNRELEASED, STABLE = MemberState.UNREVOKED, MemberState.UNRELEASED, MemberState.STABLE


def test_a_dead_group_does_not_change_its_state() -> None:
    group = StreamsGroup("g")
    group.put(StreamsMember(member_id="a"))
    group.refresh_state()
    assert group.state is StreamsGroupState.NOT_READY
    group.die()
    with pytest.raises(IllegalTransitionError):
        group.refresh_state()


def member(**fields: object) -> StreamsMember:
    return StreamsMember(member_id="a", **fields)  # type: ignore[arg-type]


def always(_task: Task) -> bool:
    return True


def only(*free: int) -> tuple:
    """Return roles in which only some tasks are free to be active."""
    return (lambda task: task[1] in free), always, always


def test_a_member_gets_what_is_free_and_waits_for_the_rest() -> None:
    stepped = next_step(member(), 5, Tasks(tasks(0, 1)), only(0), NONE)
    assert (stepped.state, stepped.epoch, stepped.assigned) == (UNRELEASED, 5, Tasks(tasks(0)))
    done = next_step(stepped, 5, Tasks(tasks(0, 1)), only(1), None)
    assert (done.state, done.assigned) == (STABLE, Tasks(tasks(0, 1)))


def test_a_member_gives_tasks_back_first_and_must_report_that() -> None:
    holder = member(epoch=4, assigned=Tasks(tasks(0, 1), tasks(5)))
    target = Tasks(tasks(0, 2))
    first = next_step(holder, 5, target, only(2), holder.assigned)
    assert (first.state, first.epoch, first.assigned) == (UNREVOKED, 4, Tasks(tasks(0)))
    assert first.pending_revocation == Tasks(tasks(1), tasks(5))
    assert next_step(first, 5, target, only(2), None) is first
    assert next_step(first, 5, target, only(2), Tasks(tasks(0), tasks(5))) is first
    done = next_step(first, 5, target, only(2), Tasks(tasks(0)))
    assert (done.state, done.epoch, done.assigned) == (STABLE, 5, target)
    assert done.assignment_epochs == {("0", 0): 5, ("0", 2): 5}


def test_a_member_with_nothing_to_give_back_continues_at_once() -> None:
    done = next_step(member(epoch=4, assigned=Tasks(tasks(0, 1))), 5, Tasks(tasks(0)), only(), NONE)
    assert (done.state, done.epoch, done.assigned) == (STABLE, 5, Tasks(tasks(0)))


def test_a_standby_copy_becomes_active_when_the_task_is_free_and_stays_until_then() -> None:
    copy = member(epoch=4, assigned=Tasks(standby=tasks(0)))
    waiting = next_step(copy, 5, Tasks(tasks(0)), only(), copy.assigned)
    assert (waiting.state, waiting.epoch, waiting.assigned) == (UNRELEASED, 5, Tasks(standby=tasks(0)))
    promoted = next_step(waiting, 5, Tasks(tasks(0)), only(0), waiting.assigned)
    assert (promoted.state, promoted.assigned) == (STABLE, Tasks(tasks(0)))


def test_an_active_task_becomes_a_copy_while_it_is_given_back() -> None:
    holder = member(epoch=4, assigned=Tasks(tasks(0)))
    target = Tasks(standby=tasks(0))
    first = next_step(holder, 5, target, only(), holder.assigned)
    assert (first.state, first.assigned, first.pending_revocation) == (UNREVOKED, target, Tasks(tasks(0)))
    done = next_step(first, 5, target, only(), target)
    assert (done.state, done.epoch, done.assigned, done.held) == (STABLE, 5, target, target)


def test_tasks_of_a_process_are_not_free_for_its_other_members() -> None:
    group = StreamsGroup("g")
    group.put(StreamsMember(member_id="a", process_id="p", assigned=Tasks(tasks(0), tasks(1))))
    same, other = StreamsMember(member_id="b", process_id="p"), StreamsMember(member_id="c", process_id="q")
    for copy in (0, 1):
        assert [is_free(("0", copy)) for is_free in group.free_for(same)] == [False, False, False]
    assert [is_free(("0", 0)) for is_free in group.free_for(other)] == [False, True, True]
    assert [is_free(("0", 1)) for is_free in group.free_for(other)] == [True, True, True]


def check(clients: list[StreamsClient]) -> None:
    """Check that no task is active on two members, and that no process has a task twice."""
    held = [task for each in clients for task in each.owned.active]
    assert len(held) == len(set(held))
    for _, group in itertools.groupby(sorted(clients, key=process_of), key=process_of):
        copies = [task for each in group for role in each.owned for task in role]
        assert len(copies) == len(set(copies))


def commit(play: Playbook, client: StreamsClient) -> set[ErrorCode]:
    """Return the group's answer to a member that commits all its tasks."""
    wanted = [PartitionCommit("t", index, 7, topic_id=topic_id("t")) for _, index in sorted(client.owned.active)]
    return set(play.commit(*wanted, member_id=client.member_id, generation_id=client.epoch)) if wanted else set()


def epochs(play: Playbook) -> dict[str, int]:
    """Return the epochs of the members as the server knows them."""
    try:
        return {each.member_id: each.epoch for each in play.coordinator.streams.describe(GROUP).group.members}
    except KafkaError:
        return {}


def process_of(client: StreamsClient) -> str:
    return str(client.joining["process_id"])


@settings(max_examples=25)
@given(st.lists(STEP, max_size=30), st.integers(0, 2))
def test_no_task_is_active_twice_after_any_actions(steps: list[tuple[str, int]], standbys: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        play = Playbook(Path(directory) / "klamm.db")
        play.config_values[STREAMS_NUM_STANDBY_REPLICAS] = standbys
        play.topics.set("t", 5)
        play.topics.set("counts-changelog", 5)
        names = itertools.count()
        internal = InternalTopics(play)

        def client(place: int) -> StreamsClient:
            return StreamsClient(
                play, f"m{next(names)}", process_id=f"p{place % 2}", topology=COUNTS_T, create_topics=internal
            )

        clients = [client(place) for place in range(4)]
        gone: list[StreamsClient] = []
        partitions = 5
        for action, place in steps:
            one = clients[place]
            if action in ("beat", "quiet"):
                silent = {"owned": None} if action == "quiet" and one.epoch else {}
                if one.beat(**silent).error_code is not ErrorCode.NONE:
                    one.epoch, one.owned = 0, NONE
            elif action == "commit" and one.epoch:
                # A member may commit offsets of its tasks. A member whose session has expired has no tasks.
                is_known = epochs(play).get(one.member_id) == one.epoch
                assert commit(play, one) <= ({ErrorCode.NONE} if is_known else REFUSED)
            elif action == "leave" and one.epoch:
                had = one.owned, one.epoch
                one.leave()
                one.owned, one.epoch = had
                gone.append(one)
                assert commit(play, one) <= REFUSED
                clients[place] = client(place)
            elif action == "rejoin":
                one.epoch, one.owned = 0, NONE
            elif action == "crash":
                play.crash()
            elif action == "grow":
                partitions += 1
                play.topics.set("t", partitions)
                play.topics.set("counts-changelog", partitions)
            elif action == "wait":
                play.advance(4_000)
            check(clients)
        assert {code for each in gone for code in commit(play, each)} <= REFUSED
        for each in clients:
            if each.beat().error_code is not ErrorCode.NONE:
                each.epoch = 0
        settle(*clients)
        check(clients)
        counts = sorted(len(each.owned.active) for each in clients)
        assert sum(counts) == partitions
        assert counts[-1] - counts[0] <= 1
        # There are two processes, so there is one copy in addition to the active task.
        assert sum(len(each.owned.standby) for each in clients) == partitions * min(standbys, 1)
        play.close()
