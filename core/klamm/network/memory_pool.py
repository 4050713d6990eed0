"""`MemoryPool` (KIP-72): one budget of bytes for requests that have been read and not yet answered."""

from __future__ import annotations

import threading


class MemoryPool:
    """Counts bytes; holds none. Kafka's strict pool, except that one request larger than the whole pool may pass
    while nothing else is taken, as in Kafka's weak one: otherwise its connection would wait for ever.

    `try_allocate` on processor threads, `release` on any.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._available = size_bytes
        self._lock = threading.Lock()
        self.depletions = 0

    @property
    def available_bytes(self) -> int:
        """What is left; the metric MemoryPoolAvailable."""
        return self._available

    @property
    def used_bytes(self) -> int:
        """What is taken; the metric MemoryPoolUsed."""
        return self.size_bytes - self._available

    @property
    def is_low(self) -> bool:
        """Less than a tenth is left: reads are then served in random order, so that none starves."""
        return self._available * 10 < self.size_bytes

    def try_allocate(self, size_bytes: int) -> bool:
        """Take bytes, or return False and count a depletion."""
        with self._lock:
            if size_bytes <= self._available or self._available == self.size_bytes:
                self._available -= size_bytes
                return True
            self.depletions += 1
            return False

    def release(self, size_bytes: int) -> None:
        """Give bytes back."""
        with self._lock:
            self._available += size_bytes
