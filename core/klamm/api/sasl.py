"""The parts of the authenticator `sasl`: mechanisms, and the credential stores in which they look up users.

A mechanism's instance is made once per listener; the `SaslServer` it makes lives for one exchange on one processor's
thread and needs no locks. Modelled on `javax.security.sasl` and Kafka's callback handlers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from klamm.api.context import ConnectionContext, ListenerContext
from klamm.api.part import ListenerPart, Part
from klamm.api.sessions import SessionRegistry
from klamm.api.transport import TransportLayer
from klamm.shared.principal import KafkaPrincipal
from klamm.shared.scram import ScramCredential, ScramMechanism


class SaslError(Exception):
    """An exchange has failed. The message is logged; the client learns only that its credentials are invalid."""


class SaslAuthenticationError(SaslError):
    """An exchange has failed, and the client gets the message, which must not disclose e.g. whether a user exists.

    `reason` is logged instead of the message; it may contain the name that the client sent.
    """

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = message if reason is None else reason


@dataclass(frozen=True, slots=True)
class SaslChallenge:
    """The exchange continues: a token for the client, which must send another one."""

    token: bytes


@dataclass(frozen=True, slots=True)
class SaslProof:
    """The credential or token that a session depends on: the session ends when it is revoked.

    `SessionRegistry.recheck` selects sessions by `key`: the name of the user for a credential of a store.
    `revoked_because()` returns the reason why the credential or token has become invalid, or None while it is valid. It
    is called from any thread and must not block.
    """

    key: Hashable
    revoked_because: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class SaslSuccess:
    """The exchange is complete.

    `token` goes to the client and may be empty. `expires_ms` is the time when the credential expires, in milliseconds
    since the epoch; it limits the session (KIP-368). Without a `proof` the session lasts until then.
    """

    principal: KafkaPrincipal
    token: bytes = b""
    expires_ms: int | None = None
    proof: SaslProof | None = None


@dataclass(frozen=True, slots=True)
class SaslTask:
    """The outcome takes more than a millisecond: `run` is called on a worker thread of the authenticator.

    `run` returns the outcome or raises as `SaslServer.evaluate` does. Only this channel waits for it. It is not called
    if the channel has closed by then.
    With `submit`, the authenticator calls `submit(run)` instead, which must call `run` once, on any thread.
    `password_of` is the user whose password `run` checks, if the check is pure computation: the authenticator may delay
    it for an address with many failed logins.
    """

    run: Callable[[], SaslChallenge | SaslSuccess]
    submit: Callable[[Callable[[], object]], None] | None = None
    password_of: str | None = None


SaslEvaluation: TypeAlias = SaslChallenge | SaslSuccess | SaslTask
"""The outcome of a token."""


class SaslServer(ABC):
    """One exchange of one client; the interface `SaslServer` of Java.

    `claimed` is the name that the client claims, proved or not; empty until it is known. `refusal` is the reason why
    the exchange fails whatever the client sends next; empty until it is known. Both go into the record of a failed
    login."""

    claimed: str = ""
    refusal: str = ""

    @abstractmethod
    def evaluate(self, token: bytes) -> SaslEvaluation:
        """Return the outcome of a token of the client. Must not block: see `SaslTask`.

        Raises SaslError or SaslAuthenticationError. Any other exception also fails the exchange, and is logged with its
        traceback.
        """

    def close(self) -> None:
        """The exchange is over, or the channel is closed."""


class CredentialStore(ListenerPart, ABC):
    """Knows users by their SCRAM credentials, or checks passwords itself. Called from any thread."""

    blocking: bool = False
    """True if `scram_credential` may take more than a millisecond; it is then called on a worker thread."""

    @abstractmethod
    def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return the SCRAM credential of a user for that mechanism; None if the store has none."""

    def verify_password(self, user: str, password: str) -> bool | None:
        """Return True if that is the user's password, False if not; None leaves the check to the SCRAM credentials.

        May block: called on a worker thread of the authenticator.
        """
        return None

    def any_credential(self, mechanism: ScramMechanism, draw: int) -> ScramCredential | None:
        """Return one of the credentials, chosen by `draw` (0 to 2 ** 64 - 1); None if the store cannot list them.

        The authenticator answers unknown users as if they had a credential of the same form: iterations, length of the
        salt. Order credentials by their form and return number `draw * count >> 64`, so that a name keeps its form when
        users change.
        """
        return None

    def plain_credentials(self) -> Mapping[str, ScramCredential]:
        """Return all users, each with the credential that PLAIN checks: the first mechanism for which the user has one.

        Must not block, and returns the same object until something changes, because every login reads it. Empty if the
        store cannot list its users. A check for an unknown user takes as long as a check of one of these.
        """
        return {}

    def watch(self, changed: Callable[[Iterable[str] | None], object]) -> None:
        """Register `changed(users)`, to be called after credentials of these users have changed; None means any user.

        Called once, after `open`. `changed` may be called from any thread and does not block. If a store never calls
        it, its users keep their sessions until they authenticate again.
        """


@dataclass(frozen=True, slots=True)
class SaslContext:
    """The context of a mechanism: its listener, the credential stores in lookup order, and the sessions.

    A mechanism calls `sessions.recheck` when proofs that do not come from a store may have become invalid.
    """

    listener: ListenerContext
    stores: Sequence[CredentialStore]
    sessions: SessionRegistry[Any]


class SaslMechanism(Part[SaslContext], ABC):
    """One mechanism of one listener. The provider's name is the mechanism's name, for clients and in TOML.

    The authenticator `sasl` opens, reloads and reconfigures it, after the stores.
    """

    @abstractmethod
    def server(self, connection: ConnectionContext, transport: TransportLayer) -> SaslServer:
        """Start an exchange of this mechanism. Must not block. Raises the same exceptions as `SaslServer.evaluate`."""
