"""`DelayedCloses`: channels that are closed later, with a last answer (KIP-306)."""

from __future__ import annotations

import heapq
import itertools
from typing import Final

from klamm.network.channel import KafkaChannel
from klamm.wire.chunks import Chunk

_AFTER_LAST_ANSWER_NS: Final = 50_000_000


class DelayedCloses:
    """Ordered by when they are due, in monotonic nanoseconds. Used on the processor's thread."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, KafkaChannel, list[Chunk]]] = []
        self._order = itertools.count()

    @property
    def next_ns(self) -> int | None:
        """When the next one is due."""
        return self._heap[0][0] if self._heap else None

    def add(self, due_ns: int, channel: KafkaChannel, reply: list[Chunk]) -> None:
        """At `due_ns` send `reply` to the peer, if there is one, and close the channel."""
        heapq.heappush(self._heap, (due_ns, next(self._order), channel, reply))

    def add_after_reply(self, now_ns: int, channel: KafkaChannel) -> None:
        """Close a channel that has just got its last answer: some clients notice the end of a connection before they
        read what was sent ahead of it."""
        self.add(now_ns + _AFTER_LAST_ANSWER_NS, channel, [])

    def pop_due(self, now_ns: int) -> tuple[KafkaChannel, list[Chunk]] | None:
        """The next one that is due, or None."""
        if not self._heap or self._heap[0][0] > now_ns:
            return None
        _, _, channel, reply = heapq.heappop(self._heap)
        return channel, reply
