"""A transaction coordinator whose steps a test takes by hand: writes of the store, markers, syncs and crashes.

The coordinator, its registry and its markers are the broker's own. The store is a database in memory that commits one
write at a time. A log is a list. Work for other threads waits in a queue.
"""

from __future__ import annotations

import functools
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm.runtime import Scheduler
from klamm.runtime.clock import ManualClock
from klamm.wire.records import ControlRecordType
from klamm_broker.storage.migrations import MIGRATIONS
from klamm_broker.storage.store import Durable, Statement, StoreError
from klamm_broker.transaction_settings import TransactionSettings
from klamm_broker.transactions.coordinator import TransactionCoordinator
from klamm_broker.transactions.ends import ProducerIdAndEpoch
from klamm_broker.transactions.markers import TransactionMarkers
from klamm_broker.transactions.transaction_registry import TransactionRegistry

TOPIC = "t"
CLIENT_VERSION = 2
"""The `transaction.version` of the clients. With it an end raises the epoch (KIP-890)."""


class Entry(NamedTuple):
    """A batch of one value, or a marker."""

    producer: ProducerIdAndEpoch
    value: str
    kind: ControlRecordType | None = None


class Appended(NamedTuple):
    last_offset: int


@dataclass(eq=False)
class FakeLog:
    """A partition and its log. Synced entries survive a power failure."""

    entries: list[Entry] = field(default_factory=list)
    synced: int = 0

    @property
    def log(self) -> FakeLog:
        return self

    @property
    def end_offset(self) -> int:
        return len(self.entries)

    def append(self, entry: Entry) -> Appended:
        """Append the entry, unless a later epoch of the producer is known."""
        producer_id, epoch = entry.producer
        if any(one.producer.producer_id == producer_id and one.producer.producer_epoch > epoch for one in self.entries):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        self.entries.append(entry)
        return Appended(len(self.entries) - 1)

    def append_marker(
        self, kind: ControlRecordType, *, producer_id: int, producer_epoch: int, coordinator_epoch: int, now_ms: int
    ) -> Appended:
        return self.append(Entry(ProducerIdAndEpoch(producer_id, producer_epoch), kind.name, kind))

    def committed(self) -> list[str]:
        """Return the values that a consumer with `read_committed` sees if it may read to the end."""
        open_: dict[int, list[str]] = {}
        found: list[str] = []
        for producer, value, kind in self.entries:
            if kind is None:
                open_.setdefault(producer.producer_id, []).append(value)
            else:
                ended = open_.pop(producer.producer_id, [])
                found += ended if kind is ControlRecordType.COMMIT else []
        return found


class FakeTopics:
    """One topic with these partitions."""

    def __init__(self, logs: Sequence[FakeLog]) -> None:
        self._logs = logs

    def get(self, name: str) -> FakeTopics:
        return self

    def partition(self, index: int) -> FakeLog:
        return self._logs[index]


