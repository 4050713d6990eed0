"""Tests of static members (KIP-345)."""

from __future__ import annotations

import pytest
from groups_playbook import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, Call, Playbook, subscription

from klamm import ErrorCode
from klamm_broker.groups.requests import JoinResult, LeavingMember


def static_group(play: Playbook, *instances: str) -> list[str]:
    """Make a stable group of static members, of which the first leads. Return their member ids."""
    joins = [play.ask_join(group_instance_id=instance) for instance in instances]
    play.await_joins(joins)
    ids = [join.result.member_id for join in joins]
    play.sync_all(ids, joins)
    return ids


def test_a_static_member_joins_at_once_and_its_id_begins_with_its_instance_id(play: Playbook) -> None:
    join = play.ask_join(group_instance_id="one")
    play.advance(INITIAL_DELAY_MS)
    assert join.result.member_id.startswith("one-")
    assert join.result.members[0].group_instance_id == "one"


@pytest.mark.parametrize("supports_skipping_assignment", [True, False])
@pytest.mark.parametrize("instance", ["leader", "follower"])
def test_a_restarted_static_member_takes_its_place_without_a_rebalance(
    play: Playbook, instance: str, supports_skipping_assignment: bool
) -> None:
    old_ids = dict(zip(["leader", "follower"], static_group(play, "leader", "follower"), strict=True))
    join = play.ask_join(group_instance_id=instance, supports_skipping_assignment=supports_skipping_assignment)
    assert join.waits, "the new member id must be durable first"
    play.settle()

    result = join.result
    assert (result.error_code, result.generation_id, play.state()) == (ErrorCode.NONE, 1, "Stable")
    assert result.member_id != old_ids[instance]
    assert result.skip_assignment is (supports_skipping_assignment and instance == "leader")
    if instance == "leader":
        assert result.leader_id == (result.member_id if supports_skipping_assignment else old_ids["leader"])
        assert len(result.members) == (2 if supports_skipping_assignment else 0)
    assignment = play.ask_sync(result.member_id, 1, group_instance_id=instance).result.assignment
    assert assignment == (b"0" if instance == "leader" else b"1")


def test_the_earlier_member_of_an_instance_is_fenced(play: Playbook) -> None:
    old, _ = static_group(play, "one", "two")
    play.ask_join(group_instance_id="one")
    play.settle()

    assert play.heartbeat(old, 1, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert play.ask_sync(old, 1, group_instance_id="one").result.error_code is ErrorCode.FENCED_INSTANCE_ID
    assert play.ask_join(old, group_instance_id="one").result.error_code is ErrorCode.FENCED_INSTANCE_ID
    assert list(play.leave(LeavingMember(old, "one")).members) == [ErrorCode.FENCED_INSTANCE_ID]
    assert play.heartbeat(old, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unknown_instance_is_an_unknown_member(play: Playbook) -> None:
    (member_id,) = static_group(play, "one")
    assert play.heartbeat(member_id, 1, "two") is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.ask_join(member_id, group_instance_id="two").result.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_waiting_request_of_the_earlier_member_is_answered(play: Playbook) -> None:
    first = play.ask_join(group_instance_id="one")
    second = play.ask_join(group_instance_id="one")
    assert first.result.error_code is ErrorCode.FENCED_INSTANCE_ID
    play.advance(INITIAL_DELAY_MS)
    assert [member.member_id for member in second.result.members] == [second.result.member_id]

    sync = play.ask_sync(second.result.member_id, 1, group_instance_id="one")
    third = play.ask_join(group_instance_id="one")
    assert sync.result.error_code is ErrorCode.FENCED_INSTANCE_ID
    assert third.result.generation_id == 2, "in the sync phase a replacement rebalances"


def test_a_restarted_static_member_with_another_protocol_causes_a_rebalance(play: Playbook) -> None:
    static_group(play, "one")
    play.ask_join(group_instance_id="one", protocols=(("range", b""), ("sticky", b"")))
    play.settle()
    assert play.state() == "Stable"
    join = play.ask_join(group_instance_id="one", protocols=(("sticky", subscription("t")), ("range", b"")))
    assert join.result.protocol_name == "sticky"
    assert join.result.generation_id == 2


def test_a_static_member_outlives_the_join_phase_but_not_its_session(play: Playbook) -> None:
    first, second = static_group(play, "one", "two")
    rejoin = play.ask_join(first, group_instance_id="one", rebalance_timeout_ms=8_000, session_timeout_ms=60_000)
    # The rebalance timeout of the group is still that of the second member.
    for _ in range(REBALANCE_MS // 5_000):
        play.heartbeat(second, 1, "two")
        play.advance(5_000)
    assert {member.group_instance_id for member in rejoin.result.members} == {"one", "two"}

    play.advance(SESSION_MS)
    assert play.heartbeat(second, 2, "two") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_join_phase_waits_for_the_sessions_to_end_if_no_member_rejoins(play: Playbook) -> None:
    joins: list[Call[JoinResult]] = [play.ask_join(group_instance_id=each, session_timeout_ms=120_000) for each in "ab"]
    dynamic_id = play.promised_id()
    joins.append(play.ask_join(dynamic_id))
    play.await_joins(joins)
    ids = [join.result.member_id for join in joins]
    play.sync_all(ids, joins)
    play.leave(dynamic_id)

    play.advance(REBALANCE_MS + 1)
    assert play.state() == "PreparingRebalance"
    play.advance(REBALANCE_MS + 1)
    assert play.state() == "Empty"


def test_an_administrator_removes_by_instance_alone(play: Playbook) -> None:
    static_group(play, "one", "two")
    result = play.leave(LeavingMember("", "one"), LeavingMember("", "three"), LeavingMember(""))
    assert list(result.members) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert play.state() == "PreparingRebalance"


def test_a_replacement_that_cannot_be_stored_is_undone(play: Playbook) -> None:
    (old,) = static_group(play, "one")
    play.store.read("ALTER TABLE group_members RENAME TO away")
    join = play.ask_join(group_instance_id="one")
    play.settle()

    assert join.result.error_code is ErrorCode.NOT_COORDINATOR
    assert play.heartbeat(old, 1, "one") is ErrorCode.NONE
    assert play.ask_sync(old, 1, group_instance_id="one").result.assignment == b"0"
    play.store.read("ALTER TABLE away RENAME TO group_members")


def test_a_promised_id_is_not_for_static_members(play: Playbook) -> None:
    member_id = play.promised_id()
    assert play.ask_join(member_id, group_instance_id="one").result.error_code is ErrorCode.UNKNOWN_MEMBER_ID
