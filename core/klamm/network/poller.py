"""Readiness: epoll where there is one, else what `selectors` gives, with the same four methods."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
from typing import Final, Protocol

from klamm.runtime.platform import PLATFORM

READ: Final = 1
WRITE: Final = 4
ERROR: Final = 8
HANG_UP: Final = 16


class Poller(Protocol):
    """Level-triggered readiness of file descriptors; masks are of READ, WRITE, and on return ERROR, HANG_UP too.

    `select.epoll` has this interface.
    """

    def register(self, descriptor: int, mask: int, /) -> None: ...

    def modify(self, descriptor: int, mask: int, /) -> None: ...

    def unregister(self, descriptor: int, /) -> None: ...

    def poll(self, timeout_s: float, /) -> list[tuple[int, int]]:
        """Wait at most `timeout_s`; pairs of descriptor and mask."""
        ...

    def close(self) -> None: ...


class SelectorsPoller:
    """`selectors.DefaultSelector`: kqueue on a Mac, select on Windows."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._paused: set[int] = set()

    def register(self, descriptor: int, mask: int, /) -> None:
        events = self._events(mask)
        if events:
            self._selector.register(descriptor, events)
        else:
            self._paused.add(descriptor)

    def modify(self, descriptor: int, mask: int, /) -> None:
        events = self._events(mask)
        if not events:
            # `selectors` has no empty mask.
            if descriptor not in self._paused:
                self._selector.unregister(descriptor)
                self._paused.add(descriptor)
        elif descriptor in self._paused:
            self._paused.discard(descriptor)
            self._selector.register(descriptor, events)
        else:
            self._selector.modify(descriptor, events)

    def unregister(self, descriptor: int, /) -> None:
        if descriptor in self._paused:
            self._paused.discard(descriptor)
        else:
            self._selector.unregister(descriptor)

    def poll(self, timeout_s: float, /) -> list[tuple[int, int]]:
        return [
            (key.fd, (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0))
            for key, events in self._selector.select(timeout_s)
        ]

    def close(self) -> None:
        self._selector.close()

    @staticmethod
    def _events(mask: int) -> int:
        return (selectors.EVENT_READ if mask & READ else 0) | (selectors.EVENT_WRITE if mask & WRITE else 0)


def make_poller(kind: str = "auto") -> Poller:
    """`auto` takes epoll where the system has it; `epoll` and `selectors` force one."""
    if PLATFORM.epoll is not None and kind != "selectors":
        made: Poller = PLATFORM.epoll()
        return made
    if kind == "epoll":
        raise OSError("epoll is not available on this system")
    return SelectorsPoller()


class Waker:
    """Makes a sleeping `poll` return: an eventfd, or a socket pair where there is none."""

    def __init__(self, kind: str = "auto") -> None:
        self._pair: tuple[socket.socket, socket.socket] | None = None
        if sys.platform == "linux" and PLATFORM.has_eventfd and kind != "selectors":
            self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self.descriptor = self._event
        else:
            self._pair = socket.socketpair()
            for end in self._pair:
                end.setblocking(False)
            self.descriptor = self._pair[0].fileno()

    def wake(self) -> None:
        """From any thread."""
        # A full pipe or a closed waker needs no waking.
        with contextlib.suppress(OSError):
            if self._pair is None:
                os.eventfd_write(self._event, 1)
            else:
                self._pair[1].send(b"\0")

    def drain(self) -> None:
        """Consume the wake-ups."""
        with contextlib.suppress(BlockingIOError):
            if self._pair is None:
                os.eventfd_read(self._event)
            else:
                while self._pair[0].recv(4096):
                    pass

    def close(self) -> None:
        """Close the descriptors."""
        if self._pair is None:
            os.close(self._event)
        else:
            for end in self._pair:
                end.close()


def unread_bytes(descriptor: int) -> int:
    """Return how many bytes a socket has that are still to be read; those of TLS are more than what they carry."""
    try:
        import fcntl
        import termios
    except ImportError:
        return 0
    count = bytearray(4)
    try:
        fcntl.ioctl(descriptor, termios.FIONREAD, count)
    except OSError:
        return 0
    return int.from_bytes(count, sys.byteorder)
