"""`KafkaRequestHandlerPool`: the threads that run requests from the queue, whose handlers may block."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from klamm.api.context import RequestContext
from klamm.requests.pending import pending_of
from klamm.requests.request_channel import RequestChannel
from klamm.runtime.clock import Clock
from klamm.runtime.threads import SYSTEM_THREADS, Joinable, Threads

log = logging.getLogger("klamm.handlers")

_PAUSE_S: Final = 0.1


class _BusyMeter:
    """The busy time of one handler thread, which only that thread writes."""

    __slots__ = ("times_ns",)

    def __init__(self) -> None:
        # The time of all ended requests, and the start of the current one or 0. They change together, because any
        # thread may read them.
        self.times_ns = (0, 0)

    def busy_ns_until(self, now_ns: int) -> int:
        busy_ns, since_ns = self.times_ns
        return busy_ns + (max(0, now_ns - since_ns) if since_ns else 0)


class KafkaRequestHandlerPool:
    """The handler threads of one request channel. The server starts and stops them; any thread may call `resize`."""

    def __init__(self, channel: RequestChannel, clock: Clock, threads: Threads = SYSTEM_THREADS) -> None:
        self._channel = channel
        self._start_loop = threads.start_loop
        self._clock = clock
        # Protects the threads and their target count.
        self._lock = threading.Lock()
        self._pause = threading.Event()
        # The value is None for a handler without a thread, whose steps a simulation calls.
        self._threads: dict[_BusyMeter, Joinable | None] = {}
        self._target = 0
        self._next_id = 0
        self._stopped_busy_ns = 0

    @property
    def size(self) -> int:
        """Return the number of running handlers."""
        return len(self._threads)

    def resize(self, count: int) -> None:
        """Set the number of handlers. Excess handlers stop after their current request.

        If the system cannot start a thread, this raises RuntimeError, and the number is as before.
        """
        before = self._target
        try:
            self._resize(count)
        except RuntimeError:
            self._resize(before)
            raise

    def _resize(self, count: int) -> None:
        with self._lock:
            surplus = self._target - count
            self._target = count
            self._call(self._channel.resized, count)
            for _ in range(-surplus):
                meter, name = _BusyMeter(), f"klamm-handler-{self._next_id}"
                self._next_id += 1
                self._threads[meter] = self._start_loop(partial(self._loop, meter), partial(self._step, meter), name)
        for _ in range(surplus):
            self._call(self._channel.wake_handler)

    @staticmethod
    def _call(call: Callable[..., None], *arguments: int) -> None:
        try:
            call(*arguments)
        except Exception:
            log.exception("the request scheduler failed")

    def shutdown(self, timeout_s: float) -> bool:
        """Stop all handlers; return False if some still run a request after the timeout."""
        self.resize(0)
        started = [thread for thread in list(self._threads.values()) if thread is not None]
        for thread in started:
            thread.join(timeout_s)
        return not started or not self._threads

    def busy_ns_until(self, now_ns: int) -> int:
        """Return the total time that handlers have spent on requests, including current ones.

        The metric RequestHandlerAvgIdlePercent is computed from it.
        """
        with self._lock:
            meters = list(self._threads)
            total_ns = self._stopped_busy_ns
        return total_ns + sum(meter.busy_ns_until(now_ns) for meter in meters)

    def _step(self, meter: _BusyMeter) -> bool:
        if self._should_stop(meter) or not self._channel.size():
            return False
        request = self._channel.receive_request()
        if request is not None:
            self._handle(request, meter)
        # True even if it was only a wake-up, because a request may follow the wake-up in the queue.
        return True

    def _handle(self, request: RequestContext, meter: _BusyMeter) -> None:
        start_ns = self._clock.monotonic_ns()
        before_ns, _ = meter.times_ns
        meter.times_ns = before_ns, start_ns
        end_ns = 0
        try:
            pending = pending_of(request)
            if pending is not None:
                end_ns = pending.owner.run_queued(pending)
        finally:
            busy_ns = (end_ns or self._clock.monotonic_ns()) - start_ns
            meter.times_ns = before_ns + busy_ns, 0
            self._channel.handled(request, busy_ns)

    def _loop(self, meter: _BusyMeter) -> None:
        while True:
            # A waiting thread must not keep its last request in memory, because a request may have 100 MiB.
            request = None
            try:
                request = self._channel.receive_request()
                if request is None:
                    if self._should_stop(meter):
                        return
                    continue
                self._handle(request, meter)
            except BaseException:
                # Only a bug leads here, because `run_queued` answers exceptions of handlers. The thread must go on.
                log.exception("request handler failed")
                if request is None:
                    # The queue itself has failed. Wait, in order not to flood the log.
                    self._pause.wait(_PAUSE_S)

    def _should_stop(self, meter: _BusyMeter) -> bool:
        with self._lock:
            if meter not in self._threads:
                # The handler has stopped, but a simulation calls its step once more.
                return True
            if len(self._threads) <= self._target:
                return False
            del self._threads[meter]
            self._stopped_busy_ns += meter.times_ns[0]
            return True
