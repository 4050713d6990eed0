"""`AcceptorLoop`, which lets a processor or an `AcceptorThread` call an acceptor."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from klamm.network.acceptor import Acceptor
from klamm.network.poller import READ, Waker, make_poller
from klamm.network.processor import Processor
from klamm.network.runtime import ListenerRuntime
from klamm.runtime.clock import Clock
from klamm.runtime.threads import Joinable, Threads

log = logging.getLogger("klamm.network")

_POLL_S: Final = 60.0
_FAILURE_PAUSE_S: Final = 0.1
_ACCEPTS_A_TURN: Final = 64


class AcceptorThread:
    """A thread that runs an acceptor from `start` to `stop`. Kafka has such a thread for each listener."""

    def __init__(self, acceptor: Acceptor, clock: Clock, poller: str, threads: Threads) -> None:
        self._acceptor = acceptor
        self._clock = clock
        self._threads = threads
        self._poller = threads.watch(make_poller(poller))
        self._waker = Waker(poller)
        self._ending = False
        self._watching = True
        self._pause = threading.Event()
        # None in a simulation, which calls `_step` instead.
        self._thread: Joinable | None = None

    def start(self) -> None:
        """Start to accept."""
        self._poller.register(self._acceptor.descriptor, READ)
        self._poller.register(self._waker.descriptor, READ)
        self._acceptor.run_in(self._waker.wake, None)
        name = f"klamm-acceptor-{self._acceptor.name}"
        self._thread = self._threads.start_loop(self._run, self._step, name, self._due_ns)

    def stop(self) -> None:
        """Stop accepting. The listening socket stays open."""
        self._ending = True
        self._pause.set()
        self._waker.wake()
        if self._thread is not None:
            self._thread.join()
        self._poller.close()
        self._waker.close()

    def _run(self) -> None:
        while not self._ending:
            try:
                self._turn()
            except Exception:
                log.exception("listener=%s: accepting failed", self._acceptor.name)
                self._pause.wait(_FAILURE_PAUSE_S)

    def _step(self) -> bool:
        # Never True: a simulation learns from the poller whether there was work.
        if not self._ending:
            self._turn()
        return False

    def _due_ns(self) -> int | None:
        return self._acceptor.paused_until_ns or None

    def _turn(self) -> None:
        paused_until_ns = self._acceptor.paused_until_ns
        timeout_s = _POLL_S
        if paused_until_ns:
            timeout_s = max(0.0, (paused_until_ns - self._clock.monotonic_ns()) / 1e9)
        self._watch(not paused_until_ns)
        if any(descriptor == self._waker.descriptor for descriptor, _ in self._poller.poll(timeout_s)):
            self._waker.drain()
        if not self._ending:
            self._acceptor.accept_some(_ACCEPTS_A_TURN)

    def _watch(self, watching: bool) -> None:
        # During a pause the socket is not watched: waiting connections would end each poll at once.
        if watching != self._watching:
            self._watching = watching
            self._poller.modify(self._acceptor.descriptor, READ if watching else 0)


class AcceptorLoop:
    """The loop that calls an acceptor: a listener's only processor, or an `AcceptorThread` if there are several."""

    def __init__(self, acceptor: Acceptor, runtime: ListenerRuntime) -> None:
        self._acceptor = acceptor
        self._runtime = runtime
        self._thread: AcceptorThread | None = None
        self._processor: Processor | None = None

    def begin(self, processors: Sequence[Processor]) -> None:
        """Accept connections for these processors. Raises RuntimeError or OSError if a thread cannot start."""
        if len(processors) == 1:
            self._processor = processors[0]
            self._processor.listen(self._acceptor)
            return
        thread = AcceptorThread(self._acceptor, self._runtime.clock, self._runtime.limits.poller, self._runtime.threads)
        try:
            thread.start()
        except BaseException:
            thread.stop()
            raise
        self._thread = thread

    def pause(self) -> None:
        """Stop accepting until `begin`; the listening socket stays open."""
        if self._processor is not None:
            self._processor.stop_listening()
        if self._thread is not None:
            self._thread.stop()
        self._processor = self._thread = None
