"""`FairLock`: a lock that is not taken again at once by who has it, while others wait."""

from __future__ import annotations

import threading
from types import TracebackType


class FairLock:
    """A lock that goes to a waiting thread before the thread that releases it and wants it again, e.g. for the next of
    many topics.
    """

    def __init__(self) -> None:
        # Held by the next one in turn, while it waits.
        self._next = threading.Lock()
        # What the lock itself protects, as any other.
        self._lock = threading.Lock()

    @property
    def is_awaited(self) -> bool:
        """Return True if a thread waits for it, or is about to get it."""
        return self._next.locked()

    def __enter__(self) -> None:
        with self._next:
            self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
