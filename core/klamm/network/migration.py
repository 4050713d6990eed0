"""`ChannelMigration`, which moves channels to another processor when no request or response is in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from klamm.network.channel import ChannelState, KafkaChannel
from klamm.network.lifecycle import ChannelLifecycle
from klamm.network.selector import Selector


class Target(Protocol):
    """The processor that a channel migrates to."""

    def adopt(self, channel: KafkaChannel) -> bool: ...


class ChannelMigration:
    """The migration of one processor's channels to others.

    Any thread may call `request` and `retire`, only the processor's thread the other methods.
    """

    def __init__(self, selector: Selector, lifecycle: ChannelLifecycle) -> None:
        self._selector = selector
        self._lifecycle = lifecycle
        self._wanted: deque[tuple[KafkaChannel, Target]] = deque()
        self._targets: dict[KafkaChannel, Target] = {}
        self._successors: Sequence[Target] = ()
        self.migrated_connections = 0

    @property
    def retired(self) -> bool:
        """Return True if all channels must migrate, because `retire` was called."""
        return bool(self._successors)

    @property
    def has_work(self) -> bool:
        """Return True if `step` has something to do."""
        return bool(self._wanted or self._targets or self._successors)

    @property
    def requested(self) -> bool:
        """Return True if `request` was called and `step` has not handled it yet."""
        return bool(self._wanted)

    def request(self, channel: KafkaChannel, target: Target) -> None:
        """Move a channel to another processor when it is quiet. Has no effect if the channel closes first."""
        self._wanted.append((channel, target))

    def retire(self, successors: Sequence[Target]) -> None:
        """Move all channels to `successors` in turn, each when it becomes quiet."""
        self._successors = successors

    def step(self, adopt_again: Callable[[KafkaChannel], None], *, draining: bool) -> list[KafkaChannel]:
        """Migrate the channels that are quiet now, and return them. Called on the processor's thread.

        If the target refuses a channel, `adopt_again` gets the channel. With `draining`, all migrations are cancelled.
        """
        while self._wanted:
            channel, target = self._wanted.popleft()
            self._begin(channel, target)
        if self._successors:
            for number, channel in enumerate(list(self._selector.channels.values())):
                if channel not in self._targets:
                    self._begin(channel, self._successors[number % len(self._successors)])
        left = []
        for channel, target in list(self._targets.items()):
            if channel.state is not ChannelState.READY or draining:
                del self._targets[channel]
                channel.migrating = False
                self._lifecycle.proceed(channel)
            elif self._selector.hand_over(channel):
                del self._targets[channel]
                channel.migrating = False
                if target.adopt(channel):
                    self.migrated_connections += 1
                    left.append(channel)
                else:
                    adopt_again(channel)
        return left

    def _begin(self, channel: KafkaChannel, target: Target) -> None:
        if self._selector.channels.get(channel.descriptor) is channel and channel.state is ChannelState.READY:
            channel.migrating = True
            self._targets[channel] = target
