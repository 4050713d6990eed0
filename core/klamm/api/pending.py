"""The results that a handler may return instead of a response: LATER and NO_RESPONSE."""

from __future__ import annotations

from typing import Final, final


@final
class Pending:
    """A result of a handler instead of a response; compare it with `is`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


LATER: Final[Pending] = Pending("LATER")
"""The result of `context.later()`: any thread will call `context.respond(...)`; the connection waits for this call."""

NO_RESPONSE: Final[Pending] = Pending("NO_RESPONSE")
"""The result for a request without an answer (Produce with acks=0); the connection's next request may start."""


class NotInlineError(Exception):
    """Raised if a request is too much work for its processor's thread, before the request has changed anything.

    The request then moves to the handler threads. If `large` is True, it would delay other requests even there, so it
    waits for the turn of large requests.
    """

    def __init__(self, *, large: bool = False) -> None:
        super().__init__()
        self.large = large


class AnswerTooLargeError(Exception):
    """Raised if the answer of a request would take more bytes than the listener allows for its API."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the answer would exceed {max_bytes} bytes (response_max_bytes); request less at once")
