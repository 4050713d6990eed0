"""`Selector`, which reads from and writes to the channels of one processor, and finds disconnected channels.

Only the processor's thread uses it. The results of one `poll` are in `completed_receives`, `completed_sends` and
`disconnected`, as in Kafka's class of that name. If a channel raises an exception, only that channel is closed.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from klamm.api.transport import END_OF_STREAM, HandshakeError
from klamm.network.channel import ChannelState, KafkaChannel, MuteState, close_transport, describe
from klamm.network.handshake_offload import HandshakeOffload
from klamm.network.memory_waiters import EVICTED, MemoryWaiters
from klamm.network.poller import ERROR, HANG_UP, READ, WRITE, Poller, Waker
from klamm.network.receive import InvalidReceiveError
from klamm.network.refused_channels import RefusedChannels
from klamm.network.runtime import ListenerRuntime
from klamm.network.send import NetworkSend
from klamm.network.setup_queue import SetupQueue
from klamm.network.watched_channels import nothing
from klamm.runtime.platform import PLATFORM
from klamm.runtime.platform.sockets import unread_bytes
from klamm.runtime.threads import SYSTEM_THREADS
from klamm.wire.chunks import Chunk

log = logging.getLogger("klamm.network")

READ_AHEAD_BYTES: Final = 256 * 1024
_DIRECT_FROM_BYTES: Final = 64 * 1024
# Looked up for every request; a global is faster than a member of an enum.
_HANDSHAKE: Final = ChannelState.HANDSHAKE
_READY: Final = ChannelState.READY
_FINISHING: Final = ChannelState.FINISHING
_NOT_MUTED: Final = MuteState.NOT_MUTED


class Selector(RefusedChannels):
    """The selector of one processor.

    - `channels` maps descriptors to channels.
    - `closing` are channels that are disconnected and still have requests (Kafka's `closingChannels`).
    - `setup` has the channels that are not READY yet.
    - `charged_until_ns` is the end of the last charge. The time of the processor's thread is charged to the channel
      that has used it. Each charge reads the clock only once, because it starts at the end of the last one.
    """

    def __init__(
        self,
        poller: Poller,
        waker: Waker,
        runtime: ListenerRuntime,
        shuffle: Callable[[list[Any]], None] = SYSTEM_THREADS.shuffle,
        awake: Callable[[], None] = nothing,
    ) -> None:
        super().__init__(poller, waker, runtime, awake)
        self._poll = poller.poll
        self._monotonic_ns = runtime.clock.monotonic_ns
        self._listener = runtime.context
        self._pool = runtime.pool
        self._use_send_file = runtime.limits.use_send_file and PLATFORM.has_sendfile
        self._shuffle = shuffle
        self._read_ahead = memoryview(bytearray(READ_AHEAD_BYTES))
        self.closing: set[KafkaChannel] = set()
        handshakes = HandshakeOffload(runtime.handshakers, waker) if runtime.handshakers is not None else None
        self.setup = SetupQueue(self, handshakes)
        self._memory = MemoryWaiters(self, runtime.pool, shuffle)
        self.proxied: list[KafkaChannel] = []
        self.failed_handshakes: list[tuple[KafkaChannel, HandshakeError]] = []
        self.now_ns = self.charged_until_ns = self._monotonic_ns()
        self._poller.register(waker.descriptor, READ)

    def register(self, channel: KafkaChannel) -> None:
        """Watch a new channel and start its handshake."""
        channel.last_active_ns = self.now_ns
        self._poller.register(channel.descriptor, channel.interest)
        self.channels[channel.descriptor] = channel
        if self._pool is not None:
            channel.receive.bytes_at_hand = partial(unread_bytes, channel.descriptor)
        self.setup.setting_up.add(channel)
        self.setup.begin(channel)

    def adopt(self, channel: KafkaChannel) -> None:
        """Take over a channel from another selector, with everything that it has received."""
        channel.last_active_ns = self.now_ns
        channel.interest = 0 if self._reading_stopped else channel.wanted_interest
        self._poller.register(channel.descriptor, channel.interest)
        self.channels[channel.descriptor] = channel
        if channel.receive.frames:
            self.completed_receives.append(channel)
        self.look_for_buffered(channel)
        if channel.receive.evicted:
            # No selector has watched the channel during the migration.
            self.reject(channel, EVICTED)

    # ---- polling

    @property
    def has_work(self) -> bool:
        """Return True if channels wait for their processor."""
        return bool(self.completed_receives or self.failed_handshakes or self.disconnected or self.proxied)

    def poll(self, timeout_s: float) -> None:
        """Wait for readiness, then read and write what is ready."""
        if self._pool is not None:
            timeout_s = self._memory.before_poll(timeout_s)
        if self.buffered or self.setup:
            timeout_s = 0.0
        events = self._poll(timeout_s)
        self.now_ns = self.charged_until_ns = self._monotonic_ns()
        if self._pool is not None and len(events) > 1 and self._pool.is_low:
            self._shuffle(events)
        self._process(events)
        self.setup.collect_offloaded()
        if self.buffered:
            self._read_buffered()

    def charge(self, channel: KafkaChannel) -> None:
        """Charge the time since the last charge to this channel."""
        ended_ns = self._monotonic_ns()
        channel.busy_ns += ended_ns - self.charged_until_ns
        self.charged_until_ns = ended_ns

    def charge_none(self) -> None:
        """Charge the time since the last charge to no channel."""
        self.charged_until_ns = self._monotonic_ns()

    def _process(self, events: Iterable[tuple[int, int]]) -> None:
        now_ns = start_ns = self.now_ns
        monotonic_ns = self._monotonic_ns
        throttled = bool(self._listener.throttles)
        channels = self.channels
        for descriptor, mask in events:
            channel = channels.get(descriptor)
            if channel is None:
                if descriptor == self._waker.descriptor:
                    self._waker.drain()
                else:
                    # The callback may close a channel, and then charges it.
                    self.charged_until_ns = start_ns
                    self.other_ready(descriptor, mask)
                start_ns = monotonic_ns()
                continue
            channel.last_active_ns = now_ns
            try:
                if mask == READ:
                    self.read(channel)
                else:
                    self._ready(channel, mask)
            except Exception as error:
                self.failed(channel, error)
            # `charge`, inlined: this runs for every request.
            ended_ns = monotonic_ns()
            channel.busy_ns += ended_ns - start_ns
            if throttled:
                channel.network_ns += ended_ns - start_ns
            start_ns = ended_ns
        self.charged_until_ns = start_ns

    def _ready(self, channel: KafkaChannel, mask: int) -> None:
        if mask & WRITE and channel.send is not None:
            self._write(channel)
        if mask & READ:
            self.read(channel)
        elif mask & (HANG_UP | ERROR):
            # The peer may have sent bytes before it disconnected. A channel in set-up must still read them.
            if channel not in self.setup:
                self._lost(channel, "connection reset by peer")
        elif mask & WRITE and channel.state is _HANDSHAKE:
            self.setup.put_off(channel)

    def read(self, channel: KafkaChannel) -> None:
        """Read a channel's bytes, if it may be read now."""
        if channel.state is not _READY and self.setup.put_off(channel):
            return
        receive = channel.receive
        # `channel.may_read`, inlined: this runs for every request.
        if (
            channel.send is not None
            or channel.mute_state is not _NOT_MUTED
            or channel.waiting_for_turn
            or receive.waiting_for_memory
            or self._reading_stopped
        ):
            # The mask of a muted channel is changed only now, at its next event.
            self.update_interest(channel)
            return
        read_ahead = self._read_ahead
        if self._pool is not None:
            limit_bytes = receive.reserve()
            if not limit_bytes:
                self._memory.add(channel)
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
            self._memory.add(channel)
        if channel.may_buffer and channel.transport.has_buffered_data:
            self.buffered.add(channel)

    def _read_buffered(self) -> None:
        # Bytes that a transport has buffered do not make its socket readable. If a channel cannot be read now, `resume`
        # reads it later.
        channels, self.buffered = self.buffered, set()
        for channel in channels:
            try:
                if (
                    channel.state is not ChannelState.CLOSED
                    and channel.transport.has_buffered_data
                    and channel.may_read
                ):
                    channel.last_active_ns = self.now_ns
                    self.read(channel)
            except Exception as error:
                self.failed(channel, error)
            self.charge(channel)

    def look_for_buffered(self, channel: KafkaChannel) -> None:
        """Note the channel in `buffered` if its transport has buffered bytes."""
        try:
            if channel.transport.has_buffered_data:
                self.buffered.add(channel)
        except Exception as error:
            log.exception("%s: channel failed", describe(channel))
            self.reject(channel, f"channel failed: {error!r}")

    def resume(self, channel: KafkaChannel) -> None:
        """Watch a channel that may be read again, and check its transport for buffered bytes."""
        self.update_interest(channel)
        self.look_for_buffered(channel)

    # ---- sending

    def send(self, channel: KafkaChannel, chunks: list[Chunk]) -> bool:
        """Send one response, or several joined ones; return True if all bytes were sent at once.

        Otherwise the bytes are sent in later polls, after earlier bytes; the channel is then in `completed_sends`.
        """
        if channel.send is not None:
            channel.send.extend(chunks)
            return False
        # The idle time starts again with each answer, so that it does not include the time of a long request.
        channel.last_active_ns = self.now_ns
        head = chunks[0]
        if len(chunks) == 1 and isinstance(head, bytes):
            sent = channel.transport.write((head,))
            channel.connection.sent_bytes += sent
            if sent == len(head):
                return True
            chunks = [memoryview(head)[sent:]]
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

    # ---- the end of a channel

    def failed(self, channel: KafkaChannel, error: Exception) -> None:
        """Handle the exception of a read or write of a channel. Called in the `except` block."""
        if isinstance(error, OSError):
            self._lost(channel, str(error))
        elif isinstance(error, InvalidReceiveError):
            self.reject_receive(channel, error)
        else:
            log.exception("%s: channel failed", describe(channel))
            self.reject(channel, f"channel failed: {error!r}")

    def _lost(self, channel: KafkaChannel, reason: str) -> None:
        """Handle a channel whose peer has disconnected, or whose session a part has ended.

        Frames received before are still served, as in Kafka's `closingChannels`.
        """
        if channel.state is _HANDSHAKE and not channel.close_reason:
            self._failures.count("closed_by_peer")
        ended = channel.transport.session_end
        channel.close_reason = channel.close_reason or (f"session ended: {ended}" if ended else reason)
        if (channel.state is _READY or channel.state is _FINISHING) and channel.has_requests:
            channel.transition_to(ChannelState.CLOSING)
            self.forget(channel)
            self.closing.add(channel)
            if channel.send is not None:
                # `channel.send` stays, so that `ChannelLifecycle.sent` reports its answers as lost.
                channel.send.close()
                self.completed_sends.append(channel)
            else:
                self.completed_receives.append(channel)
        else:
            self.disconnected.append(channel)

    def close(self, channel: KafkaChannel) -> None:
        """Close and remove a channel. A second call does nothing."""
        if channel.state is ChannelState.CLOSED:
            return
        channel.transition_to(ChannelState.CLOSED)
        self.forget(channel)
        self.closing.discard(channel)
        self._memory.forget(channel)
        self.buffered.discard(channel)
        if channel.send is not None:
            channel.send.close()
            channel.send = None
        channel.receive.discard()
        if channel.authenticator is not None:
            try:
                channel.authenticator.close()
            except Exception:
                log.exception("%s: authenticator.close failed", describe(channel))
        if self.setup.forget(channel):
            close_transport(channel)

    def close_all(self) -> None:
        """Close the remaining channels, and the poller."""
        for channel in list(self.channels.values()):
            self.close(channel)
        self.setup.close()
        self._poller.close()
