"""What a handler returns instead of a response: LATER or NO_RESPONSE."""

from __future__ import annotations

from typing import Final, final


@final
class Pending:
    """What a handler returns instead of a response; compare with `is`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


LATER: Final[Pending] = Pending("LATER")
"""The handler will call `context.respond(...)` from any thread; the connection waits. From `context.later()`."""

NO_RESPONSE: Final[Pending] = Pending("NO_RESPONSE")
"""The request has no answer (Produce with acks=0); the connection carries on."""
