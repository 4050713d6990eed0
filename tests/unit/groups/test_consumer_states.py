"""Tests of the states of consumer groups, and of rules that hold after any actions of members."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from consumers import Consumer, settle
from groups_playbook import Playbook, topic_id
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm import ErrorCode
from klamm_broker.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from klamm_broker.groups.consumer.member import ConsumerMember
from klamm_broker.groups.consumer.reconciliation import next_step
from klamm_broker.groups.state import IllegalTransitionError
from klamm_broker.groups.targeted_members import MemberState

T = topic_id("t")
STEP = st.tuples(st.sampled_from(["beat", "leave", "crash", "grow", "wait", "rejoin"]), st.integers(0, 3))


def test_a_dead_group_does_not_change_its_state() -> None:
    group = ConsumerGroup("g")
    group.put(ConsumerMember(member_id="a"))
    group.refresh_state()
    assert group.state is ConsumerGroupState.ASSIGNING
    group.die()
    with pytest.raises(IllegalTransitionError):
        group.refresh_state()


def member(**fields: object) -> ConsumerMember:
    return ConsumerMember(member_id="a", **fields)  # type: ignore[arg-type]


def test_a_member_gets_what_is_free_and_waits_for_the_rest() -> None:
    stepped = next_step(member(), 5, {T: frozenset({0, 1})}, lambda _topic, index: index == 1, {})
    assert (stepped.state, stepped.epoch, stepped.assigned) == (MemberState.UNRELEASED, 5, {T: frozenset({0})})
    done = next_step(stepped, 5, {T: frozenset({0, 1})}, lambda _topic, index: index == 0, None)
    assert (done.state, done.assigned) == (MemberState.STABLE, {T: frozenset({0, 1})})


def test_a_member_revokes_first_and_must_report_that() -> None:
    holder = member(epoch=4, assigned={T: frozenset({0, 1})})
    first = next_step(holder, 5, {T: frozenset({0, 2})}, lambda _topic, index: index < 2, {T: frozenset({0, 1})})
    assert (first.state, first.epoch, first.assigned) == (MemberState.UNREVOKED, 4, {T: frozenset({0})})
    assert first.pending_revocation == {T: frozenset({1})}
    assert next_step(first, 5, {T: frozenset({0, 2})}, lambda _topic, index: index < 2, None) is first
    done = next_step(first, 5, {T: frozenset({0, 2})}, lambda _topic, index: index < 2, {T: frozenset({0})})
    assert (done.state, done.epoch, done.assigned) == (MemberState.STABLE, 5, {T: frozenset({0, 2})})


def test_a_member_with_nothing_to_revoke_continues_at_once() -> None:
    away = member(epoch=4, assigned={T: frozenset({0, 1})})
    done = next_step(away, 5, {T: frozenset({0})}, lambda _topic, index: index < 2, {})
    assert (done.state, done.epoch, done.assigned) == (MemberState.STABLE, 5, {T: frozenset({0})})


@settings(max_examples=25)
@given(st.lists(STEP, max_size=30))
def test_no_partition_has_two_readers_after_any_actions(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        play = Playbook(Path(directory) / "klamm.db")
        play.topics.set("t", 5)
        names = itertools.count()
        consumers = [Consumer(play, f"m{next(names)}") for _ in range(4)]
        partitions = 5
        for action, place in steps:
            one = consumers[place]
            if action == "beat" and one.beat().error_code is not ErrorCode.NONE:
                one.epoch = 0
            elif action == "leave" and one.epoch:
                play.beat(one.member_id, -1)
                consumers[place] = Consumer(play, f"m{next(names)}")
            elif action == "rejoin":
                one.epoch, one.owned = 0, {}
            elif action == "crash":
                play.crash()
            elif action == "grow":
                partitions += 1
                play.topics.set("t", partitions)
            elif action == "wait":
                play.advance(4_000)
            held = [(topic, index) for each in consumers for topic, all_ in each.owned.items() for index in all_]
            assert len(held) == len(set(held))
        for each in consumers:
            if each.beat().error_code is not ErrorCode.NONE:
                each.epoch = 0
        settle(*consumers)
        counts = sorted(each.count() for each in consumers)
        assert sum(counts) == partitions
        assert counts[-1] - counts[0] <= 1
        play.close()
