"""Results of a handler in place of a response: LATER or NO_RESPONSE."""

from __future__ import annotations

from typing import Final, final


@final
class Pending:
    """A result of a handler in place of a response; compare with `is`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


LATER: Final[Pending] = Pending("LATER")
"""The handler will call `context.respond(...)` from any thread; the connection waits. From `context.later()`."""

NO_RESPONSE: Final[Pending] = Pending("NO_RESPONSE")
"""The request has no answer (Produce with acks=0); the connection carries on."""


class NotInlineError(Exception):
    """A request is too much work for its processor's thread. It has not changed anything yet, and moves to the
    handlers.

    `large` means that it would also hold up other requests, so it waits for its turn.
    """

    def __init__(self, *, large: bool = False) -> None:
        super().__init__()
        self.large = large


class AnswerTooLargeError(Exception):
    """The answer of a request would take more bytes than the listener allows for its API."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the answer would exceed {max_bytes} bytes (response_max_bytes); request less at once")
