"""Connection gates, which decide whether a listener accepts a connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

from klamm.api.context import Address
from klamm.api.part import ListenerPart


@dataclass(frozen=True, slots=True)
class Refuse:
    """The decision to close the connection at once. `reason` is a metric label: few values, lower_snake_case."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Delay:
    """The decision not to accept the connection now.

    With `pause_acceptor=True`, the acceptor pauses for `delay_ms`, or until `ListenerContext.resume_accepting` is
    called, and then calls the gate again for the same connection (Kafka's listener rate limit). Otherwise the
    connection is closed after `delay_ms` without being served (Kafka's per-IP rate limit, KIP-612).
    """

    delay_ms: int
    reason: str
    pause_acceptor: bool = False


Admission: TypeAlias = Refuse | Delay | None
"""The decision of a gate; None accepts the connection."""


class ConnectionGate(ListenerPart, ABC):
    """Decides which connections a listener accepts. A listener calls its gates in the order of its TOML list.

    `admit` is called on the acceptor's thread, or on a processor's thread if the listener has only one processor or is
    behind a proxy. `release` is called exactly once for each connection that this gate admitted, on any thread, even if
    a later gate refused the connection.
    """

    @abstractmethod
    def admit(self, address: Address) -> Admission:
        """Decide about a new connection; None accepts it. Must not block: return a `Delay` instead of waiting."""

    @abstractmethod
    def release(self, address: Address) -> None:
        """Called when an admitted connection has closed, on any thread."""

    def authenticated(self, address: Address) -> None:
        """Called when an admitted connection has become READY: its handshakes are over. On a processor's thread."""

    def identified(self, address: Address) -> None:
        """Called once per connection when its client has proved its identity by a login or a certificate.

        Not called for a TLS handshake without a client certificate, or on a listener without authentication. On a
        processor's thread.
        """

    def authentication_failed(self, address: Address) -> None:
        """Called when an admitted connection has failed its handshake or authentication; `release` follows."""
