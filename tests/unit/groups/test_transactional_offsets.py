"""Tests of offsets in transactions: they are unstable until the transaction ends, and then committed or dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from groups_playbook import GROUP, Call, Playbook

from klamm import ErrorCode
from klamm_broker.groups.lock import GroupLock
from klamm_broker.groups.offsets import UNSTABLE, CommitRequest, FetchedOffsets, PartitionCommit
from tests.unit.hashed_name import HashedName

PRODUCER = 4000
WEEK_MS = 7 * 86_400_000


def commit(play: Playbook, *commits: PartitionCommit, producer_id: int = PRODUCER, **changes: object):
    call: Call[Sequence[ErrorCode]] = Call()
    play.coordinator.transactional_offsets.commit(producer_id, CommitRequest(GROUP, commits, **changes), call)
    play.settle()
    return call.result


def end(play: Playbook, *, committed: bool, producer_id: int = PRODUCER) -> None:
    offsets = play.coordinator.transactional_offsets
    play.store.submit(
        offsets.statements_of_end(producer_id, committed=committed),
        lambda error: offsets.ended(producer_id, committed=committed),
    )
    play.settle()


def fetch(play: Playbook, partitions=None, *, stable: bool = True) -> FetchedOffsets:
    call: Call[Sequence[FetchedOffsets]] = Call()
    play.coordinator.offsets.fetch([(GROUP, partitions)], call, require_stable=stable)
    (fetched,) = call.result
    return fetched


def at(offset: int, partition: int = 0, metadata: str = "") -> PartitionCommit:
    return PartitionCommit("t", partition, offset, 3, metadata)


def offset_of(fetched: FetchedOffsets, partition: int = 0) -> int | None:
    committed = fetched["t"][partition]
    return None if committed is None else committed.offset


def test_many_open_transactions_do_not_slow_a_fetch_down(play: Playbook) -> None:
    for producer_id in range(50):
        commit(play, at(5), producer_id=producer_id)
    wanted = {HashedName("t"): list(range(1, 20))}
    HashedName.hashed = 0
    assert set(fetch(play, wanted)["t"].values()) == {None}
    assert HashedName.hashed < 10 * 20
    for producer_id in range(50):
        assert offset_of(fetch(play, {"t": [0]})) == UNSTABLE.offset
        end(play, committed=False, producer_id=producer_id)
    assert fetch(play, {"t": [0]}) == {"t": {0: None}}


def test_the_end_of_a_transaction_reads_only_its_own_groups(play: Playbook, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        play.ask_commit(at(1), group_id=f"other-{number}")
    commit(play, at(5))
    looked_at = []
    enter = GroupLock.__enter__

    def note(group):
        looked_at.append(group.log_name)
        return enter(group)

    registry = play.coordinator.registry
    monkeypatch.setattr(registry, "all", lambda: pytest.fail("all groups"))
    monkeypatch.setattr(GroupLock, "__enter__", note)
    end(play, committed=True)
    assert set(looked_at) == {GROUP}
    assert offset_of(fetch(play, {"t": [0]})) == 5


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_offsets_take_effect_when_the_transaction_commits(play: Playbook, committed: bool, crash: bool) -> None:
    play.commit(at(1))
    assert commit(play, at(5), at(6, 1)) == [ErrorCode.NONE] * 2
    if crash:
        play.crash()
    wanted = {"t": [0, 1, 2]}
    assert fetch(play, wanted) == {"t": {0: UNSTABLE, 1: UNSTABLE, 2: None}}
    assert fetch(play) == {"t": {0: UNSTABLE}}
    unstable = fetch(play, wanted, stable=False)
    assert [offset_of(unstable, index) for index in (0, 1)] == [1, None]
    end(play, committed=committed)
    if crash:
        play.crash()
    stable = fetch(play, wanted)
    assert [offset_of(stable, index) for index in (0, 1)] == ([5, 6] if committed else [1, None])


def test_each_producer_has_its_own_pending_offsets(play: Playbook) -> None:
    commit(play, at(5))
    commit(play, at(9), producer_id=4001)
    end(play, committed=True)
    assert fetch(play, {"t": [0]}) == {"t": {0: UNSTABLE}}
    end(play, committed=False, producer_id=4001)
    assert offset_of(fetch(play, {"t": [0]})) == 5


@pytest.mark.parametrize("elapsed_ms", [0, 1])
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_later_commit_of_an_offset_stays(play: Playbook, elapsed_ms: int, crash: bool, transactional: bool) -> None:
    """The order of the commits counts, not the order in which transactions end, even within a millisecond."""
    commit(play, at(5))
    if crash:
        play.crash()
    play.advance(elapsed_ms)
    if transactional:
        commit(play, at(7), producer_id=PRODUCER + 1)
        end(play, committed=True, producer_id=PRODUCER + 1)
    else:
        play.commit(at(7))
    end(play, committed=True)
    assert offset_of(fetch(play, {"t": [0]})) == 7
    play.crash()
    assert offset_of(fetch(play, {"t": [0]})) == 7


def test_a_transaction_replaces_an_offset_that_was_committed_before_the_clock_was_set_back(play: Playbook) -> None:
    play.advance(10_000)
    play.commit(at(1))
    play.clock.advance_ms(-5_000)
    commit(play, at(5))
    end(play, committed=True)
    assert offset_of(fetch(play, {"t": [0]})) == 5


def test_commits_in_transactions_check_member_and_generation(play: Playbook) -> None:
    member_id, _other = play.stable_group(2)
    known = {"generation_id": 1, "member_id": member_id}
    assert commit(play, at(1), **known) == [ErrorCode.NONE]
    assert commit(play, at(1), generation_id=2, member_id=member_id) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(play, at(1), generation_id=1, member_id="stranger") == [ErrorCode.UNKNOWN_MEMBER_ID]
    # Clients before TxnOffsetCommit v3 send neither member nor generation.
    assert commit(play, at(2)) == [ErrorCode.NONE]


def test_a_generation_of_a_missing_group_is_refused(play: Playbook) -> None:
    assert commit(play, at(1), generation_id=3, member_id="m") == [ErrorCode.GROUP_ID_NOT_FOUND]
    old = {"generation_id": 3, "member_id": "m", "knows_member_epochs": False}
    assert commit(play, at(1), **old) == [ErrorCode.ILLEGAL_GENERATION]


def test_metadata_have_a_limit(make_playbook: Callable[..., Playbook]) -> None:
    play = make_playbook(offset_metadata_max_bytes=3)
    outcomes = commit(play, at(1, metadata="long"), at(2, 1, metadata="ok"))
    assert outcomes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert fetch(play, {"t": [0, 1]}) == {"t": {0: None, 1: UNSTABLE}}


def test_offsets_of_open_transactions_do_not_expire_and_keep_their_group(play: Playbook) -> None:
    play.commit(at(1))
    commit(play, at(5))
    play.advance(2 * WEEK_MS)
    assert play.state() == "Empty"
    end(play, committed=True)
    assert offset_of(fetch(play, {"t": [0]})) == 5
    play.advance(2 * WEEK_MS)
    assert play.state() is None


def test_offsets_of_deleted_topics_are_not_committed(play: Playbook) -> None:
    commit(play, at(5))
    play.coordinator.offsets.topics_deleted({"t"})
    play.settle()
    assert fetch(play, {"t": [0]}) == {"t": {0: None}}


def test_offsets_that_are_being_written_are_deleted_with_their_topic(play: Playbook) -> None:
    call: Call[Sequence[ErrorCode]] = Call()
    play.coordinator.transactional_offsets.commit(PRODUCER, CommitRequest(GROUP, [at(5)]), call)
    play.coordinator.offsets.topics_deleted({"t"})
    play.settle()
    assert call.result == [ErrorCode.NONE]
    end(play, committed=True)
    assert fetch(play, {"t": [0]}) == {"t": {0: None}}
    play.restart()
    assert fetch(play, {"t": [0]}) == {"t": {0: None}}


def test_an_offset_is_refused_if_its_topic_was_deleted_while_the_request_waited(play: Playbook) -> None:
    call: Call[Sequence[ErrorCode]] = Call()
    request = CommitRequest(GROUP, [at(5)], topic_by_id=lambda _topic_id: None)
    play.coordinator.transactional_offsets.commit(PRODUCER, request, call)
    assert call.result == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("by", ["request", "topic"])
def test_a_deleted_offset_does_not_come_back_with_the_commit(play: Playbook, by: str, crash: bool) -> None:
    play.commit(at(1))
    commit(play, at(5), at(6, 1))
    commit(play, at(7), producer_id=PRODUCER + 1)
    if by == "request":
        call: Call[Mapping[str, ErrorCode]] = Call()
        play.coordinator.offsets.delete(GROUP, {"t": [0]}, call)
        play.settle()
        assert call.result == {"t": ErrorCode.NONE}
    else:
        play.coordinator.offsets.topics_deleted({"t"})
        play.settle()
    assert offset_of(fetch(play, {"t": [0]})) is None
    if crash:
        play.crash()
    for producer_id in (PRODUCER, PRODUCER + 1):
        end(play, committed=True, producer_id=producer_id)
    assert fetch(play, {"t": [0]}) == {"t": {0: None}}
    assert offset_of(fetch(play, {"t": [1]}), 1) == (6 if by == "request" else None)


def test_a_deletion_follows_a_pending_commit_that_is_being_written(play: Playbook) -> None:
    pending: Call[Sequence[ErrorCode]] = Call()
    play.commit(at(1))
    play.coordinator.transactional_offsets.commit(PRODUCER, CommitRequest(GROUP, [at(5)]), pending)
    deleted: Call[Mapping[str, ErrorCode]] = Call()
    play.coordinator.offsets.delete(GROUP, {"t": [0]}, deleted)
    play.settle()
    assert pending.result == [ErrorCode.NONE]
    end(play, committed=True)
    assert fetch(play, {"t": [0]}) == {"t": {0: None}}


def test_an_offset_that_cannot_be_written_is_not_pending(play: Playbook) -> None:
    play.store.close()
    assert commit(play, at(5)) == [ErrorCode.NOT_COORDINATOR]
    assert fetch(play, {"t": [0]}, stable=False) == {"t": {0: None}}
