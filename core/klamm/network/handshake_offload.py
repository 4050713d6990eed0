"""`HandshakeOffload`: runs steps of handshakes on separate threads, so that requests do not wait for cryptography."""

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
    """The handshakes of one selector's channels; Kafka takes their steps on its network threads.

    Between `begin` and `take_back` a channel's transport belongs to one of the threads, and no other thread may use it:
    a channel that is closed meanwhile keeps its transport open until then. `done` holds outcomes that wait for
    `take_back`. Only the selector's thread calls these methods.
    """

    def __init__(self, workers: Workers, waker: Waker) -> None:
        self._workers = workers
        self._waker = waker
        self._under_way: set[KafkaChannel] = set()
        self._outcomes: dict[KafkaChannel, Interest | Exception] = {}
        self.done: deque[tuple[KafkaChannel, Interest | Exception]] = deque()
        # Protects `_closed`: an outcome after the close has no processor to take it.
        self._lock = threading.Lock()
        self._closed = False

    def begin(self, channel: KafkaChannel) -> None:
        """Start the next step on a thread."""
        self._under_way.add(channel)
        self._workers.submit(partial(self._step, channel), source_of(channel.connection.client_address.host))

    def take_back(self) -> list[KafkaChannel]:
        """Return channels whose step is over, in that order; those that were closed meanwhile are released."""
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
        """Return the result of `handshake` of a channel that was taken back. Raises the exception that `handshake`
        raised.
        """
        outcome = self._outcomes.pop(channel)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def forget(self, channel: KafkaChannel) -> bool:
        """Forget a closed channel. Return True if a thread still uses its transport, which is then closed
        afterwards.
        """
        self._outcomes.pop(channel, None)
        return channel in self._under_way

    def close(self) -> None:
        """Stop returning channels to the selector: a channel that is under way closes when its step is over."""
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
                # A plugin must not end a thread that others need.
                outcome = RuntimeError(repr(error))
        with self._lock:
            self.done.append((channel, outcome))
            if not self._closed:
                self._waker.wake()
                return
        self._close_done()

    def _close_done(self) -> None:
        # Both the selector and the threads use this: each channel goes to one of them.
        while True:
            try:
                channel, _ = self.done.popleft()
            except IndexError:
                return
            close_transport(channel)
