"""`EventQueue`: the bounded queue between the server's threads, which call `put`, and the writer's thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

Entry: TypeAlias = Callable[[Any], None]
"""A function that adds one or more events to a `klamm_spark.observer.recorder.Recorder`, on the writer's thread."""

DROP: Final = "drop"
BLOCK: Final = "block"
REFUSE: Final = "refuse"


class EventQueue:
    """A queue of entries, each of one or more events. `capacity` counts events.

    Requests may fill `capacity`, and other events twice as much, so that a flood of requests does not hide them. With
    REFUSE, requests may fill twice as much too, because the server refuses requests from `capacity` on. Without room,
    an event is dropped and counted; with BLOCK, `put` waits instead. `filled` is set when an entry comes into an empty
    queue. The reader clears it before it takes the entries.
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
        """Add an entry of `count` events. With `may_wait` False, it is dropped if there is no room, even with BLOCK."""
        limit = self._request_limit if request else 2 * self.capacity
        with self._lock:
            size = self._pending + self._taken
            # If the queue is empty, it accepts even an entry that is larger than the whole queue.
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
        """Take all entries. Return them, and the number of events that were dropped since the last call.

        The entries use room in the queue until `done`.
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
        """Let every waiting `put` return, because the server stops."""
        with self._lock:
            self._blocks = False
            self._room.notify_all()
