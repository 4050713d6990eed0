"""`SimulatedServer`: a server that runs in steps, whose order is drawn from a seed."""

from __future__ import annotations

import hashlib
import shutil
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from klamm.api.context import Address
from klamm.config.plan import ServerPlan
from klamm.network.poller import READ, Poller
from klamm.runtime.clock import ManualClock
from klamm.server.listening import ListeningSocket
from klamm.server.server import SocketServer
from klamm.testing.embedded import EmbeddedServer
from klamm.testing.raw_client import RawClient

_FIRST_PORT: Final = 50_000
_SIZE_BYTES: Final = 4
_LISTENING: Final = 1 << 30
"""The descriptor of the listening socket, which the system does not know."""
_MAX_JUMP_NS: Final = 1_000_000_000
_LOG_FILES: Final = frozenset({".log", ".index", ".timeindex", ".txnindex", ".snapshot"})
_SKIPPED: Final = 0.2
"""The share of the loops that a turn skips."""
_MAX_TURNS: Final = 100_000


class _OneTime:
    """Work that ends by itself. The next work of the same name starts when it has ended."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self.has_run = False

    def join(self, timeout_s: float | None = None, /) -> None:  # noqa: ARG002
        if not self.has_run:
            self.has_run = True
            self._run()


class _Work:
    """One loop of the server: its step, and the time at which the step is due."""

    def __init__(self, name: str, step: Callable[[], bool], due_ns: Callable[[], int | None] | None) -> None:
        self.name = name
        self.step = step
        self.due_ns = due_ns


class _Network:
    """Socket pairs instead of connections: bytes that one end has sent can be received at once at the other."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[socket.socket, tuple[str, int]]] = deque()
        self._ports = _FIRST_PORT

    def connect(self) -> socket.socket:
        """Return the client's end of a new connection, which waits to be accepted."""
        mine, other = socket.socketpair()
        self._waiting.append((other, ("127.0.0.1", self._ports)))
        self._ports += 1
        return mine

    @property
    def has_connections(self) -> bool:
        """Return True if a connection waits to be accepted."""
        return bool(self._waiting)

    # ---- the methods of a listening socket that an acceptor calls

    def setblocking(self, flag: bool) -> None:
        """Never block."""

    def fileno(self) -> int:
        return _LISTENING

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError
        return self._waiting.popleft()

    def close(self) -> None:
        """Close the waiting connections."""
        while self._waiting:
            self._waiting.popleft()[0].close()


class _Poller:
    """A poller that never waits, and returns ready descriptors in a random order."""

    def __init__(self, steps: Steps, poller: Poller) -> None:
        self._steps = steps
        self._poller = poller
        self._numbers: dict[int, int] = {}
        self._next_number = 0
        self._listens = False

    def register(self, descriptor: int, mask: int, /) -> None:
        if descriptor == _LISTENING:
            self._listens = bool(mask & READ)
            return
        self._poller.register(descriptor, mask)
        self._numbers[descriptor] = self._next_number
        self._next_number += 1

    def modify(self, descriptor: int, mask: int, /) -> None:
        if descriptor == _LISTENING:
            self._listens = bool(mask & READ)
        else:
            self._poller.modify(descriptor, mask)

    def unregister(self, descriptor: int, /) -> None:
        if descriptor == _LISTENING:
            self._listens = False
        else:
            self._poller.unregister(descriptor)

    def poll(self, _timeout_s: float, /) -> list[tuple[int, int]]:
        # In the order of registration, because the system's order and numbers depend on other work of the process.
        found = sorted(self._poller.poll(0), key=lambda event: self._numbers[event[0]])
        if self._listens and self._steps.network.has_connections:
            found.append((_LISTENING, READ))
        self._steps.has_found |= bool(found)
        self._steps.shuffle(found)
        return found

    def close(self) -> None:
        self._poller.close()


