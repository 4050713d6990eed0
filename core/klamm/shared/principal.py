"""`KafkaPrincipal`: a type and a name, like Kafka's class of that name."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """An authenticated identity, written `User:alice`.

    `token_authenticated` is True if a delegation token has proved the identity (KIP-48). Comparisons ignore it.
    """

    name: str
    type: str = "User"
    token_authenticated: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = KafkaPrincipal("ANONYMOUS")
"""The principal of clients that have not authenticated; Kafka's `KafkaPrincipal.ANONYMOUS`."""
