"""Transports, which carry the bytes of connections.

A `Transport` is made once per listener with its settings, opened before the listener accepts connections, and closed
only if `open` returned. It makes a `TransportLayer` for each socket. A layer is used by one processor's thread, and
needs no locks.
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
    """Raised if the peer made the handshake fail; Kafka's `SslAuthenticationException`.

    `reason` is a metric label: few values, lower_snake_case. The message goes to the log. `details` are the known facts
    about the peer, as in `TransportLayer.details`; observers find them in `ConnectionContext.transport_details`.
    """

    def __init__(self, reason: str, detail: str, details: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(detail)
        self.reason = reason
        self.details = details


class TransportLayer(ABC):
    """The bytes of one connection over a non-blocking socket; named after Kafka's interface.

    The processor that owns the channel calls all methods on its thread. Exceptions are `abort` and `end_session`, which
    any thread may call, and `handshake` if `Transport.computes_handshake` is True. No method may block. If a method
    raises `OSError`, the connection is lost. Any other exception also closes the connection, and is logged with its
    traceback.
    """

    session_end: str = ""
    """The reason passed to `end_session`. It becomes part of the reason for the close in log, observers and metrics."""

    @abstractmethod
    def handshake(self) -> Interest:
        """Continue the handshake; return NONE when it is done, else the event that must occur before the next call.

        Raises HandshakeError if the peer is at fault; this counts as failed authentication.
        """

    @abstractmethod
    def read_into(self, buffer: memoryview) -> int:
        """Read at most `len(buffer)` bytes; return their number, WOULD_BLOCK (0) or END_OF_STREAM (-1)."""

    @abstractmethod
    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        """Write as much as the socket accepts, in order; return the number of bytes written (0: would block).

        `chunks` is never empty. `more` is True if further bytes follow at once, like the flag MSG_MORE.
        """

    @abstractmethod
    def send_file(self, descriptor: int, position: int, count: int) -> int:
        """Write up to `count` bytes of a file from `position`; return the number written (0: would block)."""

    may_splice: bool = False
    """True if `splice_from` may be called, because the transport writes bytes unchanged. Read once."""

    def splice_from(self, pipe: int, count: int) -> int:
        """Write up to `count` bytes from a pipe with `os.splice`; return the number written (0: would block)."""
        raise NotImplementedError

    @property
    def may_buffer(self) -> bool:
        """Return True if `has_buffered_data` can be True: klamm then calls it after each read. Read once.

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
        """Return the identity that the transport has verified, e.g. by a certificate.

        Read once, when the handshake is done.
        """
        return ANONYMOUS

    @property
    def details(self) -> Mapping[str, str]:
        """Return facts for logs and observers, e.g. `tls_version`. Read once, when the handshake is done."""
        return {}

    def abort(self) -> None:  # noqa: B027
        """Shut the connection down, so that the processor sees its end and closes it. Used for revoked sessions.

        Any thread may call this at any time. Never raises or blocks. The default does nothing: the session then ends
        with the next request.
        """

    def end_session(self, reason: str) -> None:
        """Call `abort`, because the client's session has become invalid; `reason` is one of a few fixed texts.

        Any thread may call this.
        """
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

    `handshake` is then called on a separate thread (`handshake_threads`), when the peer has sent bytes. No other
    method of the layer is called meanwhile.
    """

    @classmethod
    def proves_principals(cls, settings: Any) -> bool:
        """Return True if layers may have a `principal` with these settings, e.g. from client certificates."""
        return False

    @abstractmethod
    def wrap(self, sock: socket.socket, peer: Address) -> TransportLayer:
        """Return the layer of a connected, non-blocking socket, which then belongs to the layer.

        Called on the acceptor's or a processor's thread; must not do I/O.
        """
