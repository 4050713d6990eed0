"""`SharedTables`: the server's shared tables (users, ACLs, quotas, tokens) in the broker's metadata store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from klamm import KafkaError
from klamm_broker.limits.ledger import UNKNOWN_OWNER, Ledger, text_bytes
from klamm_broker.limits.owners import short_owner
from klamm_broker.storage.store import Store

_ROW_BYTES: Final = 1024
"""Approximate size of a row besides its text, in memory and on disk."""

_NOTHING: Final = (UNKNOWN_OWNER, 0)

Row: TypeAlias = Mapping[str, Any]


class SharedTables:
    """A `klamm.TableStore` over a `Store`.

    `ledgers` count the rows of the tables that have a limit, by name. A `klamm.Table` calls it, and holds its own lock
    during the call.
    """

    def __init__(self, store: Store, ledgers: Mapping[str, Ledger]) -> None:
        self._store = store
        self._ledgers = ledgers
        # The owner and the size of each row, by table and key.
        self._counted: dict[str, dict[str, tuple[str, int]]] = {name: {} for name in ledgers}

    def load(self, table: str) -> dict[str, Row]:
        """Return all rows of a table. Raises StoreError."""
        stored = self._store.read("SELECT key, row FROM shared_rows WHERE table_name = ?", (table,))
        rows: dict[str, Row] = {key: json.loads(text) for key, text in stored}
        ledger = self._ledgers.get(table)
        if ledger is not None:
            counted = self._counted[table]
            for key, text in stored:
                counted[key] = _entry(key, rows[key], text)
                ledger.add(*counted[key])
        return rows

    def write(self, table: str, changes: Mapping[str, Row | None]) -> None:
        """Put rows, and delete those whose value is None, durably.

        Raises StoreError, and KafkaError(POLICY_VIOLATION) if there is no room for a new or larger row.
        """
        put = "INSERT OR REPLACE INTO shared_rows (table_name, key, row) VALUES (?, ?, ?)"
        take = "DELETE FROM shared_rows WHERE table_name = ? AND key = ?"
        texts = {key: None if row is None else json.dumps(row, separators=(",", ":")) for key, row in changes.items()}
        statements = [
            (take, (table, key)) if text is None else (put, (table, key, text)) for key, text in texts.items()
        ]
        ledger = self._ledgers.get(table)
        if ledger is None:
            self._store.write_and_wait(statements)
            return
        counted = self._counted[table]
        entries = {key: None if text is None else _entry(key, changes[key], text) for key, text in texts.items()}
        grown: list[tuple[str, int]] = []
        shrunk: list[tuple[str, int]] = []
        try:
            for key, entry in entries.items():
                owner, before = counted.get(key) or entry or _NOTHING
                more = (0 if entry is None else entry[1]) - (before if key in counted else 0)
                if more > 0 and not ledger.reserve(owner, more, in_use=key in counted):
                    raise ledger.refusal()
                (grown if more > 0 else shrunk).append((owner, more))
            self._store.write_and_wait(statements)
        except KafkaError:
            for owner, more in grown:
                ledger.add(owner, -more)
            raise
        for owner, more in shrunk:
            ledger.add(owner, more)
        for key, entry in entries.items():
            counted.pop(key, None)
            if entry is not None:
                counted[key] = entry


def _entry(key: str, row: Row | None, text: str) -> tuple[str, int]:
    """Return the owner and the size of a row. Only delegation tokens have owners. Writing other rows needs a
    permission, so they count for no owner.
    """
    owner = row.get("owner") if row is not None else None
    name = ":".join(owner) if isinstance(owner, list) else UNKNOWN_OWNER
    return short_owner(name), _ROW_BYTES + text_bytes(key) + text_bytes(text)
