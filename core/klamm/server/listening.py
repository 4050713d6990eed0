"""Listening sockets: TCP, or a Unix domain socket that is a file."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from klamm.api.context import Address
from klamm.config.plan import ListenerPlan
from klamm.config.server_settings import ListenerSettings
from klamm.network.acceptor import set_connection_options
from klamm.network.listening_sockets import ListeningSockets
from klamm.runtime.platform.sockets import forbid_sharing
from klamm.shared.addresses import UNIX_PREFIX


class BindError(Exception):
    """Raised if a listener's address cannot be bound; the message names listener, host, port and cause."""


@dataclass(slots=True)
class ListeningSocket:
    """A bound socket and its address.

    `file` is device and inode of the file of a Unix domain socket, and None for other sockets.
    """

    socket: socket.socket | ListeningSockets
    bound: Address
    file: tuple[int, int] | None = None

    def close(self) -> None:
        """Close the socket and remove its file, unless another file has replaced it. A second call does nothing."""
        with contextlib.suppress(OSError):
            self.socket.close()
        # Removed only once: a later file of that name may have the same inode.
        file, self.file = self.file, None
        if file is not None:
            path = self.bound.host.removeprefix(UNIX_PREFIX)
            with contextlib.suppress(OSError):
                if _identity(path) == file:
                    os.unlink(path)


def advertised(plan: ListenerPlan, bound: Address) -> Address:
    """Return the address that Metadata gives to the clients of a listener."""
    if plan.advertise is not None:
        host, port = plan.advertise
        return Address(host, port or bound.port)
    if bound.host in ("0.0.0.0", "::"):  # noqa: S104
        return Address(socket.getfqdn(), bound.port)
    return bound


def listen_at_all(plan: ListenerPlan, more_ports: Iterable[int]) -> ListeningSocket:
    """Bind the address of a listener and further ports of its host, as one socket. Raises BindError."""
    return as_one(bind_all(plan, more_ports))


def bind_all(plan: ListenerPlan, more_ports: Iterable[int]) -> tuple[ListeningSocket, ...]:
    """Bind the address of a listener and further ports of its host; return a socket for each. Raises BindError."""
    (host, port), listening = plan.bind, list[ListeningSocket]()
    for each in (port, *more_ports):
        try:
            listening.append(listen(host, each, plan.settings))
        except OSError as error:
            for one in listening:
                one.close()
            where = Address(host, each)
            raise BindError(f"listener {plan.name}: cannot bind {where}: {error.strerror or error}") from error
    return tuple(listening)


def as_one(listening: Sequence[ListeningSocket]) -> ListeningSocket:
    """Combine several listening sockets into one, which has the address of the first."""
    first = listening[0]
    if len(listening) == 1:
        return first
    # Unix domain sockets have no ports.
    sockets = [one.socket for one in listening if isinstance(one.socket, socket.socket)]
    return ListeningSocket(ListeningSockets(sockets), first.bound)


def duplicates(one: ListeningSocket) -> tuple[ListeningSocket, ...]:
    """Return duplicates of the sockets of a TCP address. The address listens until the last duplicate is closed."""
    if one.file is not None:
        return ()
    sockets = one.socket.sockets if isinstance(one.socket, ListeningSockets) else (one.socket,)
    return tuple(ListeningSocket(each.dup(), Address(one.bound.host, each.getsockname()[1])) for each in sockets)


def listen(host: str, port: int, settings: ListenerSettings) -> ListeningSocket:
    """Bind and listen. Raises OSError."""
    if host.startswith(UNIX_PREFIX):
        return _listen_unix(host, settings)
    # Bytes, because Python loads the tables of international names for a str.
    name = host.encode("ascii") if host.isascii() else host
    found = socket.getaddrinfo(name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        forbid_sharing(sock)
        _set_buffers(sock, settings)
        sock.bind(address)
        sock.listen(settings.backlog)
        return ListeningSocket(sock, Address(host or "0.0.0.0", sock.getsockname()[1]))  # noqa: S104
    except BaseException:
        sock.close()
        raise


def _listen_unix(host: str, settings: ListenerSettings) -> ListeningSocket:
    path = host.removeprefix(UNIX_PREFIX)
    if not hasattr(socket, "AF_UNIX"):
        raise OSError(errno.EAFNOSUPPORT, "this system has no Unix domain sockets")
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening = None
    try:
        _set_buffers(sock, settings)
        sock.bind(path)
        listening = ListeningSocket(sock, Address(host, 0), _identity(path))
        # No client can connect before `listen`, so the mode applies to the first connection too.
        os.chmod(path, int(settings.unix_socket_mode, 8))
        sock.listen(settings.backlog)
    except BaseException:
        (listening or sock).close()
        raise
    return listening


def prepare(sock: socket.socket, settings: ListenerSettings) -> None:
    """Set the options of a listener on a bound socket, and listen. Raises OSError if the socket cannot listen."""
    _set_buffers(sock, settings)
    sock.listen(settings.backlog)


def _set_buffers(sock: socket.socket, settings: ListenerSettings) -> None:
    if settings.socket_receive_buffer_bytes > 0:
        # TCP negotiates the window scale in the handshake, so the listening socket must have it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.socket_receive_buffer_bytes)
    set_connection_options(sock, settings.socket_send_buffer_bytes)


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _remove_stale(path: str) -> None:
    """Remove the file of the socket of a killed server.

    Raises OSError if a running server listens on the socket, or if the file is not a socket.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(0, "a file of that name exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass
    raise FileExistsError(0, "another server listens there")
