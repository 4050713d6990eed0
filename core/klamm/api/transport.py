"""Transports carry the bytes of connections.

A `Transport` is made once per listener with its settings, opened before the listener accepts, and closed if and only if
`open` returned. It makes a `TransportLayer` for each socket, which belongs to one processor's thread and needs no
locks.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import IntFlag
from types import MappingProxyType
from typing import Any, Final

from klamm.api.context import Address
from klamm.api.part import ListenerPart
from klamm.shared.principal import ANONYMOUS, KafkaPrincipal
from klamm.wire.chunks import Buffer


class Interest(IntFlag):
    """Events that a transport waits for; the values are those of epoll, which all pollers use."""

    NONE = 0
    READ = 1
    WRITE = 4


WOULD_BLOCK: Final = 0
"""Result of `TransportLayer.read_into` if there is nothing to read now."""
END_OF_STREAM: Final = -1
"""Result of `TransportLayer.read_into` after the peer has closed."""


class HandshakeError(Exception):
    """The peer made the handshake fail; Kafka's `SslAuthenticationException`.

    `reason` is a metric label: few values, lower_snake_case. The message goes to the log. `details` are the known facts
    about the peer, as in `TransportLayer.details`; observers get it as `ConnectionContext.transport_details`.
    """

    def __init__(self, reason: str, detail: str, details: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(detail)
        self.reason = reason
        self.details = details


class TransportLayer(ABC):
    """The bytes of one connection over a non-blocking socket; named after Kafka's interface.

    All calls except `abort` and `end_session` come from the thread of the processor that owns the channel; see
    `Transport.computes_handshake`. No call blocks. An `OSError` means that the connection is lost; any other exception
    closes it too, and is logged with its traceback.
    """

    session_end: str = ""
    """The reason given to `end_session`; part of the connection's close reason, for the log, observers and metrics."""

    @abstractmethod
    def handshake(self) -> Interest:
        """Continue the handshake; return NONE when it is done, else the event that must occur before the next call.

        Raises HandshakeError, which counts as failed authentication, when the peer is at fault.
        """

    @abstractmethod
    def read_into(self, buffer: memoryview) -> int:
        """Read at most `len(buffer)` bytes; returns their number, WOULD_BLOCK (0) or END_OF_STREAM (-1)."""

    @abstractmethod
    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        """Write as much as the socket accepts, in order; return the number of bytes written (0: would block).

        `chunks` is never empty. `more` means that further bytes follow at once: MSG_MORE.
        """

    @abstractmethod
    def send_file(self, descriptor: int, position: int, count: int) -> int:
        """Write up to `count` bytes of a file from `position`; returns the bytes written (0: would block)."""

    may_splice: bool = False
    """True if `splice_from` may be called, because the transport writes bytes unchanged. Read once."""

    def splice_from(self, pipe: int, count: int) -> int:
        """Write up to `count` bytes that a pipe holds, by `os.splice`; returns the bytes written (0: would block)."""
        raise NotImplementedError

    @property
    def may_buffer(self) -> bool:
        """Return True if `has_buffered_data` can be True; it is then called after each read. Read once.

        The default is True if the class overrides `has_buffered_data`. A class that delegates to another transport
        returns that transport's value.
        """
        return type(self).has_buffered_data is not TransportLayer.has_buffered_data

    @property
    def has_buffered_data(self) -> bool:
        """Return True if the transport holds bytes from the socket that `read_into` has not returned yet."""
        return False

    @property
    def principal(self) -> KafkaPrincipal:
        """Return the identity that the transport has verified, e.g. by a certificate. Read once, when the handshake is
        done.
        """
        return ANONYMOUS

    @property
    def details(self) -> Mapping[str, str]:
        """Facts for logs and observers, e.g. `tls_version`, `tls_cipher`. Read once, when the handshake is done."""
        return {}

    def abort(self) -> None:  # noqa: B027
        """Cut the connection off, so that the processor sees its end and closes it; for revoked sessions.

        May be called from any thread, at any time, and never raises or blocks. A transport that cannot do it leaves the
        connection open: its session then ends with the next request.
        """

    def end_session(self, reason: str) -> None:
        """`abort` the connection because its client may not go on; `reason` is one of few. From any thread."""
        self.session_end = reason
        self.abort()

    @abstractmethod
    def close(self) -> None:
        """Close the socket. Never raises, never blocks, may be called twice."""


class Transport(ListenerPart, ABC):
    """Makes a `TransportLayer` for each accepted socket."""

    security_protocol: str = "PLAINTEXT"
    """Kafka's name for the transport: PLAINTEXT or SSL."""
    computes_handshake: bool = False
    """True if `TransportLayer.handshake` takes longer than a request, e.g. because of cryptography.

    It is then called on a separate thread (`handshake_threads`), for the first time when the peer has sent something;
    no other method of the layer is called meanwhile.
    """

    @classmethod
    def proves_principals(cls, settings: Any) -> bool:
        """Return True if its layers may have a `principal` with these settings, e.g. from client certificates."""
        return False

    @abstractmethod
    def wrap(self, sock: socket.socket, peer: Address) -> TransportLayer:
        """Take over a connected, non-blocking socket. Must not do I/O: the acceptor or a processor calls it."""
