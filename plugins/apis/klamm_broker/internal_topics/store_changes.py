"""`StoreChanges`: the rows of the store that have changed since the last call.

Triggers of the connection write the keys of changed rows to temporary tables, which are in memory and end with the
connection. So code that writes to the store does not use this class, and a row that changes often is noted once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from klamm_broker.internal_topics.record_source import RecordSource, Row
from klamm_broker.storage.store import Store

_AT_ONCE: Final = 500
"""Maximum number of objects whose rows are read while commits wait."""
_EVENTS: Final = (("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old"))


class StoreChanges:
    """The changes of the objects that one topic shows. One thread at a time may call it."""

    def __init__(self, store: Store, sources: Sequence[RecordSource]) -> None:
        self._store = store
        self._sources = sources

    def follow(self) -> None:
        """Note changes from now on. Raises StoreError."""
        script = "".join(statement for source in self._sources for statement in _triggers(source))
        self._store.exclusively(lambda connection: connection.executescript(f"BEGIN; {script} COMMIT;"))

    def ignore(self) -> None:
        """Stop recording changes. Raises StoreError."""
        script = "".join(f"DROP TABLE IF EXISTS temp.changed_{source.name};" for source in self._sources)
        drops = "".join(
            f"DROP TRIGGER IF EXISTS temp.{_trigger(source, table, event)};"
            for source in self._sources
            for table in source.tables
            for event, _row in _EVENTS
        )
        self._store.exclusively(lambda connection: connection.executescript(f"BEGIN; {drops} {script} COMMIT;"))

    def take(self) -> Iterator[tuple[RecordSource, list[Row]]]:
        """Yield the rows of some changed objects in their present state. These objects then count as written. Raises
        StoreError.
        """
        for source in self._sources:
            while rows := self._store.exclusively(_Taking(source)):
                yield source, rows

    def owners(self, source: RecordSource) -> Iterable[Row]:
        """Return all owners. The hash of an owner determines the partition. Raises StoreError."""
        return self._store.read(source.owners())

    def rows_of(self, source: RecordSource, owner: Row) -> list[Row]:
        """Return the rows of all objects of one owner in their present state. Raises StoreError."""
        return self._store.read(source.rows_of_owner(), [*owner] * len(source.tables))


class _Taking:
    """A call for `Store.exclusively`: it reads some changed rows, and deletes their keys from the temporary table."""

    def __init__(self, source: RecordSource) -> None:
        columns = ", ".join(source.keys)
        some = f"SELECT {columns} FROM temp.changed_{source.name} ORDER BY {columns} LIMIT {_AT_ONCE}"  # noqa: S608
        self._query = source.query.format(changed=f"({some})")
        self._forget = f"DELETE FROM temp.changed_{source.name} WHERE ({columns}) IN ({some})"  # noqa: S608

    def __call__(self, connection: sqlite3.Connection) -> list[Row]:
        rows = connection.execute(self._query).fetchall()
        if rows:
            connection.execute(self._forget)
        return rows


def _trigger(source: RecordSource, table: str, event: str) -> str:
    return f"note_{source.name}_{table}_{event.lower()}"


def _triggers(source: RecordSource) -> Iterator[str]:
    columns = ", ".join(source.keys)
    changed = f"changed_{source.name}"
    yield f"CREATE TEMP TABLE {changed} ({columns}, PRIMARY KEY ({columns})) WITHOUT ROWID;"
    for table in source.tables:
        for event, row in _EVENTS:
            values = ", ".join(f"{row}.{key}" for key in source.keys)
            # Not `INSERT OR IGNORE`: the conflict clause of the statement that fires a trigger would count instead.
            yield (
                f"CREATE TEMP TRIGGER {_trigger(source, table, event)} AFTER {event} ON main.{table}"
                f" BEGIN INSERT INTO {changed} VALUES ({values}) ON CONFLICT DO NOTHING; END;"
            )
