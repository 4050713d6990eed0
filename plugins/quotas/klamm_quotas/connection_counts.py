"""`ConnectionCounts`: the connections of one server, by address and by listener; shared by its listeners' gates."""

from __future__ import annotations

import threading

from klamm import ListenerContext


class ListenerCount:
    """One listener that counts here. `protected` ones are never asked to give up a connection.

    `waiting` says that its acceptor waits for one to go.
    """

    __slots__ = ("connections", "context", "protected", "waiting")

    def __init__(self, context: ListenerContext, protected: bool) -> None:
        self.context = context
        self.protected = protected
        self.connections = 0
        self.waiting = False


class ConnectionCounts:
    """`lock` guards all of it. An address without connections is not in `by_ip`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.total = 0
        self.by_ip: dict[str, int] = {}
        self.listeners: dict[str, ListenerCount] = {}

    def add(self, host: str, listener: ListenerCount) -> None:
        """One more; the caller holds the lock."""
        self.total += 1
        listener.connections += 1
        self.by_ip[host] = self.by_ip.get(host, 0) + 1

    def remove(self, host: str, listener: ListenerCount) -> None:
        """One less. Acceptors that wait look again."""
        with self.lock:
            self.total -= 1
            listener.connections -= 1
            left = self.by_ip[host] - 1
            if left:
                self.by_ip[host] = left
            else:
                del self.by_ip[host]
            waiting = [each.context for each in self.listeners.values() if each.waiting]
        for context in waiting:
            context.resume_accepting()

    def evict(self, count: int) -> int:
        """Have listeners that are not protected close so many connections; how many they will. Not under the lock.

        The listener with the most gives first, each its least recently used.
        """
        with self.lock:
            left = {each: each.connections for each in self.listeners.values() if not each.protected}
        evicted = 0
        while evicted < count and left:
            fullest = max(left, key=lambda listener: left[listener])
            if left[fullest] > 0 and fullest.context.close_least_recently_used():
                left[fullest] -= 1
                evicted += 1
            else:
                del left[fullest]
        return evicted
