"""`ChannelLifecycle`, which serves the requests of channels, sends responses, throttles channels and closes them.

It runs only on the processor's thread. A failure closes its channel and does not affect other channels. This module
handles connections and bytes; the pipeline handles requests.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from klamm.api.observer import RequestOutcome
from klamm.api.pending import LATER, NO_RESPONSE
from klamm.metrics.client_usage import client_key
from klamm.network.admission import release_gates
from klamm.network.authentication import SESSION_EXPIRED, ChannelAuthentication
from klamm.network.channel import ChannelState, KafkaChannel, MuteEvent, MuteState, describe
from klamm.network.delayed_closes import DelayedCloses
from klamm.network.runtime import ListenerRuntime
from klamm.network.selector import Selector
from klamm.requests.pending import GO_ON, CloseConnection, InvalidRequestError, PendingRequest
from klamm.requests.pipeline import RequestPipeline
from klamm.wire.chunks import Buffer, Chunk, close_chunks

log = logging.getLogger("klamm.network")

CallSoon: TypeAlias = Callable[[KafkaChannel, Callable[[Any], None], Any], None]
"""Takes `(channel, callback, argument)`, and calls `callback(argument)` on the processor's thread in its next turn.

Any thread may call it.
"""

_JOIN_UP_TO_BYTES: Final = 256 * 1024
_FRAMES_A_TURN: Final = 4096
# Looked up for every request; a global is faster than a member of an enum.
_READY: Final = ChannelState.READY
_FINISHING: Final = ChannelState.FINISHING
_CLOSING: Final = ChannelState.CLOSING
_CLOSED: Final = ChannelState.CLOSED
_NOT_MUTED: Final = MuteState.NOT_MUTED
_SERVED: Final = frozenset({_READY, _FINISHING, _CLOSING})
_ANSWERED: Final = RequestOutcome.ANSWERED


class ChannelLifecycle:
    """The lifecycle of one processor's channels. Its `Reactor` makes it, and calls it with the events of each channel.

    Channels in `unfinished` have more requests than one turn may serve.
    """

    def __init__(
        self, runtime: ListenerRuntime, selector: Selector, pipeline: RequestPipeline, call_soon: CallSoon
    ) -> None:
        self._listener = runtime.context
        self._connection_closed = runtime.connection_closed
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._counts = runtime.counts
        self._observers = runtime.observers
        self._selector = selector
        self._pipeline = pipeline
        self._call_soon = call_soon
        self.delayed_closes = DelayedCloses()
        self._authentication = ChannelAuthentication(runtime, selector, self)
        self.unfinished: deque[KafkaChannel] = deque()

    @property
    def authentication(self) -> ChannelAuthentication:
        """Return the object that brings channels to READY."""
        return self._authentication

    def advance(self, channel: KafkaChannel) -> None:
        """Start the requests that a channel has received."""
        try:
            if channel.state is _READY:
                self._serve(channel)
            elif channel.state is ChannelState.AUTHENTICATE:
                self._authentication.advance(channel)
            elif channel.state is _CLOSING or channel.state is _FINISHING:
                self._serve(channel)
                self._maybe_finish(channel)
        except InvalidRequestError as refused:
            self._refuse(channel, refused)
        except Exception as error:
            self.fail(channel, error)

    def fail(self, channel: KafkaChannel, error: Exception) -> None:
        """Log the exception that a channel has caused, and close the channel. Called in the `except` block."""
        if isinstance(error, InvalidRequestError):
            self._close_for(channel, str(error), error.last_bytes)
        elif isinstance(error, OSError):
            self.close(channel, str(error))
        else:
            log.exception("%s: channel failed", describe(channel))
            self.close(channel, f"channel failed: {error!r}")

    def _refuse(self, channel: KafkaChannel, error: InvalidRequestError) -> None:
        """Stop serving a channel that has sent an invalid frame. It is closed after the answers to earlier requests."""
        channel.receive.discard()
        if channel.state is _FINISHING:
            self._maybe_finish(channel)
        elif not self._selector.finish(channel, str(error), error.last_bytes):
            self._close_for(channel, str(error), error.last_bytes)

    def _close_for(self, channel: KafkaChannel, reason: str, last_bytes: bytes) -> None:
        self._selector.report(channel, reason)
        channel.last_bytes = last_bytes
        self._selector.send_last(channel)
        self.close(channel, reason)

    def proceed(self, channel: KafkaChannel) -> None:
        """Continue with a channel's received frames, and then with reading. A migrating channel waits instead."""
        if channel.migrating and channel.state is _READY:
            return
        if channel.receive.frames or channel.state is _CLOSING or channel.state is _FINISHING:
            self.advance(channel)
        if channel.state is not _CLOSED and channel.can_process:
            self._selector.resume(channel)

    def answered(self, request: PendingRequest) -> None:
        """Process the answer of a request that has come back from a handler, a delayed operation or a timer."""
        channel: KafkaChannel = request.channel
        self._count_handler_time(channel, request)
        if channel.state is _CLOSED or channel.in_flight is not request:
            self._pipeline.drop(request)
            return
        try:
            if request.result is GO_ON:
                self._pipeline.go_on(request)
            else:
                self._answer(channel, request)
        except Exception as error:
            self.fail(channel, error)

    def _count_handler_time(self, channel: KafkaChannel, request: PendingRequest) -> None:
        if request.inline or not request.local_end_ns:
            return
        handler_ns = request.local_end_ns - request.handler_start_ns
        channel.handler_ns += handler_ns
        if channel.state is _CLOSED:
            self._counts.usage.add(client_key(channel.connection), 0, handler_ns)

    def sent(self, channel: KafkaChannel) -> None:
        """Handle the end of a send that had to wait: its bytes were sent, or lost with the connection."""
        if channel.state is _CLOSING and channel.send is not None:
            channel.send = None
            self._end_sending(channel, RequestOutcome.LOST_AFTER)
        else:
            self._end_sending(channel, _ANSWERED)
        if channel.answering:
            channel.answering = False
            channel.response_sent()
        if channel.state is ChannelState.AUTHENTICATE:
            self.advance(channel)
        self.proceed(channel)

    def take_turns(self) -> None:
        """Continue with the channels that had more requests than one turn allows."""
        for _ in range(len(self.unfinished)):
            channel = self.unfinished.popleft()
            channel.waiting_for_turn = False
            self.proceed(channel)
            self._selector.charge(channel)

    # ---- requests

    def _serve(self, channel: KafkaChannel) -> None:
        """Serve received frames in order until one must wait; answers that are ready at once are sent together."""
        frames = channel.receive.frames
        out: list[bytes] = []
        served: list[PendingRequest] = []
        out_bytes = 0
        left = _FRAMES_A_TURN
        try:
            # `channel.can_process`, inlined: this runs for every request.
            while frames and channel.send is None and channel.mute_state is _NOT_MUTED:
                if not left or out_bytes > _JOIN_UP_TO_BYTES:
                    # Let other channels have their turn. `take_turns` continues with this channel.
                    channel.waiting_for_turn = True
                    self.unfinished.append(channel)
                    break
                left -= 1
                chunks = self._take_up(channel, frames.popleft(), served)
                if chunks is None:
                    continue
                head = chunks[0]
                if len(chunks) == 1 and isinstance(head, bytes):
                    out.append(head)
                    out_bytes += len(head)
                else:
                    ready: list[Chunk] = [*out, *chunks]
                    out, out_bytes = [], 0
                    sending, served = served, []
                    self._send(channel, ready, sending)
        finally:
            channel.requests += _FRAMES_A_TURN - left
            # In `finally`, so that earlier answers are sent even if a later request fails.
            if out:
                self._send(channel, [out[0] if len(out) == 1 else b"".join(out)], served)
        if channel.waiting_for_turn:
            self._selector.update_interest(channel)

    def _take_up(self, channel: KafkaChannel, frame: Buffer, served: list[PendingRequest]) -> list[Chunk] | None:
        """Start one request; return its answer if it is ready at once, else None."""
        connection = channel.connection
        throttles = self._listener.throttles
        network_ns = 0
        try:
            if channel.authenticator is not None:
                reply = self._authentication.intercept(channel, frame)
                if reply is not None:
                    channel.receive.release(len(frame))
                    return reply or None
            if throttles:
                network_ns, channel.network_ns = channel.network_ns, 0
            request, result = self._pipeline.submit(frame, channel, connection, self._selector.now_ns, network_ns)
        except BaseException:
            channel.receive.release(len(frame))
            raise
        if result is LATER:
            self._park(channel, request)
            return None
        channel.receive.release(len(frame))
        if request.context.throttle_time_ms:
            channel.on_mute_event(MuteEvent.MUTE)
            self._start_throttling(channel, request.context.throttle_time_ms)
        if result is NO_RESPONSE:
            self._pipeline.end((request,), RequestOutcome.NO_ANSWER)
            return None
        if request.received_ns:
            served.append(request)
        else:
            self._pipeline.end_untimed(request)
        return result  # type: ignore[return-value]

    def _park(self, channel: KafkaChannel, request: PendingRequest) -> None:
        """Let the channel wait for a request that is answered later. The channel's next request starts afterwards."""
        channel.request_received(request)

    def _send(self, channel: KafkaChannel, chunks: list[Chunk], answers_of: list[PendingRequest]) -> bool:
        """Send answers; return True if they were sent completely at once, else `sent` is called later."""
        if answers_of:
            channel.sending = [*channel.sending, *answers_of] if channel.sending else answers_of
        if channel.state is _CLOSING:
            close_chunks(chunks)
            self._end_sending(channel, RequestOutcome.LOST_AFTER)
            return True
        if throttled := self._listener.throttles:
            start_ns = self._clock.monotonic_ns()
        whole = self._selector.send(channel, chunks)
        if throttled:
            channel.network_ns += self._clock.monotonic_ns() - start_ns
        if whole and answers_of:
            self._end_sending(channel, _ANSWERED)
        return whole

    def _end_sending(self, channel: KafkaChannel, outcome: RequestOutcome) -> None:
        requests, channel.sending = channel.sending, None
        if requests:
            self._pipeline.end(requests, outcome)

    def _answer(self, channel: KafkaChannel, request: PendingRequest) -> None:
        request.dequeued_ns = self._clock.monotonic_ns() if request.received_ns else 0
        if request.context.throttle_time_ms:
            self._start_throttling(channel, request.context.throttle_time_ms)
        result = request.result
        channel.receive.release(request.size_bytes)
        if isinstance(result, CloseConnection):
            channel.in_flight = None
            self._pipeline.end((request,), RequestOutcome.FAILED)
            self._close_for(channel, result.reason, result.last_bytes)
            return
        if result is NO_RESPONSE:
            self._pipeline.end((request,), RequestOutcome.NO_ANSWER)
        else:
            channel.in_flight = None
            if not self._send(channel, result, [request]):  # type: ignore[arg-type]
                channel.answering = True
                return
        channel.response_sent()
        self.proceed(channel)

    def _start_throttling(self, channel: KafkaChannel, throttle_time_ms: int) -> None:
        channel.on_mute_event(MuteEvent.THROTTLE_STARTED)
        end = self._end_throttling
        self._scheduler.schedule(throttle_time_ms, lambda: self._call_soon(channel, end, channel))

    def _end_throttling(self, channel: KafkaChannel) -> None:
        if channel.state is not _CLOSED:
            channel.on_mute_event(MuteEvent.THROTTLE_ENDED)
            channel.maybe_unmute()
            self.proceed(channel)

    def resume_authentication_soon(self, channel: KafkaChannel) -> Callable[[], None]:
        """Return the function that a pending step of an authentication calls once, on any thread."""
        resume = self._authentication.resume
        return lambda: self._call_soon(channel, resume, channel)

    # ---- the end of a channel

    def close_later(self, channel: KafkaChannel, delay_ns: int, reply: list[Chunk]) -> None:
        """After the delay, send `reply` if it is not empty, and close the channel with its `close_reason`."""
        self.delayed_closes.add(self._selector.now_ns + delay_ns, channel, reply)

    def close_due(self, now_ns: int) -> None:
        """Send the replies to the channels whose delay is over, and close these channels."""
        while (due := self.delayed_closes.pop_due(now_ns)) is not None:
            channel, reply = due
            if reply and channel.state is not _CLOSED:
                try:
                    self._selector.send(channel, reply)
                except OSError:
                    log.debug("%s: the peer disconnected before its error response was sent", describe(channel))
                except Exception:
                    log.exception("%s: channel failed", describe(channel))
                self.delayed_closes.add_after_reply(now_ns, channel)
                continue
            self.close(channel, channel.close_reason)

    def close(self, channel: KafkaChannel, reason: str) -> None:
        """Close a channel in any state, end its requests and release its resources. A second call does nothing."""
        if channel.state is _CLOSED:
            return
        if channel.state in _SERVED and self._authentication.has_expired(channel):
            self._authentication.end_expired(channel)
            reason = SESSION_EXPIRED
        if channel.authenticator is not None:
            self._authentication.end_abandoned(channel)
        # The time of a client that closes its connection after each request must be counted too.
        self._selector.charge(channel)
        self._selector.close(channel)
        self._end_sending(channel, RequestOutcome.LOST_AFTER)
        if channel.in_flight is not None:
            channel.receive.release(channel.in_flight.size_bytes)
            self._pipeline.lose(channel.in_flight)
            channel.in_flight = None
        release_gates(self._listener, channel.gates, channel.accepted_from)
        self._counts.note_closed(channel.connection)
        self._counts.usage.add(client_key(channel.connection), channel.busy_ns, channel.handler_ns)
        if channel.transport.session_end:
            self._counts.note_ended(channel.transport.session_end)
        log.debug("%s: closed: %s", describe(channel), reason)
        if self._observers is not None:
            self._observers.closed(channel.connection, reason)
        self._connection_closed(channel.connection)

    def _maybe_finish(self, channel: KafkaChannel) -> None:
        if channel.has_requests or (channel.state is _FINISHING and channel.has_answers):
            return
        self._selector.send_last(channel)
        self.close(channel, channel.close_reason)
