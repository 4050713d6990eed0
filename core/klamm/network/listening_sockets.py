"""`ListeningSockets`: several listening sockets of one listener, which accept as one."""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any


class ListeningSockets:
    """Used as a `socket.socket` is by an acceptor. The first is the listener's own address.

    Its descriptor is that of a poller, which another poller can watch: epoll and kqueue can be nested.
    """

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self.sockets = tuple(sockets)
        self._selector = selectors.DefaultSelector()
        self._ready: deque[socket.socket] = deque()
        for each in self.sockets:
            self._selector.register(each, selectors.EVENT_READ)

    def setblocking(self, flag: bool) -> None:
        """Set the blocking mode of all sockets, like the method of a socket."""
        for each in self.sockets:
            each.setblocking(flag)

    def fileno(self) -> int:
        """Return the descriptor to watch. Raises OSError on a system whose pollers cannot be nested."""
        fileno = getattr(self._selector, "fileno", None)
        if fileno is None:
            raise OSError("several ports of one listener need epoll or kqueue")
        number: int = fileno()
        return number

    def getsockname(self) -> Any:
        """The address of the first."""
        return self.sockets[0].getsockname()

    def accept(self) -> tuple[socket.socket, Any]:
        """A connection that waits at one of them; the sockets take turns. Raises BlockingIOError if there is none."""
        if not self._ready:
            self._ready.extend(key.fileobj for key, _ in self._selector.select(0))  # type: ignore[misc]
        while self._ready:
            try:
                return self._ready.popleft().accept()
            except BlockingIOError:
                continue
        raise BlockingIOError

    def close(self) -> None:
        """Close all."""
        self._selector.close()
        for each in self.sockets:
            each.close()
