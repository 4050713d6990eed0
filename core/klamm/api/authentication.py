"""Authenticators: who a connection is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klamm.api.part import ListenerPart
from klamm.api.transport import Buffer, TransportLayer
from klamm.shared.principal import KafkaPrincipal

if TYPE_CHECKING:
    from klamm.api.api_set import ApiHandler
    from klamm.api.context import ConnectionContext


@dataclass(slots=True)
class AuthenticationStep:
    """What comes of one frame.

    `send`      frames to send back, without their length.
    `complete`  the principal is known; further frames are requests.
    `failed`    the reason; after the failed-authentication delay `send` goes out and the channel closes (KIP-306).
    `pending`   what comes of it is not known yet: called at once with a function that, called once from any thread,
                has the channel's processor call `Authenticator.resume`. Nothing is read from the channel until then.
    """

    send: Sequence[Buffer] = ()
    complete: bool = False
    failed: str | None = None
    pending: Callable[[Callable[[], None]], None] | None = None


class Authenticator(ABC):
    """Finds out who one connection is: frames in, frames out, no I/O of its own. Kafka's interface of that name."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether requests may pass. True from the start where nothing is asked."""

    @property
    @abstractmethod
    def principal(self) -> KafkaPrincipal:
        """The identity; meaningful once complete."""

    @abstractmethod
    def receive(self, frame: Buffer) -> AuthenticationStep:
        """One frame of a channel that is not READY."""

    def resume(self) -> AuthenticationStep:
        """What came of a step that was pending; on the processor's thread."""
        raise NotImplementedError("no step of this authenticator is ever pending")

    def reauthenticates(self, api_key: int) -> bool:
        """Whether a frame of this API on a READY channel goes to `receive` again (KIP-368); asked for every frame."""
        return False

    @property
    def session_expires_ns(self) -> int | None:
        """Monotonic time at which the session ends unless renewed; None never (KIP-368)."""
        return None

    def close(self) -> None:
        """The channel is closed."""


class AuthenticatorFactory(ListenerPart, ABC):
    """Makes one `Authenticator` per connection."""

    security_protocol: str = ""
    """`SASL_` if the listener's security protocol gets that prefix, else empty."""
    max_receive_bytes: int | None = None
    """Largest frame of a channel that is not READY; None: as large as requests may be."""

    def handlers(self) -> Iterable[ApiHandler]:
        """APIs that ApiVersions of the listener lists for the authenticator's sake, unless its handler set serves them.

        They are asked only for requests that the authenticator leaves to them.
        """
        return ()

    @abstractmethod
    def authenticator(self, connection: ConnectionContext, transport: TransportLayer) -> Authenticator:
        """For a connection whose transport handshake is done."""
