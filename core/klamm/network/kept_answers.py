"""Answers that are given again without a look at the request, while nothing they depend on has changed.

Clients ask for Metadata again and again in the same words. A handler that declares `unchanged_while` answers equal
requests equally, so the whole frame, less its correlation id, is the key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm.context import RequestContext
from klamm.contracts import Buffer

_CAPACITY: Final = 256
_REQUEST_UP_TO_BYTES: Final = 1024
_ANSWER_UP_TO_BYTES: Final = 16 * 1024


class KeptAnswers:
    """What a listener has answered. Any thread; losing an entry in a race costs only another look at the request."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: dict[bytes, tuple[Callable[[], object], object, bytes, bytes, RequestContext]] = {}

    def find(self, frame: Buffer) -> bytes | None:
        """The whole frame to send for a request frame, or None if the request must be looked at."""
        if len(frame) > _REQUEST_UP_TO_BYTES:
            return None
        kept = self._answers.get(bytes(frame[:4]) + frame[8:])
        if kept is None:
            return None
        unchanged_while, token, size, rest, _request = kept
        return b"".join((size, frame[4:8], rest)) if unchanged_while() == token else None

    def find_with_request(self, frame: Buffer) -> tuple[bytes, RequestContext] | None:
        """`find`, with the request that was answered so first."""
        if len(frame) > _REQUEST_UP_TO_BYTES:
            return None
        kept = self._answers.get(bytes(frame[:4]) + frame[8:])
        if kept is None:
            return None
        unchanged_while, token, size, rest, request = kept
        return (b"".join((size, frame[4:8], rest)), request) if unchanged_while() == token else None

    def keep(
        self,
        frame: Buffer,
        unchanged_while: Callable[[], object],
        token: object,
        answer: bytes,
        request: RequestContext,
    ) -> None:
        """Remember the whole frame that answered a request frame; `token` is from before the handler ran."""
        if len(frame) > _REQUEST_UP_TO_BYTES or len(answer) > _ANSWER_UP_TO_BYTES:
            return
        if len(self._answers) >= _CAPACITY:
            self._answers.clear()
        self._answers[bytes(frame[:4]) + frame[8:]] = (unchanged_while, token, answer[:4], answer[8:], request)
