"""`HandshakeOffload`, which runs handshakes on separate threads, so that requests do not wait for cryptography."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial

from klamm.api.transport import Interest
from klamm.network.channel import ChannelState, KafkaChannel, close_transport
from klamm.network.poller import Waker
from klamm.runtime.workers import Workers
from klamm.shared.addresses import source_of


class HandshakeOffload:
    """The handshakes of one selector's channels. Kafka runs them on its network threads.

    Between `begin` and `take_back` a channel's transport belongs to a handshake thread, and no other thread may use it.
    If the channel is closed meanwhile, its transport is closed afterwards. `done` holds outcomes that wait for
    `take_back`. Only the selector's `SetupQueue` calls these methods, on the processor's thread.
    """

    def __init__(self, workers: Workers, waker: Waker) -> None:
        self._workers = workers
        self._waker = waker
        self._under_way: set[KafkaChannel] = set()
        self._outcomes: dict[KafkaChannel, Interest | Exception] = {}
        self.done: deque[tuple[KafkaChannel, Interest | Exception]] = deque()
        # Protects `_closed`: after the close, no processor takes outcomes.
        self._lock = threading.Lock()
        self._closed = False

    def begin(self, channel: KafkaChannel) -> None:
        """Start the next step of a channel's handshake on a handshake thread."""
        self._under_way.add(channel)
        self._workers.submit(partial(self._step, channel), source_of(channel.connection.client_address.host))

    def take_back(self) -> list[KafkaChannel]:
        """Return the channels whose steps have ended, in the order in which the steps ended.

        Channels that were closed meanwhile are left out, and their transports are closed.
        """
        found = []
        while self.done:
            channel, outcome = self.done.popleft()
            self._under_way.discard(channel)
            if channel.state is ChannelState.CLOSED:
                close_transport(channel)
            else:
                self._outcomes[channel] = outcome
                found.append(channel)
        return found

    def outcome(self, channel: KafkaChannel) -> Interest:
        """Return the result of `handshake` for a channel that `take_back` has returned.

        Raises the exception that `handshake` has raised.
        """
        outcome = self._outcomes.pop(channel)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def forget(self, channel: KafkaChannel) -> bool:
        """Remove a closed channel. Return True if a handshake thread still uses its transport.

        That transport is closed when the step is over.
        """
        self._outcomes.pop(channel, None)
        return channel in self._under_way

    def close(self) -> None:
        """Stop returning channels to the selector. A channel whose step still runs is closed when the step is over."""
        with self._lock:
            self._closed = True
        self._close_done()

    def _step(self, channel: KafkaChannel) -> None:
        outcome: Interest | Exception = Interest.NONE
        if channel.state is not ChannelState.CLOSED:
            try:
                outcome = channel.transport.handshake()
            except Exception as error:
                outcome = error
            except BaseException as error:
                # An exception of a plugin must not end the thread, because other channels need it.
                outcome = RuntimeError(repr(error))
        with self._lock:
            self.done.append((channel, outcome))
            if not self._closed:
                self._waker.wake()
                return
        self._close_done()

    def _close_done(self) -> None:
        # The selector and the handshake threads may call this concurrently: each channel is popped only once.
        while True:
            try:
                channel, _ = self.done.popleft()
            except IndexError:
                return
            close_transport(channel)
