"""`WatchedChannels`: the channels of one processor, and the events for which its poller watches them.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm.network.channel import KafkaChannel, describe
from klamm.network.poller import ERROR, HANG_UP, READ, WRITE, Poller, Waker
from klamm.network.setup_queue import UNWATCHED

log = logging.getLogger("klamm.network")


def nothing() -> None:
    """Do nothing: the `awake` callback of a selector that has no inbox."""


class WatchedChannels:
    """The channels of a processor. Only the processor's thread uses it. It is the lowest base class of `Selector`.

    - `channels` maps descriptors to channels.
    - `buffered` has the channels whose transports hold bytes that were read but not decoded yet.
    - `completed_receives`, `completed_sends` and `disconnected` collect the events, as in Kafka's class `Selector`.
    - `awake` is called while the thread is awake. The thread will read its inbox before it waits again.

    A muted channel keeps its mask until its next event, because it is usually unmuted before that event.
    """

    def __init__(self, poller: Poller, waker: Waker, awake: Callable[[], None]) -> None:
        self._poller = poller
        self._waker = waker
        self._awake = awake
        self.channels: dict[int, KafkaChannel] = {}
        self._reading_stopped = False
        self.listening = -1
        self._listening_watched = False
        self.has_connections = False
        self.buffered: set[KafkaChannel] = set()
        self.completed_receives: list[KafkaChannel] = []
        self.completed_sends: list[KafkaChannel] = []
        self.disconnected: list[KafkaChannel] = []
        self.others: dict[int, Callable[[int], None]] = {}
        self._others_watched: dict[int, int] = {}

    def watch_other(self, descriptor: int, interest: int, ready: Callable[[int], None]) -> None:
        """Call `ready` with a mask when a descriptor that belongs to no channel is ready.

        See `ConnectionLink.watch`.
        """
        self.others[descriptor] = ready
        before = self._others_watched.get(descriptor, 0)
        if interest and before:
            if interest != before:
                self._poller.modify(descriptor, interest)
        elif interest:
            self._poller.register(descriptor, interest)
        elif before:
            # An empty mask is not enough: every poll would report the hang-up of a closed connection.
            self._poller.unregister(descriptor)
        self._others_watched[descriptor] = interest

    def forget_other(self, descriptor: int) -> None:
        """Stop watching a descriptor that belongs to no channel."""
        self.others.pop(descriptor, None)
        if self._others_watched.pop(descriptor, 0):
            self._poller.unregister(descriptor)

    def other_ready(self, descriptor: int, mask: int) -> None:
        """Handle a ready descriptor that belongs to no channel: the listening socket, or one of `watch_other`."""
        if descriptor == self.listening:
            self.has_connections = True
            return
        ready = self.others.get(descriptor)
        if ready is None:
            return
        # Called before the callback, whose answers then need not wake this thread: the next turn sees them anyway.
        self._awake()
        try:
            ready(READ | WRITE if mask & (ERROR | HANG_UP) else mask)
        except Exception:
            log.exception("descriptor %d: its callback failed", descriptor)
            if self.others.get(descriptor) is ready:
                self.forget_other(descriptor)

    def hand_over(self, channel: KafkaChannel) -> bool:
        """Release a quiet channel, so that another selector can `adopt` it; return False if it is not quiet."""
        if (
            not channel.is_quiet
            or self.channels.get(channel.descriptor) is not channel
            or channel in self.completed_receives
            or channel in self.completed_sends
            or channel in self.disconnected
        ):
            return False
        self.forget(channel)
        self.buffered.discard(channel)
        return True

    def listen(self, descriptor: int) -> None:
        """Watch a listening socket: `has_connections` is True if connections wait there."""
        self.listening = descriptor
        self._listening_watched = True
        self._poller.register(descriptor, READ)

    def watch_listening(self, watched: bool) -> None:
        """Start or stop watching the listening socket.

        It is not watched while the acceptor pauses, because waiting connections would end each poll at once.
        """
        if watched != self._listening_watched:
            self._listening_watched = watched
            self._poller.modify(self.listening, READ if watched else 0)

    def stop_listening(self) -> None:
        """Stop watching the listening socket."""
        if self.listening >= 0:
            self._poller.unregister(self.listening)
            self.listening = -1
            self.has_connections = False

    def watch(self, channel: KafkaChannel, interest: int) -> None:
        """Make the poller watch a channel for `interest`."""
        if channel.interest != interest and channel.interest != UNWATCHED:
            channel.interest = int(interest)
            self._poller.modify(channel.descriptor, channel.interest)

    def unwatch(self, channel: KafkaChannel) -> None:
        """Remove a channel from the poller; `watch_again` adds it again."""
        self._poller.unregister(channel.descriptor)

    def watch_again(self, channel: KafkaChannel) -> None:
        """Make the poller watch an unwatched channel for bytes to read."""
        self._poller.register(channel.descriptor, READ)

    def update_interest(self, channel: KafkaChannel) -> None:
        """Make the poller watch for the events that the channel's state needs, if they have changed."""
        if self.channels.get(channel.descriptor) is not channel:
            return
        interest = channel.wanted_interest
        if self._reading_stopped:
            interest &= ~READ
        self.watch(channel, interest)

    def stop_reading(self) -> None:
        """Stop reading from all channels, because the server drains."""
        if not self._reading_stopped:
            self._reading_stopped = True
            for channel in self.channels.values():
                self.update_interest(channel)

    def forget(self, channel: KafkaChannel) -> None:
        # A newer connection may have the same descriptor already.
        if self.channels.get(channel.descriptor) is channel:
            del self.channels[channel.descriptor]
            if channel.interest == UNWATCHED:
                return
            try:
                self._poller.unregister(channel.descriptor)
            except (OSError, KeyError, ValueError):
                log.debug("%s: descriptor was already closed", describe(channel))