class Steps:
    """The server's `Threads`, without threads: one step after the other, in an order that is drawn from the seed.

    `trace` has a line for each step that did some work: the simulated time in ns, and the loop's name.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = ManualClock()
        self.network = _Network()
        self.trace: list[tuple[int, str]] = []
        self.has_found = False
        self._loops: dict[Callable[[], bool], _Work] = {}
        self._once: dict[str, deque[_OneTime]] = {}

    # ---- for the server

    def start(self, run: Callable[[], object], name: str) -> _OneTime:
        made = _OneTime(run)
        queue = self._once.get(name)
        if queue is None:
            queue = self._once[name] = deque()
            self.start_loop(run, lambda: self._run_once(queue), name)
        queue.append(made)
        return made

    def start_loop(
        self,
        run: Callable[[], object],  # noqa: ARG002
        step: Callable[[], bool],
        name: str,
        due_ns: Callable[[], int | None] | None = None,
    ) -> None:
        self._loops.setdefault(step, _Work(name, step, due_ns))

    def watch(self, poller: Any) -> Any:
        return _Poller(self, poller)

    def shuffle(self, items: list[Any], /) -> None:
        self.random.shuffle(items)

    @staticmethod
    def _run_once(queue: deque[_OneTime]) -> bool:
        if not queue:
            return False
        queue.popleft().join()
        return True

    # ---- for the simulation

    def forget(self) -> None:
        """Forget all loops, because their server has ended."""
        self._loops.clear()
        self._once.clear()

    def turn(self) -> bool:
        """Run a step of each loop, in a random order; return False if no loop had work."""
        loops = list(self._loops.values())
        self.shuffle(loops)
        skipped = [work for work in loops if self.random.random() < _SKIPPED]
        busy = [self._step(work) for work in loops if work not in skipped]
        # If a loop was skipped, there may be more work.
        return any(busy) or any(self._step(work) for work in skipped)

    def _step(self, work: _Work) -> bool:
        self.has_found = False
        found = work.step() or self.has_found
        if found:
            self.trace.append((self.clock.monotonic_ns(), work.name))
        return found

    def run_until_idle(self, is_done: Callable[[], bool] = lambda: False) -> bool:
        """Run turns without moving the time, until no loop has work or `is_done()` is True. Return `is_done()`.

        Raises RuntimeError if the work does not end.
        """
        for _ in range(_MAX_TURNS):
            if is_done():
                return True
            if not self.turn():
                return is_done()
        names = ", ".join(sorted({name for _moment_ns, name in self.trace[-100:]}))
        raise RuntimeError(f"the server does not come to rest at this moment (seed {self.seed}): {names}")

    def jump(self, until_ns: int) -> None:
        """Move the time to the next due timer, but not beyond `until_ns`, and by at most a second."""
        now_ns = self.clock.monotonic_ns()
        due = [work.due_ns() for work in self._loops.values() if work.due_ns is not None]
        next_ns = min([until_ns, now_ns + _MAX_JUMP_NS, *(each for each in due if each is not None)])
        self.clock.advance_ms(max(0, next_ns - now_ns) / 1_000_000)


class SimulatedClient(RawClient):
    """A client that runs the server's steps while it waits; `timeout_s` is in simulated time."""

    def __init__(self, server: SimulatedServer, *, timeout_s: float = 30.0, client_id: str | None = "raw") -> None:
        super().__init__(server.steps.network.connect(), timeout_s=timeout_s, client_id=client_id)
        self.socket.setblocking(False)
        self._server = server
        self._timeout_s = timeout_s

    def send_bytes(self, data: bytes) -> None:
        """Send bytes unchanged."""
        sent = 0
        while sent < len(data):
            sent += self._waited(partial(self.socket.send, data[sent:]))

    def has_frame(self) -> bool:
        """Return True if `receive` would return at once. Raises ConnectionError if the connection is closed."""
        while not self._holds_frame():
            try:
                data = self.socket.recv(65536)
            except BlockingIOError:
                return False
            if not data:
                raise ConnectionError("closed by the server")
            self._server.note(data)
            self._buffer += data
        return True

    def _holds_frame(self) -> bool:
        size_bytes = int.from_bytes(self._buffer[:_SIZE_BYTES], "big")
        return len(self._buffer) >= _SIZE_BYTES + size_bytes

    def _received(self, count: int) -> bytes:
        data: bytes = self._waited(lambda: self.socket.recv(count))
        self._server.note(data)
        return data

    def _waited(self, call: Callable[[], Any]) -> Any:
        found: list[Any] = []

        def is_done() -> bool:
            try:
                found.append(call())
            except BlockingIOError:
                return False
            return True

        if not self._server.run_until(is_done, self._timeout_s):
            raise TimeoutError(f"no answer in {self._timeout_s:g} simulated seconds (seed {self._server.seed})")
        return found[0]


def _require_simulable(plan: ServerPlan) -> None:
    listener = plan.listeners[0]
    for name, is_wrong in (
        ("listeners: more than one", len(plan.listeners) > 1),
        (f"listeners.{listener.name}.transport other than the default", not listener.transport.found.provider.default),
        ("nodes above 1", bool(plan.more_ports(listener.api_set))),
        ("server.extensions", bool(plan.extensions)),
    ):
        if is_wrong:
            raise ValueError(f"a simulated server cannot have {name}")


