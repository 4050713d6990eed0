"""`ChannelPump`: what a processor does for one channel: authenticate, serve, answer, close.

Runs on the processor's thread only. Whatever goes wrong here costs the channel it concerns and nothing else.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from klamm.api.api_set import LATER, NO_RESPONSE
from klamm.api.authentication import AuthenticationStep, AuthenticatorFactory
from klamm.api.context import RequestContext
from klamm.api.gates import ConnectionGate, Delay, Refuse
from klamm.api.transport import Buffer, HandshakeError
from klamm.logs.escaping import in_one_line
from klamm.metrics.connection_failures import ConnectionFailures
from klamm.metrics.connections import ConnectionCounts
from klamm.metrics.requests import RequestRecorder
from klamm.network.admission import describe_refusal
from klamm.network.authentication import intercept, with_sizes
from klamm.network.channel import ChannelState, KafkaChannel, MuteEvent, MuteState, describe
from klamm.network.selector import Selector
from klamm.network.send import Chunk, close_chunks
from klamm.requests.dispatcher import InvalidRequestError, RequestDispatcher
from klamm.requests.observers import RequestObservers
from klamm.requests.repeats import Repeats, Tally
from klamm.requests.request_channel import RequestChannel, Response, ResponseKind, WaitingRequests
from klamm.runtime.clock import Clock
from klamm.runtime.scheduler import Scheduler
from klamm.shared.principal import ANONYMOUS

if TYPE_CHECKING:
    from klamm.api.context import Address
    from klamm.network.processor import Processor

log = logging.getLogger("klamm.network")

_JOIN_UP_TO_BYTES: Final = 256 * 1024
_FRAMES_A_TURN: Final = 4096
_LAST_WORDS_NS: Final = 50_000_000
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
        observation: RequestObservers | None,
        failures: ConnectionFailures,
        failed_authentication_delay_ms: int,
        max_request_bytes: int,
        clock: Clock,
        counts: ConnectionCounts,
        recorder: RequestRecorder | None,
    ) -> None:
        self._clock = clock
        self._counts = counts
        self._processor = processor
        self._selector = selector
        self._scheduler = scheduler
        self._dispatcher = dispatcher
        self._recorder = recorder
        self._kept = dispatcher.kept
        self._find_kept = dispatcher.kept.find
        self._authenticators = authenticators
        self._observation = observation
        self._failures = failures
        self._repeats: Repeats | None = None
        if observation is not None and observation.repeats_after is not None:
            self._repeats = Repeats(observation, processor, observation.repeats_after)
            dispatcher.kept.note = self._note_kept
        self._tallies: Repeats | None
        self.time_requests(dispatcher.charged)
        self._failed_authentication_delay_ns = failed_authentication_delay_ms * 1_000_000
        self._max_request_bytes = max_request_bytes
        self._delayed_closes: list[tuple[int, int, KafkaChannel, list[Chunk]]] = []
        self._order = itertools.count()
        self.waiting_for_queue = WaitingRequests(request_channel, processor)
        self.unfinished: deque[KafkaChannel] = deque()

    def time_requests(self, each: bool) -> None:
        """Have each request timed, for who charges for them, or only those that observers ask for. From any thread."""
        self._tallies = None if each else self._repeats

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
        """A channel may go on: first with what it has received, then with reading. One that moves goes on elsewhere."""
        if channel.moving and channel.state is _READY:
            return
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
        if requests:
            self._completed(requests)
        if channel.answering:
            channel.answering = False
            channel.response_sent()
        if channel.state is ChannelState.AUTHENTICATE:
            self.advance(channel)
        self.proceed(channel)

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
                try:
                    self._selector.send(channel, reply)
                except OSError:
                    log.debug("%s: gone before its refusal", describe(channel))
                except Exception:
                    log.exception("%s: channel failed", describe(channel))
                # Some clients look at the end of a connection before what came ahead of it.
                heapq.heappush(self._delayed_closes, (now_ns + _LAST_WORDS_NS, next(self._order), channel, []))
                continue
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
        self._counts.note_closed(channel.connection)
        log.debug("%s: closed: %s", describe(channel), reason)
        if self._observation is not None:
            if self._repeats is not None:
                self._repeats.closed(channel, self._selector.now_ns)
            self._observation.closed(channel.connection, reason)

    def hand_over(self, channel: KafkaChannel) -> bool:
        """Let go of a channel that is quiet, for another processor; False if it is not."""
        if not self._selector.hand_over(channel):
            return False
        if self._repeats is not None:
            self._repeats.closed(channel, self._selector.now_ns)
        return True

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
            answer = self._find_kept(channel, frames[0])
            if answer is not None:
                channel.requests += 1
                channel.receive.release(len(frames.popleft()))
                if self._kept.sampled is None:
                    self._selector.send_at_once(channel, answer)
                else:
                    timed = self._sampled(channel, self._kept.sampled)
                    self._selector.send_at_once(channel, answer)
                    self._record(timed)
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
            channel.requests += _FRAMES_A_TURN - left
            sampled: RequestContext | None = None
            if self._kept.sampled is not None:
                sampled = self._sampled(channel, self._kept.sampled)
            # Also when a later request fails: what was answered before it goes out.
            if out:
                self._send(channel, [out[0] if len(out) == 1 else b"".join(out)], served)
            if sampled is not None:
                self._record(sampled)
        if channel.waiting_for_turn:
            self._selector.update_interest(channel)

    def _take_up(self, channel: KafkaChannel, frame: Buffer, served: list[RequestContext]) -> list[Chunk] | None:
        """Start one request; its answer, if that is there at once and is to be sent."""
        if channel.authenticator is not None:
            step = intercept(channel, frame, self._selector.now_ns, self._counts, self._observation)
            if step is not None:
                channel.receive.release(len(frame))
                return self._take_step(channel, step) or None
        answer = self._find_kept(channel, frame)
        if answer is not None:
            channel.receive.release(len(frame))
            return [answer]
        dispatcher, recorder = self._dispatcher, self._recorder
        request = dispatcher.parse(frame, channel.connection, self._processor)
        request.owner = channel
        if channel.connection.client_id is None:
            channel.connection.client_id = request.client_id
        tally: Tally | None = None
        tallies = self._tallies
        if tallies is not None:
            now_ns = self._selector.now_ns
            tally = channel.tallies.get(request.api_key)
            # `Repeats.tally`, spelled out for the usual case: this runs for every request.
            if (
                tally is not None
                and not tally.alone
                and tally.until_sample
                and now_ns < tally.end_ns
                and tally.client_id == request.client_id
            ):
                tally.until_sample -= 1
            else:
                tally = tallies.tally(channel, request.api_key, now_ns, request.client_id)
                if tally is None:
                    request.received_ns = now_ns
        elif dispatcher.timed:
            request.received_ns = self._selector.now_ns
            request.network_ns, channel.network_ns = channel.network_ns, 0
        if recorder is not None:
            count = request.handler.counts[request.api_version]
            until_sample = count.until_sample
            if until_sample < 1:
                request.weight = count.sample(count.count + 1, self._selector.now_ns)
                request.received_ns = self._selector.now_ns
                until_sample = count.until_sample
        if request.size_bytes > request.handler.inline_max_bytes:
            if tally is not None:
                request.received_ns = self._selector.now_ns
            elif recorder is not None and not request.received_ns:
                # For `note_slow`.
                request.handler_start_ns = self._selector.now_ns
            channel.request_received(request)
            self.waiting_for_queue.send(request)
            return None
        result = dispatcher.execute(request)
        if result is LATER:
            request.parked = True
            if tally is not None and not request.received_ns:
                request.received_ns = request.handler_start_ns = request.local_end_ns = self._selector.now_ns
            channel.request_received(request)
            if recorder is not None:
                # What waits for others is worth more than the looks at the clock.
                count.always()
            return None
        request.owner = None
        if recorder is not None:
            count.until_sample = until_sample - 1
            if request.errors is not None:
                recorder.count_errors(request.api_key, request.errors)
        channel.receive.release(request.size_bytes)
        if request.throttle_time_ms:
            channel.on_mute_event(MuteEvent.MUTE)
            self._start_throttling(channel, request.throttle_time_ms)
        if result is NO_RESPONSE:
            self._completed([request])
            return None
        if tally is not None and not request.error_code and not request.weight:
            if tally.count:
                tally.count += 1
                tally.request_bytes += request.size_bytes
                tally.response_bytes += request.response_bytes
                tally.last_ns = now_ns
            else:
                tally.begin(request, now_ns)
        elif request.weight or self._observation is not None:
            served.append(request)
        return result  # type: ignore[return-value]

    def _completed(self, requests: list[RequestContext]) -> None:
        if self._recorder is not None:
            self._recorder.completed(requests)
        if self._observation is not None:
            self._observation.completed(requests)

    def _sampled(self, channel: KafkaChannel, kept: RequestContext) -> RequestContext:
        """A request that was answered from kept answers, with its times."""
        self._kept.sampled = None
        size_bytes = kept.size_bytes
        request = RequestContext(
            channel.connection, self._processor, kept.api_key, kept.api_version, 0, kept.client_id, size_bytes
        )
        request.handler = kept.handler
        count = kept.handler.counts[kept.api_version]
        request.weight = count.sample(count.count, self._selector.now_ns)
        request.received_ns = self._selector.now_ns
        request.handler_start_ns = self._clock.monotonic_ns()
        return request

    def _record(self, sampled: RequestContext) -> None:
        """Observers, who count it among many, are not told of it."""
        assert self._recorder is not None
        self._recorder.completed([sampled])

    def _note_kept(self, channel: KafkaChannel, frame: Buffer, request: RequestContext) -> None:
        assert self._repeats is not None
        self._repeats.answered(channel, frame, request, self._selector.now_ns)

    def _send(self, channel: KafkaChannel, chunks: list[Chunk], served: list[RequestContext]) -> bool:
        if channel.state is _CLOSING:
            close_chunks(chunks)
            return True
        if not self._selector.send(channel, chunks):
            if served:
                channel.sending = [*channel.sending, *served] if channel.sending else served
            return False
        if served:
            self._completed(served)
        return True

    def _respond(self, channel: KafkaChannel, response: Response) -> None:
        kind, request = response.kind, response.request
        if kind is ResponseKind.ADMIT:
            if channel.state is not ChannelState.CLOSED:
                self._processor.admit(channel)
            return
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
        if self._recorder is not None and request is not None and kind is not ResponseKind.START_THROTTLING:
            self._recorder.answered(request)
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
        request.dequeued_ns = self._clock.monotonic_ns() if request.received_ns else 0
        if chunks is None:
            self._completed([request])
        elif not self._send(channel, chunks, [request]):
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
            self._counts.reauthenticated.add()
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
        if channel.connection.listener.security_protocol != "PLAINTEXT":
            self._counts.authenticated.add()
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

    def refuse(self, channel: KafkaChannel, refusal: Refuse | Delay) -> None:
        """A gate does not admit the client of a proxy: close, after the delay if there is one."""
        self._failures.count(refusal.reason)
        channel.close_reason = f"refused: {refusal.reason}"
        if self._observation is not None:
            self._observation.refused(channel.accepted_from, refusal.reason, describe_refusal(refusal))
        if isinstance(refusal, Refuse):
            log.info("%s: refused: %s %s", describe(channel), refusal.reason, refusal.detail)
            self.close(channel, channel.close_reason)
        else:
            self._close_later(channel, refusal.delay_ms * 1_000_000, [])

    def wait_for_admission(self, channel: KafkaChannel, delay_ms: int) -> None:
        """Ask the gates again after a while."""
        again = Response(ResponseKind.ADMIT, channel)
        self._scheduler.schedule(delay_ms, lambda: self._processor.enqueue(again))

    def give_up(self, channel: KafkaChannel) -> None:
        """Handshake and authentication have taken too long."""
        self._failures.count("timed_out")
        log.warning("%s: closing connection: not ready within connection_setup_timeout_ms", describe(channel))
        tell_gates(channel, ConnectionGate.authentication_failed.__name__)
        if self._observation is not None:
            reason = "not ready within connection_setup_timeout_ms"
            self._observation.authentication_failed(channel.connection, reason, again=False)
        self.close(channel, "not ready within connection_setup_timeout_ms")

    @staticmethod
    def _note_session(channel: KafkaChannel) -> None:
        assert channel.authenticator is not None
        channel.connection.principal = channel.authenticator.principal
        channel.session_expires_ns = channel.authenticator.session_expires_ns

    def _fail_authentication(self, channel: KafkaChannel, reason: str, reply: list[Chunk]) -> None:
        reason = in_one_line(reason)
        log.warning("%s: authentication failed: %s", describe(channel), reason)
        again = channel.state in (_READY, _CLOSING)
        (self._counts.failed_reauthentication if again else self._counts.failed_authentication).add()
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
        self._close_later(channel, self._failed_authentication_delay_ns, reply)

    def _close_later(self, channel: KafkaChannel, delay_ns: int, reply: list[Chunk]) -> None:
        due_ns = self._selector.now_ns + delay_ns
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
