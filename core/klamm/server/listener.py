"""One listener: its socket, its parts, its acceptor and its processors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from klamm.api.api_set import ApiHandler, ApiSet
from klamm.api.context import ListenerContext, ServerServices
from klamm.api.part import ListenerPart
from klamm.logs.rate_limited import RateLimitedLog
from klamm.metrics.connections import DOC as FAILURES_DOC
from klamm.metrics.connections import NAME as FAILURES_NAME
from klamm.metrics.connections import ConnectionCounts, ConnectionFailures
from klamm.metrics.requests import RequestMetrics, RequestRecorder
from klamm.network.acceptor import Acceptor
from klamm.network.acceptor_thread import AcceptorLoop
from klamm.network.admission import GateOutcomes
from klamm.network.balancer import LoadBalancer, spread
from klamm.network.listening_sockets import AcceptTurns
from klamm.network.memory_pool import MemoryPool
from klamm.network.peer_failures import failure_log_of
from klamm.network.processor import Processor
from klamm.network.runtime import Limits, ListenerRuntime
from klamm.requests.api_versions import ApiVersionsAnswerer, with_api_versions
from klamm.requests.limits import DOC as LIMITED_DOC
from klamm.requests.limits import NAME as LIMITED_NAME
from klamm.requests.limits import RequestLimits, request_limits
from klamm.requests.listener_parts import RequestParts
from klamm.requests.observers import RequestObservers
from klamm.requests.request_channel import RequestChannel
from klamm.requests.routes import Readers, Routes
from klamm.requests.slow_requests import SlowLog
from klamm.runtime.clock import Clock
from klamm.runtime.scheduler import Scheduler, Timer
from klamm.runtime.workers import Workers
from klamm.server.listener_parts import ListenerParts
from klamm.server.listener_states import TRANSITIONS, ListenerEvent, ListenerState
from klamm.server.listening import ListeningSocket, advertised, as_one, duplicates, listen_at_all
from klamm.shared.features import Features

if TYPE_CHECKING:
    from klamm.api.authorizer import Authorizer
    from klamm.config.plan import ListenerPlan
    from klamm.config.server_settings import ListenerSettings
    from klamm.network.proxy.trust import TrustedProxies


log = logging.getLogger("klamm.server")

# A start imports only the modules that it needs; the others are imported after the start, one after the other.
_LOAD_AFTER_MS: Final = 500
_LOAD_EVERY_MS: Final = 5
_LOAD_AGAIN_MS: Final = 60_000


class Listener:
    """A listener with its socket, parts and threads.

    The server makes it, and starts it in phases: `bind`, `open_parts`, `start`; and stops it with `stop_accepting`,
    `drain`, `join`, `close`. `ListenerState` has the order. One thread at a time calls these methods. Any thread may
    read the properties, and call `go_offline` and `go_online`.
    """

    def __init__(self, plan: ListenerPlan, as_version: str | None = None) -> None:
        self._plan = plan
        self._as_version = as_version
        self.name = plan.name
        self.processors: list[Processor] = []
        self.retired: list[Processor] = []
        self.acceptor: Acceptor | None = None
        self._accepting: AcceptorLoop
        self.counts = ConnectionCounts()
        self._next_index = 0
        self.more_ports: Sequence[int] = ()
        self.topic_names: Callable[[bytes], str | None] | None = None
        self._balancer: LoadBalancer
        self._balancing: Timer | None = None
        self._parts: ListenerParts | None = None
        self.runtime: ListenerRuntime
        self._listening: ListeningSocket | None = None
        self._online = True
        self._state = ListenerState.NEW
        # Protects the port, because a test may close or open it while a reload removes the listener.
        self._port_lock = threading.Lock()
        self._handshakers: Workers | None = None
        self.context: ListenerContext

    @property
    def plan(self) -> ListenerPlan:
        """Return the plan in use."""
        return self._plan if self._parts is None else self._parts.plan

    @property
    def is_online(self) -> bool:
        """Return False after `go_offline`, until `go_online`."""
        return self._online

    def adopt(self, plan: ListenerPlan) -> None:
        """Use another plan. Called before `open_parts`."""
        self._plan = plan

    @property
    def parts(self) -> list[ListenerPart]:
        """Return all parts of this listener."""
        return [] if self._parts is None else self._parts.all

    def part(self, name: str) -> ListenerPart | None:
        """Return the part with that provider's name, or None if the listener has no such part."""
        return None if self._parts is None else self._parts.find(name)

    def filter_names(self, ids: Container[int]) -> list[str]:
        """Return the names of the filters whose objects have one of these `id`s, in the order of their calls."""
        filters = () if self._parts is None else self._parts.filters
        return [plan.name for plan, one in zip(self.plan.filters, filters, strict=True) if id(one) in ids]

    def bind(self, services: ServerServices, more_ports: Sequence[int], bound: Sequence[ListeningSocket] = ()) -> None:
        """Bind the address, and `more_ports` of the same host. From now on the system queues connections.

        `bound` are sockets that the parent of this process has already bound. Raises BindError.
        """
        self._listening = as_one(bound) if bound else listen_at_all(self.plan, more_ports)
        self.more_ports = more_ports
        address = self._listening.bound
        self.context = ListenerContext(
            self.name,
            address,
            advertised(self.plan, address),
            services=services,
            node=self.plan.node,
            configured_as=self.plan.configured_as,
            go_offline=self.go_offline,
            go_online=self.go_online,
            reads_requests=bool(self.plan.filters or self.plan.observers or self.plan.authorizer),
            api_set=self.plan.api_set,
        )
        self._take(ListenerEvent.BIND)

    def _take(self, event: ListenerEvent) -> None:
        self._state = TRANSITIONS[self._state, event]

    def duplicate_sockets(self) -> tuple[ListeningSocket, ...]:
        """Return duplicates of this listener's TCP sockets, for its successor; none while the listener is offline."""
        return duplicates(self._listening) if self._online and self._listening is not None else ()

    def open_parts(
        self,
        handlers: Iterable[ApiHandler],
        features: Features,
        api_set: ApiSet,
        *,
        clock: Clock,
        scheduler: Scheduler,
        request_channel: RequestChannel,
        pool: MemoryPool | None,
        request_metrics: RequestMetrics | None,
        described_api_set: str = "",
        turns: AcceptTurns | None = None,
    ) -> None:
        """Make and open all parts that the plan names, and make the processors. Raises PartError."""
        parts = self._parts = ListenerParts(self._plan, self.context)
        handlers = _complete(parts.with_authenticator_handlers(handlers), features, api_set, self._as_version)
        self.context.answer_api_versions = ApiVersionsAnswerer(handlers)
        parts.open(self.topic_names)
        limits = self._request_limits(parts)
        requests = replace(self._request_parts(parts, handlers, clock, scheduler, limits), api_set=described_api_set)

        def new_recorder() -> RequestRecorder | None:
            if request_metrics is None:
                return None
            always_timed = requests.slow_log.watches if requests.slow_log is not None else _never
            return request_metrics.add(RequestRecorder(requests.routes.served, always_timed))

        runtime = self.runtime = ListenerRuntime(
            context=self.context,
            limits=_limits(self.plan),
            clock=clock,
            scheduler=scheduler,
            transport=parts.transport,
            authenticators=parts.authenticators,
            gates=parts.gates,
            proxies=_trusted_proxies(self.plan.settings),
            requests=requests,
            request_channel=request_channel,
            pool=pool,
            handshakers=self._start_handshakers(parts),
            failures=self._connection_failures(),
            failure_log=failure_log_of(self.context, self.plan.settings.failure_log_lines_per_minute, scheduler),
            outcomes=GateOutcomes(),
            counts=self.counts,
            api_set=api_set,
            new_recorder=new_recorder,
            end_recorder=request_metrics.end if request_metrics is not None else None,
            turns=turns,
            threads=self.context.services.threads,
        )
        self._make_loops(parts, runtime)
        self.context.throttles_changed = parts.refresh_throttles
        # A throttle may have become active after it was opened.
        parts.refresh_throttles()
        self.context.close_least_recently_used = self._close_least_recently_used
        self._take(ListenerEvent.OPEN)

    def _make_loops(self, parts: ListenerParts, runtime: ListenerRuntime) -> None:
        # One after the other: if the system has too few descriptors for all, `close` releases those that were made.
        for index in range(self.plan.settings.processors):
            self.processors.append(Processor(index, runtime))
        self._next_index = len(self.processors)
        self._balance(parts, runtime.clock, runtime.scheduler)
        assert self._listening is not None
        self.acceptor = Acceptor(self._listening.socket, runtime, self._balancer)
        self.context.resume_accepting = self.acceptor.resume
        self._accepting = AcceptorLoop(self.acceptor, runtime)

    def _balance(self, parts: ListenerParts, clock: Clock, scheduler: Scheduler) -> None:
        self._balancer = LoadBalancer(self.name, parts.assigner, clock)
        self._balancer.processors = self.processors
        with parts.needed(parts.assigner):
            rebalance_interval_ms = parts.assigner.rebalance_interval_ms
        if rebalance_interval_ms > 0:
            self._balancing = scheduler.every(rebalance_interval_ms, self._balancer.tick)

    def _request_parts(
        self,
        parts: ListenerParts,
        handlers: Iterable[ApiHandler],
        clock: Clock,
        scheduler: Scheduler,
        limits: RequestLimits,
    ) -> RequestParts:
        settings, later = self.plan.settings, scheduler.schedule
        observers = None
        if parts.observers:
            observers = RequestObservers(parts.observers, self.context.failures)
        starts = observers.start_calls(parts.needed) if observers is not None else []
        authorizer = self.context.authorizer
        prepare = None
        if authorizer is not None:
            from klamm.requests.preparing import preparing

            prepare = preparing(cast("Authorizer", authorizer), self.context.topic_names(authorizer))
        return RequestParts(
            listener=self.context,
            routes=Routes(
                handlers,
                settings.dispatch,
                parts.filter_calls(),
                limits,
                starts,
                Readers(authorizer is not None, observers is not None, prepare),
            ),
            clock=clock,
            observers=observers,
            slow_log=SlowLog(self.name, settings.slow_log, later) if settings.slow_log else None,
            failures=RateLimitedLog(logging.getLogger("klamm.requests"), later),
            limits=limits,
        )

    def _request_limits(self, parts: ListenerParts) -> RequestLimits:
        settings = self.plan.settings
        limits = request_limits(
            self.name,
            socket_max_bytes=settings.socket_request_max_bytes,
            token_max_bytes=parts.authenticators.max_receive_bytes if parts.authenticators is not None else None,
            max_bytes=settings.request_max_bytes,
            max_elements=settings.request_max_elements,
            max_answer_bytes=settings.response_max_bytes,
        )
        self.context.max_answer_bytes = limits.max_answer_bytes
        self.context.services.metrics.register(LIMITED_NAME, "counter", LIMITED_DOC, limits.counts.read, self.name)
        return limits

    def _start_handshakers(self, parts: ListenerParts) -> Workers | None:
        threads = self.plan.settings.handshake_threads
        if not parts.transport.computes_handshake or threads <= 0:
            return None
        handshakers = self._handshakers = Workers(
            f"klamm-handshake-{self.name}", threads, self.context.services.threads
        )
        self.context.services.metrics.gauge(
            "klamm:type=Listener,name=WaitingHandshakes",
            "Connections whose next step of the handshake waits for a thread.",
            lambda: handshakers.waiting,
            listener=self.name,
        )
        return handshakers

    def _connection_failures(self) -> ConnectionFailures:
        failures = ConnectionFailures(self.name)
        self.context.services.metrics.register(FAILURES_NAME, "counter", FAILURES_DOC, failures.read, self.name)
        return failures

    def _close_least_recently_used(self) -> bool:
        fullest = max(self.all_processors, key=lambda processor: processor.connection_count)
        return fullest.close_least_recently_used()

    def start(self) -> None:
        """Start the processors and accept connections."""
        self._take(ListenerEvent.START)
        for processor in self.processors:
            processor.start()
        self._accepting.begin(self.processors)
        self.runtime.scheduler.schedule(_LOAD_AFTER_MS, self._load_next_api)

    def _load_next_api(self) -> None:
        if self._state is not ListenerState.SERVING:
            return
        # One at a time, so that timers and requests run in between.
        delay_ms = _LOAD_EVERY_MS
        try:
            if not self.runtime.requests.routes.load_one():
                return
        except Exception:
            log.warning("listener=%s: an API cannot be loaded; it is tried again", self.name, exc_info=True)
            delay_ms = _LOAD_AGAIN_MS
        self.runtime.scheduler.schedule(delay_ms, self._load_next_api)

    def go_offline(self) -> None:
        """Close the port and all connections; `go_online` opens the port again. The threads keep running."""
        with self._port_lock:
            if not self._online or self._state is not ListenerState.SERVING:
                return
            self._online = False
            self._close_port()
            for processor in self.all_processors:
                processor.close_connections()

    def _close_port(self) -> None:
        assert self.acceptor is not None
        self._accepting.pause()
        self.acceptor.stop()
        if self._listening is not None:
            self._listening.close()

    def go_online(self) -> None:
        """Open the port again, unless a reload has removed the listener. Raises BindError if it is taken."""
        with self._port_lock:
            if self._online or self.acceptor is None or self._state is not ListenerState.SERVING:
                return
            same = replace(self.plan, bind=(self.plan.bind[0], self.context.bound.port))
            self._listening = listen_at_all(same, self.more_ports)
            self._online = True
            self.acceptor.reopen(self._listening.socket)
            self._accepting.begin(self.processors)

    def resize(self, count: int) -> None:
        """Set the number of processors.

        Connections of removed processors migrate to the others, and some connections migrate to new processors. Each
        migrates when it has no request or response in flight. Raises RuntimeError or OSError if a thread cannot start,
        and then nothing has changed. Fewer processors are always possible.
        """
        kept, surplus = self.processors[:count], self.processors[count:]
        before = len(kept)
        started = self._start_processors(count - before)
        kept += started
        if (count == 1) != (len(self.processors) == 1):
            try:
                with self._port_lock:
                    self._accept_for(kept)
            except BaseException:
                _end(started)
                raise
        self.retired = [processor for processor in self.retired if not processor.ended] + surplus
        self.processors = self._balancer.processors = kept
        for processor in surplus:
            processor.retire(kept)
        spread(kept[:before], kept[before:])
        assert self._parts is not None
        self._parts.plan = replace(self.plan, settings=replace(self.plan.settings, processors=count))

    def _start_processors(self, count: int) -> list[Processor]:
        started: list[Processor] = []
        try:
            for _ in range(count):
                # Not the index of a processor that may still run, because connection ids and metrics contain the index.
                started.append(Processor(self._next_index, self.runtime))
                self._next_index += 1
                started[-1].start()
        except BaseException:
            _end(started)
            raise
        return started

    def _accept_for(self, processors: Sequence[Processor]) -> None:
        self._accepting.pause()
        if not self._online:
            return
        try:
            self._accepting.begin(processors)
        except BaseException:
            # A single processor accepted before. It does so without a thread, so it can start again.
            self._accepting.begin(self.processors)
            raise

    @property
    def all_processors(self) -> list[Processor]:
        """Return the processors that get new connections, and retired processors that still have connections."""
        return [*self.processors, *(processor for processor in self.retired if not processor.ended)]

    def stop_accepting(self) -> None:
        """Close the listening socket; open connections stay. Has no effect on a listener that has not started."""
        with self._port_lock:
            if self._state is not ListenerState.SERVING:
                return
            self._take(ListenerEvent.STOP_ACCEPTING)
            for processor in self.processors:
                processor.inbox.stop_accepting()
            self._close_port()

    def drain(self, deadline_ns: int, grace_end_ns: int) -> None:
        """End the processors: see `Processor.drain`. A second call may only bring the end forward."""
        for processor in self.all_processors:
            processor.drain(deadline_ns, grace_end_ns)

    def join(self) -> None:
        """Wait for the end of the processors."""
        for processor in self.all_processors:
            processor.join()

    def reload(self) -> list[str]:
        """Make every part read its files again; return one line for each part that failed."""
        return [] if self._parts is None else self._parts.reload()

    def reconfigure(self, plan: ListenerPlan) -> tuple[list[str], list[str]]:
        """Give parts their settings from a new plan; return the tables that were applied, and the problems."""
        return ([], []) if self._parts is None else self._parts.reconfigure(plan)

    def close(self) -> None:
        """Close the parts and the socket; may follow any phase but `start`."""
        # If a processor has not started, `join` ends it on this thread.
        self.drain(0, 0)
        self.join()
        self._take(ListenerEvent.CLOSE)
        if self._balancing is not None:
            self._balancing.cancel()
        if self._parts is not None:
            self._parts.close()
        if self._handshakers is not None:
            self._handshakers.close()
        if self._listening is not None:
            self._listening.close()


