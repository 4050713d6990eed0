"""`SharedTables`: the server's shared tables (users, ACLs, quotas) in the broker's metadata store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from klamm_broker.storage.store import Store


class SharedTables:
    """A `klamm.TableStore` over a `Store`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def load(self, table: str) -> dict[str, Mapping[str, Any]]:
        """All rows of a table. Raises StoreError."""
        rows = self._store.read("SELECT key, row FROM shared_rows WHERE table_name = ?", (table,))
        return {key: json.loads(row) for key, row in rows}

    def write(self, table: str, changes: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Put rows, or take away those that are None; durable on return. Raises StoreError."""
        put = "INSERT OR REPLACE INTO shared_rows (table_name, key, row) VALUES (?, ?, ?)"
        take = "DELETE FROM shared_rows WHERE table_name = ? AND key = ?"
        self._store.write_and_wait(
            [
                (take, (table, key)) if row is None else (put, (table, key, json.dumps(row, separators=(",", ":"))))
                for key, row in changes.items()
            ]
        )
