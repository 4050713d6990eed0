"""Authenticators, which establish the principal of a connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from klamm.api.api_set import ApiHandler
from klamm.api.context import ConnectionContext
from klamm.api.part import ListenerPart
from klamm.api.transport import TransportLayer
from klamm.shared.principal import KafkaPrincipal
from klamm.wire.chunks import Buffer


@dataclass(slots=True)
class AuthenticationStep:
    """The outcome of one frame.

    `send`      frames to send back, without their length.
    `complete`  True if the principal is known; further frames are requests.
    `failed`    the reason why authentication failed. After the failed-authentication delay, klamm sends `send` and
                closes the channel (KIP-306).
    `pending`   a function for an outcome that takes time. klamm calls `pending(resume)` at once. When the outcome is
                known, any thread calls `resume()` once, and the channel's processor then calls `Authenticator.resume`.
                Until then nothing is read from the channel.
    """

    send: Sequence[Buffer] = ()
    complete: bool = False
    failed: str | None = None
    pending: Callable[[Callable[[], None]], None] | None = None


class Authenticator(ABC):
    """Authenticates one connection: gets and returns frames, and does no I/O itself. Named after Kafka's interface."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Return True if requests may pass: after authentication, or from the start if none is needed."""

    @property
    @abstractmethod
    def principal(self) -> KafkaPrincipal:
        """Return the authenticated identity. Read only when `complete` is True."""

    @abstractmethod
    def receive(self, frame: Buffer) -> AuthenticationStep:
        """Handle one frame of a channel that is not READY yet, or a re-authentication frame of a READY channel.

        Called on the processor's thread.
        """

    def resume(self) -> AuthenticationStep:
        """Return the outcome of a pending step. Called on the processor's thread."""
        raise NotImplementedError("no step of this authenticator is ever pending")

    def reauthenticates(self, api_key: int) -> bool:
        """Return True if a frame of this API on a READY channel goes to `receive` again (KIP-368).

        Called for every frame.
        """
        return False

    @property
    def session_expires_ns(self) -> int | None:
        """Return the monotonic time at which the session ends unless the client authenticates again (KIP-368).

        None if the session does not end.
        """
        return None

    def abandoned(self) -> str | None:
        """Return the reason if a login has failed whose exchange has not ended; else return None.

        E.g. a bearer token was refused, and the client closed the connection instead of answering (RFC 7628, 3.2.3).
        Called when the connection closes, before `close`.
        """
        return None

    def close(self) -> None:
        """Called once when the channel has closed, on the processor's thread."""


class AuthenticatorFactory(ListenerPart, ABC):
    """Makes one `Authenticator` per connection."""

    security_protocol: str = ""
    """`SASL_` if the listener's security protocol gets that prefix, else empty."""
    max_receive_bytes: int | None = None
    """Largest frame of a channel that is not READY; None: as large as requests may be."""

    def handlers(self) -> Iterable[ApiHandler]:
        """Return handlers of APIs that the authenticator needs, e.g. SaslHandshake, unless the handler set has its own.

        ApiVersions lists them. They get the requests that the authenticator does not handle itself.
        """
        return ()

    @abstractmethod
    def authenticator(self, connection: ConnectionContext, transport: TransportLayer) -> Authenticator:
        """Return the authenticator of a connection whose transport handshake is done."""
