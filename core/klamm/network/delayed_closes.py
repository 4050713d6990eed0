"""`DelayedCloses`: channels that get a last answer later and are then closed (KIP-306)."""

from __future__ import annotations

import heapq
import itertools
from typing import Final, NamedTuple

from klamm.network.channel import KafkaChannel
from klamm.wire.chunks import Chunk

_AFTER_LAST_ANSWER_NS: Final = 50_000_000


class DelayedClose(NamedTuple):
    """A close that is due at a time. `order` orders closes of the same time, so that channels are never compared."""

    due_ns: int
    order: int
    channel: KafkaChannel
    reply: list[Chunk]


class DelayedCloses:
    """The delayed closes of one processor, used on its thread.

    `heap` is ordered by the times of the closes, in monotonic nanoseconds.
    """

    def __init__(self) -> None:
        self.heap: list[DelayedClose] = []
        self._order = itertools.count()

    def add(self, due_ns: int, channel: KafkaChannel, reply: list[Chunk]) -> None:
        """Schedule a close at `due_ns`. A `reply` that is not empty is sent to the peer first."""
        heapq.heappush(self.heap, DelayedClose(due_ns, next(self._order), channel, reply))

    def add_after_reply(self, now_ns: int, channel: KafkaChannel) -> None:
        """Schedule a close shortly after the last answer was sent.

        The delay helps clients that would notice the end of the connection before they have read the answer.
        """
        self.add(now_ns + _AFTER_LAST_ANSWER_NS, channel, [])

    def pop_due(self, now_ns: int) -> tuple[KafkaChannel, list[Chunk]] | None:
        """Remove and return the next close that is due, or return None."""
        if not self.heap or self.heap[0].due_ns > now_ns:
            return None
        due = heapq.heappop(self.heap)
        return due.channel, due.reply
