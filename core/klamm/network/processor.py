"""`Processor`: the thread that owns connections: reads requests, writes responses, and runs what does not block."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from klamm.api.context import Address, ConnectionContext
from klamm.logs.rate_limited import RateLimitedLog
from klamm.network.channel import KafkaChannel, describe
from klamm.network.expiry import ChannelExpiry
from klamm.network.gate_calls import release_gates
from klamm.network.inbox import Inbox, NewConnection
from klamm.network.lifecycle import ChannelLifecycle
from klamm.network.migration import ChannelMigration
from klamm.network.poller import Waker, make_poller
from klamm.network.receive import NetworkReceive
from klamm.network.runtime import ListenerRuntime
from klamm.network.selector import Selector
from klamm.requests.ledger import RequestLedger
from klamm.requests.pending import PendingRequest
from klamm.requests.pipeline import RequestPipeline
from klamm.requests.request_channel import WaitingRequests
from klamm.requests.response_cache import ResponseCache

if TYPE_CHECKING:
    from klamm.network.proxy.admission import ProxyAdmission

log = logging.getLogger("klamm.network")

_POLL_S: Final = 0.3
_PAUSE_S: Final = 0.02
_SERVER_STOPS: Final = "server stops"


class Processor:
    """Runs Kafka's turn until drained; nothing that one channel does may stop it.

    Its own thread calls everything but what stands under "from other threads".
    """

    def __init__(self, index: int, runtime: ListenerRuntime) -> None:
        self.index = index
        self._runtime = runtime
        self._clock = runtime.clock
        self._waker = Waker(runtime.limits.poller)
        self.inbox = Inbox(self._waker, runtime.limits.max_incoming)
        self._selector = Selector(make_poller(runtime.limits.poller), self._waker, runtime)
        self._expiry = ChannelExpiry(runtime.limits, self._selector.channels, self._selector.setup.setting_up)
        ledger = RequestLedger(
            runtime.clock, runtime.context, runtime.new_recorder(), runtime.requests.slow_log, runtime.observers
        )
        cache = ResponseCache() if runtime.requests.may_cache else None
        self._pipeline = RequestPipeline(runtime.requests, ledger, cache, self._enqueue, self._deliver)
        self._waiting = WaitingRequests(runtime.request_channel, self.inbox.wakeup, self._pipeline.give_up)
        self._lifecycle = ChannelLifecycle(runtime, self._selector, self._pipeline, self.inbox.call_soon)
        self._migration = ChannelMigration(self._selector, self._lifecycle)
        self._proxied = self._proxy_admission()
        self._connection_index = itertools.count()
        self._configured_last = False
        self._balanced = False
        self._draining = False
        self._drain_deadline_ns = 0
        self._grace_end_ns = 0
        self._idle_ns = 0
        self._poll_begun_ns = 0
        self.created_ns = runtime.clock.monotonic_ns()
        self._turn_failures = RateLimitedLog(log, runtime.scheduler.schedule)
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"klamm-processor-{runtime.name}-{index}", daemon=True)

    def _proxy_admission(self) -> ProxyAdmission | None:
        if self._runtime.proxies is None:
            return None
        # Not for listeners without proxies: what takes time to load is start-up time.
        from klamm.network.proxy.admission import ProxyAdmission

        return ProxyAdmission(self._runtime, self._selector, self._lifecycle, self.inbox.call_soon, self._connection_id)

    # ---- from other threads

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def connection_count(self) -> int:
        """Connections it has or is about to have."""
        return len(self._selector.channels) + len(self.inbox.connections) + len(self.inbox.adopted)

    @property
    def channels(self) -> list[KafkaChannel]:
        """Its connections at this moment, to look at."""
        return list(self._selector.channels.values())

    @property
    def migrated_connections(self) -> int:
        """How many connections it has given to other processors."""
        return self._migration.migrated_connections

    def idle_ns_until(self, now_ns: int) -> int:
        """The time spent waiting, with the wait it may be in."""
        begun_ns = self._poll_begun_ns
        return self._idle_ns + (max(0, now_ns - begun_ns) if begun_ns else 0)

    @property
    def turn_ns(self) -> int:
        """When it last looked for something to do, on the monotonic clock."""
        return self._selector.now_ns

    @property
    def response_queue_size(self) -> int:
        """Responses that wait; the metric ResponseQueueSize."""
        return len(self.inbox.calls)

    def measure(self) -> None:
        """Count `busy_ns` of each channel from now on."""
        self._balanced = True

    def migrate(self, channel: KafkaChannel, target: Processor) -> None:
        """Have another processor take a channel over, once it is quiet; without effect if it closes before."""
        self._migration.request(channel, target)
        self.inbox.wakeup()

    def adopt(self, channel: KafkaChannel) -> bool:
        """Take a quiet channel over from another processor; False if this one has ended."""
        return self.inbox.adopt(channel)

    def retire(self, heirs: Sequence[Processor]) -> None:
        """Give all connections to `heirs`, in turns, as each becomes quiet, and end when none is left."""
        self.inbox.stop_accepting()
        self._migration.retire(heirs)
        self.inbox.wakeup()

    def close_least_recently_used(self) -> bool:
        """Close, in the next turn, the connection that can best be done without. False: there is none.

        Kafka's processors do so while there are more connections than `max.connections` (KIP-612).
        """
        return self.inbox.evict_one(len(self._selector.channels))

    def drain(self, deadline_ns: int, grace_end_ns: int) -> None:
        """Finish what is at hand and end: running requests until `deadline_ns`, parked ones until `grace_end_ns`."""
        self.inbox.stop_accepting()
        self._drain_deadline_ns = deadline_ns
        self._grace_end_ns = grace_end_ns
        self._draining = True
        self._waker.wake()

    @property
    def ended(self) -> bool:
        """Whether it has closed or given away all that it had."""
        return self.inbox.ended

    def join(self) -> None:
        """Wait for the thread's end."""
        self._thread.join()

    def _deliver(self, request: PendingRequest) -> None:
        self.inbox.call_soon(request.channel, self._lifecycle.answered, request)

    # ---- its own thread

    def _enqueue(self, request: PendingRequest) -> None:
        self._waiting.send(request)

    def _run(self) -> None:
        while not self._drained():
            try:
                self.run_once()
            except Exception as error:
                self._turn_failures.log(
                    type(error).__name__,
                    logging.ERROR,
                    "listener=%s processor=%d: turn failed",
                    self._runtime.name,
                    self.index,
                    error=error,
                )
                # The last net, so this is a bug; if it meets every turn, other threads still have the machine.
                self._pause.wait(_PAUSE_S)
        self._end()

    def _end(self) -> None:
        for channel in [*self._selector.channels.values(), *self._selector.closing]:
            self._lifecycle.close(channel, _SERVER_STOPS)
        while self.inbox.connections:
            sock, peer, gates = self.inbox.take_connection()
            sock.close()
            release_gates(self._runtime.name, gates, peer)
        self.inbox.end()
        for channel in self.inbox.adopted:
            self._lifecycle.close(channel, _SERVER_STOPS)
        self._pipeline.close()
        self._selector.close_all()
        self._waker.close()

    def run_once(self) -> None:
        """One turn, in the order of Kafka's `Processor.run`, but that new connections come last."""
        inbox = self.inbox
        self._selector.timed = self._balanced or bool(self._runtime.context.throttles)
        while inbox.adopted:
            self._adopt(inbox.adopted.popleft())
        if inbox.calls:
            self._process_calls()
        if self._migration.has_work:
            for channel in self._migration.step(self._adopt, draining=self._draining):
                self._expiry.forget(channel)
        if self._waiting:
            self._waiting.retry()
        self._poll()
        self._process_completed()
        if inbox.connections or self._selector.setup:
            self._set_up_one()
        self._close_excess_connections()
        if self._lifecycle.unfinished:
            self._lifecycle.take_turns()

    def _process_calls(self) -> None:
        calls = self.inbox.calls
        for _ in range(len(calls)):
            channel, callback, argument = calls.popleft()
            if self._balanced:
                begun_ns = self._clock.monotonic_ns()
                callback(argument)
                channel.busy_ns += self._clock.monotonic_ns() - begun_ns
            else:
                callback(argument)

    def _poll(self) -> None:
        timeout_s = _POLL_S
        if self._lifecycle.next_close_ns is not None:
            timeout_s = min(timeout_s, max(0.0, (self._lifecycle.next_close_ns - self._clock.monotonic_ns()) / 1e9))
        if self._draining:
            timeout_s = min(timeout_s, 0.01)
        # What is handed over from here on either wakes this thread or is seen below.
        self.inbox.going_to_sleep()
        selector = self._selector
        if (
            self.inbox.has_work
            or (self._waiting and self._waiting.has_room)
            or self._migration.requested
            or self._lifecycle.unfinished
            or selector.completed_receives
            or selector.failed_handshakes
            or selector.disconnected
            or selector.proxied
        ):
            timeout_s = 0.0
        begun_ns = self._poll_begun_ns = self._clock.monotonic_ns() if timeout_s else 0
        selector.poll(timeout_s)
        self.inbox.awake()
        if timeout_s:
            self._poll_begun_ns = 0
            self._idle_ns += selector.now_ns - begun_ns

    def _process_completed(self) -> None:
        selector, lifecycle = self._selector, self._lifecycle
        if selector.completed_receives:
            channels, selector.completed_receives = selector.completed_receives, []
            if self._balanced:
                self._advance_measured(channels)
            else:
                for channel in channels:
                    lifecycle.advance(channel)
        if selector.completed_sends:
            channels, selector.completed_sends = selector.completed_sends, []
            for channel in channels:
                try:
                    lifecycle.sent(channel)
                except Exception as error:
                    lifecycle.fail(channel, error)
        if selector.proxied and self._proxied is not None:
            self._proxied.process()
        if selector.failed_handshakes:
            failed, selector.failed_handshakes = selector.failed_handshakes, []
            for channel, cause in failed:
                lifecycle.authentication.fail_handshake(channel, cause)
        if selector.disconnected:
            channels, selector.disconnected = selector.disconnected, []
            for channel in channels:
                lifecycle.close(channel, channel.close_reason)

    def _advance_measured(self, channels: Sequence[KafkaChannel]) -> None:
        for channel in channels:
            begun_ns = self._clock.monotonic_ns()
            self._lifecycle.advance(channel)
            channel.busy_ns += self._clock.monotonic_ns() - begun_ns

    # ---- connections

    def _set_up_one(self) -> None:
        # One a turn: that takes as long as many requests, and connected clients must not wait for a crowd outside.
        # Kafka takes up to 20 new connections a turn, and every step that can be taken.
        setup = self._selector.setup
        self._configured_last = bool(self.inbox.connections) and not (self._configured_last and setup)
        if self._configured_last:
            self._configure(self.inbox.take_connection())
        else:
            setup.next_step()
            self._process_completed()

    def _configure(self, new: NewConnection) -> None:
        try:
            self._register(new)
        except Exception as error:
            level = logging.INFO if isinstance(error, OSError) else logging.ERROR
            log.log(level, "listener=%s peer=%s: connection failed: %r", self._runtime.name, new.peer, error)
            new.socket.close()
            release_gates(self._runtime.name, new.gates, new.peer)

    def _register(self, new: NewConnection) -> None:
        runtime, sock, peer = self._runtime, new.socket, new.peer
        name = sock.getsockname()
        local = Address(name[0], name[1])
        connection = ConnectionContext(
            self._connection_id(local, peer), runtime.context, local, peer, opened_ns=self._clock.monotonic_ns()
        )
        # Asked before a transport takes the socket over.
        descriptor = sock.fileno()
        proxies = runtime.proxies
        layer = runtime.transport.wrap(sock, peer) if proxies is None else proxies.layer(sock, peer)
        receive = NetworkReceive(runtime.max_first_bytes, runtime.pool)
        channel = KafkaChannel(descriptor, layer, connection, receive, new.gates, peer)
        if proxies is None:
            channel.admit(layer)
        try:
            self._selector.register(channel)
        except Exception:
            self._selector.close(channel)
            raise
        runtime.counts.created.add()

    def _connection_id(self, local: Address, peer: Address) -> str:
        return f"{local}-{peer}-{self.index}-{next(self._connection_index)}"

    def _adopt(self, channel: KafkaChannel) -> None:
        try:
            self._selector.adopt(channel)
        except Exception as error:
            # No other processor has it any more: nobody else would close it.
            self._lifecycle.close(channel, f"cannot be moved: {error!r}")

    def _close_excess_connections(self) -> None:
        now_ns, expiry, lifecycle = self._selector.now_ns, self._expiry, self._lifecycle
        lifecycle.close_due(now_ns)
        if self.inbox.evictions:
            self._evict(self.inbox.take_evictions())
        for channel in expiry.overdue(now_ns):
            lifecycle.authentication.time_out(channel)
        for channel in expiry.aged(now_ns):
            lifecycle.close(channel, "older than max_connection_age_ms")
        for channel in expiry.idle(now_ns):
            self._runtime.counts.idle_closed.add()
            lifecycle.close(channel, "idle for longer than connections.max.idle.ms")

    def _evict(self, count: int) -> None:
        for _ in range(count):
            channel = self._expiry.least_recently_used()
            if channel is None:
                return
            log.info("%s: closed to make room: least recently used", describe(channel))
            self._lifecycle.close(channel, "closed to make room")

    def _drained(self) -> bool:
        if not self._draining:
            return self._migration.retired and not self.connection_count and not self.inbox.calls
        self._selector.stop_reading()
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._drain_deadline_ns:
            return True
        for channel in (*self._selector.channels.values(), *self._selector.closing):
            request = channel.in_flight
            if channel.send is not None or (
                request is not None and not (request.parked and now_ns >= self._grace_end_ns)
            ):
                return False
        return not self.inbox.calls and not self.inbox.adopted and not self._waiting
