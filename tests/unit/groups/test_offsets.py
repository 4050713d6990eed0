"""Tests of committed offsets: commit, fetch, deletion and expiry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from groups_playbook import GROUP, INITIAL_DELAY_MS, SESSION_MS, Call, Playbook

from klamm import ErrorCode, KafkaError
from klamm_broker.groups.group import CommittedOffset
from klamm_broker.groups.offsets import FetchedOffsets, PartitionCommit

DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS


def at(offset: int, *, topic: str = "t", partition: int = 0, metadata: str | None = None) -> PartitionCommit:
    return PartitionCommit(topic, partition, offset, leader_epoch=5, metadata=metadata)


def positions(fetched: FetchedOffsets) -> dict[tuple[str, int], int | None]:
    return {
        (topic, partition): committed.offset if committed is not None else None
        for topic, by_partition in fetched.items()
        for partition, committed in by_partition.items()
    }


def test_a_consumer_without_group_management_commits_and_fetches(play: Playbook) -> None:
    assert play.commit(at(10, metadata="note"), at(20, partition=1)) == [ErrorCode.NONE] * 2

    fetched = play.fetch({"t": [0, 1, 2], "u": [0]})
    assert positions(fetched) == {("t", 0): 10, ("t", 1): 20, ("t", 2): None, ("u", 0): None}
    assert fetched["t"][0] == CommittedOffset(10, 5, "note", play.clock.wall_ms())
    assert positions(play.fetch()) == {("t", 0): 10, ("t", 1): 20}
    assert play.state() == "Empty"


def test_a_commit_is_answered_and_visible_once_it_is_durable(play: Playbook) -> None:
    call = play.ask_commit(at(10))
    assert call.waits
    assert play.fetch() == {}
    play.settle()
    assert call.result == [ErrorCode.NONE]
    assert positions(play.fetch()) == {("t", 0): 10}


def test_a_stable_fetch_waits_for_unfinished_commits(play: Playbook) -> None:
    play.commit(at(1))
    play.ask_commit(at(2))
    stable: Call[Sequence[FetchedOffsets]] = Call()
    play.coordinator.offsets.fetch([(GROUP, None), ("other", {"t": [0]})], stable, require_stable=True)
    assert stable.waits
    play.settle()
    assert [positions(each) for each in stable.result] == [{("t", 0): 2}, {("t", 0): None}]

    at_once: Call[Sequence[FetchedOffsets]] = Call()
    play.coordinator.offsets.fetch([(GROUP, None)], at_once, require_stable=True)
    assert not at_once.waits


def test_members_commit_under_their_generation(play: Playbook) -> None:
    (member_id,) = play.stable_group(1)
    assert play.commit(at(1), member_id=member_id, generation_id=1) == [ErrorCode.NONE]
    assert play.commit(at(2), member_id=member_id, generation_id=0) == [ErrorCode.ILLEGAL_GENERATION]
    assert play.commit(at(2), member_id="nobody", generation_id=1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert play.commit(at(2), member_id="", generation_id=-1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert play.commit(at(2), member_id=member_id, generation_id=-1) == [ErrorCode.ILLEGAL_GENERATION]
    assert positions(play.fetch()) == {("t", 0): 1}


def test_a_static_members_commit_is_fenced(play: Playbook) -> None:
    joins = [play.ask_join(group_instance_id="one")]
    play.advance(INITIAL_DELAY_MS)
    old = joins[0].result.member_id
    play.sync_all([old], joins)
    play.ask_join(group_instance_id="one")
    play.settle()
    outcome = play.commit(at(1), member_id=old, generation_id=1, group_instance_id="one")
    assert outcome == [ErrorCode.FENCED_INSTANCE_ID]


def test_commits_during_a_rebalance_are_accepted_or_refused_by_state(play: Playbook) -> None:
    leader, follower = play.stable_group(2)
    rejoin = play.ask_join(leader)
    assert play.commit(at(1), member_id=follower, generation_id=1) == [ErrorCode.NONE], "the join phase allows it"
    play.ask_join(follower)
    assert rejoin.result.generation_id == 2
    assert play.commit(at(2), member_id=leader, generation_id=2) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_commit_counts_as_a_heartbeat(play: Playbook) -> None:
    (member_id,) = play.stable_group(1)
    for offset in range(5):
        play.advance(SESSION_MS - 1)
        assert play.commit(at(offset), member_id=member_id, generation_id=1) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("knows_member_epochs", "error_code"),
    [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.ILLEGAL_GENERATION)],
)
def test_generation_of_an_unknown_group_is_refused(
    play: Playbook, knows_member_epochs: bool, error_code: ErrorCode
) -> None:
    outcome = play.commit(at(1), member_id="m", generation_id=3, knows_member_epochs=knows_member_epochs)
    assert outcome == [error_code]
    assert play.state() is None


def test_long_metadata_is_refused_partition_by_partition(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(offset_metadata_max_bytes=3)
    assert play.commit(at(1, metadata="four"), at(2, partition=1, metadata="tri")) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.NONE,
    ]
    assert positions(play.fetch()) == {("t", 1): 2}
    assert play.commit(at(1, metadata="four")) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_no_group_is_made_for_offsets_that_are_refused(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(offset_metadata_max_bytes=3)
    assert play.commit(at(1, metadata="four"), at(2, metadata="five")) == [ErrorCode.OFFSET_METADATA_TOO_LARGE] * 2
    assert play.state() is None


def test_a_commit_that_cannot_be_written_is_not_acknowledged(play: Playbook) -> None:
    play.commit(at(1))
    play.store.read("ALTER TABLE offsets RENAME TO away")
    assert play.commit(at(2)) == [ErrorCode.NOT_COORDINATOR]
    play.store.read("ALTER TABLE away RENAME TO offsets")
    assert positions(play.fetch()) == {("t", 0): 1}
    assert play.commit(at(3)) == [ErrorCode.NONE]


def test_a_deleted_topics_offsets_are_forgotten(play: Playbook) -> None:
    play.commit(at(1), at(2, topic="u"), at(3, topic="u", partition=1))
    play.commit(at(4, topic="u"), group_id="other")
    play.coordinator.offsets.topics_deleted({"u", "never"})
    play.settle()
    assert positions(play.fetch()) == {("t", 0): 1}
    assert play.fetch(group_id="other") == {}
    play.restart()
    assert positions(play.fetch()) == {("t", 0): 1}


def test_offsets_that_are_being_written_are_deleted_with_their_topic_but_not_those_of_its_successor(
    play: Playbook,
) -> None:
    play.commit(at(1, topic="kept"))
    written = play.ask_commit(at(2), at(3, topic="kept"))
    play.coordinator.offsets.topics_deleted({"t"})
    successor = play.ask_commit(at(4, partition=1))
    play.settle()
    assert [written.result, successor.result] == [[ErrorCode.NONE] * 2, [ErrorCode.NONE]]
    for _ in range(2):
        assert positions(play.fetch()) == {("kept", 0): 3, ("t", 1): 4}
        play.restart()


def test_an_offset_is_refused_if_its_topic_was_deleted_while_the_request_waited(play: Playbook) -> None:
    gone, there = b"gone".ljust(16), b"there".ljust(16)
    commits = [at(1)._replace(topic_id=gone), at(2, topic="u")._replace(topic_id=there)]
    outcome = play.commit(*commits, topic_by_id={there: "u"}.get)
    assert outcome == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert positions(play.fetch()) == {("u", 0): 2}


def delete(play: Playbook, partitions: Mapping[str, Sequence[int]]) -> Mapping[str, ErrorCode]:
    call: Call[Mapping[str, ErrorCode]] = Call()
    play.coordinator.offsets.delete(GROUP, partitions, call)
    play.settle()
    return call.result


def test_offsets_of_a_subscribed_topic_are_not_deleted(play: Playbook) -> None:
    (member_id,) = play.stable_group(1)
    play.commit(at(1), at(2, topic="u"), at(3, topic="u", partition=1), member_id=member_id, generation_id=1)
    outcome = delete(play, {"t": [0], "u": [0], "never": [0]})
    assert outcome == {
        "t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        "u": ErrorCode.NONE,
        "never": ErrorCode.NONE,
    }
    assert positions(play.fetch()) == {("t", 0): 1, ("u", 1): 3}
    play.restart()
    assert positions(play.fetch()) == {("t", 0): 1, ("u", 1): 3}


def test_offsets_of_groups_that_are_no_consumers_are_deleted_only_when_empty(play: Playbook) -> None:
    with pytest.raises(KafkaError) as missing:
        delete(play, {"t": [0]})
    assert missing.value.error_code is ErrorCode.GROUP_ID_NOT_FOUND

    (member_id,) = play.stable_group(1, protocol_type="connect")
    with pytest.raises(KafkaError) as not_empty:
        delete(play, {"t": [0]})
    assert not_empty.value.error_code is ErrorCode.NON_EMPTY_GROUP

    play.leave(member_id)
    play.commit(at(1))
    assert delete(play, {"t": [0]}) == {"t": ErrorCode.NONE}
    assert play.fetch() == {}


def test_unreadable_subscriptions_protect_all_topics(play: Playbook) -> None:
    play.stable_group(1, protocols=(("range", b"\x00\x00\x7f\xff\xff\xff"),))
    assert delete(play, {"any": [0]}) == {"any": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def expire_after(play: Playbook, ms: float) -> None:
    """Let time pass without running timers, then expire offsets."""
    play.clock.advance_ms(ms)
    play.coordinator.offsets.expire()
    play.settle()


def test_offsets_without_group_management_expire_by_their_commit(play: Playbook) -> None:
    play.commit(at(1))
    play.clock.advance_ms(DAY_MS)
    play.commit(at(2, partition=1))
    expire_after(play, RETENTION_MS - DAY_MS - 1)
    assert len(positions(play.fetch())) == 2
    expire_after(play, 1)
    assert positions(play.fetch()) == {("t", 1): 2}
    expire_after(play, DAY_MS)
    assert play.state() is None, "nothing is left of the group"
    play.restart()
    assert play.loaded == 0


def test_offsets_of_a_group_expire_after_it_got_empty(play: Playbook) -> None:
    (member_id,) = play.stable_group(1)
    play.commit(at(1), member_id=member_id, generation_id=1)
    play.clock.advance_ms(5_000)
    play.leave(member_id)
    expire_after(play, RETENTION_MS - 1)
    assert positions(play.fetch()) == {("t", 0): 1}
    expire_after(play, 1)
    assert play.state() is None


def test_in_a_stable_group_only_topics_without_subscriber_expire(play: Playbook) -> None:
    (member_id,) = play.stable_group(1, session_timeout_ms=1_800_000)
    play.commit(at(1), at(2, topic="u"), member_id=member_id, generation_id=1)
    expire_after(play, RETENTION_MS)
    assert positions(play.fetch()) == {("t", 0): 1}


def test_while_a_group_rebalances_nothing_expires(play: Playbook) -> None:
    leader, follower = play.stable_group(2)
    play.commit(at(2, topic="u"), member_id=leader, generation_id=1)
    play.ask_join(follower, protocols=(("range", b""),))
    play.clock.advance_ms(RETENTION_MS)
    play.coordinator.offsets.expire()
    play.store.commit_pending()
    assert positions(play.fetch()) == {("u", 0): 2}


def test_the_retention_time_of_an_old_clients_commit_applies(play: Playbook) -> None:
    play.commit(at(1), retention_time_ms=1_000)
    play.commit(at(2, partition=1))
    expire_after(play, 1_000)
    assert positions(play.fetch()) == {("t", 1): 2}


@pytest.mark.parametrize("retention_time_ms", [2**63 - 1, 2**63 - 2_000, 2**62])
def test_a_retention_time_near_the_largest_number_is_for_ever(play: Playbook, retention_time_ms: int) -> None:
    assert play.commit(at(1), retention_time_ms=retention_time_ms) == [ErrorCode.NONE]
    expire_after(play, RETENTION_MS)
    play.restart()
    assert positions(play.fetch()) == {("t", 0): 1}


@pytest.mark.parametrize("retention_time_ms", [0, -2, -(2**63)])
def test_an_offset_with_a_negative_or_zero_retention_time_expires_at_once(
    play: Playbook, retention_time_ms: int
) -> None:
    assert play.commit(at(1), retention_time_ms=retention_time_ms) == [ErrorCode.NONE]
    expire_after(play, 0)
    assert positions(play.fetch()) == {}


def test_expiry_runs_periodically(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000)
    play.commit(at(1))
    play.advance(59_000)
    assert play.state() == "Empty"
    play.advance(11_000)
    assert play.state() is None


def test_a_group_is_kept_while_a_commit_is_unfinished(play: Playbook) -> None:
    play.commit(at(1))
    play.clock.advance_ms(RETENTION_MS)
    call = play.ask_commit(at(2))
    play.coordinator.offsets.expire()
    play.settle()
    assert call.result == [ErrorCode.NONE]
    play.restart()
    assert play.state() == "Empty"
