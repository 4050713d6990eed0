"""`LiveSharePartition`: a share partition with its lock, its timer, its reads of the log and its durable writes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError, clipped
from klamm.runtime import Clock, Scheduler, Timer
from klamm_broker.configs.group_config_keys import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_DELIVERY_COUNT_LIMIT,
    SHARE_ISOLATION_LEVEL,
    SHARE_MAX_RECORD_LOCKS,
    SHARE_RECORD_LOCK_DURATION,
    reset_duration_ms,
)
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.numbers import NS_PER_MS
from klamm_broker.share import persistence
from klamm_broker.share.account import ShareAccount
from klamm_broker.share.dead_letters import DeadLetters
from klamm_broker.share.log_batches import ReadBatches, read_batches
from klamm_broker.share.meters import PartitionMeters, ShareMeters
from klamm_broker.share.partition import Acknowledgement, Acquired, Limits, SharePartition
from klamm_broker.share.persistence import SavedPartition, SharePartitionKey
from klamm_broker.share.record_state import AcknowledgeType
from klamm_broker.storage.store import Statement, Store, StoreError
from klamm_broker.topics.topic import Partition

log = logging.getLogger("klamm.broker.share")

_NO_EPOCH: Final = -1
_RETRY_MS: Final = 1000


class Outcome(NamedTuple):
    """The result of an acknowledgement."""

    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None


Done = Callable[[Outcome], None]
"""A callback that is called once, with the outcome of a change: when the change is durable or has failed."""


class ShareParts(NamedTuple):
    """Objects that all share partitions of a broker use. `wake(key)` completes fetches that wait for that key.
    `group_rows(group_id)` returns statements that are written together with a partition's state.
    """

    clock: Clock
    scheduler: Scheduler
    store: Store
    configs: GroupConfigs
    wake: Callable[[LiveSharePartition], object]
    meters: ShareMeters
    group_rows: Callable[[str], Sequence[Statement]]
    letters: Callable[[], DeadLetters]


class Delivery(NamedTuple):
    """The records for a member. `acquired` and the records are empty if there is nothing to acquire."""

    read: ReadBatches
    acquired: Sequence[Acquired]


class LiveSharePartition:
    """One partition in one share group. Any thread may call its methods, which wait for the disk only to read records.

    `SharePartitions` makes it. Handlers of share APIs and the timer of its locks call it. In the purgatory, a share
    fetch waits under this object as its key, for records that other members release.
    """

    def __init__(self, key: SharePartitionKey, partition: Partition, parts: ShareParts, account: ShareAccount) -> None:
        self.key = key
        self._account = account
        self.partition = partition
        self._parts = parts
        # Protects the state, its waiting writes and the timer.
        self._lock = threading.Lock()
        self._state: SharePartition | None = None
        self._saved: SavedPartition | None = None
        """The state in the store, until the log can be opened."""
        self.is_closed = False
        """True if the partition was closed: its group or topic is deleted, or the broker stops."""
        self._is_writing = False
        self._is_pausing = False
        """True if a write has failed. Until one succeeds, only acknowledgements start a write."""
        self._waiting: dict[int, list[Done]] = {}
        self._timer: Timer | None = None
        self._timer_deadline_ns = 0
        self.lock_timeouts = 0
        """Number of records whose locks have timed out."""
        self.meters = PartitionMeters()

    # State

    def restore(self, saved: SavedPartition) -> None:
        """Restore the stored state, but not for records that the log has lost, because new records get their offsets.

        If the log cannot be opened now, the first use after it can be opened restores the state.
        """
        with self._lock:
            self._saved = saved
            try:
                self._loaded()
            except KafkaError as error:
                log.error("group %s, %r: %s", clipped(self.key.group_id), self.partition, error)
            self._write_if_dirty()

    def view(self) -> tuple[int, int, int] | None:
        """Return the start offset, the end offset and the number of done records between them; None until the state is
        loaded.
        """
        with self._lock:
            state = self._state
            return None if state is None else (state.start_offset, state.end_offset, state.completed)

    def counts(self) -> tuple[int, int]:
        """Return the numbers of records and of runs in flight."""
        with self._lock:
            return (0, 0) if self._state is None else (self._state.in_flight, len(self._state.runs))

    def _limits(self) -> Limits:
        configs, group_id = self._parts.configs, self.key.group_id
        letters = self._parts.letters().is_on(group_id)
        deliveries = configs.number(group_id, SHARE_DELIVERY_COUNT_LIMIT)
        return Limits(deliveries, configs.number(group_id, SHARE_MAX_RECORD_LOCKS), letters)

    def _loaded(self) -> SharePartition:
        if self._state is None and self._saved is not None:
            self._state = _restored(self.partition, self._saved)
            self._saved = None
        elif self._state is None:
            began_ns = self._parts.clock.monotonic_ns()
            self._state = SharePartition(_first_offset(self.partition, self._parts, self.key.group_id))
            self._parts.meters.loaded(self._parts.clock.monotonic_ns() - began_ns)
            # The start is written, so that the group gets all records from there on, also after a restart.
            self._state.dirty = True
        return self._state

    # Acquire

    def has_records(self) -> bool:
        """Return True if a fetch may find records now. Raises KafkaError like `fetch`."""
        with self._lock:
            state = self._loaded()
            self._write_if_dirty()
            if self.is_closed or not state.may_acquire(self._limits()) or not self._account.has_room():
                return False
            return state.next_fetch_offset() < self._end()

    def _end(self) -> int:
        partition = self.partition
        if self._reads_committed():
            return partition.last_stable_offset
        return partition.high_watermark

    def _reads_committed(self) -> bool:
        isolation = self._parts.configs.value(self.key.group_id, SHARE_ISOLATION_LEVEL)
        return bool(isolation == READ_COMMITTED)

    def fetch(
        self,
        member_id: str,
        max_bytes: int,
        *,
        max_records: int,
        is_strict: bool,
        min_one_batch: bool,
        is_alive: Callable[[], bool],
    ) -> Delivery:
        """Read and acquire records. `is_alive()` returns True while the member has its session.

        Raises the errors of `LogReader.read` except OFFSET_OUT_OF_RANGE: records that the log has lost are skipped.
        """
        committed_only = self._reads_committed()
        limits = self._limits()
        if self.partition.topic.deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        with self._lock:
            began_ns = self._parts.clock.monotonic_ns()
            state = self._loaded()
            state.move_start(self.partition.log.log_start_offset)
            may_acquire = state.may_acquire(limits) and self._account.has_room()
            if self.is_closed or not is_alive() or not may_acquire:
                self._write_if_dirty()
                return Delivery(ReadBatches(b"", []), ())
            offset = state.next_fetch_offset()
            found = self._read(offset, limits, max_bytes, min_one_batch, committed_only)
            acquired = state.acquire(
                member_id,
                offset,
                found.batches,
                max_records=max_records,
                is_strict=is_strict,
                deadline_ns=self._deadline_ns(),
                limits=limits,
            )
            self._arm()
            self._write_if_dirty()
            self.meters.fetched(began_ns, self._parts.clock.monotonic_ns(), acquired)
        if not acquired:
            found.close()
            return Delivery(ReadBatches(b"", []), ())
        return Delivery(found.between(acquired[0].first, acquired[-1].last), acquired)

    def _read(
        self, offset: int, limits: Limits, max_bytes: int, min_one_batch: bool, committed_only: bool
    ) -> ReadBatches:
        state = self._loaded()
        try:
            got = self.partition.read(
                offset, max_bytes, _NO_EPOCH, min_one_message=min_one_batch, committed_only=committed_only
            )
        except KafkaError as error:
            if error.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # The log ends before this offset: records were lost, and new records get their offsets.
            end = self.partition.high_watermark
            if offset > end:
                log.warning("group %s, %r: the log ends at %d", clipped(self.key.group_id), self.partition, end)
                self._state = SharePartition(min(state.start_offset, end))
                self._state.dirty = True
                # These acknowledgements wait for a write of the previous state.
                self._fail_waiting()
            return ReadBatches(b"", [])
        # Later records cannot be acquired now. A read may have hundreds of thousands of batches.
        last_offset = max(state.end_offset, offset + limits.record_locks - 1)
        return read_batches(got, last_offset, limits.record_locks)

    def _deadline_ns(self) -> int:
        duration_ms = self._parts.configs.number(self.key.group_id, SHARE_RECORD_LOCK_DURATION)
        return self._parts.clock.monotonic_ns() + duration_ms * NS_PER_MS

    # Acknowledge, release

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], done: Done) -> None:
        """Acknowledge records that the member holds. `done` is called at once with an error, else when the change is
        durable.
        """
        try:
            with self._lock:
                if self.is_closed:
                    # A closed partition makes no more writes, so the caller would wait for ever.
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                write = self._loaded().acknowledge(member_id, acknowledgements, self._deadline_ns(), self._limits())
                if write:
                    self._waiting.setdefault(write, []).append(done)
                self._arm()
                self._write_if_dirty()
        except KafkaError as error:
            done(Outcome(ErrorCode(error.error_code), error.message))
            return
        if not write:
            done(Outcome())

    def give_back(self, member_id: str, acquired: Sequence[Acquired]) -> None:
        """Release records that `fetch` has acquired, because they will not be sent."""
        released = [Acknowledgement(each.first, each.last, (AcknowledgeType.RELEASE,)) for each in acquired]
        self.acknowledge(member_id, released, lambda _outcome: None)

    def release(self, member_id: str, is_due: Callable[[], bool] = lambda: True) -> None:
        """Release all records that a member holds, unless `is_due()` returns False, e.g. because of a new session."""
        with self._lock:
            if self._state is not None and is_due() and self._state.release(member_id, self._limits()):
                self._write_if_dirty()

    def set_start(self, start_offset: int) -> None:
        """Start again at an offset. Write it once more, because a write of the previous state may have followed the
        caller's write.
        """
        with self._lock:
            self._state, self._saved = SharePartition(start_offset), None
            self._state.dirty = True
            self._fail_waiting()
            self._write_if_dirty()
        self._parts.wake(self)

    def close(self) -> None:
        """Stop acquiring and writing, because the group or the topic is deleted or the broker stops."""
        with self._lock:
            self.is_closed = True
            self._account.close()
            self._fail_waiting()
            if self._timer is not None:
                self._timer.cancel()

    def _fail_waiting(self) -> None:
        waiting = [done for each in self._waiting.values() for done in each]
        self._waiting.clear()
        if waiting:
            # The callbacks may call this object, so they are not called under the lock.
            self._parts.scheduler.schedule(0, lambda: _fail(waiting))

    # Locks that time out

    def _arm(self) -> None:
        state = self._state
        deadline_ns = state.next_deadline_ns() if state is not None else None
        if deadline_ns is None or self.is_closed:
            return
        if self._timer is not None:
            if self._timer_deadline_ns <= deadline_ns:
                return
            self._timer.cancel()
        self._timer_deadline_ns = deadline_ns
        left_ms = max(0, deadline_ns - self._parts.clock.monotonic_ns()) / NS_PER_MS
        self._timer = self._parts.scheduler.schedule(left_ms, self._expire)

    def _expire(self) -> None:
        with self._lock:
            self._timer = None
            if self._state is None or self.is_closed:
                return
            expired = self._state.expire(self._parts.clock.monotonic_ns(), self._limits())
            self.lock_timeouts += expired
            self._arm()
            self._write_if_dirty()

    # Writes

    def _write_if_dirty(self) -> None:
        """Write the changes, one write at a time; later changes share the next write. Every method that makes a change
        calls this.
        """
        state = self._state
        if state is not None:
            self._account.count(len(state.runs))
        if state is None or self._is_writing or self.is_closed or not state.dirty:
            return
        if self._is_pausing and not self._waiting:
            return
        update = state.begin_write()
        self._is_writing = True
        statements = [*self._parts.group_rows(self.key.group_id), *persistence.put(self.key, update)]
        self._parts.store.submit(statements, lambda error: self._written(state, update.number, error))

    def _written(self, state: SharePartition, number: int, error: StoreError | None) -> None:
        with self._lock:
            self._is_writing = False
            is_current = state is self._state
            if is_current and error is None:
                state.written(number)
            elif is_current:
                log.error("group %s, %r: %s", clipped(self.key.group_id), self.partition, error)
                state.failed(number)
                if not self._is_pausing:
                    # Otherwise waiting fetches and expired locks would start write after write, without end.
                    self._is_pausing = True
                    self._parts.scheduler.schedule(_RETRY_MS, self._go_on)
            waiting = self._waiting.pop(number, ()) if is_current else ()
            self._arm()
            self._write_if_dirty()
        self.send_letters()
        for done in waiting:
            done(Outcome(ErrorCode.NONE if error is None else ErrorCode.KAFKA_STORAGE_ERROR))
        self._parts.wake(self)

    def send_letters(self) -> None:
        """Send the dead letters of records that were given up since the last call or before a restart."""
        with self._lock:
            given_up = self._state.runs.take_given_up() if self._state is not None else []
        if given_up:
            self._parts.letters().send(self, given_up)

    def letters_sent(self, first: int, last: int) -> None:
        """Archive the records of these offsets: their dead letters are written, or cannot be."""
        with self._lock:
            if self._state is not None:
                self._state.archive(first, last)
                self._write_if_dirty()

    def _go_on(self) -> None:
        with self._lock:
            self._is_pausing = False
            self._write_if_dirty()


def _first_offset(partition: Partition, parts: ShareParts, group_id: str) -> int:
    """Return the offset at which a group begins to read a partition."""
    reset = parts.configs.value(group_id, SHARE_AUTO_OFFSET_RESET)
    records = partition.log
    if reset == EARLIEST:
        return records.log_start_offset
    if reset == LATEST:
        return records.high_watermark
    since_ms = parts.clock.wall_ms() - (reset_duration_ms(reset) or 0)
    found = records.offset_for_timestamp(since_ms)
    return records.high_watermark if found is None else found.offset


def _restored(partition: Partition, saved: SavedPartition) -> SharePartition:
    """Return the stored state without the offsets that the log has lost."""
    end = partition.high_watermark
    kept = [each._replace(last=min(each.last, end - 1)) for each in saved.batches if each.first < end]
    is_whole = saved.start_offset <= end and kept == list(saved.batches)
    state = SharePartition(min(saved.start_offset, end), kept, is_stored=is_whole)
    if not is_whole:
        log.warning("group %s, %r: the log ends at %d", clipped(saved.key.group_id), partition, end)
        # Written before new records arrive, so that a second crash does not restore the old state.
        state.dirty = True
    return state


def _fail(waiting: Sequence[Done]) -> None:
    for done in waiting:
        done(Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER))
