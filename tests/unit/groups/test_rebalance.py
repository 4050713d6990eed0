"""Tests of classic groups of dynamic members: joins, syncs, heartbeats and leaving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from groups_playbook import GROUP, INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, Call, Playbook, subscription

from klamm import ErrorCode
from klamm_broker.groups.group_settings import MAX_PENDING_JOINS
from klamm_broker.groups.rebalance import names_for_log
from klamm_broker.groups.requests import JoinRequest, JoinResult, LeavingMember


def test_the_first_member_waits_for_the_initial_delay_then_leads(play: Playbook) -> None:
    member_id = play.promised_id()
    assert member_id.startswith("client-")
    join = play.ask_join(member_id)

    play.advance(INITIAL_DELAY_MS - 1)
    assert join.waits
    assert play.state() == "PreparingRebalance"

    play.advance(1)
    result = join.result
    assert result.error_code is ErrorCode.NONE
    assert (result.generation_id, result.leader_id, result.protocol_name) == (1, member_id, "range")
    assert [member.member_id for member in result.members] == [member_id]
    assert play.state() == "CompletingRebalance"


def test_each_new_member_extends_the_initial_delay_up_to_the_rebalance_timeout(play: Playbook) -> None:
    joins = []
    for _ in range(4):
        joins.append(play.ask_join(play.promised_id(), rebalance_timeout_ms=8_000))
        play.advance(1_900)

    # The delays are 3 s, 3 s, and the remaining 2 s of the rebalance timeout.
    play.advance(390)
    assert all(join.waits for join in joins)
    play.advance(11)
    assert {join.result.generation_id for join in joins} == {1}


def test_a_promised_member_that_never_joins_ends_the_initial_delay(make_playbook: Callable[..., Playbook]) -> None:
    """Apache Kafka 4.3 does the same.

    With a delay of 12 s and a promised member with a session timeout of 6 s, it took 6.0 s.
    """
    play = make_playbook(group_initial_rebalance_delay_ms=12_000)
    first = play.promised_id()
    play.promised_id(session_timeout_ms=6_000)
    join = play.ask_join(first)
    play.advance(5_999)
    assert join.waits
    play.advance(1)
    assert [member.member_id for member in join.result.members] == [first]


def test_a_promised_member_that_leaves_does_not_end_the_initial_delay(make_playbook: Callable[..., Playbook]) -> None:
    """Apache Kafka 4.3 does the same: it took 12.0 s, although the member left after 3 s."""
    play = make_playbook(group_initial_rebalance_delay_ms=12_000)
    first, second = play.promised_id(), play.promised_id()
    join = play.ask_join(first)
    play.advance(3_000)
    assert play.leave(second).members == [ErrorCode.NONE]
    play.advance(8_999)
    assert join.waits
    play.advance(1)
    assert join.result.error_code is ErrorCode.NONE


def test_client_strings_in_the_log_are_cut(play: Playbook, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "klamm.broker.groups")
    long = "x" * 30_000
    call: Call[JoinResult] = Call()
    request = JoinRequest(
        long, "", None, long, "/h", 10_000, 10_000, "consumer", (("range", b"?"),), reason=long,
        requires_known_member_id=False,
    )  # fmt: skip
    play.coordinator.join(request, call)
    play.advance(INITIAL_DELAY_MS)
    member_id = call.result.member_id
    play.coordinator.leave(long, [LeavingMember(member_id, None, long)], Call())
    play.settle()
    assert len(caplog.records) >= 4
    for record in caplog.records:
        assert "xxx… (300" in record.getMessage()
        assert len(record.getMessage()) < 1_000


def test_without_initial_delay_the_join_phase_ends_at_once(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(group_initial_rebalance_delay_ms=0)
    join = play.ask_join(play.promised_id())
    play.settle()
    assert join.result.generation_id == 1


def test_only_the_leader_gets_the_members(play: Playbook) -> None:
    ids = [play.promised_id() for _ in range(3)]
    joins = [play.ask_join(member_id) for member_id in ids]
    play.await_joins(joins)

    assert {member.member_id for member in joins[0].result.members} == set(ids)
    assert [list(join.result.members) for join in joins[1:]] == [[], []]
    assert {join.result.leader_id for join in joins} == {ids[0]}
    assert {member.metadata for member in joins[0].result.members} == {subscription("t")}


def test_old_versions_join_without_a_promised_member_id(play: Playbook) -> None:
    join = play.ask_join(requires_known_member_id=False)
    play.advance(INITIAL_DELAY_MS)
    assert join.result.error_code is ErrorCode.NONE
    assert join.result.member_id.startswith("client-")


def test_promised_member_ids_are_limited(play: Playbook) -> None:
    """One connection can get many thousands of promised ids in a second."""
    first = play.promised_id()
    ids = [play.promised_id() for _ in range(MAX_PENDING_JOINS)]
    assert play.ask_join(first).result.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.ask_join(ids[0]).waits, "the newest ones are kept"


def test_a_promised_member_that_never_joins_is_removed_after_its_session_timeout(play: Playbook) -> None:
    first = play.stable_group(1)[0]
    late = play.promised_id()
    rejoin = play.ask_join(first)
    play.advance(SESSION_MS - 1)
    assert rejoin.waits, "the join phase waits for the promised member"

    play.advance(2)
    assert rejoin.result.generation_id == 2
    assert play.ask_join(late).result.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_get_the_assignments_of_the_leader_in_any_order_of_syncs(play: Playbook) -> None:
    ids = [play.promised_id() for _ in range(3)]
    joins = [play.ask_join(member_id) for member_id in ids]
    play.await_joins(joins)
    early = play.ask_sync(ids[1], 1)
    play.settle()
    assert early.waits

    leader = play.ask_sync(ids[0], 1, {ids[0]: b"a", ids[1]: b"b"})
    assert leader.waits, "nothing is handed out before it is durable"
    play.settle()
    late = play.ask_sync(ids[2], 1)

    assert [call.result.assignment for call in (leader, early, late)] == [b"a", b"b", b""]
    assert {call.result.protocol_name for call in (leader, early, late)} == {"range"}
    assert play.state() == "Stable"
    assert not any(join.waits for join in joins)


def test_a_new_member_makes_all_others_rejoin(play: Playbook) -> None:
    first, second = play.stable_group(2)
    third = play.promised_id()
    assert play.heartbeat(first, 1) is ErrorCode.NONE, "a promise alone changes nothing"
    join = play.ask_join(third)
    assert play.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    rejoins = [play.ask_join(first), play.ask_join(second)]
    assert [call.result.generation_id for call in (join, *rejoins)] == [2, 2, 2]


def test_dynamic_members_that_do_not_rejoin_are_dropped_and_the_leader_replaced(play: Playbook) -> None:
    first, second = play.stable_group(2)
    rejoin = play.ask_join(second, protocols=(("range", subscription("other")),))
    for _ in range(REBALANCE_MS // 5_000):
        assert rejoin.waits
        # Heartbeats keep this member alive, but it does not rejoin.
        assert play.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        play.advance(5_000)

    assert rejoin.result.leader_id == second
    assert [member.member_id for member in rejoin.result.members] == [second]
    assert play.heartbeat(first, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_and_the_others_continue(play: Playbook) -> None:
    first, second = play.stable_group(2)
    for _ in range(3):
        play.advance(SESSION_MS // 2)
        play.heartbeat(first, 1)

    assert play.heartbeat(second, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    rejoin = play.ask_join(first)
    assert [member.member_id for member in rejoin.result.members] == [first]


def test_a_member_fails_exactly_one_session_timeout_after_its_last_heartbeat(play: Playbook) -> None:
    (member_id,) = play.stable_group(1)
    for _ in range(50):
        play.advance(1_000)
        assert play.heartbeat(member_id, 1) is ErrorCode.NONE
    play.advance(SESSION_MS - 1)
    assert play.state() == "Stable"
    play.advance(2)
    assert play.state() == "Empty"


def test_heartbeats_arm_no_timers(play: Playbook) -> None:
    ids = play.stable_group(3)
    before = play.scheduler.timer_count
    for _ in range(1_000):
        play.heartbeat(ids[0], 1)
    assert play.scheduler.timer_count == before


def test_a_session_does_not_end_while_its_heartbeat_may_be_unread(play: Playbook) -> None:
    first, second = play.stable_group(2)
    generation = 1
    play.lag_ms = 60_000
    play.advance(SESSION_MS + 20_000)
    assert play.state() == "Stable", "what came in time may still be unread"
    assert play.heartbeat(first, generation) is ErrorCode.NONE
    play.lag_ms = 0
    play.advance(100)
    assert play.heartbeat(first, generation) is ErrorCode.REBALANCE_IN_PROGRESS, "the other one has been silent"
    assert play.heartbeat(second, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_lag_extends_a_session_only_by_the_lag(play: Playbook) -> None:
    (member_id,) = play.stable_group(1)
    play.lag_ms = 300
    play.advance(SESSION_MS + 290)
    assert play.state() == "Stable"
    play.advance(70)
    assert play.state() == "Empty"
    assert play.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_phase_does_not_end_while_joins_may_be_unread(play: Playbook) -> None:
    first, second = play.stable_group(2)
    join = play.ask_join(first)
    play.lag_ms = 600_000
    for _ in range(10):
        play.advance(REBALANCE_MS // 5)
        play.heartbeat(second, 1)
    assert join.waits
    other = play.ask_join(second)
    assert [call.result.error_code for call in (join, other)] == [ErrorCode.NONE] * 2


def test_members_are_not_removed_while_their_syncs_may_be_unread(play: Playbook) -> None:
    ids = [play.promised_id() for _ in range(2)]
    joins = [play.ask_join(member_id) for member_id in ids]
    play.await_joins(joins)
    play.lag_ms = 600_000
    play.advance(2 * REBALANCE_MS)
    assert play.state() == "CompletingRebalance"
    play.lag_ms = 0
    play.advance(100)
    assert play.state() in ("Empty", "PreparingRebalance")


def test_a_new_members_join_may_wait_longer_than_its_session(play: Playbook) -> None:
    (first,) = play.stable_group(1, rebalance_timeout_ms=600_000)
    join = play.ask_join(play.promised_id(), rebalance_timeout_ms=600_000)
    for _ in range(59):
        play.advance(5_000)
        assert play.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join.waits
    play.advance(5_001)
    assert join.result.error_code is ErrorCode.UNKNOWN_MEMBER_ID, "given up after five minutes"


def test_members_that_do_not_sync_are_removed_after_the_rebalance_timeout(play: Playbook) -> None:
    ids = [play.promised_id() for _ in range(2)]
    play.await_joins([play.ask_join(member_id) for member_id in ids])
    sync = play.ask_sync(ids[1], 1)
    for _ in range(REBALANCE_MS // 5_000):
        assert sync.waits
        play.heartbeat(ids[0], 1)
        play.advance(5_000)

    assert sync.result.error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert play.heartbeat(ids[0], 1) is ErrorCode.UNKNOWN_MEMBER_ID
    rejoin = play.ask_join(ids[1])
    assert (rejoin.result.generation_id, rejoin.result.leader_id) == (2, ids[1])


def test_a_waiting_sync_holds_the_session(play: Playbook) -> None:
    ids = [play.promised_id() for _ in range(2)]
    play.await_joins([play.ask_join(member_id) for member_id in ids])
    sync = play.ask_sync(ids[1], 1)
    for _ in range(6):
        play.advance(SESSION_MS // 2)
        play.heartbeat(ids[0], 1)
    play.ask_sync(ids[0], 1, {ids[1]: b"late"})
    play.settle()
    assert sync.result.assignment == b"late"
    play.advance(SESSION_MS - 1)
    assert play.state() == "Stable", "the sessions started again with the answers"
    play.advance(2)
    assert play.state() == "Empty"


def test_leaving_rebalances_and_the_last_one_leaves_an_empty_group(play: Playbook) -> None:
    first, second = play.stable_group(2)
    assert list(play.leave(second).members) == [ErrorCode.NONE]
    assert play.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert play.ask_join(first).result.generation_id == 2

    play.leave(first)
    assert play.state() == "Empty"
    assert list(play.leave(first).members) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_member_that_leaves_gets_its_waiting_requests_answered(play: Playbook) -> None:
    gone, *ids = [play.promised_id() for _ in range(3)]
    join = play.ask_join(gone)
    joins = [play.ask_join(member_id) for member_id in ids]
    play.leave(gone)
    assert join.result.error_code is ErrorCode.UNKNOWN_MEMBER_ID

    play.await_joins(joins)
    sync = play.ask_sync(ids[1], 1)
    play.leave(ids[1])
    assert sync.result.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_unknown_members_may_not_leave(play: Playbook) -> None:
    result = play.leave("nobody", "else")
    assert result.error_code is ErrorCode.NONE
    assert list(result.members) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_the_leaders_rejoin_forces_a_rebalance_a_followers_does_not(play: Playbook) -> None:
    leader, follower = play.stable_group(2)
    again = play.ask_join(follower)
    assert (again.result.generation_id, play.state()) == (1, "Stable")
    assert play.ask_sync(follower, 1).result.assignment == b"1"

    assert play.ask_join(leader).waits
    assert play.state() == "PreparingRebalance"


def test_changed_metadata_forces_a_rebalance(play: Playbook) -> None:
    _, follower = play.stable_group(2)
    assert play.ask_join(follower, protocols=(("range", subscription("t", "u")),)).waits
    assert play.state() == "PreparingRebalance"


def test_a_repeated_join_gets_the_same_answer(play: Playbook) -> None:
    member_id = play.promised_id()
    first = play.ask_join(member_id)
    play.advance(INITIAL_DELAY_MS)
    assert play.ask_join(member_id).result == first.result


def test_a_second_join_of_a_waiting_member_frees_the_first(play: Playbook) -> None:
    member_id = play.promised_id()
    first = play.ask_join(member_id)
    second = play.ask_join(member_id)
    assert first.result.error_code is ErrorCode.REBALANCE_IN_PROGRESS
    play.advance(INITIAL_DELAY_MS)
    assert second.result.error_code is ErrorCode.NONE
    assert len(first.answers) == 1


def test_a_rebalance_during_the_sync_phase_sends_everyone_back(play: Playbook) -> None:
    ids = [play.promised_id() for _ in range(2)]
    play.await_joins([play.ask_join(member_id) for member_id in ids])
    follower = play.ask_sync(ids[1], 1)
    leader = play.ask_sync(ids[0], 1, {ids[0]: b"a", ids[1]: b"b"})
    joining = play.ask_join(play.promised_id())
    play.settle()

    assert {call.result.error_code for call in (leader, follower)} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert joining.waits
    assert play.state() == "PreparingRebalance", "the stored assignment of the old generation is ignored"


def test_a_late_assignment_of_an_older_generation_is_ignored(play: Playbook) -> None:
    leader, follower = play.stable_group(2)
    joins = [play.ask_join(leader), play.ask_join(follower)]
    stale = play.ask_sync(leader, 2, {leader: b"stale"})
    joins = [play.ask_join(follower, protocols=(("range", b""),)), play.ask_join(leader)]
    assert {join.result.generation_id for join in joins} == {3}
    assert stale.result.error_code is ErrorCode.REBALANCE_IN_PROGRESS

    waiting = play.ask_sync(follower, 3)
    play.settle()
    assert waiting.waits
    assert play.state() == "CompletingRebalance"


def test_the_leaders_first_assignment_counts(play: Playbook) -> None:
    member_id = play.promised_id()
    play.await_joins([play.ask_join(member_id)])
    first = play.ask_sync(member_id, 1, {member_id: b"first"})
    second = play.ask_sync(member_id, 1, {member_id: b"second"})
    play.settle()
    assert first.result.error_code is ErrorCode.REBALANCE_IN_PROGRESS, "its client has sent a newer one"
    assert second.result.assignment == b"first"
    play.crash()
    assert play.ask_sync(member_id, 1).result.assignment == b"first"


def test_the_protocol_that_most_members_prefer_wins(play: Playbook) -> None:
    metadata = subscription("t")
    preferences = [("range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "range", "sticky")]
    joins = [
        play.ask_join(play.promised_id(), protocols=tuple((name, metadata) for name in names)) for names in preferences
    ]
    play.advance(REBALANCE_MS)
    assert {join.result.protocol_name for join in joins} == {"roundrobin"}


@pytest.mark.parametrize(
    "changes",
    [{"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}, {"protocols": ()}],
)
def test_a_member_with_other_protocols_is_refused(play: Playbook, changes: dict[str, Any]) -> None:
    play.stable_group(1)
    assert play.ask_join(**changes).result.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_first_member_needs_a_protocol(play: Playbook) -> None:
    assert play.ask_join(protocols=()).result.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert play.ask_join(protocol_type="").result.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_protocol_named_twice_counts_once(play: Playbook) -> None:
    twice = (("range", subscription("t")), ("range", subscription("t")))
    join = play.ask_join(play.promised_id(), protocols=twice)
    play.advance(INITIAL_DELAY_MS)
    assert join.result.protocol_name == "range"


@pytest.mark.parametrize(("session_timeout_ms", "fits"), [(5_999, False), (6_000, True), (1_800_001, False)])
def test_session_timeouts_have_bounds(play: Playbook, session_timeout_ms: int, fits: bool) -> None:
    result = play.ask_join(session_timeout_ms=session_timeout_ms).result
    assert result.error_code is (ErrorCode.MEMBER_ID_REQUIRED if fits else ErrorCode.INVALID_SESSION_TIMEOUT)


def test_the_bytes_of_a_groups_members_are_limited(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(group_max_bytes=2_200)
    small, large, larger = ((("range", bytes(count)),) for count in (500, 1_500, 1_700))
    first, second, third = (play.promised_id(protocols=small) for _ in range(3))
    joins = [play.ask_join(first, protocols=small), play.ask_join(second, protocols=large)]
    assert play.ask_join(third, protocols=small).result.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert play.ask_join(protocols=small).result.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    play.await_joins(joins)
    assert [join.result.error_code for join in joins] == [ErrorCode.NONE] * 2
    # A member whose larger request is refused stays as it was.
    assert play.ask_join(second, protocols=larger).result.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert play.heartbeat(second, 1) is ErrorCode.NONE
    # Other members may use the bytes that a member gives back. A member that leaves gives back all.
    joins = [play.ask_join(second, protocols=small), play.ask_join(first, protocols=large)]
    play.await_joins(joins)
    assert [join.result.error_code for join in joins] == [ErrorCode.NONE] * 2
    play.leave(first)
    assert play.ask_join(protocols=large).result.error_code is ErrorCode.MEMBER_ID_REQUIRED


def test_members_do_not_wait_for_one_that_was_refused_for_its_bytes(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(group_max_bytes=1_000)
    (member_id,) = play.stable_group(1)
    promised = play.promised_id()
    rejoin = play.ask_join(member_id)
    assert rejoin.waits
    refused = play.ask_join(promised, protocols=(("range", bytes(1_000)),))
    assert refused.result.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rejoin.result.error_code is ErrorCode.NONE


@pytest.mark.parametrize("protocols", [(("range", bytes(500)),), (("range", bytes(700)),)])
def test_a_restarted_static_member_replaces_its_own_bytes(
    make_playbook: Callable[..., Playbook], protocols: tuple[tuple[str, bytes], ...]
) -> None:
    play = make_playbook(group_max_bytes=700)
    join = play.ask_join(group_instance_id="one", protocols=(("range", bytes(500)),))
    play.await_joins([join])
    again = play.ask_join(group_instance_id="one", protocols=protocols)
    fits = len(protocols[0][1]) == 500
    play.advance(REBALANCE_MS)
    assert again.result.error_code is (ErrorCode.NONE if fits else ErrorCode.GROUP_MAX_SIZE_REACHED)


def test_a_full_group_accepts_no_further_member(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(group_max_size=2)
    ids = [play.promised_id() for _ in range(3)]
    joins = [play.ask_join(member_id) for member_id in ids]
    assert joins[2].result.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    play.await_joins(joins)
    assert [join.result.error_code for join in joins[:2]] == [ErrorCode.NONE] * 2
    assert play.ask_join().result.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert play.ask_join(ids[0]).answers, "members are let in again"


def test_wrong_members_generations_and_groups_are_refused(play: Playbook) -> None:
    (member_id,) = play.stable_group(1)
    assert play.heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.heartbeat(member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    assert play.ask_sync(member_id, 2).result.error_code is ErrorCode.ILLEGAL_GENERATION
    assert play.ask_sync("nobody", 1).result.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.ask_join("nobody").result.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.ask_join("nobody", group_id="none").result.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.coordinator.heartbeat("none", member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.ask_sync(member_id, 1, group_id="none").result.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_empty_group_id_is_invalid(play: Playbook) -> None:
    assert play.ask_join(group_id="").result.error_code is ErrorCode.INVALID_GROUP_ID
    assert play.ask_sync("m", 1, group_id="").result.error_code is ErrorCode.INVALID_GROUP_ID
    assert play.coordinator.heartbeat("", "m", 1) is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("protocol", "error_code"),
    [
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_sync_may_name_the_protocol_it_expects(
    play: Playbook, protocol: dict[str, Any], error_code: ErrorCode
) -> None:
    (member_id,) = play.stable_group(1)
    assert play.ask_sync(member_id, 1, **protocol).result.error_code is error_code


def test_a_sync_during_the_join_phase_is_sent_back(play: Playbook) -> None:
    leader, follower = play.stable_group(2)
    play.ask_join(leader)
    assert play.ask_sync(follower, 1).result.error_code is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_cannot_be_stored_is_not_handed_out(play: Playbook) -> None:
    member_id = play.promised_id()
    play.ask_join(member_id)
    play.advance(INITIAL_DELAY_MS)
    play.store.read("ALTER TABLE group_members RENAME TO away")
    sync = play.ask_sync(member_id, 1, {member_id: b"a"})
    play.settle()
    assert sync.result.error_code is ErrorCode.NOT_COORDINATOR
    assert play.heartbeat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    play.store.read("ALTER TABLE away RENAME TO group_members")
    rejoin = play.ask_join(member_id)
    assert rejoin.result.generation_id == 2
    play.sync_all([member_id], [rejoin])


def test_an_answer_that_cannot_be_delivered_does_not_affect_others(play: Playbook) -> None:
    ids = [play.promised_id() for _ in range(2)]

    calls = [play.ask_join(ids[0]), play.ask_join(ids[1])]
    calls[0].answers = None  # type: ignore[assignment]
    play.advance(REBALANCE_MS)
    assert calls[1].result.error_code is ErrorCode.NONE


def test_closing_answers_all_waiting_requests(play: Playbook) -> None:
    join = play.ask_join(play.promised_id())
    play.coordinator.close()
    assert join.result.error_code is ErrorCode.NOT_COORDINATOR
    play.advance(REBALANCE_MS)
    assert play.coordinator.administration.describe(GROUP) is None
    assert play.ask_join().result.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(("count", "ending"), [(10, "m9"), (11, "m9 and 1 more"), (12, "m9 and 2 more")])
def test_a_log_line_names_ten_members_and_counts_the_others(count: int, ending: str) -> None:
    assert names_for_log([f"m{number}" for number in range(count)]).endswith(f", {ending}")
