"""`EventTable`: events as tables of SQLite, for `tail`, `sql` and `export`.

The tables are views of lines of JSON, so SQLite reads only the fields that a query names.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from klamm_spark.events.event import ATTRIBUTE_FIELDS, FIELDS, RESOURCE_FIELDS, Field

_BATCH: Final = 5_000
_TIME: Final = (
    "strftime('%Y-%m-%dT%H:%M:%S', {time_us} / 1000000, 'unixepoch') || printf('.%06dZ', {time_us} % 1000000) AS time"
)
_ALLOWED: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_FORBIDDEN_FUNCTIONS: Final = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})


class QueryError(ValueError):
    """A query that SQLite refuses. The text is SQLite's."""


class EventTable:
    """The tables `events`, `resources` and `attributes`. `add` fills them, and `select` reads them.

    `events` has the fields of `klamm_spark.events.event`, `time` (ISO 8601 in UTC) and `event` (the whole event as
    JSON). `resources` has a row for each resource of an event, and `attributes` one for each attribute of a resource,
    both with `event_id`. A query can only read. The rows are in a file that SQLite deletes by itself, so memory stays
    small.
    """

    def __init__(self, since_us: int = 0) -> None:
        """Create the tables. Events before `since_us` will be left out."""
        self._insert = "INSERT INTO lines SELECT line FROM (SELECT ? AS line) WHERE json_valid(line)"
        if since_us:
            self._insert += f" AND json_extract(line, '$.time_us') >= {since_us}"
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("CREATE TABLE lines (line TEXT NOT NULL)")
        for statement in _views():
            self._database.execute(statement)

    def add(self, lines: Iterable[bytes]) -> int:
        """Add events, and return how many lines were added. Lines that are not JSON are left out."""
        taken, rest = 0, iter(lines)
        self._database.set_authorizer(None)
        while batch := [(line.decode("utf-8", "replace"),) for line in islice(rest, _BATCH)]:
            self._database.execute("BEGIN")
            cursor = self._database.executemany(self._insert, batch)
            self._database.execute("COMMIT")
            taken += cursor.rowcount
        return taken

    def clear(self) -> None:
        """Remove all events."""
        self._database.set_authorizer(None)
        self._database.execute("DELETE FROM lines")

    def select(self, query: str, parameters: Iterable[Any] = ()) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Return the names of a query's columns, and its rows. This raises QueryError, and so may each step through the
        rows.
        """
        self._database.set_authorizer(_authorize)
        try:
            cursor = self._database.execute(query, tuple(parameters))
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise QueryError(str(error)) from error
        if cursor.description is None:
            raise QueryError("the query has no result")
        return [column[0] for column in cursor.description], _rows(cursor)

    def events(self, where: str = "", until_us: int = 1 << 62) -> Iterator[str]:
        """Return the events for which the SQL expression `where` is true, as JSON, by time. Raises QueryError."""
        condition = f"({where}\n)" if where else "1"
        _, rows = self.select(
            f"SELECT event FROM events WHERE coalesce(time_us, 0) < ? AND {condition} ORDER BY time_us, event_id",
            (until_us,),
        )
        return (row[0] for row in rows)

    def close(self) -> None:
        """Delete the rows."""
        self._database.close()


def _rows(cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
    try:
        # Iterating over the cursor would close it at the end of the rows, when its database may be closed already.
        yield from iter(cursor.fetchone, None)
    except (sqlite3.Error, OverflowError) as error:
        raise QueryError(str(error)) from error


def _authorize(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _columns(fields: tuple[Field, ...], json: str) -> str:
    return ", ".join(f"json_extract({json}, '$.{field.name}') AS \"{field.name}\"" for field in fields)


def _views() -> Iterator[str]:
    time_us = "json_extract(line, '$.time_us')"
    yield (
        f"CREATE VIEW events AS SELECT {_columns(FIELDS, 'line')}, {_TIME.format(time_us=time_us)}, "
        "line AS event FROM lines"
    )
    resources = tuple(field for field in RESOURCE_FIELDS if field.name != "attributes")
    yield (
        f"CREATE VIEW resources AS SELECT json_extract(line, '$.event_id') AS event_id, one.key AS position, "
        f"{_columns(resources, 'one.value')} FROM lines, json_each(line, '$.resources') AS one"
    )
    yield (
        "CREATE VIEW attributes AS SELECT json_extract(line, '$.event_id') AS event_id, one.key AS position, "
        f"{_columns(ATTRIBUTE_FIELDS, 'two.value')} FROM lines, json_each(line, '$.resources') AS one, "
        "json_each(one.value, '$.attributes') AS two"
    )
