"""Pollers, which report the readiness of sockets: epoll, or a selector of Python if the system lacks epoll."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import sys
import threading
import time
from typing import Final, Protocol

from klamm.runtime.platform import PLATFORM
from klamm.runtime.platform.sockets import ended_connections

READ: Final = 1
WRITE: Final = 4
ERROR: Final = 8
HANG_UP: Final = 16
_LOOK_EVERY_S: Final = 0.1


class Poller(Protocol):
    """A level-triggered poller of file descriptors; `select.epoll` has this interface.

    A mask combines READ and WRITE. A mask that `poll` returns may also have ERROR and HANG_UP.
    """

    def register(self, descriptor: int, mask: int, /) -> None: ...

    def modify(self, descriptor: int, mask: int, /) -> None: ...

    def unregister(self, descriptor: int, /) -> None: ...

    def poll(self, timeout_s: float, /) -> list[tuple[int, int]]:
        """Wait at most `timeout_s`; return pairs of descriptor and mask."""
        ...

    def close(self) -> None: ...


class SelectorsPoller:
    """A poller that uses a selector of Python: kqueue on a Mac, `select` on Windows.

    Python's selectors have no empty mask, so a socket with an empty mask is paused, i.e. not registered. All paused
    sockets are examined ten times a second, to find connections that have ended.
    """

    def __init__(self) -> None:
        self._selector = PLATFORM.selector()
        self._max_watched = PLATFORM.max_watched
        self._paused: set[int] = set()
        self._ended = ended_connections()
        self._next_look_s = 0.0

    def register(self, descriptor: int, mask: int, /) -> None:
        """Watch a descriptor. Raises OSError if the system can watch no more descriptors."""
        if self._max_watched is not None and len(self._selector.get_map()) + len(self._paused) >= self._max_watched:
            raise OSError(errno.EMFILE, f"this system waits for {self._max_watched} sockets at most")
        events = self._events(mask)
        if events:
            self._selector.register(descriptor, events)
        else:
            self._paused.add(descriptor)

    def modify(self, descriptor: int, mask: int, /) -> None:
        """Change the mask of a descriptor. Raises KeyError if the descriptor is not watched."""
        events = self._events(mask)
        if not events:
            if descriptor not in self._paused:
                self._selector.unregister(descriptor)
                self._paused.add(descriptor)
        elif descriptor in self._paused:
            self._paused.discard(descriptor)
            self._selector.register(descriptor, events)
        else:
            self._selector.modify(descriptor, events)

    def unregister(self, descriptor: int, /) -> None:
        """Stop watching a descriptor."""
        if descriptor in self._paused:
            self._paused.discard(descriptor)
        else:
            self._selector.unregister(descriptor)

    def poll(self, timeout_s: float, /) -> list[tuple[int, int]]:
        """Wait at most `timeout_s`; return pairs of descriptor and mask."""
        if self._paused:
            timeout_s = min(timeout_s, _LOOK_EVERY_S)
        found = [
            (key.fd, (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0))
            for key, events in self._selector.select(timeout_s)
        ]
        if self._paused and (now_s := time.monotonic()) >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_EVERY_S
            found += [(descriptor, HANG_UP) for descriptor in self._ended(self._paused)]
        return found

    def close(self) -> None:
        """Close the selector. The sockets stay open."""
        self._selector.close()

    @staticmethod
    def _events(mask: int) -> int:
        return (selectors.EVENT_READ if mask & READ else 0) | (selectors.EVENT_WRITE if mask & WRITE else 0)


def make_poller(kind: str = "auto") -> Poller:
    """Return a poller. `auto` uses epoll if the system has it; `epoll` and `selectors` choose one of the two."""
    if PLATFORM.epoll is not None and kind != "selectors":
        made: Poller = PLATFORM.epoll()
        return made
    if kind == "epoll":
        raise OSError("epoll is not available on this system")
    return SelectorsPoller()


class Waker:
    """A descriptor that makes a sleeping `poll` return: an eventfd, or a socket pair if the system has none.

    Any thread may call `wake` and `close`; the loop that sleeps calls `drain`. A closed waker does nothing.
    """

    def __init__(self, kind: str = "auto") -> None:
        # Protects the descriptors: the system gives the number of a closed one to the next file or socket, and a
        # `wake` of another thread at that moment would write there.
        self._lock = threading.Lock()
        self._closed = False
        self._pair: tuple[socket.socket, socket.socket] | None = None
        if sys.platform == "linux" and PLATFORM.has_eventfd and kind != "selectors":
            self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self.descriptor = self._event
        else:
            self._pair = socket.socketpair()
            for end in self._pair:
                end.setblocking(False)
                if end.family == socket.AF_INET:
                    # Without delay: otherwise a second `wake` would wait until the first is acknowledged.
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.descriptor = self._pair[0].fileno()

    def wake(self) -> None:
        """Make `poll` return. Any thread may call this."""
        # An error means that a wake-up is pending already.
        with self._lock, contextlib.suppress(OSError):
            if self._closed:
                return
            if self._pair is None:
                os.eventfd_write(self._event, 1)
            else:
                self._pair[1].send(b"\0")

    def drain(self) -> None:
        """Consume all pending wake-ups. Called by the loop that sleeps, which has ended before `close`."""
        # No lock is taken, because the thread whose `wake` has just ended the sleep may still hold it.
        if self._closed:
            return
        with contextlib.suppress(BlockingIOError):
            if self._pair is None:
                os.eventfd_read(self._event)
            else:
                while self._pair[0].recv(4096):
                    pass

    def close(self) -> None:
        """Close the descriptors. Any thread may call this, also more than once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._pair is None:
                os.close(self._event)
            else:
                for end in self._pair:
                    end.close()
