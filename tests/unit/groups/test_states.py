"""Tests of the table of states, and of the parser of subscriptions."""

from __future__ import annotations

import struct

import pytest
from groups_playbook import subscription
from hypothesis import given
from hypothesis import strategies as st

from klamm.testing import ManualClock
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer_protocol import subscribed_topics
from klamm_broker.groups.member import Member
from klamm_broker.groups.state import NEXT_STATES, GroupState, IllegalTransitionError


@pytest.mark.parametrize("source", GroupState)
@pytest.mark.parametrize("target", GroupState)
def test_only_transitions_in_the_table_are_possible(source: GroupState, target: GroupState) -> None:
    clock = ManualClock(wall_ms=1_000)
    group = ClassicGroup("g", clock)
    group.state = source
    clock.advance_ms(5)
    if target in NEXT_STATES[source]:
        group.transition_to(target)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, source, 1_005)
    else:
        with pytest.raises(IllegalTransitionError, match=target.value):
            group.transition_to(target)
        assert (group.state, group.state_timestamp_ms) == (source, 1_000)


def test_protocols_that_no_member_supports_are_forgotten() -> None:
    group = ClassicGroup("g", ManualClock())
    for number in range(100):
        member = Member(f"m{number}", None, "c", "/h", 1, 1, ((f"p{number}", b""), ("range", b"")))
        group.add(member, "consumer")
        group.update(member, ((f"q{number}", b""),), 1, 1)
        group.remove(member.member_id)
    assert not group._supported_protocols


@given(st.lists(st.text(max_size=20)), st.integers(0, 32_767), st.binary(max_size=30))
def test_subscribed_topics_are_read_in_any_version(topics: list[str], version: int, rest: bytes) -> None:
    metadata = struct.pack(">h", version) + subscription(*topics)[2:] + rest
    assert subscribed_topics(metadata) == set(topics)


@given(st.binary(max_size=60))
def test_random_bytes_are_read_or_refused_without_another_error(metadata: bytes) -> None:
    try:
        topics = subscribed_topics(metadata)
    except ValueError:
        return
    assert all(isinstance(topic, str) for topic in topics)


@given(st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=4), st.data())
def test_an_incomplete_subscription_is_refused(topics: list[str], data: st.DataObject) -> None:
    whole = subscription(*topics)[:-4]
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError, match="subscription"):
        subscribed_topics(whole[:cut])
