"""The cost of an acknowledgement is independent of the number of runs of records in flight."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from klamm_broker.share import persistence
from klamm_broker.share.partition import Acknowledgement, FetchedBatch, Limits, SharePartition
from klamm_broker.share.record_state import ACKNOWLEDGED
from klamm_broker.share.state_changes import StateBatch, StateChanges
from klamm_broker.storage.migrations import MIGRATIONS
from klamm_broker.storage.store import Store
from tests.unit.share.saved import KEY, Saved

ACCEPT, RELEASE = 1, 2
FEW, MANY = 100, 100_000


def in_flight(saved: Saved, count: int) -> SharePartition:
    """Return a stored partition of which a member holds every other record, so there are `count` runs."""
    limits = Limits(delivery_count=5, record_locks=count)
    partition = SharePartition(0, [StateBatch(at, at, ACKNOWLEDGED, 1) for at in range(1, count, 2)])
    held = partition.acquire(
        "a", 0, [FetchedBatch(0, count - 1)], max_records=count, is_strict=False, deadline_ns=10, limits=limits
    )
    assert len(held) == count // 2
    assert len(partition.runs) == count
    # Each run that was available once is checked once.
    assert partition.next_fetch_offset() == count
    commit(saved, partition)
    return partition


def commit(saved: Saved, partition: SharePartition) -> None:
    update = partition.begin_write()
    saved.commit(update)
    partition.written(update.number)


def lines_of(work: Callable[[], object]) -> int:
    """Return the number of executed lines of Python. Each step of a generator counts."""
    count = 0

    def on_event(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal count
        count += 1
        return on_event

    before = sys.gettrace()
    sys.settrace(on_event)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def costs(count: int) -> tuple[dict[str, int], int]:
    """Return the lines for each step of a member and its partition, and the written rows."""
    with Saved() as saved:
        partition = in_flight(saved, count)
        limits = Limits(delivery_count=5, record_locks=count)
        middle = count // 4 * 2
        connection: Any = saved.store._connection

        def settle() -> None:
            update = partition.begin_write()
            statements.extend(persistence.put(KEY, update))
            partition.written(update.number)

        def acknowledge(at: int, kind: int) -> Callable[[], object]:
            return lambda: partition.acknowledge("a", [Acknowledgement(at, at, [kind])], 20, limits)

        statements: list[Any] = []
        steps = {
            "accept": acknowledge(middle, ACCEPT),
            "write accepted": settle,
            "release": acknowledge(middle + 2, RELEASE),
            "write released": settle,
            "next deadline": partition.next_deadline_ns,
            "next fetch": partition.next_fetch_offset,
            "release of a member that holds nothing": lambda: partition.release("b", limits),
            "expiry of nothing": lambda: partition.expire(0, limits),
            "the first is done": acknowledge(0, ACCEPT),
            "write the first": settle,
            "counts": lambda: (partition.completed, partition.runs.acquired, partition.in_flight),
        }
        lines = {name: lines_of(step) for name, step in steps.items()}
        before = connection.total_changes
        saved.store.write_and_wait(statements)
        return lines, connection.total_changes - before


def test_an_acknowledgement_costs_the_same_with_100_runs_and_with_100_000() -> None:
    few, few_rows = costs(FEW)
    many, many_rows = costs(MANY)
    assert many.keys() == few.keys()
    assert {name: (few[name], many[name]) for name in few if many[name] > 2 * few[name]} == {}
    assert many_rows == few_rows <= 30


def test_the_list_of_changes_does_not_grow_while_the_store_cannot_be_written() -> None:
    changes = StateChanges(is_stored=True)
    for at in range(100_000):
        changes.add(at * 7 % 100, at * 7 % 100)
    assert len(changes._ranges) <= 2000


def test_states_of_an_older_store_are_migrated(tmp_path: Path) -> None:
    path = tmp_path / "klamm.db"
    number = next(at for at, script in enumerate(MIGRATIONS) if "share_state_batches" in script)
    old = sqlite3.connect(path)
    old.executescript("".join(MIGRATIONS[:number]) + f"PRAGMA user_version={number}")
    with old:
        old.execute("INSERT INTO share_groups VALUES ('g', 1, 1, '')")
        put = (
            "INSERT INTO share_partitions (group_id, topic_id, partition, start_offset, batches) VALUES (?, ?, ?, ?, ?)"
        )
        old.execute(put, ("g", b"t" * 16, 0, 5, "[[5, 7, 0, 1], [8, 8, 2, 1], [9, 20, 4, 3]]"))
        old.execute(put, ("g", b"t" * 16, 1, 30, "[]"))
    old.close()
    store = Store(path)
    store.open()
    try:
        taken = {saved.key.partition: (saved.start_offset, saved.batches) for saved in persistence.load(store)}
        assert taken == {0: (5, [(5, 7, 0, 1), (8, 8, 2, 1), (9, 20, 4, 3)]), 1: (30, [])}
        store.write_and_wait([persistence.delete_group("g")])
        assert store.read("SELECT count(*) FROM share_state_batches") == [(0,)]
    finally:
        store.close()
