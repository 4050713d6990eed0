"""Functions for sockets, with a fallback for each call that some systems lack."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable, Collection


def ended_connections() -> Callable[[Collection[int]], list[int]]:
    """Return a function that takes descriptors of connections, and returns those that were reset.

    Where the system has `poll`, the function also returns connections that are closed in both directions. It does not
    return a connection that only the peer has closed.
    """
    poll = getattr(select, "poll", None)
    if poll is None:
        return lambda descriptors: [descriptor for descriptor in descriptors if _is_reset(descriptor)]

    def ended(descriptors: Collection[int]) -> list[int]:
        looked = poll()
        for descriptor in descriptors:
            looked.register(descriptor, 0)
        return [descriptor for descriptor, _mask in looked.poll(0)]

    return ended


def _is_reset(descriptor: int) -> bool:
    """Return True if the connection was reset. Bytes that have arrived stay unread."""
    sock = socket.socket(fileno=descriptor)
    try:
        sock.setblocking(False)
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    else:
        return False
    finally:
        # The descriptor belongs to another socket object, and must stay open.
        sock.detach()


def unread_bytes(descriptor: int) -> int:
    """Return the number of bytes that a socket has received and that are not read yet.

    With TLS, these are encrypted bytes.
    """
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


def forbid_sharing(sock: socket.socket) -> None:
    """Let a socket bind an address that was in use a moment ago, but share it with no other socket."""
    # On Windows, SO_REUSEADDR would let other sockets bind the same address.
    exclusive: int | None = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR if exclusive is None else exclusive, 1)
