"""`Acceptor`, which accepts connections, calls the gates, and gives each connection to a processor."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

from klamm.api.context import Address
from klamm.api.gates import ConnectionGate, Delay, Refuse
from klamm.logs.rate_limited import RateLimitedLog
from klamm.network.admission import call_gates, describe_refusal, release_gates
from klamm.network.balancer import BalancedProcessor, LoadBalancer
from klamm.network.inbox import NewConnection
from klamm.network.listening_sockets import AcceptQueue, AcceptTurns, ListeningSockets, accept_queue
from klamm.network.runtime import ListenerRuntime
from klamm.runtime.platform import PLATFORM
from klamm.runtime.rates import Rate
from klamm.shared.addresses import UNIX_HOST

log = logging.getLogger("klamm.network")

_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# None if the platform has no Unix domain sockets.
_AF_UNIX: Final = getattr(socket, "AF_UNIX", None)
_UNIX_PEER: Final = Address(UNIX_HOST, 0)
_DESCRIPTORS_PAUSE_MS: Final = 100
_FULL_PAUSE_MS: Final = 5
_GIVE_WAY_NS: Final = 1_000_000
_MAX_DELAYED: Final = 1000


class _Held:
    """An accepted connection without a processor, the gates that have admitted it, and the reasons for its waiting."""

    __slots__ = ("admitted", "peer", "socket", "waited_for")

    def __init__(self, sock: socket.socket, peer: Address) -> None:
        self.socket = sock
        self.peer = peer
        self.admitted: list[ConnectionGate] = []
        self.waited_for: set[str] = set()


class Acceptor:
    """Accepts the connections of one listener, like Kafka's `Acceptor`. A loop calls `accept_some`, which never waits.

    If the listener has one processor, the processor's loop calls `accept_some`, because a switch between threads costs
    more than accepting. If there are several, an `AcceptorThread` calls it.

    Kafka's acceptor waits for a gate's Delay, for a free descriptor, and for room in the processors' queues of new
    connections (KIP-402). This acceptor pauses instead: until `paused_until_ns` it accepts no connection, and peers
    wait in the system's backlog. `blocked_ns_until` returns the time of the pauses, `busy_ns` is the time spent on
    accepting.
    """

    def __init__(
        self, server_socket: socket.socket | ListeningSockets, runtime: ListenerRuntime, balancer: LoadBalancer
    ) -> None:
        self.name = runtime.name
        self._runtime = runtime
        self._socket = server_socket
        self._clock = runtime.clock
        self._balancer = balancer
        self.outcomes = runtime.outcomes
        self.accepted = 0
        self.descriptor_pauses = 0
        self.stopping = False
        self.paused_until_ns = 0
        self._paused_since_ns = 0
        self._blocked_ns = 0
        self.busy_ns = 0
        self._resume_requested = False
        self._turns = runtime.turns
        self._gave_way = False
        self._held: _Held | None = None
        # The connection whose gates are called now, and since when.
        self._calling: tuple[_Held, int] | None = None
        # Held by the loop that accepts. When the number of processors changes, another loop takes over.
        self._accepting = threading.Lock()
        self._place: Callable[[NewConnection], bool] = self._place_by_balancer
        self.wake: Callable[[], None] = _no_loop
        self._rate = Rate()
        # Protects the rate of accepted connections, because other threads read it for metrics.
        self._rate_lock = threading.Lock()
        self._limited_log = RateLimitedLog(log, runtime.scheduler.schedule)
        self._out_of_descriptors = False
        # Protects the refused sockets, which the scheduler's thread closes later.
        self._delayed_lock = threading.Lock()
        self._delayed_sockets: set[socket.socket] = set()
        server_socket.setblocking(False)

    @property
    def descriptor(self) -> int:
        """Return the descriptor of the listening socket."""
        return self._socket.fileno()

    def accept_queues(self) -> list[AcceptQueue]:
        """Return the system's queues of the listening sockets, if they are known. Any thread may call this."""
        server_socket = self._socket
        sockets = server_socket.sockets if isinstance(server_socket, ListeningSockets) else (server_socket,)
        return [queue for each in sockets if (queue := accept_queue(each)) is not None]

    @property
    def processors(self) -> Sequence[BalancedProcessor]:
        """Return the processors that get new connections."""
        return self._balancer.processors

    def running_gate(self, now_ns: int) -> tuple[int, int]:
        """Return the position of the gate that runs now, and for how many nanoseconds gates have run.

        The position is -1 if none runs. Any thread may call this.
        """
        calling = self._calling
        if calling is None:
            return -1, 0
        held, since_ns = calling
        return min(len(held.admitted), len(self._runtime.gates) - 1), max(0, now_ns - since_ns)

    def blocked_ns_until(self, now_ns: int) -> int:
        """Return the nanoseconds of all pauses, including a current one."""
        # This is an estimate: a pause that ends between the two reads counts twice, in this result alone.
        since_ns = self._paused_since_ns
        return self._blocked_ns + (max(0, now_ns - since_ns) if since_ns else 0)

    def accept_rate(self) -> float:
        """Return the accepted connections per second, over Kafka's default windows: the last eleven seconds."""
        with self._rate_lock:
            return self._rate.measure(self._clock.monotonic_ns() // 1_000_000)

    def run_in(self, wake: Callable[[], None], place: Callable[[NewConnection], bool] | None) -> None:
        """Set the loop that calls `accept_some` from now on. Any thread may call this.

        `wake` wakes the loop. `place` gets the connections; if it is None, the balancer chooses a processor for each.
        """
        with self._accepting:
            self.wake = wake
            self._place = place or self._place_by_balancer

    def resume(self) -> None:
        """End a pause for a gate, so that the gate is called again now. Any thread may call this."""
        self._resume_requested = True
        self.wake()

    def accept_some(self, limit: int) -> None:
        """Accept up to `limit` connections, unless the acceptor pauses."""
        with self._accepting:
            if not self._may_go_on():
                return
            start_ns = self._clock.monotonic_ns()
            for _ in range(limit):
                if self.stopping or not self._accept_one():
                    break
            self.busy_ns += self._clock.monotonic_ns() - start_ns

    def _accept_one(self) -> bool:
        """Accept a connection, or try again to place the connection that is held.

        Return False if no further connection can be accepted now.
        """
        held, self._held = self._held, None
        if held is None:
            if self._turns is not None and self._gives_way(self._turns):
                return False
            held = self._accept()
        return held is not None and self._admit_or_close(held)

    def _may_go_on(self) -> bool:
        if not self.paused_until_ns:
            return True
        now_ns = self._clock.monotonic_ns()
        if now_ns < self.paused_until_ns and not self._resume_requested:
            return False
        self._resume_requested = False
        if self._paused_since_ns:
            self._blocked_ns += now_ns - self._paused_since_ns
        self._paused_since_ns = self.paused_until_ns = 0
        return True

    def _pause(self, delay_ms: int) -> None:
        self._paused_since_ns = self._clock.monotonic_ns()
        self.paused_until_ns = self._paused_since_ns + delay_ms * 1_000_000

    def _gives_way(self, turns: AcceptTurns) -> bool:
        """Return True if this worker pauses now, so that a worker with fewer connections can accept.

        If no worker has accepted the connection at the end of the pause, this worker does.
        """
        self._gave_way = not self._gave_way and turns.is_over()
        if self._gave_way:
            # The pause does not count as blocked time, because no limit has caused it.
            self.paused_until_ns = self._clock.monotonic_ns() + _GIVE_WAY_NS
        return self._gave_way

    def _accept(self) -> _Held | None:
        try:
            sock, peer = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return None
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS:
                raise
            self.descriptor_pauses += 1
            if not self._out_of_descriptors:
                self._out_of_descriptors = True
                line = "listener=%s: accepting pauses: %s"
                self._limited_log.log("pauses", logging.ERROR, line, self.name, error.strerror)
            self._pause(_DESCRIPTORS_PAUSE_MS)
            return None
        if self._out_of_descriptors:
            self._out_of_descriptors = False
            self._limited_log.log("again", logging.WARNING, "listener=%s: accepting again", self.name)
        return _Held(sock, Address(peer[0], peer[1]) if type(peer) is tuple else _UNIX_PEER)

    def _admit_or_close(self, held: _Held) -> bool:
        """Place or refuse a connection, or return False to keep it during a pause."""
        try:
            refusal = self._call_gates(held)
            if isinstance(refusal, Delay) and refusal.pause_acceptor:
                self._hold(held, refusal.delay_ms)
                return False
            if refusal is not None:
                self._refuse(held, refusal)
                return True
            self._set_options(held.socket)
            if not self._place(NewConnection(held.socket, held.peer, tuple(held.admitted))):
                self._hold(held, _FULL_PAUSE_MS)
                return False
        except Exception:
            log.exception("listener=%s peer=%s: accepting failed", self.name, held.peer)
            release_gates(self._runtime.context, held.admitted, held.peer)
            held.socket.close()
            return True
        self.accepted += 1
        with self._rate_lock:
            self._rate.record(1, self._clock.monotonic_ns() // 1_000_000)
        return True

    def _hold(self, held: _Held, delay_ms: int) -> None:
        self._held = held
        self._pause(delay_ms)

    def _call_gates(self, held: _Held) -> Refuse | Delay | None:
        proxies = self._runtime.proxies
        if proxies is not None:
            if proxies.trusts(held.peer):
                # The gates decide about the client behind the proxy: the processor calls them when it has read the
                # client's address.
                return None
            if proxies.required:
                return Refuse("proxy_untrusted", "not one of trusted_proxies")
        if not self._runtime.gates:
            return None
        self._calling = held, self._clock.monotonic_ns()
        answer = call_gates(self._runtime.context, self._runtime.gates, held.peer, held.admitted)
        self._calling = None
        if isinstance(answer, Delay) and answer.pause_acceptor and answer.reason not in held.waited_for:
            held.waited_for.add(answer.reason)
            self.outcomes.count(answer)
        return answer

    def _refuse(self, held: _Held, refusal: Refuse | Delay) -> None:
        release_gates(self._runtime.context, held.admitted, held.peer)
        self._runtime.failures.count(refusal.reason)
        if self._runtime.observers is not None:
            self._runtime.observers.refused(held.peer, refusal.reason, describe_refusal(refusal))
        self.outcomes.count(refusal)
        if isinstance(refusal, Delay):
            self._close_later(held.socket, refusal.delay_ms)
        else:
            line = "listener=%s peer=%s: refused: %s %s"
            detail = self.name, held.peer, refusal.reason, refusal.detail
            self._runtime.failure_log.log(held.peer.host, logging.INFO, line, *detail)
            held.socket.close()

    def _close_later(self, sock: socket.socket, delay_ms: int) -> None:
        # The connection stays open and unserved for the delay, so that the peer cannot retry at once (KIP-612). The
        # number of such connections is limited, because thousands would use up all descriptors.
        with self._delayed_lock:
            if len(self._delayed_sockets) < _MAX_DELAYED:
                self._delayed_sockets.add(sock)
                self._runtime.scheduler.schedule(delay_ms, lambda: self._close_delayed(sock))
                return
        sock.close()

    def _close_delayed(self, sock: socket.socket) -> None:
        with self._delayed_lock:
            self._delayed_sockets.discard(sock)
        sock.close()

    def _set_options(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if not PLATFORM.accepted_inherit:
            set_connection_options(sock, self._runtime.limits.send_buffer_bytes)

    def _place_by_balancer(self, connection: NewConnection) -> bool:
        """Give a connection to the first of the balancer's processors that has room; return False if none has."""
        return any(processor.inbox.accept(connection) for processor in self._balancer.choose(connection.peer))

    def reopen(self, server_socket: socket.socket | ListeningSockets) -> None:
        """Use another listening socket. Called after `stop`."""
        server_socket.setblocking(False)
        with self._accepting:
            self._socket = server_socket
            self.stopping = False

    def stop(self) -> None:
        """Stop accepting, and close the listening socket. Called when no loop watches the socket any more."""
        self.stopping = True
        with self._accepting:
            held, self._held = self._held, None
            self._socket.close()
            self.wake = _no_loop
        if held is not None:
            log.info("listener=%s peer=%s: refused: stopping", self.name, held.peer)
            release_gates(self._runtime.context, held.admitted, held.peer)
            held.socket.close()
        with self._delayed_lock:
            delayed, self._delayed_sockets = self._delayed_sockets, set()
        for sock in delayed:
            sock.close()


def set_connection_options(sock: socket.socket, send_buffer_bytes: int) -> None:
    """Set the options of Kafka's connections. On Linux, accepted sockets inherit them from a listening socket."""
    if sock.family != _AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)


def _no_loop() -> None:
    """Do nothing: the function `wake` of an acceptor whose loop does not run."""
