"""`SharePartition`: the records of one partition that are in flight in one share group.

A state machine without I/O, lock or clock. Follows Kafka's `SharePartition`, with another representation: all offsets
from `start_offset` to `end_offset` are covered by runs of offsets in the same state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from klamm import ErrorCode, KafkaError
from klamm_broker.share.record_state import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    NEXT_STATES,
    STATE_AFTER,
    AcknowledgeType,
    IllegalRecordTransitionError,
    RecordState,
)
from klamm_broker.share.run import Run
from klamm_broker.share.runs import Runs
from klamm_broker.share.state_changes import StateBatch, StateChanges, StateUpdate


class Acquired(NamedTuple):
    """Offsets that a member has acquired, and the number of their deliveries so far."""

    first: int
    last: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """A range of offsets, both ends included, and either one type for all of them or one type for each."""

    first: int
    last: int
    types: Sequence[int]

    def type_at(self, offset: int) -> int:
        """Return the type of one offset."""
        return self.types[0] if len(self.types) == 1 else self.types[offset - self.first]


class FetchedBatch(NamedTuple):
    """The offsets of a record batch that was read. Records of an aborted batch are archived."""

    first: int
    last: int
    is_aborted: bool = False


class Limits(NamedTuple):
    """The limits of a group: deliveries of one record, and records in flight. If `dead_letters` is True, records that
    the group gives up get letters.
    """

    delivery_count: int
    record_locks: int
    dead_letters: bool = False


class SharePartition:
    """The delivery state of one partition in one group. The caller holds the lock.

    All records before `start_offset` are done. `end_offset` is the last record in flight; `start_offset - 1` if there
    is none.
    """

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = (), *, is_stored: bool = False) -> None:
        self.start_offset = start_offset
        self._runs = Runs()
        self._write = 1
        self._changes = StateChanges(is_stored=is_stored)
        self.dirty = False
        """True if there is a change that no write contains yet."""
        position = start_offset
        for batch in sorted(batches):
            first = max(batch.first, position)
            if batch.last < first:
                continue
            if first > position:
                self._runs.append(Run(position, first - 1, AVAILABLE))
            self._runs.append(Run(first, batch.last, batch.state, batch.delivery_count))
            position = batch.last + 1
        self._advance()

    # Views

    @property
    def end_offset(self) -> int:
        """The last offset in flight."""
        end = self._runs.end
        return self.start_offset - 1 if end is None else end

    @property
    def runs(self) -> Runs:
        """The runs in order of their offsets, without gaps."""
        return self._runs

    @property
    def in_flight(self) -> int:
        """Return the number of offsets between start and end."""
        return self.end_offset - self.start_offset + 1

    @property
    def completed(self) -> int:
        """Return the number of offsets in flight that are done."""
        return self._runs.completed

    def next_fetch_offset(self) -> int:
        """Return the first offset that may be acquired; the offset after the end if no offset in flight may be
        acquired.
        """
        available = self._runs.first_available()
        return self.end_offset + 1 if available is None else available

    def may_acquire(self, limits: Limits) -> bool:
        """Return True if there may be records to acquire. The limit of records in flight applies only to new
        records.
        """
        return self.in_flight < limits.record_locks or self.next_fetch_offset() <= self.end_offset

    def next_deadline_ns(self) -> int | None:
        """Return the monotonic time at which the first lock ends."""
        return self._runs.next_deadline_ns()

    # Acquire

    def acquire(
        self,
        member_id: str,
        offset: int,
        batches: Sequence[FetchedBatch],
        *,
        max_records: int,
        is_strict: bool,
        deadline_ns: int,
        limits: Limits,
    ) -> list[Acquired]:
        """Acquire records of batches that were read from `offset` on. `next_fetch_offset` has returned this offset.

        It acquires whole batches until there are `max_records`. If `is_strict` is True, it acquires at most
        `max_records`. Offsets between batches, where compaction has removed records, belong to the previous batch.
        """
        if not batches or max_records <= 0:
            return []
        # There are no records between the offset and the first batch.
        self._archive_available(offset, batches[0].first - 1)
        self._extend_over_gap(batches[0].first)
        found: list[Acquired] = []
        count = 0
        for index, batch in enumerate(batches):
            if count >= max_records:
                break
            last = batches[index + 1].first - 1 if index + 1 < len(batches) else batch.last
            first = max(batch.first, self.start_offset)
            if last < first:
                continue
            if last > self.end_offset:
                room = limits.record_locks - self.in_flight
                if room <= 0:
                    last = self.end_offset
                else:
                    if is_strict:
                        last = min(last, self.end_offset + min(room, max_records - count))
                    self._append(Run(self.end_offset + 1, last, AVAILABLE))
            if batch.is_aborted:
                self._archive_available(first, last)
                continue
            for acquired in self._acquire_between(
                member_id, first, last, max_records - count if is_strict else None, deadline_ns
            ):
                count += acquired.last - acquired.first + 1
                found.append(acquired)
        self._advance()
        return _joined(found)

    def _acquire_between(
        self, member_id: str, first: int, last: int, most: int | None, deadline_ns: int
    ) -> list[Acquired]:
        found: list[Acquired] = []
        for run in self._runs.between(first, last):
            if run.state is not AVAILABLE or not run.is_settled:
                continue
            if most is not None:
                if most <= 0:
                    break
                run = self._runs.cut(run, run.first, min(run.last, run.first + most - 1))
                most -= run.count
            taken = replace(
                run,
                state=_next(run.state, ACQUIRED),
                delivery_count=run.delivery_count + 1,
                member_id=member_id,
                deadline_ns=deadline_ns,
            )
            self._runs.put(taken)
            found.append(Acquired(taken.first, taken.last, taken.delivery_count))
        return found

    def _extend_over_gap(self, first: int) -> None:
        """Archive the offsets without records between the end and a batch."""
        if first > self.end_offset + 1:
            self._append(Run(self.end_offset + 1, first - 1, ARCHIVED))
            self.dirty = True
            self._advance()

    def _append(self, run: Run) -> None:
        self._runs.append(run)
        self._changes.add(run.first, run.last)

    def _archive_available(self, first: int, last: int) -> None:
        for run in self._runs.between(first, last):
            if run.state is AVAILABLE and run.is_settled:
                self._runs.put(replace(run, state=_next(run.state, ARCHIVED)))
                self._changes.add(run.first, run.last)
                self.dirty = True

    # Acknowledge, release

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], deadline_ns: int, limits: Limits
    ) -> int:
        """Acknowledge records that a member holds: all or, after an error, none. Return the number of the write to wait
        for.

        The number is 0 if there is no write to wait for. Raises KafkaError: INVALID_RECORD_STATE, INVALID_REQUEST.
        """
        for each in acknowledgements:
            self._check(member_id, each)
        _check_apart(acknowledgements)
        changed = False
        for each in acknowledgements:
            for run in self._runs.between(max(each.first, self.start_offset), each.last):
                for part, kind in self._by_type(run, each):
                    if kind == AcknowledgeType.RENEW:
                        self._runs.put(replace(part, deadline_ns=deadline_ns))
                    else:
                        self._leave(part, STATE_AFTER[kind], limits, is_rejected=kind == AcknowledgeType.REJECT)
                        changed = True
        return self._write if changed else 0

    def _check(self, member_id: str, each: Acknowledgement) -> None:
        if each.last < self.start_offset:
            return
        if not self._runs:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        if each.first > self.end_offset:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The first offset in request is past acquired records.",
            )
        if each.last > self.end_offset:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )
        for run in self._runs.overlapping(max(each.first, self.start_offset), each.last):
            if run.state is not ACQUIRED:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    "The batch cannot be acknowledged. The batch is not in the acquired state.",
                )
            if run.member_id != member_id:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record")

    def _by_type(self, run: Run, each: Acknowledgement) -> Iterator[tuple[Run, int]]:
        """Yield the parts of a run whose offsets have the same acknowledge type."""
        if len(each.types) == 1:
            yield run, each.types[0]
            return
        first = run.first
        while first <= run.last:
            kind = each.type_at(first)
            last = first
            while last < run.last and each.type_at(last + 1) == kind:
                last += 1
            part = self._runs.cut(run, first, last)
            yield part, kind
            first = last + 1
            if first <= run.last:
                run = next(self._runs.overlapping(first, first))

    def release(self, member_id: str, limits: Limits) -> bool:
        """Release all records that a member holds. Return True if it held any."""
        held = self._runs.held_by(member_id)
        for run in held:
            self._leave(run, AVAILABLE, limits)
        return bool(held)

    def expire(self, now_ns: int, limits: Limits) -> int:
        """Release the records whose locks have ended. Return their number."""
        count = 0
        while (run := self._runs.first_due(now_ns)) is not None:
            self._leave(run, AVAILABLE, limits)
            count += run.count
        return count

    def _leave(self, run: Run, target: RecordState, limits: Limits, *, is_rejected: bool = False) -> None:
        """End the hold of a member, in a transition that becomes durable with the next write."""
        is_exceeded = target is AVAILABLE and run.delivery_count >= limits.delivery_count
        if is_exceeded:
            target = ARCHIVED
        if limits.dead_letters and (is_exceeded or is_rejected):
            target = ARCHIVING
        left = replace(run, state=_next(run.state, target), member_id="", deadline_ns=0, before=run, write=self._write)
        self._runs.put(replace(left, is_rejected=True) if is_rejected and target is ARCHIVING else left)
        self._changes.add(run.first, run.last)
        self.dirty = True

    def archive(self, first: int, last: int) -> None:
        """Archive the records of these offsets: their dead letters are written, or cannot be."""
        for run in self._runs.between(max(first, self.start_offset), min(last, self.end_offset)):
            if run.state is ARCHIVING and run.is_sent:
                self._runs.put(replace(run, state=_next(run.state, ARCHIVED), is_rejected=False, is_sent=False))
                self._changes.add(run.first, run.last)
                self.dirty = True
        self._advance()

    def move_start(self, log_start_offset: int) -> bool:
        """Note that the log now starts at this offset, so that earlier records are not delivered. Return True if the
        start offset has moved.

        Members may hold earlier records. These are forgotten, and their acknowledgements are accepted and ignored.
        """
        if log_start_offset <= self.start_offset:
            return False
        if log_start_offset > self.end_offset:
            self._runs = Runs()
        else:
            self._runs.drop_before(log_start_offset)
        self.start_offset = log_start_offset
        self.dirty = True
        self._advance()
        return True

    # Writes

    def begin_write(self) -> StateUpdate:
        """Return the update for the store, and begin a write. `written` or `failed` ends the write before the next
        begins.
        """
        update = self._changes.begin_write(self._write, self._runs, self.start_offset, self.end_offset)
        self._write += 1
        self.dirty = False
        return update

    def written(self, number: int) -> None:
        """Make the transitions of a write final, because it is durable."""
        self._runs.settle(number)
        self._advance()

    def failed(self, number: int) -> None:
        """Undo the transitions of a failed write. Their members hold the records again, until the deadline."""
        self._changes.failed()
        for run in self._runs.unwritten(number):
            assert run.before is not None
            self._runs.put(replace(run.before, first=run.first, last=run.last))
        self.dirty = True

    def _advance(self) -> None:
        """Move the start past records that are done."""
        done = self._runs.drop_done()
        if done is not None:
            self.start_offset = done + 1


def _next(state: RecordState, target: RecordState) -> RecordState:
    if target not in NEXT_STATES[state]:
        raise IllegalRecordTransitionError(state, target)
    return target


def _joined(found: Sequence[Acquired]) -> list[Acquired]:
    joined: list[Acquired] = []
    for each in found:
        if joined and joined[-1].last + 1 == each.first and joined[-1].delivery_count == each.delivery_count:
            joined[-1] = joined[-1]._replace(last=each.last)
        else:
            joined.append(each)
    return joined


def _check_apart(acknowledgements: Sequence[Acknowledgement]) -> None:
    for earlier, later in pairwise(acknowledgements):
        if later.first <= earlier.last:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "A record is acknowledged twice.")
