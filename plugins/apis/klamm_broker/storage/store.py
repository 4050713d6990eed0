"""The metadata store: the durable state of a broker besides its logs, in one SQLite file.

State lives in the memory of the parts that own it (topic registry, group coordinator, ...). They load it once with
`read`, and afterwards only write. Writes go through one queue to one owner thread, which commits all queued writes in
one transaction (group commit): a caller that needs durability passes a callback, or waits.

The file is in WAL mode. Every committed write survives `kill -9` of the process. Writes by `write_and_wait` are rare
and important: topics, configs, ACLs, ids. They are synced, and survive a power failure too. Writes by `submit` are
frequent: groups and their offsets. They are synced if `sync_submitted` is set, or if the caller asks for a sync, as for
transactions. A synced commit makes all earlier ones durable. Free pages are returned to the file system, in small steps
between writes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from klamm import ErrorCode, KafkaError
from klamm.runtime import SYSTEM_THREADS, Joinable, Threads, replace_file
from klamm_broker.storage.migrations import MIGRATIONS
from klamm_broker.storage.new_database import INCREMENTAL, new_database

log = logging.getLogger("klamm.broker.store")

_Found = TypeVar("_Found")

SqlValue: TypeAlias = str | bytes | int | float | None
Statement: TypeAlias = tuple[str, Sequence[SqlValue]]
"""One SQL statement and its parameters."""

Durable: TypeAlias = Callable[["StoreError | None"], None]
"""A callback that is called once: with None after the commit, or with the error of a failed write."""

_MAX_WRITES_PER_COMMIT = 4096
_MAX_FREE_PAGES = 1024
"""Number of free pages that the file keeps for later writes; others are returned to the file system."""
_PAGES_PER_STEP = 256
_MAX_IDLE_WAL_BYTES = 16 * 1_048_576
_SUFFIXES = ("", "-wal", "-journal")


class StoreError(KafkaError):
    """Raised if the store cannot be opened, read or written. Clients see KAFKA_STORAGE_ERROR.

    The text of the exception is for logs. `message`, which clients get, contains neither paths nor SQL.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, "The broker's metadata cannot be stored or read at present.")
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


class _Write(NamedTuple):
    statements: Sequence[Statement]
    on_durable: Durable | None
    sync: bool


