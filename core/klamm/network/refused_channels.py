"""`RefusedChannels`, which ends channels whose peers send bytes that are not requests.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from klamm.network.channel import ChannelState, KafkaChannel, describe
from klamm.network.memory_waiters import MemoryWaiters
from klamm.network.poller import Poller, Waker
from klamm.network.receive import InvalidReceiveError
from klamm.network.runtime import ListenerRuntime
from klamm.network.watched_channels import WatchedChannels


class RefusedChannels(WatchedChannels):
    """The channels of a selector that end because of their peers' faults. A base class of `Selector`.

    A READY channel ends after its earlier requests have been answered. Any other channel ends at once: it is added to
    `disconnected`.
    """

    _memory: MemoryWaiters

    def __init__(self, poller: Poller, waker: Waker, runtime: ListenerRuntime, awake: Callable[[], None]) -> None:
        super().__init__(poller, waker, awake)
        self._failures = runtime.failures
        self._failure_log = runtime.failure_log

    def report(self, channel: KafkaChannel, reason: str) -> None:
        """Log the reason why a connection is closed now or later."""
        host = channel.connection.client_address.host
        self._failure_log.log(host, logging.WARNING, "%s: closing connection: %s", describe(channel), reason)

    def reject(self, channel: KafkaChannel, reason: str) -> None:
        """Close a channel because its peer is at fault, and log the reason."""
        self.report(channel, reason)
        channel.close_reason = reason
        self.disconnected.append(channel)

    def reject_receive(self, channel: KafkaChannel, error: InvalidReceiveError) -> None:
        """Close a channel whose peer has declared a size that no request may have.

        The requests received before are still answered.
        """
        self._failures.count(error.reason)
        self.completed_receives.append(channel)
        if not self.finish(channel, f"invalid receive: {error}"):
            self.reject(channel, f"invalid receive: {error}")

    def finish(self, channel: KafkaChannel, reason: str, last_bytes: bytes = b"") -> bool:
        """Stop reading from a READY channel, log the reason, and close the channel when its requests are answered.

        `last_bytes` are sent after the answers. Return False if the channel has no requests or is not READY.
        """
        if channel.state is not ChannelState.READY or not (channel.has_requests or channel.has_answers):
            return False
        self.report(channel, reason)
        channel.close_reason = reason
        channel.last_bytes = last_bytes
        channel.transition_to(ChannelState.FINISHING)
        channel.receive.waiting_for_memory = False
        self._memory.forget(channel)
        self.buffered.discard(channel)
        self.update_interest(channel)
        return True

    def send_last(self, channel: KafkaChannel) -> None:
        """Send a channel's `last_bytes`, as many as the socket accepts at once."""
        if channel.last_bytes and channel.send is None:
            with contextlib.suppress(OSError):
                channel.transport.write((channel.last_bytes,))
