"""Answers that are given again without a look at the request, while nothing they depend on has changed.

Clients ask for Metadata again and again in the same words. A handler that declares `unchanged_while` answers equal
requests equally, so the whole frame, less its correlation id, is the key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from klamm.context import RequestContext
from klamm.contracts import Buffer

_CAPACITY: Final = 256
_REQUEST_UP_TO_BYTES: Final = 1024
_ANSWER_UP_TO_BYTES: Final = 16 * 1024


_Entry: TypeAlias = "tuple[Callable[[], object], object, bytes, bytes, RequestContext, Any]"


class KeptAnswers:
    """What a processor has answered. It alone looks; any thread may `keep`, and losing an entry in a race costs only
    another look at the request."""

    __slots__ = ("_answers", "_keeping")

    def __init__(self) -> None:
        self._answers: dict[bytes, _Entry] = {}
        self._keeping = True

    def allow(self, keeping: bool) -> None:
        """Keep answers from now on, or forget those that are there and keep no more. From any thread."""
        self._keeping = keeping
        # Whoever is about to keep one has the old dictionary, or sees that none is kept.
        self._answers = {}

    def find(self, frame: Buffer) -> bytes | None:
        """The whole frame to send for a request frame, or None if the request must be looked at."""
        if len(frame) > _REQUEST_UP_TO_BYTES:
            return None
        kept = self._answers.get(bytes(frame[:4]) + frame[8:])
        if kept is None:
            return None
        unchanged_while, token, size, rest, _request, _count = kept
        return b"".join((size, frame[4:8], rest)) if unchanged_while() == token else None

    def find_with_request(self, frame: Buffer) -> tuple[bytes, RequestContext] | None:
        """`find`, with the request that was answered so first."""
        if len(frame) > _REQUEST_UP_TO_BYTES:
            return None
        kept = self._answers.get(bytes(frame[:4]) + frame[8:])
        if kept is None:
            return None
        unchanged_while, token, size, rest, request, _count = kept
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
        answers = self._answers
        if not self._keeping or len(frame) > _REQUEST_UP_TO_BYTES or len(answer) > _ANSWER_UP_TO_BYTES:
            return
        if len(answers) >= _CAPACITY:
            answers.clear()
        counts = request.handler.counts
        # Nobody asks for the count where nothing is recorded.
        count = counts[request.api_version] if counts else None
        answers[bytes(frame[:4]) + frame[8:]] = (unchanged_while, token, answer[:4], answer[8:], request, count)


class CountedAnswers(KeptAnswers):
    """Kept answers that are counted when they are given. `sampled` is set when one is due to be timed."""

    __slots__ = ("sampled",)

    def __init__(self) -> None:
        super().__init__()
        self.sampled: RequestContext | None = None

    def find(self, frame: Buffer) -> bytes | None:
        if len(frame) > _REQUEST_UP_TO_BYTES:
            return None
        kept = self._answers.get(bytes(frame[:4]) + frame[8:])
        if kept is None:
            return None
        unchanged_while, token, size, rest, request, count = kept
        if unchanged_while() != token:
            return None
        ordinal = count.count + 1
        count.count = ordinal
        if ordinal > count.next_sample:
            self.sampled = request
        return b"".join((size, frame[4:8], rest))

    def find_with_request(self, frame: Buffer) -> tuple[bytes, RequestContext] | None:
        found = super().find_with_request(frame)
        if found is not None:
            request = found[1]
            request.handler.counts[request.api_version].count += 1
        return found
