"""One listener: its socket, its parts, its acceptor and its processors."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from klamm.api.api_set import ApiHandler
from klamm.api.authentication import AuthenticatorFactory
from klamm.api.context import Address, ListenerContext, ServerServices
from klamm.api.dispatch import ProcessorAssigner
from klamm.api.gates import ConnectionGate
from klamm.api.observer import RequestObserver
from klamm.api.part import ListenerPart
from klamm.api.throttles import Throttle
from klamm.api.transport import Transport
from klamm.logs.rate_limited import RateLimitedLog
from klamm.logs.slow_requests import SlowLog
from klamm.metrics.connection_failures import DOC as FAILURES_DOC
from klamm.metrics.connection_failures import NAME as FAILURES_NAME
from klamm.metrics.connection_failures import ConnectionFailures
from klamm.metrics.connections import ConnectionCounts
from klamm.metrics.requests import RequestMetrics, RequestRecorder
from klamm.network.acceptor import Acceptor
from klamm.network.admission import GateOutcomes
from klamm.network.balancer import LoadBalancer
from klamm.network.handshake_offload import Handshakes
from klamm.network.memory_pool import MemoryPool
from klamm.network.poller import Waker, make_poller
from klamm.network.processor import Processor
from klamm.network.selector import Selector, TimedSelector
from klamm.requests.dispatcher import RequestDispatcher
from klamm.requests.observers import RequestObservers
from klamm.requests.request_channel import RequestChannel
from klamm.runtime.clock import Clock
from klamm.runtime.scheduler import Scheduler, Timer
from klamm.runtime.workers import Workers
from klamm.server.api_versions import ApiVersionsAnswerer, with_api_versions

if TYPE_CHECKING:
    from klamm.config.plan import ListenerPlan, PartPlan

log = logging.getLogger("klamm.server")


class BindError(Exception):
    """A listener's address cannot be had; the message names listener, host, port and cause."""


class PartError(Exception):
    """A part of a listener cannot open; the message names listener, class and cause."""