def _end(processors: Iterable[Processor]) -> None:
    """End processors without connections. If a processor has not started, `join` ends it on this thread."""
    for processor in processors:
        processor.drain(0, 0)
        processor.join()


def _complete(
    handlers: Iterable[ApiHandler], features: Features, api_set: ApiSet, release: str | None
) -> list[ApiHandler]:
    """Return the handlers, with one of ApiVersions, restricted to the APIs and versions of a release of Kafka."""
    if release is None:
        return with_api_versions(handlers, features, is_meant=api_set.is_meant)
    # Imported here, because few servers need it: the setting is for tests.
    from klamm.shared.features import limited
    from klamm.wire.releases import RELEASES

    return with_api_versions(
        handlers, features, RELEASES[release], lambda levels: limited(levels, release), api_set.is_meant
    )


def _trusted_proxies(settings: ListenerSettings) -> TrustedProxies | None:
    if settings.proxy_protocol == "off":
        return None
    # Imported here, because few listeners have proxies and the import slows the start.
    from klamm.network.proxy.trust import TrustedProxies

    return TrustedProxies(settings.trusted_proxies, required=settings.proxy_protocol == "required")


def _never(_: int) -> bool:
    return False


def _limits(plan: ListenerPlan) -> Limits:
    settings = plan.settings
    return Limits(
        max_incoming=settings.max_incoming,
        max_request_bytes=settings.socket_request_max_bytes,
        failed_authentication_delay_ms=settings.connection_failed_authentication_delay_ms,
        max_connection_age_ms=settings.max_connection_age_ms,
        connections_max_idle_ms=settings.connections_max_idle_ms,
        connection_setup_timeout_ms=settings.connection_setup_timeout_ms,
        send_buffer_bytes=settings.socket_send_buffer_bytes,
        use_send_file=settings.send_file,
        poller=settings.poller,
    )
