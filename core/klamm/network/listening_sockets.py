"""Listening sockets: several used as one, their queues, and the turns of worker processes that share a socket."""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import Struct, error
from typing import Any, Final, NamedTuple

from klamm.network.poller import Waker
from klamm.runtime.platform import PLATFORM

_NETSTAT: Final = Path("/proc/self/net/netstat")
# Linux: in the `tcp_info` of a listening socket, `tcpi_unacked` is the queue's length, `tcpi_sacked` its limit.
_QUEUE: Final = Struct("=2I")
_QUEUE_OFFSET: Final = 24
_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)


class ListeningSockets:
    """Several sockets that an acceptor uses like one, on its thread. The first has the listener's own address.

    `fileno` is the descriptor of a poller that watches the sockets; the acceptor's own poller can watch it (epoll,
    kqueue). On systems with neither, a thread watches the sockets.
    """

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self.sockets = tuple(sockets)
        self._selector = PLATFORM.selector()
        self._watch: _Watch | None = None
        self._ready: deque[socket.socket] = deque()
        for each in self.sockets:
            self._selector.register(each, selectors.EVENT_READ)
        fileno: Callable[[], int] | None = getattr(self._selector, "fileno", None)
        if fileno is None:
            self._watch = _Watch(self.sockets)
            fileno = self._watch.fileno
        self._descriptor = fileno()

    def setblocking(self, flag: bool) -> None:
        """Set the blocking mode of all sockets, like the method of a socket."""
        for each in self.sockets:
            each.setblocking(flag)

    def fileno(self) -> int:
        """Return the descriptor to watch."""
        return self._descriptor

    def getsockname(self) -> Any:
        """Return the address of the first socket."""
        return self.sockets[0].getsockname()

    def accept(self) -> tuple[socket.socket, Any]:
        """Try the sockets in turn, and return a connection that waits at one of them.

        Raises BlockingIOError if no connection waits.
        """
        if not self._ready:
            self._ready.extend(key.fileobj for key, _ in self._selector.select(0))  # type: ignore[misc]
        while self._ready:
            try:
                return self._ready.popleft().accept()
            except BlockingIOError:
                continue
        if self._watch is not None:
            self._watch.go_on()
        raise BlockingIOError

    def close(self) -> None:
        """Close all sockets."""
        if self._watch is not None:
            self._watch.close()
        self._selector.close()
        for each in self.sockets:
            each.close()


class _Watch:
    """A thread that makes a descriptor readable when one of several sockets is readable, until `go_on` is called."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._selector = PLATFORM.selector()
        self._found, self._end = Waker("selectors"), Waker("selectors")
        # Set while the acceptor waits for further connections.
        self._watching = threading.Event()
        self._watching.set()
        self._ending = False
        for each in (*(one.fileno() for one in sockets), self._end.descriptor):
            self._selector.register(each, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="klamm-listening", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending:
            self._selector.select()
            self._watching.clear()
            # `close` may have been called before `clear`.
            if not self._ending:
                self._found.wake()
                self._watching.wait()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._found.descriptor

    def go_on(self) -> None:
        """Watch the sockets again, because no connection waits any more."""
        self._found.drain()
        self._watching.set()

    def close(self) -> None:
        """End the thread. The sockets stay open."""
        self._ending = True
        self._end.wake()
        self._watching.set()
        self._thread.join()
        self._selector.close()
        self._found.close()
        self._end.close()


class AcceptTurns:
    """The turns of worker processes. A worker with more connections than another waits a millisecond for the other.

    The kernel wakes all workers for a new connection. Without turns, the first worker to run would accept the
    connection, and one worker would get most clients of an idle server.

    `table` is memory that all workers share. Each worker writes its number of connections plus 1 at its `position`, and
    reads the numbers of the others. 0 means a worker without a process. A number may lag by one connection, so turns
    balance the workers only approximately. `connections` returns the number of connections of this worker, for all
    listeners.
    """

    def __init__(self, table: memoryview, position: int, connections: Callable[[], int]) -> None:
        self._table = table
        self._position = position
        self._connections = connections

    def is_over(self) -> bool:
        """Return True if another worker should take the next connection."""
        own = self._connections() + 1
        table = self._table
        table[self._position] = own
        least = min(count for count in table if count)
        return own > least + max(1, least // 8)


class AcceptQueue(NamedTuple):
    """The number of connections that wait at a listening socket, and its limit."""

    waiting: int
    limit: int


def accept_queue(sock: socket.socket) -> AcceptQueue | None:
    """Return the queue of a listening socket; None for Unix domain sockets, or if the system does not report it."""
    if _TCP_INFO is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _QUEUE_OFFSET + _QUEUE.size)
        return AcceptQueue(*_QUEUE.unpack_from(info, _QUEUE_OFFSET))
    except (OSError, error):
        # The socket was closed meanwhile, or the system's structure has other fields.
        return None


class ListenOverflows:
    """The number of connections that have found a full queue since the creation of this object.

    The system counts them for all sockets of the host or container. The number starts at 0 for each object, because
    with `[server] workers` klamm adds up the numbers of all processes, even of ended ones.
    """

    def __init__(self, netstat: Path = _NETSTAT) -> None:
        self._netstat = netstat
        self._before = listen_overflows(netstat)

    def count(self) -> int | None:
        """Return the number of overflows; None if the system does not report it."""
        now = listen_overflows(self._netstat)
        return None if now is None or self._before is None else now - self._before


def listen_overflows(netstat: Path = _NETSTAT) -> int | None:
    """Return the number of connections that found a full queue at any socket of the host; None if it is unknown."""
    try:
        lines = netstat.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        found = dict(zip(names.split(), values.split(), strict=False))
        if "ListenOverflows" in found:
            return int(found["ListenOverflows"])
    return None
