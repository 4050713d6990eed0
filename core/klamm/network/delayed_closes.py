"""`DelayedCloses`: channels that are closed later, with a last answer (KIP-306)."""

from __future__ import annotations

import heapq
import itertools
from typing import Final, NamedTuple

from klamm.network.channel import KafkaChannel
from klamm.wire.chunks import Chunk

_AFTER_LAST_ANSWER_NS: Final = 50_000_000


class DelayedClose(NamedTuple):
    """`order` keeps those that are due at the same time in their order, and channels out of comparisons."""

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
        """At `due_ns` send `reply` to the peer, if there is one, and close the channel."""
        heapq.heappush(self.heap, DelayedClose(due_ns, next(self._order), channel, reply))

    def add_after_reply(self, now_ns: int, channel: KafkaChannel) -> None:
        """Close a channel that has just got its last answer: some clients notice the end of a connection before they
        read what was sent ahead of it."""
        self.add(now_ns + _AFTER_LAST_ANSWER_NS, channel, [])

    def pop_due(self, now_ns: int) -> tuple[KafkaChannel, list[Chunk]] | None:
        """The next one that is due, or None."""
        if not self.heap or self.heap[0].due_ns > now_ns:
            return None
        due = heapq.heappop(self.heap)
        return due.channel, due.reply
