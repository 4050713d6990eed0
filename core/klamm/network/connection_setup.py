"""`ConnectionSetup`, which accepts and registers a processor's new connections, and takes their first steps."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
from collections.abc import Callable
from typing import Final

from klamm.api.context import Address, ConnectionContext
from klamm.network.acceptor import Acceptor
from klamm.network.admission import release_gates
from klamm.network.channel import KafkaChannel
from klamm.network.inbox import Inbox, NewConnection
from klamm.network.receive import NetworkReceive
from klamm.network.runtime import ListenerRuntime
from klamm.network.selector import Selector

log = logging.getLogger("klamm.network")

_ACCEPTS_A_TURN: Final = 4


class ConnectionSetup:
    """The set-up of connections on their processor's thread; other threads call only `listen` and `stop_listening`.

    A processor accepts connections itself only if its listener has no other processor. `wake` wakes the thread,
    `process_completed` serves channels that have become ready. `setup_ns` is the time that the thread has spent on
    set-up.
    """

    def __init__(
        self,
        index: int,
        runtime: ListenerRuntime,
        selector: Selector,
        inbox: Inbox,
        wake: Callable[[], None],
        process_completed: Callable[[], None],
    ) -> None:
        self._index = index
        self._runtime = runtime
        self._clock = runtime.clock
        self._selector = selector
        self._inbox = inbox
        self._wake = wake
        self._process_completed = process_completed
        self._connection_index = itertools.count()
        self._configured_last = False
        self.setup_ns = 0
        self._acceptor: Acceptor | None = None
        self._stopped_listening = threading.Event()
        self._stopped_listening.set()

    # ---- from any thread

    def listen(self, acceptor: Acceptor) -> None:
        """Accept connections as a step of the loop, from the next turn on. Any thread may call this."""
        acceptor.run_in(self._wake, self._take_over)
        self._acceptor = acceptor
        self._wake()

    def stop_listening(self, *, waits: bool = True) -> None:
        """Stop accepting, and wait until the listening socket may be closed.

        Another thread calls this while the loop runs. The loop's own thread calls it with `waits=False`.
        """
        self._stopped_listening.clear()
        self._acceptor = None
        if not waits:
            self.forget_listening()
        self._wake()
        self._stopped_listening.wait()

    # ---- on the processor's thread

    @property
    def paused_until_ns(self) -> int:
        """Return the end of the acceptor's pause; 0 if there is none."""
        acceptor = self._acceptor
        return acceptor.paused_until_ns if acceptor is not None else 0

    def step(self) -> None:
        """Accept a few connections, and take one step for one connection that is being set up."""
        inbox, selector = self._inbox, self._selector
        # Accept none until `close_connections` has been carried out, because it would close the new connections too.
        acceptor = None if inbox.is_closing_connections else self._acceptor
        if acceptor is not None:
            if selector.has_connections or acceptor.paused_until_ns or selector.listening < 0:
                self._accept(acceptor)
        elif not self._stopped_listening.is_set():
            self.forget_listening()
        if inbox.connections or selector.setup:
            self._set_up_one()

    def forget_listening(self) -> None:
        """Stop watching the listening socket, and let `stop_listening` return."""
        self._selector.stop_listening()
        self._stopped_listening.set()

    def connection_id(self, local: Address, peer: Address) -> str:
        """Return an id that no other connection of this listener has."""
        return f"{local}-{peer}-{self._index}-{next(self._connection_index)}"

    def _accept(self, acceptor: Acceptor) -> None:
        selector = self._selector
        if selector.listening < 0:
            selector.listen(acceptor.descriptor)
        selector.has_connections = False
        selector.charge_none()
        start_ns = selector.charged_until_ns
        # Only a few in each turn, so that connected clients do not wait. A channel without a handshake becomes READY in
        # the same turn.
        acceptor.accept_some(_ACCEPTS_A_TURN)
        selector.charge_none()
        self._process_completed()
        self.setup_ns += selector.charged_until_ns - start_ns
        selector.watch_listening(not acceptor.paused_until_ns)

    def _take_over(self, connection: NewConnection) -> bool:
        self._configure(connection)
        return True

    def _set_up_one(self) -> None:
        # Only one step in each turn, because a step takes as long as many requests, and connected clients must not
        # wait.
        selector, setup = self._selector, self._selector.setup
        selector.charge_none()
        start_ns = selector.charged_until_ns
        self._configured_last = bool(self._inbox.connections) and not (self._configured_last and setup)
        if self._configured_last:
            self._configure(self._inbox.take_connection())
            selector.charge_none()
        else:
            selector.charge(setup.next_step())
            self._process_completed()
        self.setup_ns += selector.charged_until_ns - start_ns

    def _configure(self, new: NewConnection) -> None:
        try:
            self._register(new)
        except Exception as error:
            level = logging.INFO if isinstance(error, OSError) else logging.ERROR
            log.log(level, "listener=%s peer=%s: connection failed: %r", self._runtime.name, new.peer, error)
            new.socket.close()
            release_gates(self._runtime.context, new.gates, new.peer)

    def _register(self, new: NewConnection) -> None:
        runtime, sock, peer = self._runtime, new.socket, new.peer
        local = _local_address(sock) or runtime.context.bound
        name, opened_ns = self.connection_id(local, peer), self._clock.monotonic_ns()
        connection = ConnectionContext(name, runtime.context, local, peer, opened_ns=opened_ns)
        # Read now, because the transport takes over the socket below.
        descriptor = sock.fileno()
        proxies = runtime.proxies
        layer = runtime.wrap(sock, peer) if proxies is None else proxies.header_layer(sock, peer)
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


def _local_address(sock: socket.socket) -> Address | None:
    """Return host and port of the socket; None for a Unix domain socket, which has neither."""
    name = sock.getsockname()
    return Address(*name[:2]) if isinstance(name, tuple) else None
