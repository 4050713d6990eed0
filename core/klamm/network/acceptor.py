"""`Acceptor`: one thread per listener that takes connections in and hands them to processors."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from klamm.api.context import Address
from klamm.api.gates import ConnectionGate, Delay, Refuse
from klamm.logs.rate_limited import RateLimitedLog
from klamm.network.admission import ask_gates, describe_refusal
from klamm.network.balancer import BalancedProcessor, LoadBalancer
from klamm.network.gate_calls import release_gates
from klamm.network.inbox import NewConnection
from klamm.network.poller import READ, Waker, make_poller
from klamm.network.runtime import ListenerRuntime
from klamm.runtime.rates import Rate

log = logging.getLogger("klamm.network")

_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S: Final = 0.1
_MAX_DELAYED: Final = 1000


class _StoppingError(Exception):
    """No processor takes connections any more."""


class Acceptor:
    """Accepts, asks the gates, and gives each connection to a processor.

    A processor whose queue of new connections is full is passed over; when all are, the acceptor waits on the last
    one it tried, as Kafka's does (KIP-402): the system's backlog then holds the peers up. `blocked_ns_until` counts
    that, the time for which gates have it wait, and the pauses while there are no descriptors (`descriptor_pauses`).

    What gates did is counted in `outcomes`.
    """

    def __init__(self, server_socket: socket.socket, runtime: ListenerRuntime, balancer: LoadBalancer) -> None:
        self.name = runtime.name
        self._runtime = runtime
        self._socket = server_socket
        self._poller = make_poller(runtime.limits.poller)
        self._waker = Waker(runtime.limits.poller)
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._balancer = balancer
        self._blocked_ns = 0
        self._blocked_since_ns = 0
        self.accepted = 0
        self.descriptor_pauses = 0
        self._rate = Rate()
        self._rate_lock = threading.Lock()
        self._limited_log = RateLimitedLog(log, runtime.scheduler.schedule)
        self.outcomes = runtime.outcomes
        self._delayed_sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._pause = threading.Event()
        self._resume = threading.Event()
        self._stopping = False
        self._out_of_descriptors = False
        self._thread = threading.Thread(target=self._run, name=f"klamm-acceptor-{runtime.name}", daemon=True)

    @property
    def processors(self) -> Sequence[BalancedProcessor]:
        """Who takes new connections."""
        return self._balancer.processors

    def blocked_ns_until(self, now_ns: int) -> int:
        """The time in which it could not accept, in nanoseconds, with the wait it may be in."""
        # A wait that ends between the two reads is left out once, rather than counted twice.
        since_ns = self._blocked_since_ns
        return self._blocked_ns + (max(0, now_ns - since_ns) if since_ns else 0)

    def accept_rate(self) -> float:
        """Connections taken in per second, over Kafka's default windows: the last eleven seconds."""
        with self._rate_lock:
            return self._rate.measure(self._clock.monotonic_ns() // 1_000_000)

    def start(self) -> None:
        """Begin to accept."""
        self._socket.setblocking(False)
        self._poller.register(self._socket.fileno(), READ)
        self._poller.register(self._waker.descriptor, READ)
        self._thread.start()

    def stop(self) -> None:
        """Accept no more, and close the listening socket."""
        self._stopping = True
        self._pause.set()
        self._resume.set()
        self._waker.wake()
        for processor in self.processors:
            processor.inbox.stop_accepting()
        if self._thread.is_alive():
            self._thread.join()
        self.close()

    def close(self) -> None:
        """Close what was opened; for an acceptor that never started, or has stopped."""
        with self._lock:
            delayed, self._delayed_sockets = self._delayed_sockets, set()
        for sock in delayed:
            sock.close()
        self._socket.close()
        self._poller.close()
        self._waker.close()

    def _run(self) -> None:
        while not self._stopping:
            try:
                if any(fd == self._socket.fileno() for fd, _ in self._poller.poll(60.0)):
                    self._accept_new_connections()
            except Exception:
                log.exception("listener=%s: accepting failed", self.name)
                self._pause.wait(_PAUSE_S)

    def _accept_new_connections(self) -> None:
        while not self._stopping:
            try:
                sock, peer = self._socket.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    raise
                self.descriptor_pauses += 1
                if not self._out_of_descriptors:
                    self._out_of_descriptors = True
                    line = "listener=%s: accepting pauses: %s"
                    self._limited_log.log("pauses", logging.ERROR, line, self.name, error.strerror)
                with self._blocked():
                    self._pause.wait(_PAUSE_S)
                return
            if self._out_of_descriptors:
                self._out_of_descriptors = False
                self._limited_log.log("again", logging.WARNING, "listener=%s: accepting again", self.name)
            try:
                self._take_in(sock, Address(peer[0], peer[1]))
            except _StoppingError:
                log.info("listener=%s peer=%s: refused: stopping", self.name, peer)
                sock.close()
            except Exception:
                log.exception("listener=%s peer=%s: taking a connection in failed", self.name, peer)
                sock.close()

    def _take_in(self, sock: socket.socket, peer: Address) -> None:
        admitted: list[ConnectionGate] = []
        try:
            refusal = self._ask_gates(peer, admitted)
            if refusal is None:
                self._set_options(sock)
                self._assign(sock, peer, tuple(admitted))
                self.accepted += 1
                with self._rate_lock:
                    self._rate.record(1, self._clock.monotonic_ns() // 1_000_000)
                return
        except BaseException:
            release_gates(self.name, admitted, peer)
            raise
        release_gates(self.name, admitted, peer)
        self._runtime.failures.count(refusal.reason)
        if self._runtime.observers is not None:
            self._runtime.observers.refused(peer, refusal.reason, describe_refusal(refusal))
        self.outcomes.count(refusal)
        if isinstance(refusal, Delay):
            self._close_later(sock, refusal.delay_ms)
        else:
            log.info("listener=%s peer=%s: refused: %s %s", self.name, peer, refusal.reason, refusal.detail)
            sock.close()

    def _close_later(self, sock: socket.socket, delay_ms: int) -> None:
        # Kept open and unserved for the delay, so that a peer that retries at once gains nothing (KIP-612). Those that
        # come by the thousand must not take all descriptors for it.
        with self._lock:
            if len(self._delayed_sockets) < _MAX_DELAYED:
                self._delayed_sockets.add(sock)
                self._scheduler.schedule(delay_ms, lambda: self._close_delayed(sock))
                return
        sock.close()

    def _close_delayed(self, sock: socket.socket) -> None:
        with self._lock:
            self._delayed_sockets.discard(sock)
        sock.close()

    def resume(self) -> None:
        """If it waits for a gate, ask that now; from any thread."""
        self._resume.set()

    def _ask_gates(self, peer: Address, admitted: list[ConnectionGate]) -> Refuse | Delay | None:
        if self._runtime.proxies is not None:
            if self._runtime.proxies.trusts(peer):
                # Not the proxy is asked for, but its client, whom the processor will hear of.
                return None
            if self._runtime.proxies.required:
                return Refuse("proxy_untrusted", "not one of trusted_proxies")
        waited_for: set[str] = set()
        while True:
            answer = ask_gates(self.name, self._runtime.gates, peer, admitted)
            if not isinstance(answer, Delay) or not answer.pause_acceptor:
                return answer
            if answer.reason not in waited_for:
                waited_for.add(answer.reason)
                self.outcomes.count(answer)
            with self._blocked():
                self._resume.wait(answer.delay_ms / 1000)
                self._resume.clear()
            if self._stopping:
                return Refuse("stopping")

    @contextmanager
    def _blocked(self) -> Iterator[None]:
        start_ns = self._blocked_since_ns = self._clock.monotonic_ns()
        try:
            yield
        finally:
            self._blocked_since_ns = 0
            self._blocked_ns += self._clock.monotonic_ns() - start_ns

    def _set_options(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._runtime.limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._runtime.limits.send_buffer_bytes)
        if self._runtime.limits.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._runtime.limits.receive_buffer_bytes)

    def _assign(self, sock: socket.socket, peer: Address, gates: tuple[ConnectionGate, ...]) -> None:
        processors = self.processors
        first = self._balancer.assign(peer)
        count = len(processors)
        connection = NewConnection(sock, peer, gates)
        for step in range(count):
            processor = processors[(first + step) % count]
            if processor.inbox.accept(connection, wait=False):
                return
        with self._blocked():
            accepted = processors[(first + count - 1) % count].inbox.accept(connection, wait=True)
        if not accepted and not self._stopping and processors is not self.processors:
            # It has retired meanwhile.
            self._assign(sock, peer, gates)
        elif not accepted:
            raise _StoppingError