class Store:
    """Queue, owner thread and connection of one SQLite file.

    Threading: any thread may call `submit`, `write_and_wait` and `read`. Writes become durable in the order in which
    they were submitted. Callbacks run on the owner thread, so they must not block, and they hold no lock.

    Life: `open()` → `read(...)` by the owners of state → `start()` → writes → `close()`. A test may leave out
    `start()` and call `commit_pending()` itself.
    """

    def __init__(self, path: Path, *, sync_submitted: bool = False) -> None:
        self.path = path
        self._sync_submitted = sync_submitted
        self._is_syncing = True
        # Set before `open` if the file is removed with the server: then nothing is synced.
        self.is_temporary = False
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        # Protects the connection, which one thread uses at a time.
        self._connection_lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._thread: Joinable | None = None
        self._in_steps = False
        self._closing = False
        # The last write failed: further failures are not logged.
        self._refuses = False
        self.on_commit: Callable[[], object] = _nothing
        """Called on the owner thread after each commit; it must not block."""

    def open(self) -> None:
        """Open or create the file and bring its schema up to date.

        Raises StoreError for a file that is not a database, is damaged, cannot be written or is of a newer klamm.
        """
        # The file contains credentials. SQLite gives its further files the same mode, and reports errors itself.
        with contextlib.suppress(OSError):
            if any(os.path.lexists(f"{self.path}{suffix}") for suffix in _SUFFIXES):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            else:
                replace_file(self.path, new_database(), 0o600, sync=not self.is_temporary)
        try:
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise StoreError(f"cannot open {self.path}: {error}") from error
        try:
            _keep_small(connection)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA journal_size_limit={_MAX_IDLE_WAL_BYTES}")
            connection.execute(f"PRAGMA synchronous={'OFF' if self.is_temporary else 'FULL'}")
            # On macOS the disk's own cache would be enough for a sync; on other systems this changes nothing.
            connection.execute("PRAGMA fullfsync=ON")
            self._migrate(connection)
        except sqlite3.Error as error:
            connection.close()
            raise StoreError(f"cannot open {self.path}: {error}") from error
        except StoreError:
            connection.close()
            raise
        self._connection = connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{self.path} has schema version {version}, but this klamm knows only versions up to "
                f"{len(MIGRATIONS)}: use a newer klamm"
            )
        for number in range(version, len(MIGRATIONS)):
            # One transaction per step, so that a crash leaves a complete older version.
            connection.executescript(f"BEGIN; {MIGRATIONS[number]} PRAGMA user_version={number + 1}; COMMIT;")

    def start(self, threads: Threads = SYSTEM_THREADS) -> None:
        """Start the owner thread."""
        self._thread = threads.start_loop(self._run, self._step, "klamm-store")
        self._in_steps = self._thread is None

    def close(self) -> None:
        """Commit the queued writes, end the thread, close the file. A later write gets a StoreError."""
        self._closing = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        while self.commit_pending():
            pass
        with self._connection_lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def read(self, sql: str, parameters: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query, as of the last commit. It waits for a commit in progress, and is meant for
        loading state.

        Raises StoreError.
        """
        return self.exclusively(lambda connection: connection.execute(sql, parameters).fetchall())

    def exclusively(self, work: Callable[[sqlite3.Connection], _Found]) -> _Found:
        """Call a function with the connection between two commits and return its result. The function must leave no
        transaction open.

        Raises StoreError.
        """
        with self._connection_lock:
            if self._connection is None:
                raise StoreError(f"{self.path} is closed")
            try:
                return work(self._connection)
            except sqlite3.Error as error:
                raise StoreError(f"cannot read {self.path}: {error}") from error

    def submit(
        self, statements: Sequence[Statement], on_durable: Durable | None = None, *, sync: bool | None = None
    ) -> None:
        """Queue statements that are committed together or not at all.

        They are synced if `sync` is True. If it is None, `sync_submitted` decides. `on_durable` is called exactly once,
        on the owner thread (or at once, if the store is closing). Without `on_durable`, a failure is only logged.
        """
        self._submit(_Write(statements, on_durable, self._sync_submitted if sync is None else sync))

    def _submit(self, write: _Write) -> None:
        if self._closing:
            _report(write, StoreError(f"{self.path} is closed"))
        else:
            self._queue.put(write)

    def write_and_wait(self, statements: Sequence[Statement]) -> None:
        """Write, and return when the write is durable and synced.

        Raises StoreError if the write failed, and RuntimeError on the owner thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("write_and_wait called from a callback of the store")
        done = threading.Event()
        failure: list[StoreError] = []

        def on_durable(error: StoreError | None) -> None:
            if error is not None:
                failure.append(error)
            done.set()

        if self._in_steps:
            self._report_later()
        self._submit(_Write(statements, on_durable, True))
        while self._thread is None and not done.is_set():
            self.commit_pending()
        done.wait()
        if failure:
            raise failure[0]

    def commit_pending(self) -> int:
        """Commit the queued writes, without waiting for more; return their number."""
        writes: list[_Write] = []
        self._drain_into(writes)
        self._commit(writes)
        return len(writes)

    def _step(self) -> bool:
        return self.commit_pending() > 0

    def _report_later(self) -> None:
        """Let the callbacks of queued writes run later than the writes. `write_and_wait` calls this if there is no
        owner thread, because its caller may hold locks that the callbacks need.
        """
        waiting: list[_Write] = []
        self._drain_into(waiting)
        for write in waiting:
            self._queue.put(write._replace(on_durable=self._later(write)))

    def _later(self, write: _Write) -> Durable:
        def report(error: StoreError | None) -> None:
            self._queue.put(_Write((), lambda _error: _report(write, error), False))

        return report

    def _run(self) -> None:
        has_free_pages = True
        while True:
            try:
                first = self._queue.get(block=not has_free_pages)
            except queue.Empty:
                has_free_pages = self.give_back()
                continue
            has_free_pages = True
            if first is None:
                return
            writes = [first]
            stop = self._drain_into(writes)
            try:
                self._commit(writes)
            except Exception:
                log.exception("store: commit of %d writes failed unexpectedly", len(writes))
            if stop:
                return
            # This thread may wait a long time for the next write, and writes may hold large requests.
            del first, writes

    def give_back(self) -> bool:
        """Return some free pages to the file system, if there are many. Returns True if there are more."""
        with self._connection_lock:
            connection = self._connection
            if connection is None:
                return False
            try:
                (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
                if free_pages <= _MAX_FREE_PAGES:
                    return False
                self._set_syncing(connection, False)
                # `execute` would make one step, which frees one page.
                connection.executescript(f"PRAGMA incremental_vacuum({_PAGES_PER_STEP})")
                if free_pages > _MAX_FREE_PAGES + _PAGES_PER_STEP:
                    return True
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except sqlite3.Error as error:
                log.warning("store: cannot give free pages back: %s", error)
            return False

    def _drain_into(self, writes: list[_Write]) -> bool:
        """Move the queued writes to `writes`. Return True if the mark that ends the thread was among them."""
        take = self._queue.get_nowait
        try:
            while len(writes) < _MAX_WRITES_PER_COMMIT:
                write = take()
                if write is None:
                    return True
                writes.append(write)
        except queue.Empty:
            pass
        return False

    def _commit(self, writes: Sequence[_Write]) -> None:
        if not writes:
            return
        try:
            self.transact(
                [statement for write in writes for statement in write.statements],
                sync=any(write.sync for write in writes),
            )
        except StoreError as error:
            if len(writes) == 1:
                _report(writes[0], error)
            else:
                # One write is wrong, or the disk fails: try each write alone.
                for write in writes:
                    self._commit((write,))
            return
        for write in writes:
            _report(write, None)
        self.on_commit()

    def transact(self, statements: Sequence[Statement], *, sync: bool) -> None:
        """Commit statements together. Raises only StoreError; after it, none of the statements is committed."""
        with self._connection_lock:
            connection = self._connection
            if connection is None:
                raise StoreError(f"{self.path} is closed")
            try:
                if connection.in_transaction:
                    # The rollback of an earlier transaction failed. Nothing is committed before a rollback has
                    # succeeded.
                    connection.execute("ROLLBACK")
                self._set_syncing(connection, sync)
                connection.execute("BEGIN")
                _execute_in_runs(connection, statements)
                connection.execute("COMMIT")
            except Exception as error:
                self._roll_back(connection)
                failure = StoreError(f"cannot write {self.path}: {error}")
                if not self._refuses:
                    log.error("store: %s", failure)
                    self._refuses = True
                raise failure from error
            if self._refuses:
                log.warning("store: %s can be written again", self.path)
                self._refuses = False

    def _set_syncing(self, connection: sqlite3.Connection, sync: bool) -> None:
        if sync is not self._is_syncing and not self.is_temporary:
            connection.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
            self._is_syncing = sync

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        # SQLite may have rolled back already, e.g. on a full disk.
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                log.error("store: cannot roll back: %s", error)


def _nothing() -> None:
    """Do nothing after a commit."""


def _keep_small(connection: sqlite3.Connection) -> None:
    """Make the file return free pages to the file system. This rewrites the file of an older klamm once."""
    (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    if mode == INCREMENTAL:
        return
    connection.execute(f"PRAGMA auto_vacuum={INCREMENTAL}")
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    if pages:
        try:
            connection.execute("VACUUM")
        except sqlite3.Error as error:
            log.warning("store: the file does not shrink, because it cannot be rewritten: %s", error)


def _execute_in_runs(connection: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    """Execute in order; adjacent statements with the same SQL run as one `executemany`, which is three times as
    fast.
    """
    run_sql: str | None = None
    rows: list[Sequence[SqlValue]] = []
    for sql, parameters in statements:
        if sql != run_sql:
            if run_sql is not None:
                connection.executemany(run_sql, rows)
            run_sql = sql
            rows = []
        rows.append(parameters)
    if run_sql is not None:
        connection.executemany(run_sql, rows)


def _report(write: _Write, error: StoreError | None) -> None:
    if write.on_durable is None:
        if error is not None:
            log.error("store: a write was lost: %s", error)
        return
    try:
        write.on_durable(error)
    except Exception:
        log.exception("store: callback %r failed", write.on_durable)
