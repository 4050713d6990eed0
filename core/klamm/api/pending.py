"""What a handler returns when its answer is not the return value."""

from __future__ import annotations

from typing import Final, final


@final
class Pending:
    """What a handler returns when the answer is not the return value; compare with `is`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


LATER: Final[Pending] = Pending("LATER")
"""The handler will call `context.respond(...)` from any thread; the connection waits. From `context.later()`."""

NO_RESPONSE: Final[Pending] = Pending("NO_RESPONSE")
"""The request has no answer (Produce with acks=0); the connection carries on."""
