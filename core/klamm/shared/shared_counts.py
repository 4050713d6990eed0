"""`SharedCounts`: counts by name that several worker processes share without a lock."""

from __future__ import annotations

import threading
from hashlib import blake2b
from struct import Struct
from typing import Final

_ROWS: Final = 4
_WIDTH: Final = 65_536
_POSITIONS: Final = Struct(f"<{_ROWS}H")
BYTES_PER_WORKER: Final = 4 * _ROWS * _WIDTH
"""The size of a worker's part of the table. The system allocates memory only when names are counted."""


class SharedCounts:
    """A count-min sketch in shared memory: each worker writes its own part of the table and reads all parts.

    There is no lock, which a killed worker would leave behind. The part of a worker that has ended is cleared. `key` is
    secret, so that no client can choose names that collide. A count may miss an addition that another worker makes at
    the same moment; otherwise it is never too low. A count is too high if other names share all four positions of its
    name: with 10,000 names, that happens to one name in 2,500.
    """

    def __init__(self, table: memoryview, number: int, key: bytes) -> None:
        self._table = table
        self._key = key
        size = _ROWS * _WIDTH
        self._starts = range(0, len(table), size)
        self._own = (number - 1) * size
        # Protects this worker's part, because several threads of the worker write to it.
        self._lock = threading.Lock()

    def _positions(self, name: str) -> list[int]:
        found = _POSITIONS.unpack(blake2b(name.encode(), digest_size=_POSITIONS.size, key=self._key).digest())
        return [row * _WIDTH + column for row, column in enumerate(found)]

    def add(self, name: str, amount: int) -> None:
        """Add to a count, in this worker's part. Any thread may call this."""
        positions = self._positions(name)
        with self._lock:
            for position in positions:
                self._table[self._own + position] += amount

    def count(self, name: str) -> int:
        """Return the total count of all workers."""
        table = self._table
        return min(sum(table[start + position] for start in self._starts) for position in self._positions(name))
