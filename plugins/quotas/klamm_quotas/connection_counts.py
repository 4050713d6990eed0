"""`ConnectionCounts`: the numbers of a server's connections, by source (a client's address or network) and by listener.

The gates `connection_quota` of all listeners share it, on any thread.
"""

from __future__ import annotations

import threading
from typing import Final

from klamm import ListenerContext
from klamm.runtime import Scheduler
from klamm.shared import WorkerShare

# The time after which listeners try again to close a connection: none can be closed while it is set up.
_RETRY_MS: Final = 100


class ListenerCount:
    """The connections of one listener. A `protected` listener never has to close a connection to make room for others.

    `evicting` is the number of the listener's connections that are about to be closed. `waiting` is True while the
    acceptor waits until a connection is closed.
    """

    __slots__ = ("connections", "context", "evicting", "protected", "waiting")

    def __init__(self, context: ListenerContext, protected: bool) -> None:
        self.context = context
        self.protected = protected
        self.connections = 0
        self.evicting = 0
        self.waiting = False


class ConnectionCounts:
    """The numbers of connections. `lock` guards all fields. A source without connections is not in `by_source`."""

    def __init__(self, scheduler: Scheduler, share: WorkerShare | None = None) -> None:
        self._scheduler = scheduler
        self._of_all_workers = share.counts if share is not None else None
        self._limit = 0
        self._retry_scheduled = False
        # Protects the counts of all listeners, which change together.
        self.lock = threading.Lock()
        self.total = 0
        self.by_source: dict[str, int] = {}
        self.listeners: dict[str, ListenerCount] = {}

    def add(self, source: str, listener: ListenerCount) -> None:
        """Count a connection. The caller holds the lock."""
        self.total += 1
        listener.connections += 1
        self.by_source[source] = self.by_source.get(source, 0) + 1
        if self._of_all_workers is not None:
            self._of_all_workers.add(f"connections {source}", 1)

    def of(self, source: str) -> int:
        """Return the number of connections of a source, including those of other worker processes."""
        if self._of_all_workers is not None:
            return self._of_all_workers.count(f"connections {source}")
        return self.by_source.get(source, 0)

    def remove(self, source: str, listener: ListenerCount) -> None:
        """Stop counting a closed connection. Acceptors that wait for this try again."""
        with self.lock:
            self.total -= 1
            listener.connections -= 1
            listener.evicting = max(0, listener.evicting - 1)
            if self._of_all_workers is not None:
                self._of_all_workers.add(f"connections {source}", -1)
            left = self.by_source[source] - 1
            if left:
                self.by_source[source] = left
            else:
                del self.by_source[source]
            waiting = [each.context for each in self.listeners.values() if each.waiting]
        for context in waiting:
            context.resume_accepting()

    def keep_limit(self, limit: int) -> None:
        """Make listeners that are not protected close connections until the total is within the limit.

        The caller does not hold the lock. The listener with the most connections closes its least recently used one.
        This is repeated until the total is within the limit or only protected listeners have connections.
        """
        with self.lock:
            self._limit = limit
            left = {each: each.connections - each.evicting for each in self.listeners.values() if not each.protected}
            excess = self.total - sum(each.evicting for each in self.listeners.values()) - limit
            if self.total > limit and any(each.connections for each in left) and not self._retry_scheduled:
                self._retry_scheduled = True
                self._scheduler.schedule(_RETRY_MS, self._retry)
        while excess > 0 and left:
            fullest = max(left, key=lambda listener: left[listener])
            if left[fullest] > 0 and self._evict_one(fullest):
                left[fullest] -= 1
                excess -= 1
            else:
                del left[fullest]

    def _evict_one(self, listener: ListenerCount) -> bool:
        with self.lock:
            listener.evicting += 1
        if listener.context.close_least_recently_used():
            return True
        with self.lock:
            listener.evicting = max(0, listener.evicting - 1)
        return False

    def _retry(self) -> None:
        with self.lock:
            self._retry_scheduled = False
            # By now the connections to be closed are closed, or will not be closed at all.
            for listener in self.listeners.values():
                listener.evicting = 0
        self.keep_limit(self._limit)
