"""`SetupQueue`, which takes steps of handshakes and authentications, after a processor has served requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from klamm.api.transport import HandshakeError, Interest
from klamm.network.channel import ChannelState, KafkaChannel
from klamm.network.handshake_offload import HandshakeOffload
from klamm.network.poller import READ

_HANDSHAKE: Final = ChannelState.HANDSHAKE
_AUTHENTICATE: Final = ChannelState.AUTHENTICATE
_NOT_SET_UP: Final = frozenset({_HANDSHAKE, _AUTHENTICATE})
UNWATCHED: Final = -1
"""The interest of a channel that is not registered with the poller."""


class ChannelIo(Protocol):
    """The methods of the `Selector` that set-up steps use."""

    completed_receives: list[KafkaChannel]
    proxied: list[KafkaChannel]
    failed_handshakes: list[tuple[KafkaChannel, HandshakeError]]

    def read(self, channel: KafkaChannel) -> None: ...

    def watch(self, channel: KafkaChannel, interest: int) -> None: ...

    def watch_again(self, channel: KafkaChannel) -> None: ...

    def unwatch(self, channel: KafkaChannel) -> None: ...

    def update_interest(self, channel: KafkaChannel) -> None: ...

    def look_for_buffered(self, channel: KafkaChannel) -> None: ...

    def failed(self, channel: KafkaChannel, error: Exception) -> None: ...


class SetupQueue:
    """The channels of a processor that are not READY and wait for a step, in the order of their arrival.

    The selector makes it, and its processor's thread alone uses it.

    A step takes as long as many requests, so it is taken after the requests of a turn. With `handshakes`, separate
    threads take the steps of handshakes.
    """

    def __init__(self, io: ChannelIo, handshakes: HandshakeOffload | None) -> None:
        self._io = io
        self._handshakes = handshakes
        self._ready: dict[KafkaChannel, None] = {}
        self._current: KafkaChannel | None = None
        self.setting_up: set[KafkaChannel] = set()

    def __bool__(self) -> bool:
        return bool(self._ready)

    def __contains__(self, channel: KafkaChannel) -> bool:
        return channel in self._ready

    def begin(self, channel: KafkaChannel) -> None:
        """Take the first step of the transport's handshake."""
        if self._handshakes is not None and channel.admitted:
            self._io.watch(channel, Interest.READ)
            return
        if channel.may_buffer:
            self._ready[channel] = None
            return
        try:
            self._handshake(channel)
        except OSError as error:
            self._io.failed(channel, error)

    def put_off(self, channel: KafkaChannel) -> bool:
        """Queue a channel that is not READY and return True; return False if the channel needs no step."""
        if channel is self._current or channel.state not in _NOT_SET_UP:
            return False
        if self._handshakes is not None and channel.admitted and channel.state is _HANDSHAKE:
            # The poller would report a disconnected peer again and again, even with an empty mask.
            self._io.unwatch(channel)
            channel.interest = UNWATCHED
            self._handshakes.begin(channel)
            return True
        self._ready[channel] = None
        self._io.watch(channel, Interest.NONE)
        return True

    def collect_offloaded(self) -> None:
        """Queue the channels whose step on a handshake thread is over."""
        if self._handshakes is not None and self._handshakes.done:
            for channel in self._handshakes.take_back():
                self._ready[channel] = None

    def next_step(self) -> KafkaChannel:
        """Take the next step of the channel that has waited longest, and return the channel."""
        channel = next(iter(self._ready))
        del self._ready[channel]
        try:
            if channel.interest == UNWATCHED and self._handshakes is not None:
                self._io.watch_again(channel)
                channel.interest = READ
                self._go_on(channel, partial(self._handshakes.outcome, channel))
            elif channel.state is _HANDSHAKE:
                self._handshake(channel)
            elif channel.state is _AUTHENTICATE or channel.state is ChannelState.READY:
                self._current = channel
                self._io.read(channel)
                self._io.update_interest(channel)
        except Exception as error:
            self._io.failed(channel, error)
        finally:
            self._current = None
        return channel

    def _handshake(self, channel: KafkaChannel) -> None:
        self._go_on(channel, channel.transport.handshake)

    def _go_on(self, channel: KafkaChannel, step: Callable[[], Interest]) -> None:
        try:
            interest = step()
        except HandshakeError as error:
            channel.close_reason = str(error)
            self._io.failed_handshakes.append((channel, error))
            self._io.watch(channel, Interest.NONE)
            return
        if interest is Interest.NONE and not channel.admitted:
            self._io.proxied.append(channel)
            self._io.watch(channel, Interest.NONE)
            return
        if interest is Interest.NONE:
            channel.transition_to(_AUTHENTICATE)
            # Data may have arrived with the last message of the handshake, and the state must be checked anyway.
            self._io.completed_receives.append(channel)
            self._io.look_for_buffered(channel)
            interest = Interest.READ
        self._io.watch(channel, interest)

    def done(self, channel: KafkaChannel) -> None:
        """End the time limit of a channel that has become READY or has failed."""
        self.setting_up.discard(channel)

    def forget(self, channel: KafkaChannel) -> bool:
        """Remove a closed channel.

        Return False if a handshake thread still uses the channel's transport: the transport is then closed later.
        """
        self._ready.pop(channel, None)
        self.setting_up.discard(channel)
        return self._handshakes is None or not self._handshakes.forget(channel)

    def close(self) -> None:
        """Stop taking channels back from the handshake threads."""
        if self._handshakes is not None:
            self._handshakes.close()
