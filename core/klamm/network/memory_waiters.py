"""`MemoryWaiters`: channels that are not read while they wait for memory of the pool (`queued.max.request.bytes`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from klamm.network.channel import KafkaChannel
from klamm.network.memory_pool import MemoryPool
from klamm.network.receive import InvalidReceiveError

_MEMORY_POLL_S: Final = 0.01
EVICTED: Final = "the rest of its request did not arrive, and memory is short"


class ChannelReads(Protocol):
    """The actions on a channel that has got memory or lost it. `Selector` implements them."""

    channels: dict[int, KafkaChannel]
    completed_receives: list[KafkaChannel]

    def update_interest(self, channel: KafkaChannel) -> None: ...

    def look_for_buffered(self, channel: KafkaChannel) -> None: ...

    def reject(self, channel: KafkaChannel, reason: str) -> None: ...

    def reject_receive(self, channel: KafkaChannel, error: InvalidReceiveError) -> None: ...


class MemoryWaiters:
    """The channels of one selector that wait for memory. Only the selector calls it, on the processor's thread.

    `shuffle` puts them in random order, so that no channel is always last.
    """

    def __init__(self, reads: ChannelReads, pool: MemoryPool | None, shuffle: Callable[[list[Any]], None]) -> None:
        self._reads = reads
        self._pool = pool
        self._shuffle = shuffle
        self._waiting: set[KafkaChannel] = set()
        self._seen_evictions = 0

    def add(self, channel: KafkaChannel) -> None:
        """Add a channel, which is not read until it gets memory."""
        self._waiting.add(channel)
        self._reads.update_interest(channel)

    def forget(self, channel: KafkaChannel) -> None:
        """Remove a channel that has closed."""
        self._waiting.discard(channel)

    def before_poll(self, timeout_s: float) -> float:
        """Let channels continue that get memory now, and close the channels whose memory the pool needs.

        Return the time in seconds for which the next poll may wait.
        """
        assert self._pool is not None
        if self._waiting:
            # Another processor may release memory, and does not wake this one.
            timeout_s = 0.0 if self._resume() else min(timeout_s, _MEMORY_POLL_S)
        if self._pool.evictions != self._seen_evictions:
            self._seen_evictions = self._pool.evictions
            for channel in list(self._reads.channels.values()):
                if channel.receive.evicted:
                    self._reads.reject(channel, EVICTED)
            timeout_s = 0.0
        return timeout_s

    def _resume(self) -> bool:
        waiting = list(self._waiting)
        self._shuffle(waiting)
        progress = False
        for channel in waiting:
            try:
                goes_on = channel.receive.resume()
            except InvalidReceiveError as error:
                self._waiting.discard(channel)
                self._reads.reject_receive(channel, error)
                continue
            if goes_on:
                self._waiting.discard(channel)
                self._reads.update_interest(channel)
                self._reads.look_for_buffered(channel)
            if channel.receive.frames and channel.can_process:
                self._reads.completed_receives.append(channel)
                progress = True
        return progress
