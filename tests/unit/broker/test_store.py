"""Tests of the metadata store: group commit, failed writes, migrations, and kill -9."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode
from klamm_broker.storage.migrations import MIGRATIONS
from klamm_broker.storage.store import Statement, Store, StoreError

NORMAL, FULL = 1, 2
Outcome = tuple[str, StoreError | None]


def put(key: str, value: str | int) -> Statement:
    return (
        "INSERT INTO cluster (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )


def all_pairs(store: Store) -> dict[str, str]:
    return dict(store.read("SELECT key, value FROM cluster"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "klamm.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """Return an open store without a thread. The test itself commits."""
    opened = Store(path)
    opened.open()
    yield opened
    opened.close()


def test_writes_are_visible_only_after_the_commit(store: Store) -> None:
    outcomes: list[Outcome] = []
    store.submit([put("a", "1"), put("b", "2")], lambda error: outcomes.append(("first", error)))
    store.submit([put("a", "3")], lambda error: outcomes.append(("second", error)))

    assert all_pairs(store) == {}
    assert outcomes == []

    assert store.commit_pending() == 2
    assert all_pairs(store) == {"a": "3", "b": "2"}
    assert outcomes == [("first", None), ("second", None)]


@pytest.mark.parametrize("sync_submitted", [False, True])
@pytest.mark.parametrize("sync", [None, False, True])
def test_a_write_is_synced_by_its_own_setting_or_the_stores(
    path: Path, sync_submitted: bool, sync: bool | None
) -> None:
    store = Store(path, sync_submitted=sync_submitted)
    store.open()
    in_force: list[int] = []
    store.submit([put("a", "1")], lambda _error: in_force.extend(synchronous(store)), sync=sync)
    store.commit_pending()
    assert in_force == [FULL if (sync_submitted if sync is None else sync) else NORMAL]
    store.close()


def synchronous(store: Store) -> tuple[int, ...]:
    """Return SQLite's setting of the latest commit."""
    ((value,),) = store.read("PRAGMA synchronous")
    return (value,)


def test_statements_of_different_sql_keep_their_order(store: Store) -> None:
    delete: Statement = ("DELETE FROM cluster WHERE key = ?", ("a",))
    store.submit([put("a", "1"), delete, put("a", "2"), delete, put("a", "3")])
    store.commit_pending()

    assert all_pairs(store) == {"a": "3"}


def test_a_failed_write_is_undone_and_does_not_affect_others(store: Store) -> None:
    outcomes: dict[str, StoreError | None] = {}
    store.submit([put("good", "1")], lambda error: outcomes.__setitem__("good", error))
    store.submit([put("half", "1"), ("INSERT INTO nowhere VALUES (1)", ())], lambda e: outcomes.__setitem__("bad", e))
    store.submit([put("later", "1")], lambda error: outcomes.__setitem__("later", error))
    store.commit_pending()

    assert all_pairs(store) == {"good": "1", "later": "1"}
    assert outcomes["good"] is None
    assert outcomes["later"] is None
    assert outcomes["bad"] is not None
    assert outcomes["bad"].error_code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("value", [2**63, "\ud800"])
def test_a_value_that_sqlite_cannot_hold_is_a_failed_write(store: Store, value: str | int) -> None:
    outcomes: list[Outcome] = []
    store.submit([put("a", value)], lambda error: outcomes.append(("write", error)))
    store.commit_pending()

    assert isinstance(outcomes[0][1], StoreError)
    assert all_pairs(store) == {}


def test_a_full_disk_fails_writes_until_there_is_room_again(store: Store) -> None:
    (pages,) = store.read("PRAGMA page_count")[0]
    store.read(f"PRAGMA max_page_count = {pages}")
    big = "x" * 100_000

    with pytest.raises(StoreError, match="full"):
        store.write_and_wait([put("big", big)])
    assert all_pairs(store) == {}

    store.read("PRAGMA max_page_count = 1000000")
    store.write_and_wait([put("big", big)])
    assert all_pairs(store) == {"big": big}


def test_a_callback_that_raises_does_not_affect_other_callbacks(store: Store) -> None:
    outcomes: list[Outcome] = []

    def broken(error: StoreError | None) -> None:
        raise ZeroDivisionError

    store.submit([put("a", "1")], broken)
    store.submit([put("b", "1")], lambda error: outcomes.append(("b", error)))
    store.commit_pending()

    assert outcomes == [("b", None)]


def test_the_thread_outlives_failed_writes_and_broken_callbacks(store: Store) -> None:
    store.start()

    def broken(error: StoreError | None) -> None:
        raise ZeroDivisionError

    store.submit([put("a", "1")], broken)
    with pytest.raises(StoreError):
        store.write_and_wait([("INSERT INTO nowhere VALUES (1)", ())])
    store.write_and_wait([put("b", "1")])

    assert all_pairs(store) == {"a": "1", "b": "1"}


