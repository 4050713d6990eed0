"""`FairLock`: a lock that its holder cannot take again at once while others wait."""

from __future__ import annotations

import threading
from types import TracebackType


class FairLock:
    """A lock that a waiting thread gets first when its holder releases it and wants it again, e.g. for the next of many
    topics.
    """

    def __init__(self) -> None:
        # Held by the next one in turn, while it waits.
        self._next = threading.Lock()
        # The underlying lock.
        self._lock = threading.Lock()

    @property
    def is_awaited(self) -> bool:
        """Return True if a thread waits for the lock, or is about to get it."""
        return self._next.locked()

    def __enter__(self) -> None:
        with self._next:
            self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