class Listener:
    """Built in phases, as the server's two-phase start asks: `bind`, `open_parts`, `start`; then `stop`, `close`."""

    def __init__(self, plan: ListenerPlan) -> None:
        self.plan = plan
        self.name = plan.name
        self.parts: list[ListenerPart] = []
        self.processors: list[Processor] = []
        self.retired: list[Processor] = []
        self.acceptor: Acceptor | None = None
        self.counts = ConnectionCounts()
        self._make_processor: Callable[[int], Processor]
        self._next_index = 0
        self._balancer: LoadBalancer
        self._balancing: Timer | None = None
        self._plans: list[PartPlan] = []
        self._throttles: tuple[Throttle, ...] = ()
        self._throttles_lock = threading.Lock()
        self._dispatcher: RequestDispatcher
        self._opened: list[ListenerPart] = []
        self._socket: socket.socket | None = None
        self._handshakers: Workers | None = None
        self.context: ListenerContext

    def bind(self, services: ServerServices) -> None:
        """Take the address. Connections queue up in the backlog from here on. Raises BindError."""
        settings = self.plan.settings
        host, port = self.plan.bind
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            if sys.platform != "win32":
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if settings.socket_receive_buffer_bytes > 0:
                # The window scale is agreed on at the handshake, so the listening socket must have it.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.socket_receive_buffer_bytes)
            self._socket.bind(address)
            self._socket.listen(settings.backlog)
        except OSError as error:
            self.close()
            raise BindError(f"listener {self.name}: cannot bind {host}:{port}: {error.strerror or error}") from error
        name = self._socket.getsockname()
        bound = Address(host or "0.0.0.0", name[1])  # noqa: S104
        self.context = ListenerContext(self.name, bound, self._advertised(bound), services=services)
        services.listeners[self.name] = self.context

    def _advertised(self, bound: Address) -> Address:
        if self.plan.advertise is not None:
            host, port = self.plan.advertise
            return Address(host, port or bound.port)
        if bound.host in ("0.0.0.0", "::"):  # noqa: S104
            return Address(socket.getfqdn(), bound.port)
        return bound

    def open_parts(
        self,
        handlers: Iterable[ApiHandler],
        *,
        clock: Clock,
        scheduler: Scheduler,
        request_channel: RequestChannel,
        pool: MemoryPool | None,
        request_metrics: RequestMetrics | None,
    ) -> None:
        """Make and open every part that the plan names, and the processors over them."""
        plan, settings = self.plan, self.plan.settings
        self.context.authorizer = self._part(plan.authorizer) if plan.authorizer else None
        transport: Transport = self._part(plan.transport)
        authenticators: AuthenticatorFactory | None = self._part(plan.authenticator) if plan.authenticator else None
        handlers = list(handlers)
        if authenticators is not None:
            served = {handler.api_key for handler in handlers}
            with self._needed(authenticators):
                handlers += [handler for handler in authenticators.handlers() if handler.api_key not in served]
        handlers = with_api_versions(handlers)
        self.context.answer_api_versions = ApiVersionsAnswerer(handlers)
        gates: tuple[ConnectionGate, ...] = tuple(self._part(part) for part in plan.gates)
        self._throttles = tuple(self._part(part) for part in plan.throttles)
        observers: tuple[RequestObserver, ...] = tuple(self._part(part) for part in plan.observers)
        assigner: ProcessorAssigner = self._part(plan.assigner)
        prefix = authenticators.security_protocol if authenticators is not None else ""
        self.context.transport = plan.transport.name
        self.context.security_protocol = prefix + transport.security_protocol
        for part in self.parts:
            with self._needed(part):
                part.open(self.context)
            self._opened.append(part)
        observation = RequestObservers(observers, clock) if observers else None
        self.context.throttles = self._active_throttles()
        dispatcher = self._dispatcher = RequestDispatcher(
            handlers,
            mode=settings.dispatch,
            clock=clock,
            throttles=self.context.throttles,
            observation=observation,
            authorized=self.context.authorizer is not None,
            failures=RateLimitedLog(logging.getLogger("klamm.requests"), scheduler.schedule),
        )
        slow_log = SlowLog(self.name, settings.slow_log, scheduler.schedule) if settings.slow_log else None
        failures = ConnectionFailures(self.name)
        self.context.services.metrics.register(FAILURES_NAME, "counter", FAILURES_DOC, failures.read)
        outcomes = GateOutcomes()
        proxies = None
        if settings.proxy_protocol != "off":
            # Not for those who have no proxy: what takes time to load is start-up time.
            from klamm.network.proxy.connections import TrustedProxies

            proxies = TrustedProxies(settings.trusted_proxies, outcomes, required=settings.proxy_protocol == "required")

        if transport.computes_handshake and settings.handshake_threads > 0:
            handshakers = self._handshakers = Workers(f"klamm-handshake-{self.name}", settings.handshake_threads)
            self.context.services.metrics.gauge(
                "klamm:type=Listener,name=WaitingHandshakes",
                "Connections whose next step of the handshake waits for a thread.",
                lambda: handshakers.waiting,
                listener=self.name,
            )

        def processor(index: int) -> Processor:
            recorder = None
            if request_metrics is not None:
                recorder = request_metrics.add(RequestRecorder(clock, dispatcher.served, slow_log))
            waker = Waker(settings.poller)
            handshakes = Handshakes(self._handshakers, waker) if self._handshakers is not None else None
            selector = (TimedSelector if self.context.throttles else Selector)(
                make_poller(settings.poller),
                waker,
                clock,
                idle_timeout_ns=settings.connections_max_idle_ms * 1_000_000,
                pool=pool,
                use_send_file=settings.send_file and hasattr(os, "sendfile"),
                failures=failures,
                setup_timeout_ns=settings.connection_setup_timeout_ms * 1_000_000,
                handshakes=handshakes,
            )
            return Processor(
                index,
                self.context,
                selector,
                waker,
                clock,
                scheduler,
                dispatcher,
                request_channel,
                transport=transport,
                authenticators=authenticators,
                observation=observation,
                failures=failures,
                gates=gates,
                proxies=proxies,
                pool=pool,
                max_incoming=settings.max_incoming,
                max_request_bytes=settings.socket_request_max_bytes,
                failed_authentication_delay_ms=settings.connection_failed_authentication_delay_ms,
                max_connection_age_ms=settings.max_connection_age_ms,
                counts=self.counts,
                recorder=recorder,
            )

        self._make_processor = processor
        self.processors = [processor(index) for index in range(settings.processors)]
        self._next_index = settings.processors
        self._balancer = LoadBalancer(self.name, assigner, clock)
        self._balancer.processors = self.processors
        with self._needed(assigner):
            rebalance_interval_ms = assigner.rebalance_interval_ms
        if rebalance_interval_ms > 0:
            self._balancing = scheduler.every(rebalance_interval_ms, self._balancer.tick)
        assert self._socket is not None
        self.acceptor = Acceptor(
            self.name,
            self._socket,
            make_poller(settings.poller),
            Waker(settings.poller),
            clock,
            scheduler,
            gates=gates,
            balancer=self._balancer,
            send_buffer_bytes=settings.socket_send_buffer_bytes,
            receive_buffer_bytes=settings.socket_receive_buffer_bytes,
            failures=failures,
            outcomes=outcomes,
            proxies=proxies,
            observation=observation,
        )
        self.context.throttles_changed = self._throttles_changed
        # One may have changed since it was opened.
        self._throttles_changed()
        self.context.resume_accepting = self.acceptor.resume
        self.context.close_least_recently_used = self._close_least_recently_used

    @contextlib.contextmanager
    def _needed(self, part: ListenerPart) -> Iterator[None]:
        """What a part raises here stops the start, in the part's name."""
        try:
            yield
        except Exception as error:
            log.debug("listener=%s: %r cannot open", self.name, part, exc_info=True)
            text = f"{type(part).__module__}.{type(part).__qualname__}: {str(error) or repr(error)}"
            self.context.services.emit_admin_event("plugin_failed", text, listener=self.name, failed=True)
            raise PartError(f"listener {self.name}: {text}") from error

    def _active_throttles(self) -> tuple[Throttle, ...]:
        return tuple(throttle for throttle in self._throttles if self._is_active(throttle))

    def _is_active(self, throttle: Throttle) -> bool:
        try:
            return throttle.active
        except Exception:
            log.exception("listener=%s: throttle %r failed", self.name, throttle)
            return True

    def _throttles_changed(self) -> None:
        with self._throttles_lock:
            throttles = self._active_throttles()
            self.context.throttles = throttles
            self._dispatcher.charge_to(throttles)
            for processor in self.all_processors:
                processor.charge_to(throttles)

    def _part(self, plan: Any) -> Any:
        part = plan.build()
        self.parts.append(part)
        self._plans.append(plan)
        return part

    def _close_least_recently_used(self) -> bool:
        fullest = max(self.all_processors, key=lambda processor: processor.connection_count)
        return fullest.close_least_recently_used()

    def start(self) -> None:
        """Serve."""
        for processor in self.processors:
            processor.start()
        assert self.acceptor is not None
        self.acceptor.start()

    def resize(self, count: int) -> None:
        """Have `count` processors. New connections go to all of them from now on; the connections of those that are too
        many go to the others, each at its next quiet point."""
        kept, surplus = self.processors[:count], self.processors[count:]
        for _ in range(count - len(kept)):
            # Never the index of one that may still be there: connection ids and metrics tell them apart by it.
            processor = self._make_processor(self._next_index)
            self._next_index += 1
            processor.start()
            kept.append(processor)
        self.retired = [processor for processor in self.retired if not processor.ended] + surplus
        self.processors = self._balancer.processors = kept
        # A new one may have missed a change.
        self._throttles_changed()
        for processor in surplus:
            processor.retire(kept)
        self.plan = replace(self.plan, settings=replace(self.plan.settings, processors=count))

    @property
    def all_processors(self) -> list[Processor]:
        """Those that take new connections, and those that have retired and still have some."""
        return [*self.processors, *(processor for processor in self.retired if not processor.ended)]

    def stop_accepting(self) -> None:
        """Close the door; connections that are in stay."""
        if self._balancing is not None:
            self._balancing.cancel()
        if self.acceptor is not None:
            self.acceptor.stop()

    def reload(self) -> list[str]:
        """Let every part read its files again; one line per part that could not."""
        problems = []
        for part in self._opened:
            try:
                part.reload()
            except Exception as error:
                log.exception("listener=%s: reload of %r failed", self.name, part)
                problems.append(f"listener {self.name}: {type(part).__name__}: {error}")
                self.context.services.emit_admin_event(
                    "config_reload_failed", f"{type(part).__name__}: {error}", listener=self.name, failed=True
                )
        return problems

    def reconfigure(self, plan: ListenerPlan) -> tuple[list[str], list[str]]:
        """Give parts the settings that they have in a new plan: who took them, and what went wrong.

        What was taken is in `self.plan` from then on; what is still different there counts from the next start.
        """
        taken, problems = [], []
        for index, (old, part) in enumerate(zip(self._plans, self.parts, strict=True)):
            new = plan.counterpart(old)
            if new is None or new == old or new.parts != old.parts:
                continue
            try:
                if not part.reconfigure(new.settings):
                    continue
            except Exception as error:
                log.exception("listener=%s: %r cannot take new settings", self.name, part)
                problems.append(f"[listeners.{self.name}.{old.name}] stays as it was: {error}")
                self.context.services.emit_admin_event(
                    "config_reload_failed", f"{old.name}: {error}", listener=self.name, failed=True
                )
                continue
            self._plans[index] = new
            self.plan = self.plan.with_part(old, new)
            taken.append(f"[listeners.{self.name}.{old.name}]")
        return taken, problems

    def close(self) -> None:
        """Close the parts and the socket; may follow any phase."""
        for part in reversed(self._opened):
            try:
                part.close()
            except Exception:
                log.exception("listener=%s: closing %r failed", self.name, part)
        self._opened.clear()
        if self._handshakers is not None:
            self._handshakers.close()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
