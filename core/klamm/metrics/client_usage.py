"""`ClosedConnectionUsage`: the time that clients have used on closed connections, in a fixed amount of memory."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from klamm.api.context import ConnectionContext

CLIENTS: Final = 128
LABEL_CHARACTERS: Final = 100
"""The maximum length of a label that a client chooses."""


class ClientKey(NamedTuple):
    """A client of one listener, by the labels of its metrics."""

    principal: str
    host: str
    client_id: str


class Usage:
    """The time that a client has used: nanoseconds of processors and of handlers."""

    __slots__ = ("handler_ns", "processor_ns")

    def __init__(self) -> None:
        self.processor_ns = self.handler_ns = 0

    @property
    def time_ns(self) -> int:
        """Return the time of all threads."""
        return self.processor_ns + self.handler_ns


def client_key(connection: ConnectionContext) -> ClientKey:
    """Return the client of a connection."""
    client_id = (connection.client_id or "")[:LABEL_CHARACTERS]
    return ClientKey(str(connection.principal), connection.client_address.host, client_id)


class ClosedConnectionUsage:
    """The time that clients of one listener have used on closed connections, in `clients` counters.

    The algorithm is Space-Saving (Metwally and others, 2005). Each client that has used more than the `clients`-th part
    of the total time has a counter. A client without a counter takes over the smallest counter with its count. So a
    count may be too large, by at most that part, and is never too small. The time of open connections is counted
    elsewhere, exactly.
    """

    def __init__(self, clients: int = CLIENTS) -> None:
        self._clients = clients
        # Protects the counters, because connections close on several threads.
        self._lock = threading.Lock()
        self._counters: dict[ClientKey, Usage] = {}

    def add(self, client: ClientKey, processor_ns: int, handler_ns: int) -> None:
        """Add the time that a closed connection has used. Any thread may call this."""
        with self._lock:
            usage = self._counters.get(client)
            if usage is None:
                usage = self._counters[client] = self._new_counter()
            usage.processor_ns += processor_ns
            usage.handler_ns += handler_ns

    def _new_counter(self) -> Usage:
        if len(self._counters) < self._clients:
            return Usage()
        smallest = min(self._counters, key=lambda one: self._counters[one].time_ns)
        return self._counters.pop(smallest)

    def read(self) -> list[tuple[ClientKey, int, int]]:
        """Return each client with its nanoseconds of processors and of handlers."""
        with self._lock:
            return [(client, one.processor_ns, one.handler_ns) for client, one in self._counters.items()]
