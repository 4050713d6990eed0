"""`ChannelPump`: what a processor does for one channel: authenticate, serve, answer, close.

Runs on the processor's thread only. Whatever goes wrong here costs the channel it concerns and nothing else.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from klamm.api_set import LATER, NO_RESPONSE
from klamm.context import RequestContext
from klamm.contracts import AuthenticationStep, AuthenticatorFactory, Buffer, ConnectionGate, HandshakeError
from klamm.network.authentication import intercept, with_sizes
from klamm.network.channel import ChannelState, KafkaChannel, MuteEvent, MuteState
from klamm.network.dispatcher import InvalidRequestError, RequestDispatcher
from klamm.network.failures import ConnectionFailures
from klamm.network.observation import Observation
from klamm.network.repeats import Repeats
from klamm.network.request_channel import RequestChannel, Response, ResponseKind
from klamm.network.selector import Selector, describe
from klamm.network.send import Chunk, close_chunks
from klamm.scheduler import Scheduler
from klamm.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from klamm.context import Address
    from klamm.network.processor import Processor

log = logging.getLogger("klamm.network")

_JOIN_UP_TO_BYTES: Final = 256 * 1024
_FRAMES_A_TURN: Final = 4096
# Looked up for every request; a global is faster than a member of an enum.
_READY: Final = ChannelState.READY
_CLOSING: Final = ChannelState.CLOSING
_NOT_MUTED: Final = MuteState.NOT_MUTED
_NOBODY: Final[list[RequestContext]] = []


class ChannelPump:
    """See the module. `unfinished` channels wait for their next turn, `waiting_for_queue` requests for a handler."""

    def __init__(
        self,
        processor: Processor,
        selector: Selector,
        scheduler: Scheduler,
        dispatcher: RequestDispatcher,
        request_channel: RequestChannel,
        authenticators: AuthenticatorFactory | None,
        observation: Observation | None,
        failures: ConnectionFailures,
        failed_authentication_delay_ms: int,
        max_request_bytes: int,
    ) -> None:
        self._processor = processor
        self._selector = selector
        self._scheduler = scheduler
        self._dispatcher = dispatcher
        self._find_kept = dispatcher.kept.find
        self._find_kept_with_request = dispatcher.kept.find_with_request
        self._request_channel = request_channel
        self._authenticators = authenticators
        self._observation = observation
        self._failures = failures
        self._repeats: Repeats | None = None
        if observation is not None and observation.repeats_after is not None:
            self._repeats = Repeats(observation, processor, observation.repeats_after)
        self._failed_authentication_delay_ns = failed_authentication_delay_ms * 1_000_000
        self._max_request_bytes = max_request_bytes
        self._delayed_closes: list[tuple[int, int, KafkaChannel, list[Chunk]]] = []
        self._order = itertools.count()
        self.waiting_for_queue: deque[RequestContext] = deque()
        self.unfinished: deque[KafkaChannel] = deque()

    def advance(self, channel: KafkaChannel) -> None:
        """Take up what a channel has received."""
        try:
            if channel.state is _READY:
                self._serve(channel)
            elif channel.state is ChannelState.AUTHENTICATE:
                self._authenticate(channel)
            elif channel.state is ChannelState.CLOSING:
                self._serve(channel)
                self._maybe_finish(channel)
        except InvalidRequestError as error:
            log.warning("%s: closing connection: %s", describe(channel), error)
            self.close(channel, str(error))
        except OSError as error:
            self.close(channel, str(error))
        except Exception as error:
            log.exception("%s: channel failed", describe(channel))
            self.close(channel, f"channel failed: {error!r}")

    def proceed(self, channel: KafkaChannel) -> None:
        """A channel may go on: first with what it has received, then with reading."""
        if channel.receive.frames or channel.state is ChannelState.CLOSING:
            self.advance(channel)
        if channel.state is not ChannelState.CLOSED and channel.can_process:
            self._selector.resume(channel)

    def respond(self, response: Response) -> None:
        """A response has come back from a handler, a delayed operation or a timer."""
        channel = response.channel
        try:
            self._respond(channel, response)
        except OSError as error:
            self.close(channel, str(error))
        except Exception as error:
            log.exception("%s: response failed", describe(channel))
            self.close(channel, f"response failed: {error!r}")

    def sent(self, channel: KafkaChannel) -> None:
        """A send that had to wait has gone out whole."""
        requests, channel.sending = channel.sending, None
        if self._observation is not None and requests:
            self._observation.completed(requests)
        if channel.answering:
            channel.answering = False
            channel.response_sent()
        if channel.state is ChannelState.AUTHENTICATE:
            self.advance(channel)
        self.proceed(channel)

    def retry_queue(self) -> None:
        """A handler may have made room in the request queue."""
        waiting = self.waiting_for_queue
        while waiting:
            channel: KafkaChannel | None = waiting[0].owner
            alive = channel is not None and channel.state is not ChannelState.CLOSED
            if alive and not self._request_channel.send_request(waiting[0], self._processor):
                return
            waiting.popleft()

    def take_turns(self) -> None:
        """Go on with the channels that had more to serve than one turn allows."""
        for _ in range(len(self.unfinished)):
            channel = self.unfinished.popleft()
            channel.waiting_for_turn = False
            self.proceed(channel)

    def close_due(self, now_ns: int) -> None:
        """Answer and close channels whose failed-authentication delay is over (KIP-306); tell of counted requests."""
        if self._repeats is not None:
            self._repeats.sweep(now_ns)
        while self._delayed_closes and self._delayed_closes[0][0] <= now_ns:
            _, _, channel, reply = heapq.heappop(self._delayed_closes)
            if reply and channel.state is not ChannelState.CLOSED:
                with contextlib.suppress(OSError):
                    self._selector.send(channel, reply)
            self.close(channel, channel.close_reason)

    @property
    def next_close_ns(self) -> int | None:
        """When `close_due` next has work."""
        return self._delayed_closes[0][0] if self._delayed_closes else None

    def close(self, channel: KafkaChannel, reason: str) -> None:
        """Close a channel and give back all it held; once, whatever state it is in."""
        if channel.state is ChannelState.CLOSED:
            return
        self._selector.close(channel)
        if channel.in_flight is not None:
            channel.receive.release(channel.in_flight.size_bytes)
        release_gates(channel.gates, channel.accepted_from)
        log.debug("%s: closed: %s", describe(channel), reason)
        if self._observation is not None:
            if self._repeats is not None:
                self._repeats.closed(channel)
            self._observation.closed(channel.connection, reason)

    # ---- requests

    def _serve(self, channel: KafkaChannel) -> None:
        """Serve received frames in order until one has to wait; answers that are there at once leave together."""
        frames = channel.receive.frames
        if (
            len(frames) == 1
            and channel.authenticator is None
            and channel.send is None
            and channel.mute_state is _NOT_MUTED
            and channel.state is _READY
        ):
            answer = self._find_kept(frames[0]) if self._repeats is None else self._repeat(channel, frames[0])
            if answer is not None:
                channel.receive.release(len(frames.popleft()))
                self._selector.send_at_once(channel, answer)
                return
        out: list[bytes] = []
        served: list[RequestContext] = []
        out_bytes = 0
        left = _FRAMES_A_TURN
        try:
            # `channel.can_process`, spelled out: this runs for every request.
            while frames and channel.send is None and channel.mute_state is _NOT_MUTED:
                if not left or out_bytes > _JOIN_UP_TO_BYTES:
                    # Let the others have their turn; what is unsent by then stops this channel.
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
                    self._send(channel, ready, served)
                    served = []
        finally:
            # Also when a later request fails: what was answered before it goes out.
            if out:
                self._send(channel, [out[0] if len(out) == 1 else b"".join(out)], served)
        if channel.waiting_for_turn:
            self._selector.update_interest(channel)

    def _take_up(self, channel: KafkaChannel, frame: Buffer, served: list[RequestContext]) -> list[Chunk] | None:
        """Start one request; its answer, if that is there at once and is to be sent."""
        if channel.authenticator is not None:
            step = intercept(channel, frame, self._selector.now_ns, self._observation)
            if step is not None:
                channel.receive.release(len(frame))
                return self._take_step(channel, step) or None
        answer = self._find_kept(frame) if self._repeats is None else self._repeat(channel, frame)
        if answer is not None:
            channel.receive.release(len(frame))
            return [answer]
        dispatcher = self._dispatcher
        request = dispatcher.parse(frame, channel.connection, self._processor)
        request.owner = channel
        if dispatcher.timed:
            request.received_ns = self._selector.now_ns
            request.network_ns, channel.network_ns = channel.network_ns, 0
        if request.size_bytes > request.handler.inline_max_bytes:
            channel.request_received(request)
            if self.waiting_for_queue or not self._request_channel.send_request(request, self._processor):
                self.waiting_for_queue.append(request)
            return None
        result = dispatcher.execute(request)
        if result is LATER:
            request.parked = True
            channel.request_received(request)
            return None
        request.owner = None
        channel.receive.release(request.size_bytes)
        if request.throttle_time_ms:
            channel.on_mute_event(MuteEvent.MUTE)
            self._start_throttling(channel, request.throttle_time_ms)
        if result is NO_RESPONSE:
            if self._observation is not None:
                self._observation.completed([request])
            return None
        if self._observation is not None:
            served.append(request)
        return result  # type: ignore[return-value]

    def _repeat(self, channel: KafkaChannel, frame: Buffer) -> bytes | None:
        """The kept answer to a frame, noted for the observers."""
        found = self._find_kept_with_request(frame)
        if found is None:
            return None
        assert self._repeats is not None
        self._repeats.note(channel, frame, found[1], self._selector.now_ns)
        return found[0]

    def _send(self, channel: KafkaChannel, chunks: list[Chunk], served: list[RequestContext]) -> bool:
        if channel.state is _CLOSING:
            close_chunks(chunks)
            return True
        if not self._selector.send(channel, chunks):
            if served:
                channel.sending = [*channel.sending, *served] if channel.sending else served
            return False
        if served and self._observation is not None:
            self._observation.completed(served)
        return True

    def _respond(self, channel: KafkaChannel, response: Response) -> None:
        kind, request = response.kind, response.request
        if kind is ResponseKind.END_THROTTLING:
            if channel.state is not ChannelState.CLOSED:
                channel.on_mute_event(MuteEvent.THROTTLE_ENDED)
                channel.maybe_unmute()
                self.proceed(channel)
            return
        if kind is ResponseKind.RESUME_AUTHENTICATION:
            if channel.state is ChannelState.CLOSING:
                self.close(channel, channel.close_reason)
            elif channel.state is not ChannelState.CLOSED:
                self._resume_authentication(channel)
            return
        if channel.state is ChannelState.CLOSED or request is None or channel.in_flight is not request:
            close_chunks(response.chunks or [])
        elif kind is ResponseKind.START_THROTTLING:
            self._start_throttling(channel, response.throttle_time_ms)
        elif kind is ResponseKind.CLOSE_CONNECTION:
            log.warning("%s: closing connection: %s", describe(channel), response.reason)
            self.close(channel, response.reason)
        else:
            channel.receive.release(request.size_bytes)
            self._answer(channel, request, response.chunks)

    def _answer(self, channel: KafkaChannel, request: RequestContext, chunks: list[Chunk] | None) -> None:
        observed: list[RequestContext] = []
        if self._observation is not None:
            request.dequeued_ns = self._selector.now_ns
            observed.append(request)
        if chunks is None:
            if self._observation is not None:
                self._observation.completed(observed)
        elif not self._send(channel, chunks, observed):
            channel.answering = True
            return
        channel.response_sent()
        self.proceed(channel)

    def _start_throttling(self, channel: KafkaChannel, throttle_time_ms: int) -> None:
        channel.on_mute_event(MuteEvent.THROTTLE_STARTED)
        end = Response(ResponseKind.END_THROTTLING, channel)
        self._scheduler.schedule(throttle_time_ms, lambda: self._processor.enqueue(end))

    # ---- the beginning and the end of a channel

    def _authenticate(self, channel: KafkaChannel) -> None:
        """Give what has been received to the authenticator, until it is complete or has to wait."""
        if channel.authenticator is None:
            channel.connection.transport_details = channel.transport.details
            if self._authenticators is None:
                channel.connection.principal = channel.transport.principal
                self._become_ready(channel)
                return
            channel.authenticator = self._authenticators.authenticator(channel.connection, channel.transport)
        authenticator, receive = channel.authenticator, channel.receive
        while not authenticator.complete:
            if not receive.frames or not channel.can_process:
                return
            frame = receive.frames.popleft()
            receive.release(len(frame))
            reply = self._take_step(channel, authenticator.receive(frame))
            if reply:
                self._selector.send(channel, reply)
        if channel.send is None:
            self._become_ready(channel)

    def _take_step(self, channel: KafkaChannel, step: AuthenticationStep) -> list[Chunk]:
        """Do what a step asks for, of a first authentication or a further one; what is to be sent at once."""
        reply = with_sizes(step.send)
        if step.failed is not None:
            self._failures.count("authentication_failed")
            self._fail_authentication(channel, step.failed, reply)
            return []
        if step.pending is not None:
            channel.on_mute_event(MuteEvent.MUTE)
            self._selector.update_interest(channel)
            resume = Response(ResponseKind.RESUME_AUTHENTICATION, channel)
            step.pending(lambda: self._processor.enqueue(resume))
        elif step.complete and channel.state is _READY:
            self._note_session(channel)
            if self._observation is not None:
                self._observation.authenticated(channel.connection, again=True)
        return reply

    def _resume_authentication(self, channel: KafkaChannel) -> None:
        assert channel.authenticator is not None
        channel.on_mute_event(MuteEvent.UNMUTE)
        reply = self._take_step(channel, channel.authenticator.resume())
        if reply:
            self._send(channel, reply, _NOBODY)
        if channel.state is ChannelState.AUTHENTICATE:
            self._authenticate(channel)
        self.proceed(channel)

    def _become_ready(self, channel: KafkaChannel) -> None:
        if channel.authenticator is not None:
            self._note_session(channel)
        channel.receive.max_size_bytes = self._max_request_bytes
        channel.move(_READY)
        self._selector.set_up(channel)
        tell_gates(channel, ConnectionGate.authenticated.__name__)
        if self._observation is not None:
            if channel.authenticator is not None or channel.connection.principal is not ANONYMOUS:
                self._observation.authenticated(channel.connection, again=False)
            self._observation.opened(channel.connection)
        if channel.receive.frames:
            self._serve(channel)

    def fail_handshake(self, channel: KafkaChannel, error: HandshakeError) -> None:
        """A handshake has failed. The peer gets what TLS has told it, and then the end, after the same delay as others.

        Kafka closes at once; the peer may then see a reset connection instead of the alert that says why.
        """
        self._failures.count(error.reason)
        self._fail_authentication(channel, str(error), [])

    def give_up(self, channel: KafkaChannel) -> None:
        """Handshake and authentication have taken too long."""
        self._failures.count("timed_out")
        log.warning("%s: closing connection: not ready within connection_setup_timeout_ms", describe(channel))
        tell_gates(channel, ConnectionGate.authentication_failed.__name__)
        self.close(channel, "not ready within connection_setup_timeout_ms")

    @staticmethod
    def _note_session(channel: KafkaChannel) -> None:
        assert channel.authenticator is not None
        channel.connection.principal = channel.authenticator.principal
        channel.session_expires_ns = channel.authenticator.session_expires_ns

    def _fail_authentication(self, channel: KafkaChannel, reason: str, reply: list[Chunk]) -> None:
        log.warning("%s: authentication failed: %s", describe(channel), reason)
        again = channel.state in (_READY, _CLOSING)
        if self._observation is not None:
            self._observation.authentication_failed(channel.connection, reason, again=again)
        if channel.state is _CLOSING:
            self.close(channel, channel.close_reason)
            return
        self._selector.set_up(channel)
        channel.move(ChannelState.AUTHENTICATION_FAILED)
        tell_gates(channel, ConnectionGate.authentication_failed.__name__)
        channel.close_reason = f"authentication failed: {reason}"
        channel.on_mute_event(MuteEvent.MUTE)
        self._selector.update_interest(channel)
        due_ns = self._selector.now_ns + self._failed_authentication_delay_ns
        heapq.heappush(self._delayed_closes, (due_ns, next(self._order), channel, reply))

    def _maybe_finish(self, channel: KafkaChannel) -> None:
        if not channel.receive.frames and channel.in_flight is None and not channel.waiting_for_turn:
            self.close(channel, channel.close_reason)


def tell_gates(channel: KafkaChannel, event: str) -> None:
    """Call the method `event` of every gate that admitted a channel."""
    for gate in channel.gates:
        try:
            getattr(gate, event)(channel.accepted_from)
        except Exception:
            log.exception("gate %r failed in %s of %s", gate, event, channel.accepted_from)


def release_gates(gates: tuple[ConnectionGate, ...], address: Address) -> None:
    """Tell every gate that admitted a connection that it is gone."""
    for gate in gates:
        try:
            gate.release(address)
        except Exception:
            log.exception("gate %r failed to release %s", gate, address)
