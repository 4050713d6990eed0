"""`Selector`: all channels of one processor: what can be read, sent, or is gone.

Not thread safe: one processor thread uses it. What happens in one `poll` is left in `completed_receives`,
`completed_sends` and `disconnected`, as in Kafka's class of that name; a failure of one channel never leaves it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from klamm.api.transport import END_OF_STREAM, HandshakeError, Interest
from klamm.metrics.connection_failures import ConnectionFailures
from klamm.network.channel import ChannelState, KafkaChannel, MuteState, close_transport, describe
from klamm.network.handshake_offload import Handshakes
from klamm.network.memory_pool import MemoryPool
from klamm.network.poller import ERROR, HANG_UP, READ, WRITE, Poller, Waker
from klamm.network.receive import InvalidReceiveError
from klamm.network.send import Chunk, NetworkSend
from klamm.runtime.clock import Clock

log = logging.getLogger("klamm.network")

READ_AHEAD_BYTES: Final = 256 * 1024
_DIRECT_FROM_BYTES: Final = 64 * 1024
_MEMORY_POLL_S: Final = 0.01
_EVICTED: Final = "the rest of its request does not come, and memory is short"
# Looked up for every request; a global is faster than a member of an enum.
_HANDSHAKE: Final = ChannelState.HANDSHAKE
_AUTHENTICATE: Final = ChannelState.AUTHENTICATE
_READY: Final = ChannelState.READY
_NOT_SET_UP: Final = frozenset({_HANDSHAKE, _AUTHENTICATE})
_NOT_MUTED: Final = MuteState.NOT_MUTED
# Instead of an interest, of a channel that the poller does not know for now.
_UNWATCHED: Final = -1


class Selector:
    """See the module. With `handshakes`, the steps of handshakes are taken by its threads."""

    def __init__(
        self,
        poller: Poller,
        waker: Waker,
        clock: Clock,
        *,
        idle_timeout_ns: int,
        pool: MemoryPool | None,
        use_send_file: bool,
        failures: ConnectionFailures,
        setup_timeout_ns: int,
        handshakes: Handshakes | None = None,
        shuffle: Callable[[list[Any]], None] = random.shuffle,
    ) -> None:
        self._poller = poller
        self._poll = poller.poll
        self._waker = waker
        self._clock = clock
        self._idle_timeout_ns = idle_timeout_ns
        self._pool = pool
        self._use_send_file = use_send_file
        self._failures = failures
        self._setup_timeout_ns = setup_timeout_ns
        self._handshakes = handshakes
        self._shuffle = shuffle
        self._read_ahead = memoryview(bytearray(READ_AHEAD_BYTES))
        self.channels: dict[int, KafkaChannel] = {}
        self._next_idle_check_ns = 0
        self._next_setup_check_ns = 0
        self._setting_up: set[KafkaChannel] = set()
        self._reading_stopped = False
        self.measuring = False
        self._buffered: set[KafkaChannel] = set()
        self._newcomers: dict[KafkaChannel, None] = {}
        self._taken_up: KafkaChannel | None = None
        self._memory_waiters: set[KafkaChannel] = set()
        self._seen_evictions = 0
        self.completed_receives: list[KafkaChannel] = []
        self.completed_sends: list[KafkaChannel] = []
        self.disconnected: list[KafkaChannel] = []
        self.proxied: list[KafkaChannel] = []
        self.failed_handshakes: list[tuple[KafkaChannel, HandshakeError]] = []
        self.now_ns = clock.monotonic_ns()
        self._poller.register(waker.descriptor, READ)

    def time_channels(self, timed: bool) -> None:
        """Note from now on the time that each channel costs, or do not. From any thread."""
        # Another class, not a flag: this is asked for each read and write.
        self.__class__ = TimedSelector if timed else Selector

    def register(self, channel: KafkaChannel) -> None:
        """Watch a new channel and begin its handshake."""
        channel.last_active_ns = self.now_ns
        self._poller.register(channel.descriptor, channel.interest)
        self.channels[channel.descriptor] = channel
        self._setting_up.add(channel)
        self.begin_handshake(channel)

    def begin_handshake(self, channel: KafkaChannel) -> None:
        """Take the first step of what the transport has to do."""
        if self._handshakes is not None and channel.admitted:
            self._watch(channel, Interest.READ)
            return
        if channel.may_buffer:
            self._newcomers[channel] = None
            return
        try:
            self._handshake(channel)
        except OSError as error:
            self._lost(channel, str(error))

    def hand_over(self, channel: KafkaChannel) -> bool:
        """Let go of a quiet channel, so that another selector can `adopt` it; False if it is not quiet."""
        if (
            not channel.is_quiet
            or self.channels.get(channel.descriptor) is not channel
            or channel in self.completed_receives
            or channel in self.completed_sends
            or channel in self.disconnected
        ):
            return False
        self._forget(channel)
        self._buffered.discard(channel)
        return True

    def adopt(self, channel: KafkaChannel) -> None:
        """Take over a channel from another selector, with all that it has received."""
        channel.last_active_ns = self.now_ns
        channel.interest = 0 if self._reading_stopped else channel.wanted_interest
        self._poller.register(channel.descriptor, channel.interest)
        self.channels[channel.descriptor] = channel
        if channel.receive.frames:
            self.completed_receives.append(channel)
        self._look_for_buffered(channel)
        if channel.receive.evicted:
            # While it belonged to no selector, none saw that.
            self.reject(channel, _EVICTED)

    def poll(self, timeout_s: float) -> None:
        """Wait for something to happen, and read and write what can be."""
        if self._memory_waiters:
            # Memory may come back on another processor, which wakes nobody.
            timeout_s = 0.0 if self._resume_memory_waiters() else min(timeout_s, _MEMORY_POLL_S)
        if self._buffered or self._newcomers:
            timeout_s = 0.0
        if self._pool is not None and self._pool.evictions != self._seen_evictions:
            self._close_evicted()
            timeout_s = 0.0
        events = self._poll(timeout_s)
        now_ns = self.now_ns = self._clock.monotonic_ns()
        if self._pool is not None and len(events) > 1 and self._pool.is_low:
            self._shuffle(events)
        if self.measuring:
            self._process_measured(events)
        else:
            self._process(events)
        if self._handshakes is not None and self._handshakes.done:
            for channel in self._handshakes.take_back():
                self._newcomers[channel] = None
        if self._buffered:
            self._read_buffered(now_ns)

    def _process_measured(self, events: list[tuple[int, int]]) -> None:
        begun_ns = self.now_ns
        for event in events:
            channel = self.channels.get(event[0])
            self._process((event,))
            ended_ns = self._clock.monotonic_ns()
            if channel is not None:
                channel.busy_ns += ended_ns - begun_ns
            begun_ns = ended_ns

    def _process(self, events: Iterable[tuple[int, int]]) -> None:
        now_ns = self.now_ns
        channels = self.channels
        for descriptor, mask in events:
            channel = channels.get(descriptor)
            if channel is None:
                if descriptor == self._waker.descriptor:
                    self._waker.drain()
                continue
            channel.last_active_ns = now_ns
            try:
                if mask == READ:
                    self._read(channel)
                    continue
                if mask & WRITE and channel.send is not None:
                    self._write(channel)
                if mask & READ:
                    self._read(channel)
                elif mask & (HANG_UP | ERROR):
                    # Who waits for a turn may have said something before.
                    if channel not in self._newcomers:
                        self._lost(channel, "connection reset by peer")
                elif mask & WRITE and channel.state is _HANDSHAKE:
                    self._put_off(channel)
            except Exception as error:
                self._failed(channel, error)

    def _read(self, channel: KafkaChannel) -> None:
        if channel.state is not _READY and self._put_off(channel):
            return
        receive = channel.receive
        # `channel.may_read`, spelled out: this runs for every request.
        if (
            channel.send is not None
            or channel.mute_state is not _NOT_MUTED
            or channel.waiting_for_turn
            or receive.waiting_for_memory
            or self._reading_stopped
        ):
            # Lazy mute: the mask changes only now that it matters.
            self.update_interest(channel)
            return
        read_ahead = self._read_ahead
        if self._pool is not None:
            limit_bytes = receive.reserve()
            if not limit_bytes:
                self._wait_for_memory(channel)
                return
            read_ahead = read_ahead[:limit_bytes]
        direct = receive.direct_buffer(_DIRECT_FROM_BYTES) if receive.target is not None else None
        if direct is not None:
            count = channel.transport.read_into(direct)
            if count > 0:
                receive.filled(count)
        else:
            count = channel.transport.read_into(read_ahead)
            if count > 0:
                receive.feed(read_ahead, count)
        if self._pool is not None and count <= 0:
            receive.settle(0)
        if count > 0:
            channel.connection.received_bytes += count
        if receive.frames:
            self.completed_receives.append(channel)
        if count == END_OF_STREAM:
            self._lost(channel, "closed by peer")
            return
        if receive.waiting_for_memory:
            self._wait_for_memory(channel)
        if channel.may_buffer and channel.transport.has_buffered_data:
            self._buffered.add(channel)

    def _put_off(self, channel: KafkaChannel) -> bool:
        """Have a channel that is not set up wait for its turn; False if it has none to wait for."""
        if channel is self._taken_up or channel.state not in _NOT_SET_UP:
            return False
        if self._handshakes is not None and channel.admitted and channel.state is _HANDSHAKE:
            # Not even an interest in nothing: the poller would tell of a peer that is gone all the time.
            self._poller.unregister(channel.descriptor)
            channel.interest = _UNWATCHED
            self._handshakes.begin(channel)
            return True
        self._newcomers[channel] = None
        self._watch(channel, Interest.NONE)
        return True

    @property
    def has_newcomers(self) -> bool:
        """Whether a channel that is not set up waits for `next_newcomer`."""
        return bool(self._newcomers)

    def next_newcomer(self) -> None:
        """Take the next step of the handshake or authentication of the channel that has waited longest.

        One at a time, after those who are in have been served: a step takes as long as many requests.
        """
        channel = next(iter(self._newcomers))
        del self._newcomers[channel]
        try:
            if channel.interest == _UNWATCHED and self._handshakes is not None:
                self._poller.register(channel.descriptor, READ)
                channel.interest = READ
                self._go_on(channel, partial(self._handshakes.outcome, channel))
            elif channel.state is _HANDSHAKE:
                self._handshake(channel)
            elif channel.state is _AUTHENTICATE or channel.state is _READY:
                self._taken_up = channel
                self._read(channel)
                self.update_interest(channel)
        except Exception as error:
            self._failed(channel, error)
        finally:
            self._taken_up = None

    def _handshake(self, channel: KafkaChannel) -> None:
        self._go_on(channel, channel.transport.handshake)

    def _go_on(self, channel: KafkaChannel, step: Callable[[], Interest]) -> None:
        try:
            interest = step()
        except HandshakeError as error:
            channel.close_reason = str(error)
            self.failed_handshakes.append((channel, error))
            self._watch(channel, Interest.NONE)
            return
        if interest is Interest.NONE and not channel.admitted:
            self.proxied.append(channel)
            self._watch(channel, Interest.NONE)
            return
        if interest is Interest.NONE:
            channel.move(ChannelState.AUTHENTICATE)
            # Data may have come with the last flight of the handshake, and the state needs a look even without.
            self.completed_receives.append(channel)
            if channel.transport.has_buffered_data:
                self._buffered.add(channel)
            interest = Interest.READ
        self._watch(channel, interest)

    def _watch(self, channel: KafkaChannel, interest: int) -> None:
        if channel.interest != interest and channel.interest != _UNWATCHED:
            channel.interest = int(interest)
            self._poller.modify(channel.descriptor, channel.interest)

    def _read_buffered(self, now_ns: int) -> None:
        # Bytes inside a transport never make its socket readable again.
        # One that cannot be read now is taken up again by `resume` once it may go on.
        channels, self._buffered = self._buffered, set()
        for channel in channels:
            try:
                if (
                    channel.state is not ChannelState.CLOSED
                    and channel.transport.has_buffered_data
                    and channel.may_read
                ):
                    channel.last_active_ns = now_ns
                    self._read(channel)
            except Exception as error:
                self._failed(channel, error)

    def _look_for_buffered(self, channel: KafkaChannel) -> None:
        try:
            if channel.transport.has_buffered_data:
                self._buffered.add(channel)
        except Exception as error:
            log.exception("%s: channel failed", describe(channel))
            self.reject(channel, f"channel failed: {error!r}")

    def _wait_for_memory(self, channel: KafkaChannel) -> None:
        self._memory_waiters.add(channel)
        self.update_interest(channel)

    def _resume_memory_waiters(self) -> bool:
        """Try for all that wait, in random order, so that none is always last; True if there is something to do."""
        waiters = list(self._memory_waiters)
        self._shuffle(waiters)
        progress = False
        for channel in waiters:
            try:
                goes_on = channel.receive.resume()
            except InvalidReceiveError as error:
                self._memory_waiters.discard(channel)
                self._reject_receive(channel, error)
                continue
            if goes_on:
                self._memory_waiters.discard(channel)
                self.update_interest(channel)
                self._look_for_buffered(channel)
            if channel.receive.frames and channel.can_process:
                self.completed_receives.append(channel)
                progress = True
        return progress

    def _close_evicted(self) -> None:
        assert self._pool is not None
        self._seen_evictions = self._pool.evictions
        for channel in list(self.channels.values()):
            if channel.receive.evicted:
                self.reject(channel, _EVICTED)

    def send_at_once(self, channel: KafkaChannel, data: bytes) -> bool:
        """`send` for the common case, a channel with nothing on its way out: nothing is allocated if all goes."""
        sent = channel.transport.write((data,))
        channel.connection.sent_bytes += sent
        return sent == len(data) or self.send(channel, [memoryview(data)[sent:]])

    def send(self, channel: KafkaChannel, chunks: list[Chunk]) -> bool:
        """Send one response (or several joined ones); True if it went whole at once, which needs no event.

        What cannot go yet goes out in later polls, behind what was waiting already, as one send.
        """
        if channel.send is None and len(chunks) == 1 and isinstance(chunks[0], bytes):
            return self.send_at_once(channel, chunks[0])
        if channel.send is not None:
            channel.send.extend(chunks)
            return False
        send = channel.send = NetworkSend(chunks, None if self._use_send_file else self._read_ahead)
        whole = send.write_to(channel.transport)
        channel.connection.sent_bytes += send.size_bytes
        if whole:
            channel.send = None
            return True
        self.update_interest(channel)
        return False

    def _write(self, channel: KafkaChannel) -> None:
        send = channel.send
        assert send is not None
        before_bytes = send.size_bytes
        whole = send.write_to(channel.transport)
        channel.connection.sent_bytes += send.size_bytes - before_bytes
        if whole:
            channel.send = None
            self.completed_sends.append(channel)

    def resume(self, channel: KafkaChannel) -> None:
        """A channel may be read again: watch it, and look into its transport."""
        self.update_interest(channel)
        self._look_for_buffered(channel)

    def update_interest(self, channel: KafkaChannel) -> None:
        """Tell the poller what the channel's state wants, if that has changed."""
        if self.channels.get(channel.descriptor) is not channel:
            return
        interest = channel.wanted_interest
        if self._reading_stopped:
            interest &= ~READ
        self._watch(channel, interest)

    def _failed(self, channel: KafkaChannel, error: Exception) -> None:
        """Reading or writing a channel has raised; called while the error is handled."""
        if isinstance(error, OSError):
            self._lost(channel, str(error))
        elif isinstance(error, InvalidReceiveError):
            # What came whole before it is still answered.
            self.completed_receives.append(channel)
            self._reject_receive(channel, error)
        else:
            log.exception("%s: channel failed", describe(channel))
            self.reject(channel, f"channel failed: {error!r}")

    def _lost(self, channel: KafkaChannel, reason: str) -> None:
        """The peer is gone. Frames that came before that are still to be served: Kafka's closing channels."""
        if channel.state is _HANDSHAKE and not channel.close_reason:
            self._failures.count("closed_by_peer")
        channel.close_reason = channel.close_reason or reason
        busy = channel.receive.frames or channel.in_flight is not None or channel.waiting_for_turn
        if channel.state is ChannelState.READY and busy:
            channel.move(ChannelState.CLOSING)
            self._forget(channel)
            if channel.send is not None:
                channel.send.close()
                channel.send = None
            if channel.can_process:
                self.completed_receives.append(channel)
        else:
            self.disconnected.append(channel)

    def reject(self, channel: KafkaChannel, reason: str) -> None:
        """Give a channel up for what it did; the reason is logged when it is closed."""
        log.warning("%s: closing connection: %s", describe(channel), reason)
        channel.close_reason = reason
        self.disconnected.append(channel)

    def _reject_receive(self, channel: KafkaChannel, error: InvalidReceiveError) -> None:
        self._failures.count(error.reason)
        self.reject(channel, f"invalid receive: {error}")

    def close(self, channel: KafkaChannel) -> None:
        """Close and forget a channel, once."""
        if channel.state is ChannelState.CLOSED:
            return
        channel.move(ChannelState.CLOSED)
        self._forget(channel)
        self._memory_waiters.discard(channel)
        self._buffered.discard(channel)
        self._newcomers.pop(channel, None)
        self._setting_up.discard(channel)
        if channel.send is not None:
            channel.send.close()
            channel.send = None
        channel.receive.discard()
        if channel.authenticator is not None:
            try:
                channel.authenticator.close()
            except Exception:
                log.exception("%s: authenticator.close failed", describe(channel))
        if self._handshakes is None or not self._handshakes.forget(channel):
            close_transport(channel)

    def _forget(self, channel: KafkaChannel) -> None:
        # The number may belong to a newer connection already.
        if self.channels.get(channel.descriptor) is channel:
            del self.channels[channel.descriptor]
            if channel.interest == _UNWATCHED:
                return
            try:
                self._poller.unregister(channel.descriptor)
            except (OSError, KeyError, ValueError):
                log.debug("%s: descriptor was already closed", describe(channel))

    def idle_channels(self) -> list[KafkaChannel]:
        """Channels on which nothing has happened for the idle time (`connections.max.idle.ms`), oldest first.

        Looks at all of them, but at most once a second: a request then costs no more than setting a time.
        """
        if self._idle_timeout_ns <= 0 or self.now_ns < self._next_idle_check_ns:
            return []
        self._next_idle_check_ns = self.now_ns + min(1_000_000_000, self._idle_timeout_ns // 4)
        limit_ns = self.now_ns - self._idle_timeout_ns
        idle = [c for c in self.channels.values() if c.last_active_ns <= limit_ns and c.in_flight is None]
        idle.sort(key=lambda channel: channel.last_active_ns)
        return idle

    def set_up(self, channel: KafkaChannel) -> None:
        """A channel has become READY, or has failed to: it is no longer waited for."""
        self._setting_up.discard(channel)

    def overdue_channels(self) -> list[KafkaChannel]:
        """Channels whose handshake and authentication take longer than they may; looks at most once a second.

        Counted from the beginning: a peer that sends a byte now and then does not put it off.
        """
        if not self._setting_up or self._setup_timeout_ns <= 0 or self.now_ns < self._next_setup_check_ns:
            return []
        self._next_setup_check_ns = self.now_ns + min(1_000_000_000, self._setup_timeout_ns // 4)
        limit_ns = self.now_ns - self._setup_timeout_ns
        return [channel for channel in self._setting_up if channel.connection.opened_ns <= limit_ns]

    def least_recently_used(self) -> KafkaChannel | None:
        """The channel that can best be done without; Kafka's `lowestPriorityChannel`."""
        return min(self.channels.values(), key=lambda channel: channel.last_active_ns, default=None)

    def stop_reading(self) -> None:
        """Read no more from any channel: the server drains."""
        if not self._reading_stopped:
            self._reading_stopped = True
            for channel in self.channels.values():
                self.update_interest(channel)

    def close_all(self) -> None:
        """Close what is left, and the poller."""
        for channel in list(self.channels.values()):
            self.close(channel)
        if self._handshakes is not None:
            self._handshakes.close()
        self._poller.close()


class TimedSelector(Selector):
    """Notes the time that each channel costs, in its `network_ns`; Kafka's `recordTimePerConnection`.

    It may become a plain one, on another thread, while it is in one of these: so none asks for `super()`.
    """

    def _read(self, channel: KafkaChannel) -> None:
        start_ns = self._clock.monotonic_ns()
        Selector._read(self, channel)
        channel.network_ns += self._clock.monotonic_ns() - start_ns

    def _write(self, channel: KafkaChannel) -> None:
        start_ns = self._clock.monotonic_ns()
        Selector._write(self, channel)
        channel.network_ns += self._clock.monotonic_ns() - start_ns

    def send(self, channel: KafkaChannel, chunks: list[Chunk]) -> bool:
        start_ns = self._clock.monotonic_ns()
        whole = Selector.send(self, channel, chunks)
        channel.network_ns += self._clock.monotonic_ns() - start_ns
        return whole
