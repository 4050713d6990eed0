"""`Inbox`: the items that other threads pass to a processor, e.g. new connections, migrated channels and calls."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from klamm.api.context import Address
from klamm.api.gates import ConnectionGate
from klamm.network.channel import KafkaChannel
from klamm.network.connection_looks import ConnectionLook
from klamm.network.poller import Waker


class NewConnection(NamedTuple):
    """An accepted socket, its peer, and the gates that admitted it."""

    socket: socket.socket
    peer: Address
    gates: tuple[ConnectionGate, ...]


class Inbox:
    """The inbox of one processor.

    Any thread may call the methods up to `wakeup`, only the processor's thread the others.
    """

    def __init__(self, waker: Waker, max_incoming: int) -> None:
        self._waker = waker
        self._max_incoming = max_incoming
        # Protects everything except `calls` and `looks`, whose deques are thread safe, and `_sleeping`.
        self._lock = threading.Lock()
        self.connections: deque[NewConnection] = deque()
        self.adopted: deque[KafkaChannel] = deque()
        self.evictions = 0
        self.is_closing_connections = False
        self._accepting = True
        self._ended = False
        self.calls: deque[tuple[KafkaChannel, Callable[[Any], None], Any]] = deque()
        self.looks: deque[ConnectionLook] = deque()
        self._sleeping = False

    def accept(self, connection: NewConnection) -> bool:
        """Take over a connection and return True, if the queue of new connections has room.

        Return False also until `close_connections` has been carried out, because it would close this connection too.
        """
        with self._lock:
            if not self._accepting or self.is_closing_connections or len(self.connections) >= self._max_incoming:
                return False
            self.connections.append(connection)
        self.wakeup()
        return True

    def adopt(self, channel: KafkaChannel) -> bool:
        """Take over a quiet channel from another processor; return False if this processor has ended."""
        with self._lock:
            if self._ended:
                return False
            self.adopted.append(channel)
        self.wakeup()
        return True

    def evict_one(self, connections: int) -> bool:
        """Close one channel in the next turn; return False if all `connections` channels are to be closed already."""
        with self._lock:
            if connections <= self.evictions:
                return False
            self.evictions += 1
        self.wakeup()
        return True

    def close_connections(self) -> None:
        """Close all channels and new connections in the next turn."""
        self.is_closing_connections = True
        self.wakeup()

    def call_soon(self, channel: KafkaChannel, callback: Callable[[Any], None], argument: Any) -> None:
        """Call `callback(argument)` in the next turn; `channel` is the channel that the call is about."""
        self.calls.append((channel, callback, argument))
        self.wakeup()

    def look(self, look: ConnectionLook) -> None:
        """Describe the channels in the next turns."""
        self.looks.append(look)
        self.wakeup()

    def stop_accepting(self) -> None:
        """Refuse further connections."""
        with self._lock:
            self._accepting = False

    def wakeup(self) -> None:
        """Wake the processor if it sleeps."""
        if self._sleeping:
            self._waker.wake()

    # ---- on the processor's thread

    def going_to_sleep(self) -> None:
        """Make items wake the processor from now on. Called before the last check of `has_work`."""
        self._sleeping = True

    def awake(self) -> None:
        """Stop waking the processor for items, because it is awake and checks `has_work` itself."""
        self._sleeping = False

    @property
    def has_work(self) -> bool:
        """Return True if an item waits."""
        return bool(
            self.calls
            or self.connections
            or self.adopted
            or self.evictions
            or self.is_closing_connections
            or self.looks
        )

    def take_connection(self) -> NewConnection:
        """Remove and return the new connection that has waited longest."""
        with self._lock:
            return self.connections.popleft()

    def take_all_connections(self) -> list[NewConnection]:
        """Remove and return all new connections, because they are to be closed."""
        with self._lock:
            self.is_closing_connections = False
            taken = [*self.connections]
            self.connections.clear()
            return taken

    def take_evictions(self) -> int:
        """Return the number of channels that are to be closed to make room, and set the number to 0."""
        with self._lock:
            count, self.evictions = self.evictions, 0
            return count

    @property
    def ended(self) -> bool:
        """Return True if the inbox accepts no further items."""
        return self._ended

    def end(self) -> None:
        """Refuse channels in `adopt` from now on."""
        with self._lock:
            self._ended = True