class Queue:
    """Work for another thread. A test runs it."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()

    def submit(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)


class FakeFlusher(Queue):
    """Syncs one log at a time."""

    def request(self, log: FakeLog, offset: int, on_flushed: Callable[[KafkaError | None], None]) -> None:
        def sync() -> None:
            log.synced = max(log.synced, offset)
            on_flushed(None)

        self.submit(sync)


@functools.cache
def _tables() -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript("".join(MIGRATIONS))
    return connection.serialize()


class FakeStore:
    """A store that commits the oldest write at each `step`.

    Synced writes, and all before them, survive a power failure.
    """

    def __init__(self, database: bytes) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.deserialize(database)
        self.synced = database
        self.is_synced = True
        self.waiting: deque[tuple[Sequence[Statement], Durable | None, bool]] = deque()

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def submit(
        self, statements: Sequence[Statement], on_durable: Durable | None = None, *, sync: bool | None = None
    ) -> None:
        self.waiting.append((statements, on_durable, bool(sync)))

    def write_and_wait(self, statements: Sequence[Statement]) -> None:
        for sql, parameters in statements:
            self._connection.execute(sql, parameters)
        self.synced, self.is_synced = self.database, True

    def step(self, *, fails: bool = False) -> None:
        statements, on_durable, sync = self.waiting.popleft()
        if not fails:
            for sql, parameters in statements:
                self._connection.execute(sql, parameters)
            self.is_synced = sync
            if sync:
                self.synced = self.database
        if on_durable is not None:
            on_durable(StoreError("the disk is full") if fails else None)

    @property
    def database(self) -> bytes:
        return self._connection.serialize()

    def rows(self) -> list[tuple[Any, ...]]:
        return self.read("SELECT * FROM transactions") + self.read("SELECT * FROM added_partitions")


class FakeProducerIds:
    """Producer ids that are never assigned twice, also after a crash."""

    def __init__(self) -> None:
        self.next = 1000

    def allocate(self) -> int:
        self.next += 1
        return self.next


class NoOffsets:
    """Transactions without offsets of groups."""

    def statements_of_end(self, producer_id: int, *, committed: bool) -> list[Statement]:
        return []

    def ended(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing, because there are no offsets."""


class World:
    """A node with `partitions` logs, and a coordinator that starts again after a crash."""

    flusher_class = FakeFlusher

    def __init__(self, partitions: int) -> None:
        self.clock = ManualClock()
        self.logs = [FakeLog() for _ in range(partitions)]
        self._ids = FakeProducerIds()
        self.store = FakeStore(_tables())
        self._start(lost_power=False)

    def _start(self, *, lost_power: bool) -> None:
        self.flusher = self.flusher_class()
        self.worker = Queue()
        self.scheduler = Scheduler(self.clock)
        topics: Any = FakeTopics(self.logs)
        flusher: Any = self.flusher
        markers = TransactionMarkers(topics, flusher, self.clock)
        worker: Any = self.worker
        markers._worker = worker
        store: Any = self.store
        ids: Any = self._ids
        offsets: Any = NoOffsets()
        self.registry = TransactionRegistry(store)
        self.coordinator = TransactionCoordinator(
            self.clock, self.scheduler, self.registry, TransactionSettings(), ids, markers, offsets, lambda: 2
        )
        self.coordinator.load()
        if lost_power:
            self.abort_open()
        self.coordinator.resume()

    def abort_open(self) -> None:
        """Abort open transactions, as a start does after a power failure."""
        self.coordinator.abort_open()

    def kill(self) -> None:
        """End the process. Written data stays."""
        self.store = FakeStore(self.store.database)
        self._start(lost_power=False)

    def lose_power(self) -> None:
        """Turn the machine off. Synced data stays."""
        self.store = FakeStore(self.store.synced)
        for log in self.logs:
            del log.entries[log.synced :]
        self._start(lost_power=True)

    def settle(self) -> None:
        """Do all waiting work, also timers."""
        for _ in range(100):
            if self.store.waiting:
                self.store.step()
            elif self.flusher.waiting:
                self.flusher.waiting.popleft()()
            elif self.worker.waiting:
                self.worker.waiting.popleft()()
            else:
                self.clock.advance_ms(30_000)
                self.scheduler.run_due()
                if not (self.store.waiting or self.flusher.waiting or self.worker.waiting):
                    return
        raise AssertionError("it never comes to rest")

    def state(self) -> tuple[Any, ...]:
        """Return everything that determines the future."""
        return (
            tuple(self.store.rows()),
            self.store.is_synced,
            tuple((tuple(log.entries), log.synced) for log in self.logs),
            tuple((each.transactional_id, each.record, each.pending) for each in self.registry.all()),
            tuple(repr(statements) for statements, _, _ in self.store.waiting),
            len(self.flusher.waiting),
            len(self.worker.waiting),
        )
