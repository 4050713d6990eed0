"""`ChannelLink`, through which a handler set that forwards requests uses a client's connection and its processor."""

from __future__ import annotations

import threading
from collections.abc import Callable

from klamm.api.forwarding import ConnectionLink
from klamm.network.answer_queue import AnswerQueue
from klamm.network.authentication import ChannelAuthentication
from klamm.network.channel import ChannelState, KafkaChannel
from klamm.network.lifecycle import CallSoon
from klamm.network.selector import Selector


class ChannelLink(ConnectionLink):
    """The link of one connection. Only the processor's thread makes and uses it, but any thread may call `call_soon`.

    `abort(channel, reason)` closes the channel.
    """

    def __init__(
        self,
        channel: KafkaChannel,
        answers: AnswerQueue,
        selector: Selector,
        call_soon: CallSoon,
        abort: Callable[[KafkaChannel, str], None],
        authentication: ChannelAuthentication,
    ) -> None:
        self._channel = channel
        self._authentication = authentication
        self._abort = abort
        self._answers = answers
        self._selector = selector
        self._call_soon = call_soon
        self._thread = threading.get_ident()
        self._blocked = False

    @property
    def can_send(self) -> bool:
        may = self._channel.send is None and not (self._answers.delivered and self._answers.holds_back)
        if not may:
            self._blocked = True
        return may

    @property
    def on_loop(self) -> bool:
        return threading.get_ident() == self._thread

    def notify_drained(self) -> None:
        """Call `on_drained` if `can_send` was read as False before, and is True now."""
        if self._blocked and self.can_send:
            self._blocked = False
            if self.on_drained is not None:
                self.on_drained()

    def watch(self, descriptor: int, interest: int, ready: Callable[[int], None]) -> None:
        self._selector.watch_other(descriptor, int(interest), ready)

    def forget(self, descriptor: int) -> None:
        self._selector.forget_other(descriptor)

    def close(self, reason: str) -> None:
        self._call_soon(self._channel, lambda text: self._abort(self._channel, text), reason)

    def login_failed(self, reason: str, *, again: bool) -> None:
        self._authentication.note_failure(self._channel, reason, again=again)

    def login_succeeded(self, *, again: bool) -> None:
        self._authentication.note_success(self._channel, again=again)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._call_soon(self._channel, self._call, callback)

    def _call(self, callback: Callable[[], None]) -> None:
        if self._channel.state is not ChannelState.CLOSED:
            callback()
