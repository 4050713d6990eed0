"""`AnswerQueue`: the requests of one connection that have started and are not answered yet, in order."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, TypeAlias

from klamm.api.forwarding import ResponseStream
from klamm.requests.pending import PendingRequest
from klamm.wire.chunks import Chunk, total_bytes

MAX_PENDING: Final = 100
MAX_PENDING_BYTES: Final = 8 * 1024 * 1024
"""The limits of one connection's unanswered requests: number and bytes. By default clients send up to 5 requests."""


class ReadyAnswer(NamedTuple):
    """An answer that was ready at once but must wait for earlier answers; `requests` end when it is sent."""

    chunks: list[Chunk]
    requests: list[PendingRequest]


Entry: TypeAlias = PendingRequest | ReadyAnswer


class AnswerQueue:
    """The unanswered requests of one connection. `PipelinedLifecycle` makes and uses it on the processor's thread.

    `delivered` are requests whose answer has arrived and waits for earlier answers. `streamed` is a request whose
    answer is sent while it arrives. No further request starts while the request `muted_for` is unanswered.
    `waits_for_room` is True if the next request cannot start only because `pending` has too many requests or bytes.
    """

    __slots__ = ("_bytes", "delivered", "muted_for", "pending", "streamed", "waits_for_room")

    def __init__(self) -> None:
        self.pending: deque[Entry] = deque()
        self.delivered: set[PendingRequest] = set()
        self.streamed: PendingRequest | None = None
        self.muted_for: Entry | None = None
        self.waits_for_room = False
        self._bytes = 0

    def add(self, entry: Entry) -> None:
        """Append a request that waits for its answer, or an answer that waits for earlier answers."""
        self.pending.append(entry)
        self._bytes += _bytes_of(entry)

    @property
    def is_full(self) -> bool:
        """Return True if no further request of the connection may start."""
        return len(self.pending) >= MAX_PENDING or self._bytes >= MAX_PENDING_BYTES

    @property
    def held_bytes(self) -> int:
        """Return the bytes of requests that wait for their answers, and of answers that wait for earlier answers."""
        results = [request.result for request in tuple(self.delivered)]
        return self._bytes + sum(total_bytes(result) for result in results if isinstance(result, list))

    @property
    def holds_back(self) -> bool:
        """Return True if no further answer may be read, because a streamed answer or many bytes wait to be sent.

        Small answers that wait do not count, because the earlier answer for which they wait may not have arrived yet.
        """
        size_bytes = 0
        for request in self.delivered:
            result = request.result
            if isinstance(result, list):
                if isinstance(result[-1], ResponseStream):
                    return True
                size_bytes += total_bytes(result)
        return size_bytes >= MAX_PENDING_BYTES

    def take_next(self) -> Entry | None:
        """Remove and return the next answer to be sent, or None if it has not arrived."""
        if self.streamed is not None or not self.pending:
            return None
        first = self.pending[0]
        if isinstance(first, PendingRequest):
            if first not in self.delivered:
                return None
            self.delivered.discard(first)
        self._bytes -= _bytes_of(first)
        return self.pending.popleft()

    @property
    def oldest(self) -> PendingRequest | None:
        """Return the request that has waited longest."""
        if self.streamed is not None:
            return self.streamed
        for entry in self.pending:
            if isinstance(entry, PendingRequest):
                return entry
        return None


def _bytes_of(entry: Entry) -> int:
    return entry.size_bytes if isinstance(entry, PendingRequest) else total_bytes(entry.chunks)
