"""Calls on sockets that some systems lack."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable, Collection


def ended_connections() -> Callable[[Collection[int]], list[int]]:
    """Return what finds the connections among descriptors that their peers have reset, or closed altogether."""
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
    """Return True if no byte can be read any more; bytes that have come stay."""
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
        # The descriptor is another's.
        sock.detach()


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


def forbid_sharing(sock: socket.socket) -> None:
    """Let a socket have an address that was in use a moment ago, and no other one while this has it."""
    # On Windows, SO_REUSEADDR would share it.
    exclusive: int | None = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR if exclusive is None else exclusive, 1)
