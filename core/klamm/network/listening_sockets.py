"""`ListeningSockets`: several listening sockets of one listener, which accept like one."""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from klamm.network.poller import Waker
from klamm.runtime.platform import PLATFORM


class ListeningSockets:
    """An acceptor uses it like a `socket.socket`. The first one has the listener's own address.

    Its descriptor is that of a poller, which another poller can watch: epoll and kqueue can be nested. Where none can,
    a thread watches.
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
        """The address of the first."""
        return self.sockets[0].getsockname()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return a connection that waits at one of the sockets, which take turns. Raises BlockingIOError if there is
        none.
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
        """Close all."""
        if self._watch is not None:
            self._watch.close()
        self._selector.close()
        for each in self.sockets:
            each.close()


class _Watch:
    """A thread that makes a descriptor readable as soon as one of several sockets is, until `go_on`."""

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
            # `close` may have come before `clear`.
            if not self._ending:
                self._found.wake()
                self._watching.wait()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._found.descriptor

    def go_on(self) -> None:
        """No connection waits any more: look again."""
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
