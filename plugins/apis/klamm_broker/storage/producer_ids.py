"""Producer ids, allocated in blocks; a block is durable before its first id is used.

Follows Kafka's `ProducerIdManager` (KIP-730): an id is never allocated twice; the unused rest of a block is lost when
the server stops. If the store was lost, the server passes as `at_least` an id above all ids in the logs, so that none
of these is allocated again. `at_least` becomes durable when the server starts.
"""

from __future__ import annotations

import threading
from typing import Final

from klamm_broker.storage.store import Store

BLOCK_SIZE: Final = 1000
_COUNTER: Final = "next_producer_id_block"


class ProducerIds:
    """Thread-safe source of producer ids. Raises StoreError."""

    def __init__(self, store: Store, at_least: int = 0) -> None:
        self._store = store
        # Protects the block of ids.
        self._lock = threading.Lock()
        self._next = 0
        self._block_end = 0
        if at_least > self._stored():
            self._keep(at_least)

    def allocate(self) -> int:
        """Return a producer id that was never allocated before. Waits for the store once per block. Raises
        StoreError.
        """
        with self._lock:
            if self._next == self._block_end:
                self._take_block()
            producer_id = self._next
            self._next += 1
            return producer_id

    def _take_block(self) -> None:
        first = self._stored()
        self._keep(first + BLOCK_SIZE)
        self._next, self._block_end = first, first + BLOCK_SIZE

    def _stored(self) -> int:
        rows = self._store.read("SELECT value FROM counters WHERE name = ?", (_COUNTER,))
        return int(rows[0][0]) if rows else 0

    def _keep(self, first: int) -> None:
        self._store.write_and_wait([("INSERT OR REPLACE INTO counters (name, value) VALUES (?, ?)", (_COUNTER, first))])