class SimulatedServer:
    """A server whose runs can be repeated: `with SimulatedServer(seed=7) as server: client = server.connect()`.

    The server has no threads. Handlers, timers, answers, and writes of log and metadata are steps on the caller's
    thread. They run while a client waits, or in `run_ms`. When there is no work, the server's clock jumps to the next
    timer. The order of steps and arrivals, ids and random bytes are drawn from `seed`.

    `settings` are those of `EmbeddedServer`. `server` is the server itself, `steps` draws its steps, and `trace` has
    all steps, so that two runs can be compared. The server has one plaintext listener, one node and no extensions.
    Raises ValueError for other settings.
    """

    def __init__(self, settings: Sequence[str] = (), *, seed: int, data_dir: Path | str | None = None) -> None:
        self.seed = seed
        self.steps = Steps(seed)
        self._plan = EmbeddedServer(settings, data_dir=data_dir).plan
        _require_simulable(self._plan)
        self.server = self._made()
        self._clients: list[SimulatedClient] = []
        self._seen = hashlib.sha256()
        # A temporary data directory is deleted with the server.
        self._last: str | None = None

    def _made(self, temporary: Path | None = None) -> SocketServer:
        bound = ListeningSocket(self.steps.network, Address("127.0.0.1", 9092))  # type: ignore[arg-type]
        return SocketServer(
            self._plan,
            clock=self.steps.clock,
            temporary=temporary,
            sockets={self._plan.listeners[0].name: (bound,)},
            threads=self.steps,
            random_bytes=self.steps.random.randbytes,
        )

    def note(self, data: bytes) -> None:
        """Add bytes that a client has received to the fingerprint."""
        self._seen.update(b"%d %d " % (self.steps.clock.monotonic_ns(), len(data)) + data)

    def fingerprint(self) -> str:
        """Return a digest of all steps, of all bytes that clients have received, and of the files of all logs."""
        if self._last is not None:
            return self._last
        digest = self._seen.copy()
        for moment_ns, name in self.trace:
            digest.update(f"{moment_ns} {name}\n".encode())
        root = self.server.data_dir
        for path in sorted(root.rglob("*")):
            if path.suffix in _LOG_FILES:
                digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()

    @property
    def clock(self) -> ManualClock:
        """Return the clock of the simulated time."""
        return self.steps.clock

    @property
    def trace(self) -> list[tuple[int, str]]:
        """Return the steps that did some work: the simulated time in ns, and the name of the loop."""
        return self.steps.trace

    def start(self) -> Self:
        """Start the server. Raises `klamm.server.server.StartError`."""
        self.server.start()
        return self

    def stop(self) -> None:
        """Close the clients, run the steps that are due now, and close everything."""
        for client in self._clients:
            client.close()
        self.steps.run_until_idle()
        self._last = self.fingerprint()
        self.server.stop(deadline_ms=0)

    def restart(self, *, kill: bool = False) -> None:
        """Stop the server, and start it again with its data. Its connections end: call `connect` again.

        With `kill`, the server ends between two steps, as by `kill -9`: requests are not finished, and data that are
        only in memory are lost. Raises `klamm.server.server.StartError`.
        """
        for client in self._clients:
            client.close()
        self._clients.clear()
        data_dir = self.server.data_dir
        self.trace.append((self.clock.monotonic_ns(), "kill" if kill else "stop"))
        with tempfile.TemporaryDirectory(prefix="klamm-killed-") as killed:
            if kill:
                shutil.copytree(data_dir, killed, dirs_exist_ok=True)
            else:
                self.steps.run_until_idle()
            self.server.stop(deadline_ms=0, keep_data=True)
            self.steps.forget()
            if kill:
                shutil.rmtree(data_dir)
                shutil.copytree(killed, data_dir)
        self.server = self._made(data_dir if self._plan.server.data_dir is None else None)
        self.server.start()

    def connect(self, *, timeout_s: float = 30.0, client_id: str | None = "raw") -> SimulatedClient:
        """Return a new connection."""
        client = SimulatedClient(self, timeout_s=timeout_s, client_id=client_id)
        self._clients.append(client)
        return client

    def turn(self) -> bool:
        """Run a step of each loop without moving the time; return False if no loop had work."""
        return self.steps.turn()

    def jump_ms(self, ms: float) -> None:
        """Move the time to the next timer, by at most `ms` milliseconds."""
        self.steps.jump(self.clock.monotonic_ns() + int(ms * 1_000_000))

    def run_ms(self, ms: float) -> None:
        """Run the server for `ms` milliseconds of simulated time."""
        self.run_until(lambda: False, ms / 1000)

    def run_until(self, is_done: Callable[[], bool], timeout_s: float = 30.0) -> bool:
        """Run the server until `is_done()` is True; return False after `timeout_s` seconds of simulated time."""
        clock = self.steps.clock
        until_ns = clock.monotonic_ns() + int(timeout_s * 1_000_000_000)
        while not self.steps.run_until_idle(is_done):
            if clock.monotonic_ns() >= until_ns:
                return False
            self.steps.jump(until_ns)
        return True

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()
