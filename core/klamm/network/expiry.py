"""`ChannelExpiry`, which finds channels that are too old, or have been idle for too long."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Final

from klamm.network.channel import ChannelState, KafkaChannel
from klamm.network.runtime import Limits

_LOOK_EVERY_NS: Final = 1_000_000_000


class ChannelExpiry:
    """Finds the channels of one processor that are to be closed. `Reactor` calls it on the processor's thread.

    It examines all channels once a second; for a limit below four seconds, four times within the limit. So a request
    only has to store its time in its channel. `channels` are all channels of the processor, `setting_up` are those that
    are not READY yet. Times are monotonic nanoseconds.
    """

    def __init__(self, limits: Limits, channels: Mapping[int, KafkaChannel], setting_up: set[KafkaChannel]) -> None:
        self._channels = channels
        self._setting_up = setting_up
        self._idle_ns = limits.connections_max_idle_ms * 1_000_000
        self._setup_ns = limits.connection_setup_timeout_ms * 1_000_000
        self._age_ns = limits.max_connection_age_ms * 1_000_000
        self._next_idle_ns = 0
        self._next_setup_ns = 0
        self._next_age_ns = 0
        self._aged: set[KafkaChannel] = set()

    def idle(self, now_ns: int) -> list[KafkaChannel]:
        """Return channels on which nothing has happened for the idle time (`connections.max.idle.ms`), oldest first.

        A channel is also idle if its peer does not read its response, or if its request waits for records, members,
        time or another server, because the peer may have disconnected unnoticed.
        """
        if self._idle_ns <= 0 or now_ns < self._next_idle_ns:
            return []
        self._next_idle_ns = now_ns + min(_LOOK_EVERY_NS, self._idle_ns // 4)
        limit_ns = now_ns - self._idle_ns
        channels = [c for c in self._channels.values() if c.last_active_ns <= limit_ns]
        idle = [c for c in channels if c.in_flight is None or c.in_flight.waits or c.answers is not None]
        idle.sort(key=lambda channel: channel.last_active_ns)
        return idle

    def overdue(self, now_ns: int) -> list[KafkaChannel]:
        """Return channels whose handshake and authentication take longer than allowed.

        The time starts when the connection is accepted. A peer cannot extend it by sending a byte now and then.
        """
        if not self._setting_up or self._setup_ns <= 0 or now_ns < self._next_setup_ns:
            return []
        self._next_setup_ns = now_ns + min(_LOOK_EVERY_NS, self._setup_ns // 4)
        limit_ns = now_ns - self._setup_ns
        return [channel for channel in self._setting_up if channel.connection.opened_ns <= limit_ns]

    def aged(self, now_ns: int) -> list[KafkaChannel]:
        """Return channels older than `max_connection_age_ms` that have no request or response in flight.

        Older channels that still have one are checked again at each call.
        """
        if self._age_ns <= 0:
            return []
        if now_ns >= self._next_age_ns:
            self._next_age_ns = now_ns + min(_LOOK_EVERY_NS, self._age_ns // 4)
            limit_ns = now_ns - self._age_ns
            self._aged.update(c for c in self._channels.values() if c.connection.opened_ns <= limit_ns)
        due = []
        for channel in list(self._aged):
            if channel.state is not ChannelState.READY:
                self._aged.discard(channel)
            elif channel.is_quiet and channel.receive.idle and not channel.receive.frames:
                self._aged.discard(channel)
                due.append(channel)
        return due

    def forget(self, channel: KafkaChannel) -> None:
        """Remove a channel that has migrated to another processor."""
        self._aged.discard(channel)

    def least_recently_used(self, count: int) -> list[KafkaChannel]:
        """Return the channels to close first if room is needed; Kafka's `lowestPriorityChannel`."""
        return heapq.nsmallest(count, self._channels.values(), key=lambda channel: channel.last_active_ns)
