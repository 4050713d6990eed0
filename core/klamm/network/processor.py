"""`Processor`: the thread that owns connections: reads requests, writes responses, and runs what does not block."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from klamm.api.api_set import LATER, NO_RESPONSE
from klamm.api.authentication import AuthenticatorFactory
from klamm.api.context import Address, ConnectionContext, ListenerContext, RequestContext
from klamm.api.gates import ConnectionGate
from klamm.api.throttles import Throttle
from klamm.api.transport import Transport
from klamm.logs.rate_limited import RateLimitedLog
from klamm.metrics.connection_failures import ConnectionFailures
from klamm.metrics.connections import ConnectionCounts
from klamm.metrics.requests import SLOW_NS, RequestRecorder, note_slow
from klamm.network.channel import ChannelState, KafkaChannel, describe
from klamm.network.memory_pool import MemoryPool
from klamm.network.pump import ChannelPump, release_gates
from klamm.network.receive import NetworkReceive
from klamm.network.selector import Selector
from klamm.requests.dispatcher import InvalidRequestError, RequestDispatcher
from klamm.requests.observers import RequestObservers
from klamm.requests.request_channel import RequestChannel, Response, ResponseKind
from klamm.runtime.clock import Clock
from klamm.runtime.scheduler import Scheduler

if TYPE_CHECKING:
    from klamm.network.poller import Waker
    from klamm.network.proxy.connections import ProxyAdmission, TrustedProxies

log = logging.getLogger("klamm.network")

_POLL_S: Final = 0.3
_PAUSE_S: Final = 0.02


class Processor:
    """Runs Kafka's turn until drained; nothing that one channel does may stop it.

    Its own thread calls everything but `accept`, `adopt`, `move`, `retire`, `respond`, `close_connection`,
    `run_request`, `enqueue`, `wakeup`, and what starts and stops it.
    """

    def __init__(
        self,
        index: int,
        listener: ListenerContext,
        selector: Selector,
        waker: Waker,
        clock: Clock,
        scheduler: Scheduler,
        dispatcher: RequestDispatcher,
        request_channel: RequestChannel,
        *,
        transport: Transport,
        authenticators: AuthenticatorFactory | None,
        observation: RequestObservers | None,
        failures: ConnectionFailures,
        gates: tuple[ConnectionGate, ...],
        proxies: TrustedProxies | None,
        pool: MemoryPool | None,
        max_incoming: int,
        max_request_bytes: int,
        failed_authentication_delay_ms: int,
        max_connection_age_ms: int,
        counts: ConnectionCounts,
        recorder: RequestRecorder | None,
    ) -> None:
        self.index = index
        self.listener = listener
        self._counts = counts
        self._selector = selector
        self._waker = waker
        self._clock = clock
        dispatcher = dispatcher.for_processor(recorder)
        self._dispatcher = dispatcher
        self._transport = transport
        self._proxies = proxies
        self._pool = pool
        self._max_incoming = max_incoming
        limit = authenticators.max_receive_bytes if authenticators is not None else None
        self._max_first_bytes = max_request_bytes if limit is None else min(limit, max_request_bytes)
        self._pump = ChannelPump(
            self,
            selector,
            scheduler,
            dispatcher,
            request_channel,
            authenticators,
            observation,
            failures,
            failed_authentication_delay_ms,
            max_request_bytes,
            clock,
            counts,
            recorder,
        )
        self._proxied: ProxyAdmission | None = None
        if proxies is not None:
            self._proxied = proxies.admission(listener, gates, transport, selector, self._pump, self._connection_id)
        self._new_connections: deque[tuple[socket.socket, Address, tuple[ConnectionGate, ...]]] = deque()
        self._room = threading.Condition()
        self._adopted: deque[KafkaChannel] = deque()
        self._wanted_moves: deque[tuple[KafkaChannel, Processor]] = deque()
        self._moving: dict[KafkaChannel, Processor] = {}
        self._heirs: Sequence[Processor] = ()
        self._max_connection_age_ns = max_connection_age_ms * 1_000_000
        self._aged: set[KafkaChannel] = set()
        self._next_age_check_ns = 0
        self._ended = False
        self._responses: deque[Response] = deque()
        self._advance = self._pump.advance
        self._respond = self._pump.respond
        self._connection_index = itertools.count()
        self._evictions = 0
        self._sleeping = False
        self._accepting = True
        self._configured_last = False
        self._draining = False
        self._drain_deadline_ns = 0
        self._grace_end_ns = 0
        self.idle_ns = 0
        self._poll_begun_ns = 0
        self.created_ns = clock.monotonic_ns()
        self.moved_connections = 0
        self._turn_failures = RateLimitedLog(log, scheduler.schedule)
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"klamm-processor-{listener.name}-{index}", daemon=True)

    # ---- from other threads

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def connection_count(self) -> int:
        """Connections it has or is about to have."""
        return len(self._selector.channels) + len(self._new_connections) + len(self._adopted)

    @property
    def channels(self) -> list[KafkaChannel]:
        """Its connections at this moment, to look at."""
        return list(self._selector.channels.values())

    def idle_ns_until(self, now_ns: int) -> int:
        """The time spent waiting, with the wait it may be in."""
        begun_ns = self._poll_begun_ns
        return self.idle_ns + (max(0, now_ns - begun_ns) if begun_ns else 0)

    @property
    def turn_ns(self) -> int:
        """When it last looked for something to do, on the monotonic clock."""
        return self._selector.now_ns

    def measure(self) -> None:
        """Count `busy_ns` of each channel from now on."""
        self._selector.measuring = True
        self._advance = self._measured_advance
        self._respond = self._measured_respond

    def charge_to(self, throttles: tuple[Throttle, ...]) -> None:
        """Charge requests to these from now on; from any thread."""
        self._dispatcher.charge_to(throttles)
        self._pump.time_requests(bool(throttles))
        self._selector.time_channels(bool(throttles))

    @property
    def response_queue_size(self) -> int:
        """Responses that wait; the metric ResponseQueueSize."""
        return len(self._responses)

    def accept(self, sock: socket.socket, peer: Address, gates: tuple[ConnectionGate, ...], *, wait: bool) -> bool:
        """Take a connection over, if there is room in the queue of new ones or `wait` is set. False if not."""
        with self._room:
            while len(self._new_connections) >= self._max_incoming:
                if not wait or not self._accepting:
                    return False
                self._room.wait()
            if not self._accepting:
                return False
            self._new_connections.append((sock, peer, gates))
        self.wakeup()
        return True

    def move(self, channel: KafkaChannel, target: Processor) -> None:
        """Have another processor take a channel over, once it is quiet; nothing happens if it closes before."""
        self._wanted_moves.append((channel, target))
        self.wakeup()

    def adopt(self, channel: KafkaChannel) -> bool:
        """Take a quiet channel over from another processor; False if this one has ended."""
        with self._room:
            if self._ended:
                return False
            self._adopted.append(channel)
        self.wakeup()
        return True

    def retire(self, heirs: Sequence[Processor]) -> None:
        """Give all connections to `heirs`, in turns, as each becomes quiet, and end when none is left."""
        self.stop_accepting()
        self._heirs = heirs
        self.wakeup()

    def stop_accepting(self) -> None:
        """Refuse further connections, and let an acceptor that waits go."""
        with self._room:
            self._accepting = False
            self._room.notify_all()

    def close_least_recently_used(self) -> bool:
        """Close, in the next turn, the connection that can best be done without; from any thread. False: there is none.

        Kafka's processors do so while there are more connections than `max.connections` (KIP-612).
        """
        with self._room:
            if len(self._selector.channels) <= self._evictions:
                return False
            self._evictions += 1
        self.wakeup()
        return True

    def enqueue(self, response: Response) -> None:
        """Have a response processed in the next turn."""
        self._responses.append(response)
        self.wakeup()

    def wakeup(self) -> None:
        """Make a sleeping processor look around."""
        if self._sleeping:
            self._waker.wake()

    def respond(self, request: RequestContext, response: Any) -> None:
        """Answer a request that was put off; from any thread. See `RequestContext.respond`."""
        channel = self._disown(request)
        if channel is None:
            raise RuntimeError(f"correlation_id={request.correlation_id}: answered twice")
        try:
            result = self._dispatcher.complete(request, response)
        except InvalidRequestError as error:
            self.enqueue(Response(ResponseKind.CLOSE_CONNECTION, channel, request, reason=str(error)))
        else:
            self._enqueue_result(channel, request, result)

    def close_connection(self, request: RequestContext, reason: str) -> None:
        """Close the connection that a request came on; from any thread."""
        channel = self._disown(request)
        if channel is not None:
            self.enqueue(Response(ResponseKind.CLOSE_CONNECTION, channel, request, reason=reason))

    def run_request(self, request: RequestContext, begun_ns: int) -> int:
        """A handler thread's part: execute a queued request and hand the answer back. When the handler was through;
        `begun_ns` is when it was given the request."""
        channel: KafkaChannel = request.owner
        try:
            result = self._dispatcher.execute(request)
        except BaseException as error:
            request.owner = None
            self.enqueue(Response(ResponseKind.CLOSE_CONNECTION, channel, request, reason=str(error) or repr(error)))
            if not isinstance(error, InvalidRequestError):
                raise
            return self._clock.monotonic_ns()
        end_ns = self._clock.monotonic_ns()
        if result is LATER:
            request.parked = True
            return end_ns
        if end_ns - begun_ns >= SLOW_NS and not request.received_ns:
            note_slow(request, begun_ns, end_ns)
        request.owner = None
        self._enqueue_result(channel, request, result)
        return end_ns

    @staticmethod
    def _disown(request: RequestContext) -> KafkaChannel | None:
        channel: KafkaChannel | None = request.owner
        request.owner = None
        return channel

    def _enqueue_result(self, channel: KafkaChannel, request: RequestContext, result: Any) -> None:
        if request.throttle_time_ms:
            start = Response(ResponseKind.START_THROTTLING, channel, request, throttle_time_ms=request.throttle_time_ms)
            self._responses.append(start)
        if result is NO_RESPONSE:
            self.enqueue(Response(ResponseKind.NO_OP, channel, request))
        else:
            self.enqueue(Response(ResponseKind.SEND, channel, request, result))

    def drain(self, deadline_ns: int, grace_end_ns: int) -> None:
        """Finish what is at hand and end: running requests until `deadline_ns`, parked ones until `grace_end_ns`."""
        self.stop_accepting()
        self._drain_deadline_ns = deadline_ns
        self._grace_end_ns = grace_end_ns
        self._draining = True
        self._waker.wake()

    @property
    def ended(self) -> bool:
        """Whether it has closed or given away all that it had."""
        return self._ended

    def join(self) -> None:
        """Wait for the thread's end."""
        self._thread.join()

    # ---- its own thread

    def _run(self) -> None:
        while not self._drained():
            try:
                self.run_once()
            except Exception as error:
                self._turn_failures.log(
                    type(error).__name__,
                    logging.ERROR,
                    "listener=%s processor=%d: turn failed",
                    self.listener.name,
                    self.index,
                    error=error,
                )
                # The last net, so this is a bug; if it meets every turn, the others still have the machine.
                self._pause.wait(_PAUSE_S)
        for channel in list(self._selector.channels.values()):
            self._pump.close(channel, "server stops")
        while self._new_connections:
            sock, peer, gates = self._new_connections.popleft()
            sock.close()
            release_gates(gates, peer)
        with self._room:
            self._ended = True
        for channel in self._adopted:
            self._pump.close(channel, "server stops")
        self._selector.close_all()
        self._waker.close()

    def run_once(self) -> None:
        """One turn, in the order of Kafka's `Processor.run`; newcomers come last, one of them a turn."""
        if self._adopted:
            self._take_over()
        if self._responses:
            self._process_new_responses()
        if self._wanted_moves or self._moving or self._heirs:
            self._move_quiet_channels()
        if self._aged:
            self._close_aged_connections()
        if self._pump.waiting_for_queue:
            self._pump.waiting_for_queue.retry()
        self._poll()
        self._process_completed()
        if self._new_connections or self._selector.has_newcomers:
            self._serve_newcomer()
        self._close_excess_connections()
        if self._pump.unfinished:
            self._pump.take_turns()

    def _process_completed(self) -> None:
        selector = self._selector
        if selector.completed_receives:
            self._process_completed_receives()
        if selector.completed_sends:
            self._process_completed_sends()
        if selector.proxied and self._proxied is not None:
            self._proxied.process()
        if selector.failed_handshakes:
            self._process_failed_handshakes()
        if selector.disconnected:
            self._process_disconnected()

    def _serve_newcomer(self) -> None:
        # One a turn: that takes as long as many requests, and those who are in must not wait for a crowd outside.
        # Kafka takes up to 20 new connections a turn, and every step that can be taken.
        self._configured_last = bool(self._new_connections) and not (
            self._configured_last and self._selector.has_newcomers
        )
        if self._configured_last:
            self._configure_new_connection()
        else:
            self._selector.next_newcomer()
            self._process_completed()

    def _configure_new_connection(self) -> None:
        with self._room:
            sock, peer, gates = self._new_connections.popleft()
            self._room.notify()
        try:
            self._register(sock, peer, gates)
        except Exception as error:
            level = logging.INFO if isinstance(error, OSError) else logging.ERROR
            log.log(level, "listener=%s peer=%s: connection failed: %r", self.listener.name, peer, error)
            sock.close()
            release_gates(gates, peer)

    def _register(self, sock: socket.socket, peer: Address, gates: tuple[ConnectionGate, ...]) -> None:
        name = sock.getsockname()
        local = Address(name[0], name[1])
        connection_id = self._connection_id(local, peer)
        connection = ConnectionContext(connection_id, self.listener, local, peer, opened_ns=self._clock.monotonic_ns())
        receive = NetworkReceive(self._max_first_bytes, self._pool)
        proxies = self._proxies
        # Asked before a transport takes the socket over.
        descriptor = sock.fileno()
        layer = self._transport.wrap(sock, peer) if proxies is None else proxies.layer(sock, peer)
        channel = KafkaChannel(descriptor, layer, connection, receive, gates, peer)
        if proxies is None:
            channel.admit(layer)
        try:
            self._selector.register(channel)
        except Exception:
            self._selector.close(channel)
            raise
        self._counts.created.add()

    def _connection_id(self, local: Address, peer: Address) -> str:
        return f"{local}-{peer}-{self.index}-{next(self._connection_index)}"

    def admit(self, channel: KafkaChannel) -> None:
        """Let the client behind a proxy in, if the gates do."""
        assert self._proxied is not None
        self._proxied.admit(channel)

    def _take_over(self) -> None:
        for _ in range(len(self._adopted)):
            self._adopt(self._adopted.popleft())

    def _adopt(self, channel: KafkaChannel) -> None:
        try:
            self._selector.adopt(channel)
        except Exception as error:
            # No other processor has it any more: nobody else would close it.
            self._pump.close(channel, f"cannot be moved: {error!r}")

    def _move_quiet_channels(self) -> None:
        while self._wanted_moves:
            channel, target = self._wanted_moves.popleft()
            self._begin_move(channel, target)
        if self._heirs:
            for number, channel in enumerate(self.channels):
                if channel not in self._moving:
                    self._begin_move(channel, self._heirs[number % len(self._heirs)])
        for channel, target in list(self._moving.items()):
            if channel.state is not ChannelState.READY or self._draining:
                del self._moving[channel]
                channel.moving = False
                self._pump.proceed(channel)
            elif self._pump.hand_over(channel):
                del self._moving[channel]
                self._aged.discard(channel)
                channel.moving = False
                if target.adopt(channel):
                    self.moved_connections += 1
                else:
                    self._adopt(channel)

    def _begin_move(self, channel: KafkaChannel, target: Processor) -> None:
        if self._selector.channels.get(channel.descriptor) is channel and channel.state is ChannelState.READY:
            channel.moving = True
            self._moving[channel] = target

    def _close_aged_connections(self) -> None:
        for channel in list(self._aged):
            if channel.state is not ChannelState.READY:
                self._aged.discard(channel)
            elif channel.is_quiet and channel.receive.idle and not channel.receive.frames:
                self._aged.discard(channel)
                self._pump.close(channel, "older than max_connection_age_ms")

    def _process_new_responses(self) -> None:
        responses = self._responses
        for _ in range(len(responses)):
            self._respond(responses.popleft())

    def _measured_respond(self, response: Response) -> None:
        begun_ns = self._clock.monotonic_ns()
        self._pump.respond(response)
        response.channel.busy_ns += self._clock.monotonic_ns() - begun_ns

    def _measured_advance(self, channel: KafkaChannel) -> None:
        begun_ns = self._clock.monotonic_ns()
        self._pump.advance(channel)
        channel.busy_ns += self._clock.monotonic_ns() - begun_ns

    def _poll(self) -> None:
        timeout_s = _POLL_S
        if self._pump.next_close_ns is not None:
            timeout_s = min(timeout_s, max(0.0, (self._pump.next_close_ns - self._clock.monotonic_ns()) / 1e9))
        if self._draining:
            timeout_s = min(timeout_s, 0.01)
        self._sleeping = True
        # Whoever enqueues either sees that we sleep, or is seen here.
        selector = self._selector
        if (
            self._responses
            or self._new_connections
            or self._adopted
            or self._wanted_moves
            or self._pump.unfinished
            or selector.completed_receives
            or selector.failed_handshakes
            or selector.disconnected
            or selector.proxied
            or self._evictions
        ):
            timeout_s = 0.0
        begun_ns = self._poll_begun_ns = self._clock.monotonic_ns() if timeout_s else 0
        self._selector.poll(timeout_s)
        self._sleeping = False
        if timeout_s:
            self._poll_begun_ns = 0
            self.idle_ns += self._selector.now_ns - begun_ns

    def _process_completed_receives(self) -> None:
        channels, self._selector.completed_receives = self._selector.completed_receives, []
        for channel in channels:
            self._advance(channel)

    def _process_completed_sends(self) -> None:
        channels, self._selector.completed_sends = self._selector.completed_sends, []
        for channel in channels:
            try:
                self._pump.sent(channel)
            except Exception as error:
                log.exception("connection_id=%s: channel failed", channel.connection.connection_id)
                self._pump.close(channel, f"channel failed: {error!r}")

    def _process_disconnected(self) -> None:
        channels, self._selector.disconnected = self._selector.disconnected, []
        for channel in channels:
            self._pump.close(channel, channel.close_reason)

    def _process_failed_handshakes(self) -> None:
        failed, self._selector.failed_handshakes = self._selector.failed_handshakes, []
        for channel, error in failed:
            self._pump.fail_handshake(channel, error)

    def _close_excess_connections(self) -> None:
        self._pump.close_due(self._selector.now_ns)
        if self._evictions:
            self._evict()
        for channel in self._selector.overdue_channels():
            self._pump.give_up(channel)
        if self._max_connection_age_ns > 0:
            self._find_aged_connections()
        for channel in self._selector.idle_channels():
            self._counts.idle_closed.add()
            self._pump.close(channel, "idle for longer than connections.max.idle.ms")

    def _evict(self) -> None:
        with self._room:
            count, self._evictions = self._evictions, 0
        for _ in range(count):
            channel = self._selector.least_recently_used()
            if channel is None:
                return
            log.info("%s: closed to make room: least recently used", describe(channel))
            self._pump.close(channel, "closed to make room")

    def _find_aged_connections(self) -> None:
        now_ns = self._selector.now_ns
        if now_ns < self._next_age_check_ns:
            return
        self._next_age_check_ns = now_ns + min(1_000_000_000, self._max_connection_age_ns // 4)
        limit_ns = now_ns - self._max_connection_age_ns
        self._aged.update(c for c in self._selector.channels.values() if c.connection.opened_ns <= limit_ns)

    def _drained(self) -> bool:
        if not self._draining:
            return bool(self._heirs) and not self.connection_count and not self._responses
        self._selector.stop_reading()
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._drain_deadline_ns:
            return True
        for channel in self._selector.channels.values():
            request = channel.in_flight
            if channel.send is not None or (
                request is not None and not (request.parked and now_ns >= self._grace_end_ns)
            ):
                return False
        return not self._responses and not self._adopted and not self._pump.waiting_for_queue
