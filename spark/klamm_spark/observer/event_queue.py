"""The bounded queue between the server's threads and the writer's thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

Entry: TypeAlias = Callable[[Any], None]
"""Adds one or more events to a `klamm_spark.observer.recorder.Recorder`, on the writer's thread."""

DROP: Final = "drop"
BLOCK: Final = "block"
REFUSE: Final = "refuse"


class EventQueue:
    """Each entry represents one or more events; `capacity` counts events.

    Requests may fill `capacity`, other events twice as much: a flood of requests must not hide the others.
    With REFUSE, requests may fill twice as much: these are the last before the server refuses. Without room, an
    event is dropped and counted; with BLOCK, `put` waits instead, so that nothing is lost. `filled` is set when an
    entry comes into an empty queue; the reader clears it before it takes.
    """

    def __init__(self, capacity: int, on_full: str, filled: threading.Event | None = None) -> None:
        self.capacity = capacity
        self._blocks = on_full == BLOCK
        self._request_limit = 2 * capacity if on_full == REFUSE else capacity
        # Protects the entries and their counts.
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._filled = filled or threading.Event()
        self._entries: deque[Entry] = deque()
        self._pending = 0
        self._taken = 0
        self._dropped = 0

    @property
    def size(self) -> int:
        """Return the number of events that wait or are being written."""
        return self._pending + self._taken

    @property
    def full(self) -> bool:
        """Return True if requests should be refused."""
        return self._pending + self._taken >= self.capacity

    def put(self, entry: Entry, count: int = 1, *, request: bool = False, may_wait: bool = True) -> None:
        """Add an entry of `count` events. With `may_wait` False, it is dropped rather than waited for."""
        limit = self._request_limit if request else 2 * self.capacity
        with self._lock:
            size = self._pending + self._taken
            # An entry larger than the whole queue is accepted when the queue is empty.
            if size + count > limit and size and not (may_wait and self._wait_for_room(limit, count)):
                self._dropped += count
                return
            first = not self._pending
            self._pending += count
            self._entries.append(entry)
        if first:
            self._filled.set()

    def _wait_for_room(self, limit: int, count: int) -> bool:
        while self._blocks:
            if self._pending + self._taken + count <= limit or not self._pending + self._taken:
                return True
            self._room.wait()
        return False

    def take(self) -> tuple[list[Entry], int]:
        """Take all entries, and return them with the number of events dropped since the last call.

        The entries count as waiting until `done`.
        """
        with self._lock:
            entries, self._entries = list(self._entries), deque()
            self._taken, self._pending = self._taken + self._pending, 0
            dropped, self._dropped = self._dropped, 0
        return entries, dropped

    def done(self) -> None:
        """Note that the taken entries have been written."""
        with self._lock:
            self._taken = 0
            self._room.notify_all()

    def stop_blocking(self) -> None:
        """Let every waiting `put` return: the server stops."""
        with self._lock:
            self._blocks = False
            self._room.notify_all()
