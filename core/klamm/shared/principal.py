"""`KafkaPrincipal`: a type and a name, as Kafka's class of that name."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """An authenticated identity, written `User:alice`.

    `token_authenticated` says that a delegation token proved it (KIP-48); it does not count in comparisons.
    """

    name: str
    type: str = "User"
    token_authenticated: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = KafkaPrincipal("ANONYMOUS")
"""The principal of clients that have not authenticated; Kafka's `KafkaPrincipal.ANONYMOUS`."""
