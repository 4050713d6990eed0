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
    """Raised if an exchange fails. The message is logged; the client learns only that its credentials are invalid."""


class SaslAuthenticationError(SaslError):
    """Raised if an exchange fails and the client may see why.

    The client gets the message, which must not disclose e.g. whether a user exists. `reason` is logged instead of the
    message; it may contain the name that the client sent.
    """

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = message if reason is None else reason


@dataclass(frozen=True, slots=True)
class SaslChallenge:
    """The outcome of an exchange that continues: `token` goes to the client, which must send another token."""

    token: bytes


@dataclass(frozen=True, slots=True)
class SaslProof:
    """The credential or token that a session depends on: the session ends when the credential or token is revoked.

    `SessionRegistry.recheck` selects sessions by `key`, which for a credential of a store is the name of the user.
    `revoked_because()` returns the reason why the credential or token has become invalid, or None while it is valid.
    Any thread may call it, and it must not block.
    """

    key: Hashable
    revoked_because: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class SaslSuccess:
    """The outcome of an exchange that has succeeded.

    `token` goes to the client and may be empty. `expires_ms` is the time when the credential expires, in milliseconds
    since the epoch; the session ends then at the latest (KIP-368). A session without a `proof` cannot be revoked
    earlier.
    """

    principal: KafkaPrincipal
    token: bytes = b""
    expires_ms: int | None = None
    proof: SaslProof | None = None


@dataclass(frozen=True, slots=True)
class SaslTask:
    """A task that computes an outcome, for outcomes that take more than a millisecond.

    The authenticator calls `run` on one of its worker threads. `run` returns the outcome or raises as
    `SaslServer.evaluate` does. Only the client of this exchange waits. If its channel closes first, `run` is not
    called. With `submit`, the authenticator calls `submit(run)` instead, which must call `run` once, on any thread.
    `password_of` is the user whose password `run` checks, if the check is pure computation: the authenticator may then
    delay the check for an address with many failed logins.
    """

    run: Callable[[], SaslChallenge | SaslSuccess]
    submit: Callable[[Callable[[], object]], None] | None = None
    password_of: str | None = None


SaslEvaluation: TypeAlias = SaslChallenge | SaslSuccess | SaslTask
"""The possible outcomes of a token."""


class SaslServer(ABC):
    """One exchange of one client; named after Java's interface `SaslServer`.

    `claimed` is the name that the client claims, proved or not; empty until it is known. `refusal` is the reason why
    the exchange will fail, even if the client has more tokens to send; empty while it may still succeed. Both go into
    the record of a failed login."""

    claimed: str = ""
    refusal: str = ""

    @abstractmethod
    def evaluate(self, token: bytes) -> SaslEvaluation:
        """Return the outcome of a token of the client. Called on the processor's thread; must not block.

        Return a `SaslTask` for work that takes more than a millisecond.
        Raises SaslError or SaslAuthenticationError. Any other exception also fails the exchange, and is logged with its
        traceback.
        """

    def close(self) -> None:
        """Release resources, because the exchange is over or the channel has closed."""


class CredentialStore(ListenerPart, ABC):
    """A store that has the users' SCRAM credentials, or checks passwords itself. Any thread may call it."""

    blocking: bool = False
    """True if `scram_credential` may take more than a millisecond; it is then called on a worker thread."""

    @abstractmethod
    def scram_credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return the SCRAM credential of a user for that mechanism; None if the store has none."""

    def verify_password(self, user: str, password: str) -> bool | None:
        """Decide if this is the user's password; return None if the SCRAM credentials must be checked instead.

        Called on a worker thread of the authenticator, so it may block.
        """
        return None

    def any_credential(self, mechanism: ScramMechanism, draw: int) -> ScramCredential | None:
        """Return one of the credentials, chosen by `draw` (0 to 2 ** 64 - 1); None if the store cannot list them.

        The authenticator answers an unknown user as if it had a credential of the same form, i.e. with as many
        iterations and a salt of the same length. Order the credentials by their form and return number
        `draw * count >> 64`: an unknown name then mostly keeps its form when users are added or removed.
        """
        return None

    def plain_credentials(self) -> Mapping[str, ScramCredential]:
        """Return all users, each with the credential that PLAIN checks: the one of the user's first mechanism.

        Must not block, and must return the same object until a credential changes, because every login reads it. Return
        an empty mapping if the store cannot list its users. The authenticator makes the check of an unknown user take
        as long as a check of one of these credentials.
        """
        return {}

    def watch(self, changed: Callable[[Iterable[str] | None], object]) -> None:
        """Register `changed`, which the store calls with the users whose credentials have changed; None means any user.

        Called once, after `open`. The store may call `changed` on any thread; `changed` does not block. If a store
        never calls it, users keep their sessions until they authenticate again.
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

    The authenticator `sasl` opens, reloads and reconfigures the mechanisms, after the credential stores.
    """

    @abstractmethod
    def server(self, connection: ConnectionContext, transport: TransportLayer) -> SaslServer:
        """Start an exchange of this mechanism. Must not block. Raises the same exceptions as `SaslServer.evaluate`."""
