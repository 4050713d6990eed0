"""The connections that the system queues until they are accepted, as Linux counts them."""

from __future__ import annotations

import socket
from pathlib import Path
from struct import Struct, error
from typing import Final, NamedTuple

_NETSTAT: Final = Path("/proc/self/net/netstat")
# Of a listening socket, `tcpi_unacked` and `tcpi_sacked` of Linux's `struct tcp_info` are these two.
_QUEUE: Final = Struct("=2I")
_QUEUE_OFFSET: Final = 24
_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)


class AcceptQueue(NamedTuple):
    """The number of connections that wait at a listening socket, and its limit."""

    waiting: int
    limit: int


def accept_queue(sock: socket.socket) -> AcceptQueue | None:
    """Return the queue of a listening socket; None if the system does not report it, and for Unix domain sockets."""
    if _TCP_INFO is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _QUEUE_OFFSET + _QUEUE.size)
        return AcceptQueue(*_QUEUE.unpack_from(info, _QUEUE_OFFSET))
    except (OSError, error):
        # The socket was closed meanwhile, or the system has another structure.
        return None


class ListenOverflows:
    """Counts the connections that have found a queue full since this was made, at all sockets of the host or container.



    With `[server] workers` the counts of all processes are added up, including those that have ended, so no process
    may include the system's initial number.
    """

    def __init__(self, netstat: Path = _NETSTAT) -> None:
        self._netstat = netstat
        self._before = listen_overflows(netstat)

    def count(self) -> int | None:
        """Return the number of overflows; None if the system does not report it."""
        now = listen_overflows(self._netstat)
        return None if now is None or self._before is None else now - self._before


def listen_overflows(netstat: Path = _NETSTAT) -> int | None:
    """Return how many connections found a queue full, at all sockets of the host or container; None if unknown."""
    try:
        lines = netstat.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        found = dict(zip(names.split(), values.split(), strict=False))
        if "ListenOverflows" in found:
            return int(found["ListenOverflows"])
    return None
