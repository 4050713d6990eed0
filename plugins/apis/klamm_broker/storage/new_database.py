"""`new_database`: the file of an empty store with the newest schema."""

from __future__ import annotations

import functools
import sqlite3
from contextlib import closing
from typing import Final

from klamm_broker.storage.migrations import MIGRATIONS

INCREMENTAL: Final = 2
"""SQLite's value of `auto_vacuum` for a file that returns free pages in steps."""
_VERSIONS: Final = slice(18, 20)
_WRITE_AHEAD: Final = b"\2\2"
"""The value of these two bytes in a file with a write-ahead log."""


@functools.cache
def new_database() -> bytes:
    """Return the content of the file. It is made in memory.

    On a disk, each step of the schema and the change to a write-ahead log would wait for a sync.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA auto_vacuum={INCREMENTAL}")
        connection.executescript(f"BEGIN; {''.join(MIGRATIONS)} PRAGMA user_version={len(MIGRATIONS)}; COMMIT;")
        content = bytearray(connection.serialize())
    content[_VERSIONS] = _WRITE_AHEAD
    return bytes(content)
