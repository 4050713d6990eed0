"""The state that the parts of one server share, e.g. users, ACLs and quotas: tables in memory with an optional store.

A table maps keys to JSON objects. Admin APIs write tables; authenticators, authorizers and throttles read them. A
handler set may attach a store that makes tables durable (the embedded broker attaches `klamm.db`). Without a store,
tables last as long as the server.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

log = logging.getLogger("klamm.shared_state")

T = TypeVar("T")
Row: TypeAlias = Mapping[str, Any]
"""A JSON object. A row in a table must not be changed."""
SCRAM_CREDENTIALS: Final = "scram_credentials"
"""The name of the table that AlterUserScramCredentials writes. Keys are those of `ScramMechanism.row_key`, rows those
of `ScramCredential.to_row`.
"""
DELEGATION_TOKENS: Final = "delegation_tokens"
"""The name of the shared table of delegation tokens (KIP-48)."""


class TableStore(Protocol):
    """The store that makes tables durable."""

    def load(self, table: str) -> Mapping[str, Row]:
        """Return all rows of a table. Raises KafkaError."""
        ...

    def write(self, table: str, changes: Mapping[str, Row | None]) -> None:
        """Write rows, and delete those that are None, in one step. They are durable on return. Raises KafkaError."""
        ...


class Table:
    """One table of this `name`. `rows` is an immutable snapshot, so readers need no lock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: Mapping[str, Row] = MappingProxyType({})
        self._store: TableStore | None = None
        # Protects `rows`, the store and the watchers during a change. Reentrant, because a watcher may read the table.
        self._lock = threading.RLock()
        self._watchers: list[Callable[[Mapping[str, Row | None]], object]] = []

    def get(self, key: str) -> Row | None:
        """Return a row, or None."""
        return self.rows.get(key)

    def update(self, changes: Mapping[str, Row | None]) -> None:
        """Write rows, and delete those that are None: first in the store, then for readers; then notify watchers.

        May block for the disk. Raises KafkaError if the store fails; nothing has changed in that case.
        """
        with self._lock:
            if self._store is not None:
                self._store.write(self.name, changes)
            rows = dict(self.rows)
            for key, row in changes.items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
            self.rows = MappingProxyType(rows)
            self._notify(changes)

    def modify(self, change: Callable[[Mapping[str, Row]], Mapping[str, Row | None]]) -> None:
        """Call `update` with the result of `change(rows)`.

        No other update happens in between. Raises the exceptions of `change` and `update`.
        """
        with self._lock:
            self.update(change(self.rows))

    def watch(self, watcher: Callable[[Mapping[str, Row | None]], object]) -> Callable[[], None]:
        """Call `watcher(changes)` after each change, on the thread of the change; `watcher` must not block.

        Return a function that removes the watcher. A part of a listener calls it in `close`.
        """
        with self._lock:
            self._watchers.append(watcher)

        def unwatch() -> None:
            with self._lock:
                self._watchers.remove(watcher)

        return unwatch

    def attach(self, store: TableStore) -> None:
        """Load the rows of a store. Write to the store the rows that only this table has, and all later changes."""
        with self._lock:
            loaded = dict(store.load(self.name))
            missing = {key: row for key, row in self.rows.items() if key not in loaded}
            if missing:
                store.write(self.name, missing)
            self._store = store
            self.rows = MappingProxyType({**loaded, **missing})
            self._notify(self.rows)

    def _notify(self, changes: Mapping[str, Row | None]) -> None:
        for watcher in self._watchers:
            try:
                watcher(changes)
            except Exception:
                log.exception("table %s: watcher %r failed", self.name, watcher)


class SharedState:
    """The tables of one server, by name, and objects that its parts share. Any thread may call it."""

    def __init__(self) -> None:
        # Protects the tables, the objects and the store. Reentrant, because making an object may request another one.
        self._lock = threading.RLock()
        self._tables: dict[str, Table] = {}
        self._objects: dict[str, Any] = {}
        self._store: TableStore | None = None

    def table(self, name: str) -> Table:
        """Return the table of that name, which the first call creates.

        Raises KafkaError if its rows cannot be loaded from the store.
        """
        with self._lock:
            table = self._tables.get(name)
            if table is None:
                table = Table(name)
                if self._store is not None:
                    table.attach(self._store)
                self._tables[name] = table
            return table

    def once(self, key: str, make: Callable[[], T]) -> T:
        """Return the object of that key, which the first call creates, e.g. counters that several listeners share."""
        with self._lock:
            if key not in self._objects:
                self._objects[key] = make()
            found: T = self._objects[key]
            return found

    def find(self, key: str) -> Any:
        """Return the object of that key; None if no part has made one."""
        with self._lock:
            return self._objects.get(key)

    def needed(self, key: str, problem: str) -> Any:
        """Return the object of that key. Raises LookupError with the text `problem` if no part has made one."""
        found = self.find(key)
        if found is None:
            raise LookupError(problem)
        return found

    def attach(self, store: TableStore) -> bool:
        """Make all tables durable; return False if another store already does so. Raises KafkaError."""
        with self._lock:
            if self._store is not None:
                return False
            for table in self._tables.values():
                table.attach(store)
            self._store = store
            return True
