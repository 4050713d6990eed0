"""`FairLock`: a lock whose holder cannot take it again while other threads wait."""

from __future__ import annotations

import threading
from types import TracebackType


class FairLock:
    """A lock that goes to a waiting thread when its holder releases it. A holder that wants the lock again, e.g.
    for the next of many topics, has to wait for its turn.
    """

    def __init__(self) -> None:
        # Held by the thread that is next in turn, while it waits.
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