def test_many_threads_get_one_answer_for_each_write(store: Store) -> None:
    store.start()
    answered: list[int] = []
    finished = threading.Semaphore(0)

    def writer(thread: int) -> None:
        for number in range(200):
            key = thread * 1000 + number

            def on_durable(error: StoreError | None, key: int = key) -> None:
                assert error is None
                answered.append(key)
                finished.release()

            store.submit([put(str(key), str(key))], on_durable)

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(800):
        assert finished.acquire(timeout=60)
    for thread in threads:
        thread.join()

    assert len(set(answered)) == len(answered) == 800
    for number in range(4):
        mine = [key for key in answered if key // 1000 == number]
        assert mine == sorted(mine), "writes of one thread are answered in their order"
    assert len(all_pairs(store)) == 800


def test_waiting_on_the_stores_own_thread_is_refused(store: Store) -> None:
    store.start()
    seen: list[BaseException] = []
    done = threading.Event()

    def on_durable(error: StoreError | None) -> None:
        try:
            store.write_and_wait([put("b", "1")])
        except RuntimeError as refused:
            seen.append(refused)
        done.set()

    store.submit([put("a", "1")], on_durable)
    assert done.wait(60)
    assert len(seen) == 1


def test_close_commits_queued_writes_and_refuses_later_ones(path: Path) -> None:
    store = Store(path)
    store.open()
    store.start()
    for number in range(100):
        store.submit([put(str(number), "1")])
    store.close()

    outcomes: list[Outcome] = []
    store.submit([put("late", "1")], lambda error: outcomes.append(("late", error)))
    assert isinstance(outcomes[0][1], StoreError)
    with pytest.raises(StoreError):
        store.read("SELECT 1")

    again = Store(path)
    again.open()
    assert len(all_pairs(again)) == 100
    again.close()


def test_a_file_of_a_newer_schema_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()

    with pytest.raises(StoreError, match="newer klamm"):
        Store(path).open()


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 100)

    with pytest.raises(StoreError, match=r"klamm\.db"):
        Store(path).open()


def test_an_interrupted_migration_is_repeated(path: Path) -> None:
    Store(path).open()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE offsets")
        connection.executescript("PRAGMA user_version = 0; DROP TABLE cluster; DROP TABLE counters")
    connection.close()

    # The table `topics` still exists, so the step fails. It must leave nothing behind.
    with pytest.raises(StoreError):
        Store(path).open()
    with sqlite3.connect(path) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert "cluster" not in tables


def test_answered_writes_survive_kill_9(path: Path) -> None:
    program = textwrap.dedent(
        """
        import itertools, os, pathlib, sys
        from klamm_broker.storage.store import Store

        store = Store(pathlib.Path(sys.argv[1]))
        store.open()
        store.start()

        def acknowledge(number):
            def on_durable(error):
                assert error is None
                os.write(1, b"%d\\n" % number)
            return on_durable

        for number in itertools.count():
            store.submit(
                [("INSERT INTO cluster VALUES (?, ?)", (str(number), "1")),
                 ("INSERT INTO counters VALUES (?, ?)", (str(number), number))],
                acknowledge(number),
            )
            if number % 500 == 499:
                store.write_and_wait([])
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    assert process.stdout is not None
    acknowledged = {process.stdout.readline().decode().strip() for _ in range(2_000)}
    process.send_signal(signal.SIGKILL)
    acknowledged.update(line.decode().strip() for line in process.stdout.read().splitlines(True) if line[-1:] == b"\n")
    process.wait()
    process.stdout.close()

    store = Store(path)
    store.open()
    assert acknowledged <= set(all_pairs(store))
    # Each write has both statements, or neither.
    assert set(all_pairs(store)) == {name for (name,) in store.read("SELECT name FROM counters")}
    store.close()


class FailingConnection:
    """A connection whose COMMIT and ROLLBACK can be made to fail."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.failing: set[str] = set()
        self.executed: list[str] = []

    def execute(self, sql: str, *parameters: Any) -> Any:
        self.executed.append(sql)
        if sql in self.failing:
            raise sqlite3.OperationalError(f"{sql} fails")
        return self._connection.execute(sql, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_callers_are_notified_even_if_a_rollback_fails(tmp_path: Path) -> None:
    store = Store(tmp_path / "klamm.db")
    store.open()
    connection = store._connection = FailingConnection(store._connection)  # type: ignore[assignment]
    store.start()
    connection.failing = {"COMMIT", "ROLLBACK"}
    insert = "INSERT INTO cluster (key, value) VALUES (?, '')"
    for key in ("a", "b"):
        with pytest.raises(StoreError):
            store.write_and_wait([(insert, (key,))])
    connection.failing = set()
    store.write_and_wait([(insert, ("c",))])
    assert store.read("SELECT key FROM cluster") == [("c",)]
    store.close()


@pytest.mark.parametrize("sync_submitted", [False, True])
def test_awaited_writes_are_synced_and_submitted_ones_by_setting(tmp_path: Path, sync_submitted: bool) -> None:
    store = Store(tmp_path / "klamm.db", sync_submitted=sync_submitted)
    store.open()
    connection = store._connection = FailingConnection(store._connection)  # type: ignore[assignment]
    level = []
    for write in (store.write_and_wait, store.submit, store.write_and_wait):
        write([("INSERT INTO cluster (key, value) VALUES (?, '')", (str(len(level)),))])
        store.commit_pending()
        level.append(connection.execute("PRAGMA synchronous").fetchone()[0])
    normal, full = 1, 2
    assert level == [full, full if sync_submitted else normal, full]
    store.close()


class SyncNotes(Store):
    """A connection that records which commits are synced."""

    def __init__(self, path: Path, *, sync_submitted: bool) -> None:
        super().__init__(path, sync_submitted=sync_submitted)
        self.synced: list[bool] = []

    def transact(self, statements: Any, *, sync: bool) -> None:
        self.synced.append(sync)
        super().transact(statements, sync=sync)


@pytest.mark.parametrize("by_default", [False, True])
@pytest.mark.parametrize("sync", [None, False, True])
def test_a_submitted_write_is_synced_on_request(path: Path, by_default: bool, sync: bool | None) -> None:
    store = SyncNotes(path, sync_submitted=by_default)
    store.open()
    store.submit([put("a", 1)], sync=sync)
    store.commit_pending()
    store.close()
    assert store.synced == [by_default if sync is None else sync]
