"""`DelayedCloses`: channels that are closed later, with a last answer (KIP-306)."""

from __future__ import annotations

import heapq
import itertools
from typing import Final, NamedTuple

from klamm.network.channel import KafkaChannel
from klamm.wire.chunks import Chunk

_AFTER_LAST_ANSWER_NS: Final = 50_000_000


class DelayedClose(NamedTuple):
    """A close that is due at some time; `order` keeps equal times in order and prevents comparisons of channels."""

    due_ns: int
    order: int
    channel: KafkaChannel
    reply: list[Chunk]


class DelayedCloses:
    """`heap` is ordered by when they are due, in monotonic nanoseconds. Used on the processor's thread."""

    def __init__(self) -> None:
        self.heap: list[DelayedClose] = []
        self._order = itertools.count()

    def add(self, due_ns: int, channel: KafkaChannel, reply: list[Chunk]) -> None:
        """Send `reply` to the peer, if there is one, and close the channel at `due_ns`."""
        heapq.heappush(self.heap, DelayedClose(due_ns, next(self._order), channel, reply))

    def add_after_reply(self, now_ns: int, channel: KafkaChannel) -> None:
        """Close a channel shortly after its last answer: some clients notice the end of a connection before they read
        data that was sent before it.
        """
        self.add(now_ns + _AFTER_LAST_ANSWER_NS, channel, [])

    def pop_due(self, now_ns: int) -> tuple[KafkaChannel, list[Chunk]] | None:
        """Return the next close that is due, or None."""
        if not self.heap or self.heap[0].due_ns > now_ns:
            return None
        due = heapq.heappop(self.heap)
        return due.channel, due.reply
