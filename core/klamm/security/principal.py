"""`KafkaPrincipal`: a type and a name, as Kafka's class of that name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """An authenticated identity, written `User:alice`."""

    name: str
    type: str = "User"

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = KafkaPrincipal("ANONYMOUS")
