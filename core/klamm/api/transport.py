"""Transports: the bytes of a connection.

A `Transport` is made once per listener with its settings, opened before the listener accepts, and closed if and only if
`open` returned. The `TransportLayer` it makes of each socket lives on one processor thread and needs no locks."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import IntFlag
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from klamm.api.part import ListenerPart
from klamm.shared.principal import ANONYMOUS, KafkaPrincipal

if TYPE_CHECKING:
    from klamm.api.context import Address

Buffer: TypeAlias = bytes | bytearray | memoryview


class Interest(IntFlag):
    """What a transport waits for; the values are epoll's, which every poller here speaks."""

    NONE = 0
    READ = 1
    WRITE = 4


WOULD_BLOCK: Final = 0


END_OF_STREAM: Final = -1


class HandshakeError(Exception):
    """The peer did something in the handshake that it may not; Kafka's `SslAuthenticationException`.

    `reason` is a metric label: few values, lower_snake_case. The message goes to the log.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class TransportLayer(ABC):
    """The bytes of one connection: Kafka's interface of that name, over a non-blocking socket.

    All calls but `abort` come from the thread of the processor that owns the channel; see
    `Transport.computes_handshake`. None blocks. An `OSError` means that the connection is lost; any other exception
    closes it too, and is logged with its traceback.
    """

    @abstractmethod
    def handshake(self) -> Interest:
        """Carry the handshake on; NONE once it is done, else what must become possible before the next call.

        Raises HandshakeError, which counts as failed authentication, when the peer is at fault.
        """

    @abstractmethod
    def read_into(self, buffer: memoryview) -> int:
        """Read at most `len(buffer)` bytes: how many, WOULD_BLOCK (0) or END_OF_STREAM (-1)."""

    @abstractmethod
    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        """Write what goes at once, in order; how many bytes went (0: would block). `chunks` is never empty.

        `more` says that further bytes follow at once, so that it is no use to send a packet of these alone.
        """

    @abstractmethod
    def send_file(self, descriptor: int, position: int, count: int) -> int:
        """Write up to `count` bytes of a file from `position`; how many went (0: would block)."""

    @property
    def has_buffered_data(self) -> bool:
        """Whether bytes wait inside the transport, so that the socket alone may never become readable again."""
        return False

    @property
    def principal(self) -> KafkaPrincipal:
        """The identity that the transport itself proves, e.g. by certificate; asked once the handshake is done."""
        return ANONYMOUS

    @property
    def details(self) -> Mapping[str, str]:
        """What logs and observers are told of it once the handshake is done, e.g. `tls_version`, `tls_cipher`."""
        return {}

    def abort(self) -> None:  # noqa: B027
        """Cut the connection off, so that the processor sees its end and closes it; for sessions that are revoked.

        May be called from any thread, at any time, and never raises or blocks. A transport that cannot do it leaves the
        connection as it is: its session ends with the next request.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the socket. Never raises, never blocks, may be called twice."""


class Transport(ListenerPart, ABC):
    """Makes a `TransportLayer` of each accepted socket."""

    security_protocol: str = "PLAINTEXT"
    """Kafka's name for the transport: PLAINTEXT or SSL."""
    computes_handshake: bool = False
    """Whether `TransportLayer.handshake` takes the processor longer than a request does, e.g. by cryptography.

    It is called on a thread for that then (`handshake_threads`), first when the peer has sent something; no other
    method of the layer is called meanwhile."""

    @classmethod
    def proves_principals(cls, settings: Any) -> bool:
        """Whether, with these settings, its layers may have a `principal`, e.g. from a client's certificate."""
        return False

    @abstractmethod
    def wrap(self, sock: socket.socket, peer: Address) -> TransportLayer:
        """Take over a connected, non-blocking socket. Must not do I/O: the acceptor or a processor calls it."""
