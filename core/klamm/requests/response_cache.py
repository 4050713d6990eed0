"""Answers that are given again without a look at the request, while nothing they depend on has changed.

Clients ask for Metadata again and again in the same words. A handler that declares `unchanged_while` answers equal
requests equally, so the whole frame, less its correlation id, is the key. ApiVersions also tells who the client is:
its answer holds on connections that know so already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from klamm.api.context import RequestContext
from klamm.api.transport import Buffer

if TYPE_CHECKING:
    from klamm.metrics.requests import RequestCount
    from klamm.network.channel import KafkaChannel

_CAPACITY: Final = 256
_REQUEST_UP_TO_BYTES: Final = 1024
_ANSWER_UP_TO_BYTES: Final = 16 * 1024


_Entry: TypeAlias = (
    "tuple[Callable[[], object], object, bytes, bytes, RequestContext, RequestCount | None, tuple[str, str] | None]"
)
_Note: TypeAlias = "Callable[[KafkaChannel, Buffer, RequestContext], None]"


class ResponseCache:
    """What a processor has answered. It alone looks; any thread may `keep`, and losing an entry in a race costs only
    another look at the request.

    `note`, if there is one, is told of each request that is answered, unless its channel repeats the one before.
    Answers are counted when they are given where requests are; `sampled` is set when one is due to be timed.
    """

    __slots__ = ("_answers", "_api_keys", "_keeping", "note", "sampled")

    def __init__(self) -> None:
        self._api_keys: set[int] = set()
        self._answers: dict[bytes, _Entry] = {}
        self._keeping = True
        self.note: _Note | None = None
        self.sampled: RequestContext | None = None

    def allow(self, keeping: bool) -> None:
        """Keep answers from now on, or forget those that are there and keep no more. From any thread."""
        self._keeping = keeping
        # Whoever is about to keep one has the old dictionary, or sees that none is kept.
        self._answers = {}

    def find(self, channel: KafkaChannel, frame: Buffer) -> bytes | None:
        """The whole frame to send for a request frame, or None if the request must be looked at."""
        try:
            # The lower byte of the API key: most requests are of APIs of which nothing is ever kept.
            if frame[1] not in self._api_keys:
                return None
        except IndexError:
            return None
        kept = self._answers.get(bytes(frame[:4]) + frame[8:])
        if kept is None:
            return None
        unchanged_while, token, size, rest, request, count, software = kept
        if unchanged_while() != token:
            return None
        if software is not None:
            connection = channel.connection
            if connection.client_software_name != software[0] or connection.client_software_version != software[1]:
                return None
        if self.note is not None:
            if channel.repeating is request:
                channel.repeated += 1
            else:
                self.note(channel, frame, request)
        if count is not None:
            until_sample = count.until_sample - 1
            count.until_sample = until_sample
            if until_sample < 0:
                self.sampled = request
        return size + frame[4:8] + rest

    def keep(
        self,
        frame: Buffer,
        unchanged_while: Callable[[], object],
        token: object,
        answer: bytes,
        request: RequestContext,
        software: tuple[str, str] | None = None,
    ) -> None:
        """Remember the whole frame that answered a request frame; `token` is from before the handler ran.

        With `software`, name and version, only for connections whose client has told just these.
        """
        answers = self._answers
        if not self._keeping or len(frame) > _REQUEST_UP_TO_BYTES or len(answer) > _ANSWER_UP_TO_BYTES:
            return
        if len(answers) >= _CAPACITY:
            answers.clear()
        counts = request.handler.counts
        # There are none where nothing is recorded.
        count = counts[request.api_version] if counts else None
        self._api_keys.add(frame[1])
        key = bytes(frame[:4]) + frame[8:]
        answers[key] = (unchanged_while, token, answer[:4], answer[8:], request, count, software)
