"""`new_database`: the file of a store with the newest schema and nothing in it."""

from __future__ import annotations

import functools
import sqlite3
from contextlib import closing
from typing import Final

from klamm_broker.storage.migrations import MIGRATIONS

INCREMENTAL: Final = 2
"""SQLite's `auto_vacuum` of files that return free space."""
_VERSIONS: Final = slice(18, 20)
_WRITE_AHEAD: Final = b"\2\2"
"""What a file that has a write-ahead log has there."""


@functools.cache
def new_database() -> bytes:
    """Return the content of the file, which is made in memory.

    On a disk each step of the schema would wait for it, and the change to a write-ahead log.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA auto_vacuum={INCREMENTAL}")
        connection.executescript(f"BEGIN; {''.join(MIGRATIONS)} PRAGMA user_version={len(MIGRATIONS)}; COMMIT;")
        content = bytearray(connection.serialize())
    content[_VERSIONS] = _WRITE_AHEAD
    return bytes(content)
