"""Tests of one partition of a share group: records are acquired, acknowledged, released, and timed out."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klamm import ErrorCode, KafkaError
from klamm_broker.share.fetching import PendingShareFetch
from klamm_broker.share.partition import Acknowledgement, Acquired, FetchedBatch, Limits, SharePartition
from klamm_broker.share.record_state import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    FINAL_STATES,
    NEXT_STATES,
    RecordState,
)
from klamm_broker.share.run import Run
from klamm_broker.share.runs import Runs
from klamm_broker.share.state_changes import StateBatch, StateUpdate
from tests.unit.share.saved import Saved

LIMITS = Limits(delivery_count=3, record_locks=100)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


def acquire(
    partition: SharePartition,
    member_id: str,
    *batches: tuple[int, int],
    max_records: int = 1000,
    is_strict: bool = False,
    limits: Limits = LIMITS,
    deadline_ns: int = 10,
) -> list[Acquired]:
    return partition.acquire(
        member_id,
        partition.next_fetch_offset(),
        [FetchedBatch(*batch) for batch in batches],
        max_records=max_records,
        is_strict=is_strict,
        deadline_ns=deadline_ns,
        limits=limits,
    )


def acknowledge(partition: SharePartition, member_id: str, *batches: tuple[int, int, Sequence[int]]) -> None:
    """Acknowledge, and make it durable."""
    partition.acknowledge(member_id, [Acknowledgement(*batch) for batch in batches], 20, LIMITS)
    write(partition)


def write(partition: SharePartition) -> None:
    partition.written(partition.begin_write().number)


def durable(partition: SharePartition) -> dict[int, tuple[RecordState, int]]:
    """Return the required durable state of each offset. Records that members hold count as available there."""
    return {
        offset: (AVAILABLE, run.delivery_count - 1) if run.state is ACQUIRED else (run.state, run.delivery_count)
        for run in partition.runs
        for offset in range(run.first, run.last + 1)
    }


def states(partition: SharePartition) -> list[tuple[int, int, RecordState, int]]:
    return [(run.first, run.last, run.state, run.delivery_count) for run in partition.runs]


def test_records_are_acquired_once_and_the_start_moves_past_finished_records() -> None:
    partition = SharePartition(5)
    assert acquire(partition, "a", (0, 9), (10, 14)) == [(5, 14, 1)]
    assert partition.next_fetch_offset() == 15
    acknowledge(partition, "a", (5, 8, [ACCEPT]), (10, 12, [REJECT, GAP, ACCEPT]))
    assert (partition.start_offset, partition.end_offset, partition.completed) == (9, 14, 3)
    acknowledge(partition, "a", (9, 9, [RELEASE]))
    assert partition.next_fetch_offset() == 9
    assert acquire(partition, "b", (0, 9), (10, 14), (15, 19)) == [(9, 9, 2), (15, 19, 1)]
    acknowledge(partition, "a", (13, 14, [ACCEPT]))
    acknowledge(partition, "b", (9, 9, [ACCEPT]), (15, 19, [ACCEPT]))
    assert (partition.start_offset, partition.end_offset, states(partition)) == (20, 19, [])


def test_a_release_is_available_when_it_is_durable() -> None:
    partition = SharePartition(0)
    acquire(partition, "a", (0, 4))
    waits_for = partition.acknowledge("a", [Acknowledgement(0, 4, [RELEASE])], 0, LIMITS)
    assert partition.next_fetch_offset() == 5
    number = partition.begin_write().number
    assert number == waits_for
    partition.written(number)
    assert partition.next_fetch_offset() == 0


def test_after_a_failed_write_the_member_still_holds_its_records() -> None:
    partition = SharePartition(0)
    acquire(partition, "a", (0, 4))
    partition.acknowledge("a", [Acknowledgement(0, 2, [ACCEPT])], 0, LIMITS)
    number = partition.begin_write().number
    partition.failed(number)
    assert states(partition) == [(0, 4, ACQUIRED, 1)] or states(partition) == [
        (0, 2, ACQUIRED, 1),
        (3, 4, ACQUIRED, 1),
    ]
    acknowledge(partition, "a", (0, 4, [ACCEPT]))
    assert partition.start_offset == 5


def test_a_record_that_was_delivered_too_often_is_archived() -> None:
    partition = SharePartition(0)
    for delivery in (1, 2, 3):
        assert acquire(partition, "a", (0, 1)) == [(0, 1, delivery)]
        acknowledge(partition, "a", (0, 1, [RELEASE]))
    assert partition.start_offset == 2
    assert acquire(partition, "a", (0, 1)) == []


@pytest.mark.parametrize(
    ("member_id", "batch", "error"),
    [
        ("b", (0, 4, [ACCEPT]), ErrorCode.INVALID_RECORD_STATE),
        ("a", (5, 6, [ACCEPT]), ErrorCode.INVALID_RECORD_STATE),
        ("a", (3, 12, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        ("a", (12, 13, [ACCEPT]), ErrorCode.INVALID_REQUEST),
    ],
)
def test_records_that_a_member_does_not_hold_cannot_be_acknowledged(
    member_id: str, batch: tuple[int, int, list[int]], error: ErrorCode
) -> None:
    partition = SharePartition(0)
    acquire(partition, "a", (0, 9))
    acknowledge(partition, "a", (5, 6, [ACCEPT]))
    before = states(partition)
    with pytest.raises(KafkaError) as caught:
        acknowledge(partition, member_id, (7, 7, [ACCEPT]), batch)
    assert caught.value.error_code == error
    assert states(partition) == before, "all or nothing"


def test_acknowledgements_of_finished_records_are_accepted() -> None:
    partition = SharePartition(0)
    acquire(partition, "a", (0, 9))
    assert partition.move_start(6)
    acknowledge(partition, "a", (0, 7, [ACCEPT]))
    assert partition.start_offset == 8
    assert partition.acknowledge("a", [Acknowledgement(0, 3, [ACCEPT])], 0, LIMITS) == 0


def test_an_empty_partition_has_nothing_to_acknowledge() -> None:
    with pytest.raises(KafkaError) as caught:
        acknowledge(SharePartition(0), "a", (0, 0, [ACCEPT]))
    assert caught.value.error_code == ErrorCode.INVALID_RECORD_STATE


def test_acquisition_rounds_up_to_whole_batches_unless_strict() -> None:
    assert acquire(SharePartition(0), "a", (0, 9), (10, 19), (20, 29), max_records=12) == [(0, 19, 1)]
    partition = SharePartition(0)
    assert acquire(partition, "a", (0, 9), (10, 19), max_records=12, is_strict=True) == [(0, 11, 1)]
    assert partition.next_fetch_offset() == 12
    assert acquire(partition, "b", (10, 19), max_records=3, is_strict=True) == [(12, 14, 1)]


def test_no_more_records_are_in_flight_than_the_limit_and_a_batch() -> None:
    limits = Limits(3, 15)
    partition = SharePartition(0)
    assert acquire(partition, "a", (0, 9), (10, 19), (20, 29), limits=limits) == [(0, 19, 1)]
    assert not partition.may_acquire(limits)
    acknowledge(partition, "a", (3, 5, [RELEASE]))
    assert partition.may_acquire(limits)
    assert acquire(partition, "b", (0, 9), (10, 19), (20, 29), limits=limits) == [(3, 5, 2)]


def test_gaps_and_aborted_batches_are_not_delivered() -> None:
    partition = SharePartition(0)
    found = partition.acquire(
        "a",
        0,
        [FetchedBatch(4, 5), FetchedBatch(8, 9, is_aborted=True), FetchedBatch(12, 12)],
        max_records=100,
        is_strict=False,
        deadline_ns=1,
        limits=LIMITS,
    )
    # Offsets between batches belong to the batch before them, so the client reports them as a gap.
    assert found == [(4, 7, 1), (12, 12, 1)]
    assert partition.start_offset == 4
    acknowledge(partition, "a", (4, 7, [ACCEPT, ACCEPT, GAP, GAP]), (12, 12, [ACCEPT]))
    assert partition.start_offset == 13


def test_locks_end_and_can_be_extended() -> None:
    partition = SharePartition(0)
    acquire(partition, "a", (0, 4), deadline_ns=10)
    acquire(partition, "b", (5, 9), deadline_ns=15)
    assert partition.next_deadline_ns() == 10
    partition.acknowledge("a", [Acknowledgement(0, 1, [RENEW])], 30, LIMITS)
    assert partition.expire(12, LIMITS) == 3
    write(partition)
    assert states(partition)[:2] == [(0, 1, ACQUIRED, 1), (2, 4, AVAILABLE, 1)]
    assert partition.next_deadline_ns() == 15


def test_records_of_a_leaving_member_are_released() -> None:
    partition = SharePartition(0)
    acquire(partition, "a", (0, 4))
    acquire(partition, "b", (5, 9))
    assert partition.release("a", LIMITS)
    assert not partition.release("c", LIMITS)
    write(partition)
    assert acquire(partition, "b", (0, 4)) == [(0, 4, 2)]


def test_a_start_restores_the_written_state() -> None:
    partition = SharePartition(0)
    acquire(partition, "a", (0, 9))
    acknowledged = [(2, 3, [ACCEPT]), (5, 5, [RELEASE]), (8, 8, [REJECT])]
    partition.acknowledge("a", [Acknowledgement(*each) for each in acknowledged], 20, LIMITS)
    with Saved() as saved:
        saved.commit(partition.begin_write())
        loaded = saved.load()
    assert states(loaded) == [
        (0, 1, AVAILABLE, 0),
        (2, 3, ACKNOWLEDGED, 1),
        (4, 4, AVAILABLE, 0),
        (5, 5, AVAILABLE, 1),
        (6, 7, AVAILABLE, 0),
        (8, 8, ARCHIVED, 1),
        (9, 9, AVAILABLE, 0),
    ], "what was held is free, and its delivery does not count"
    assert acquire(loaded, "b", (0, 9))[0] == (0, 1, 1)
    holes = SharePartition(3, [StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(7, 7, ARCHIVED, 2)])
    assert (holes.start_offset, states(holes)) == (5, [(5, 6, AVAILABLE, 0), (7, 7, ARCHIVED, 2)])


def test_the_start_of_the_log_may_move_past_all_records_in_flight() -> None:
    partition = SharePartition(0)
    acquire(partition, "a", (0, 9))
    assert partition.move_start(50)
    assert not partition.move_start(50)
    assert (partition.start_offset, partition.end_offset, partition.next_fetch_offset()) == (50, 49, 50)


def test_a_final_state_does_not_change() -> None:
    assert {state for state in RecordState if not NEXT_STATES[state]} == FINAL_STATES


def test_runs_have_no_holes() -> None:
    runs = Runs()
    runs.append(Run(0, 4, AVAILABLE))
    with pytest.raises(RuntimeError):
        runs.append(Run(6, 7, AVAILABLE))
    with pytest.raises(RuntimeError):
        runs.put(Run(0, 3, AVAILABLE))


class Deliveries(RuleBasedStateMachine):
    """Random members acquire, acknowledge, release and time out. Writes succeed, fail, or are lost in a crash.

    A model knows who holds each record. No record is held twice, delivered after a durable acknowledgement, or
    delivered more often than the limit. In the end each record is delivered until it is done.
    """

    members = ("a", "b", "c")
    size = 40

    @initialize()
    def start(self) -> None:
        self.partition = SharePartition(0)
        self.holders: dict[int, str] = {}
        self.done: set[int] = set()
        self.unconfirmed: list[tuple[int, set[int]]] = []
        self.writes: list[StateUpdate] = []
        self.saved = Saved()
        self.now = 0

    def batches(self, offset: int) -> list[FetchedBatch]:
        """Return the batches of the log, of four records each, up to the size."""
        return [FetchedBatch(first, first + 3) for first in range(offset // 4 * 4, self.size, 4)]

    @rule(member=st.sampled_from(members), most=st.integers(1, 12), is_strict=st.booleans())
    def acquire(self, member: str, most: int, is_strict: bool) -> None:
        offset = self.partition.next_fetch_offset()
        self.now += 1
        found = self.partition.acquire(
            member,
            offset,
            self.batches(offset),
            max_records=most,
            is_strict=is_strict,
            deadline_ns=self.now + 5,
            limits=LIMITS,
        )
        for each in found:
            assert 1 <= each.delivery_count <= LIMITS.delivery_count
            for record in range(each.first, each.last + 1):
                assert record not in self.holders, "held twice"
                assert record not in self.done, "delivered again"
                self.holders[record] = member
        if is_strict:
            assert sum(each.last - each.first + 1 for each in found) <= most

    @rule(member=st.sampled_from(members), data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        held = sorted(record for record, holder in self.holders.items() if holder == member)
        if not held:
            return
        first = data.draw(st.sampled_from(held))
        last = first
        while last + 1 in held and data.draw(st.booleans()):
            last += 1
        types = data.draw(st.lists(st.integers(0, 3), min_size=last - first + 1, max_size=last - first + 1))
        write = self.partition.acknowledge(member, [Acknowledgement(first, last, types)], 0, LIMITS)
        for record in range(first, last + 1):
            del self.holders[record]
        finished = {first + index for index, kind in enumerate(types) if kind != RELEASE}
        self.unconfirmed.append((write, finished))

    @rule(steps=st.integers(0, 6))
    def time_passes(self, steps: int) -> None:
        self.now += steps
        self.partition.expire(self.now, LIMITS)
        self._look_again()

    @rule(member=st.sampled_from(members))
    def member_goes(self, member: str) -> None:
        self.partition.release(member, LIMITS)
        self._look_again()

    def _look_again(self) -> None:
        held = {
            record: run.member_id
            for run in self.partition.runs
            if run.state is ACQUIRED
            for record in range(run.first, run.last + 1)
        }
        assert held.items() <= self.holders.items()
        self.holders = held

    @rule()
    @precondition(lambda self: not self.writes)
    def begin_write(self) -> None:
        self.writes.append(self.partition.begin_write())
        self.expected = durable(self.partition)

    @rule(succeeds=st.booleans())
    @precondition(lambda self: self.writes)
    def end_write(self, succeeds: bool) -> None:
        update = self.writes.pop()
        number = update.number
        confirmed = [records for write, records in self.unconfirmed if write == number]
        self.unconfirmed = [each for each in self.unconfirmed if each[0] != number]
        if succeeds:
            self.saved.commit(update)
            assert self.saved.states() == self.expected, "the changes give what all of it would"
            self.partition.written(number)
            for records in confirmed:
                self.done |= records
        else:
            self.partition.failed(number)
            self.holders = {
                record: run.member_id
                for run in self.partition.runs
                if run.state is ACQUIRED
                for record in range(run.first, run.last + 1)
            }

    @rule()
    def crash(self) -> None:
        self.partition = self.saved.load()
        self.writes.clear()
        self.unconfirmed.clear()
        self.holders.clear()

    @invariant()
    def covered(self) -> None:
        if not hasattr(self, "partition"):
            return
        position = self.partition.start_offset
        for run in self.partition.runs:
            assert run.first == position
            position = run.last + 1
        assert position == self.partition.end_offset + 1
        assert all(run.count > 0 for run in self.partition.runs)

    @rule()
    @precondition(lambda self: not self.writes)
    def write(self) -> None:
        self.begin_write()
        self.end_write(True)

    @rule(start=st.integers(1, 4).map(lambda steps: 10 * steps))
    def log_start_moves(self, start: int) -> None:
        """Let retention remove records, also beyond those in flight."""
        self.partition.move_start(start)
        self.holders = {record: holder for record, holder in self.holders.items() if record >= start}

    @rule(member=st.sampled_from(members), steps=st.integers(1, 9))
    def renew(self, member: str, steps: int) -> None:
        held = sorted(record for record, holder in self.holders.items() if holder == member)
        if held:
            self.partition.acknowledge(
                member, [Acknowledgement(held[0], held[0], [RENEW])], self.now + 5 + steps, LIMITS
            )

    @invariant()
    def counts_and_the_next_deadline_are_known(self) -> None:
        if not hasattr(self, "partition"):
            return
        runs = list(self.partition.runs)
        held = [run for run in runs if run.state is ACQUIRED]
        assert self.partition.next_deadline_ns() == min((run.deadline_ns for run in held), default=None)
        assert self.partition.runs.acquired == sum(run.count for run in held)
        assert self.partition.completed == sum(run.count for run in runs if run.state in FINAL_STATES)

    @invariant()
    def next_is_known(self) -> None:
        if hasattr(self, "partition"):
            free = [run.first for run in self.partition.runs if run.state is AVAILABLE and run.is_settled]
            assert self.partition.next_fetch_offset() == min(free, default=self.partition.end_offset + 1)

    def teardown(self) -> None:
        """One member that accepts everything must reach the end, whatever has happened."""
        if not hasattr(self, "partition"):
            return
        for update in self.writes:
            self.partition.written(update.number)
        for member in self.members:
            self.partition.release(member, LIMITS)
        write(self.partition)
        for _ in range(self.size):
            offset = self.partition.next_fetch_offset()
            if offset >= self.size:
                break
            for each in acquire(self.partition, "z", *((b.first, b.last) for b in self.batches(offset))):
                acknowledge(self.partition, "z", (each.first, each.last, [ACCEPT]))
        assert self.partition.start_offset == self.size
        self.saved.close()


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_start_of_the_next_fetch_is_found_without_a_search() -> None:
    """At each append, every waiting member of the group asks for the start of its next fetch."""
    count = 2000
    partition = SharePartition(0, [StateBatch(2 * at, 2 * at, ACKNOWLEDGED, 1) for at in range(1, count)])
    limits = Limits(delivery_count=3, record_locks=2 * count - 1)
    for at in range(count):
        acquire(partition, "a", (max(2 * at - 1, 0), max(2 * at - 1, 0)), limits=limits)
    assert not partition.may_acquire(limits)
    assert partition.next_fetch_offset() == partition.end_offset + 1
    acknowledge(partition, "a", (1, 1, [RELEASE]))
    assert partition.next_fetch_offset() == 1
    assert partition.may_acquire(limits)


class CountedBatches(list[FetchedBatch]):
    """Counts how often a batch is read."""

    taken = 0

    def __getitem__(self, index: Any) -> Any:
        self.taken += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_parts_of_a_batch_size_end_with_a_batch(size: int) -> None:
    acquired = [Acquired(0, 4, 1), Acquired(6, 6, 1), Acquired(8, 20, 1)]
    batches = CountedBatches(FetchedBatch(at, at) for at in range(21))
    fetch: Any = SimpleNamespace(_batch_size=size)
    delivery: Any = SimpleNamespace(acquired=acquired, read=SimpleNamespace(batches=batches))
    parts = PendingShareFetch._in_batches(fetch, delivery)
    assert [offset for part in parts for offset in range(part.first, part.last + 1)] == [
        offset for each in acquired for offset in range(each.first, each.last + 1)
    ]
    assert all(part.last - part.first + 1 == size for part in parts if part.last not in (4, 6, 20))
    assert batches.taken <= 3 * len(batches)
