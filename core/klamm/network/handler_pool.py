"""`KafkaRequestHandlerPool`: the threads that run handlers which may block."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from klamm.clock import Clock
from klamm.context import RequestContext
from klamm.network.request_channel import RequestChannel

log = logging.getLogger("klamm.handlers")

_PAUSE_S: Final = 0.1


class KafkaRequestHandlerPool:
    """Handlers of one request channel. `resize` at any time; `idle_percent` is RequestHandlerAvgIdlePercent."""

    def __init__(self, channel: RequestChannel, clock: Clock, run: Callable[[RequestContext], None]) -> None:
        self._channel = channel
        self._clock = clock
        self._run = run
        self._lock = threading.Lock()
        self._pause = threading.Event()
        self._threads: set[threading.Thread] = set()
        self._target = 0
        self._next_id = 0
        self._busy_ns = 0
        self._window_start_ns = clock.monotonic_ns()

    @property
    def size(self) -> int:
        """How many handlers run."""
        return len(self._threads)

    def resize(self, count: int) -> None:
        """Have `count` handlers; those that are too many stop after the request they are at."""
        with self._lock:
            surplus = self._target - count
            self._target = count
            self._channel.resized(count)
            for _ in range(-surplus):
                thread = threading.Thread(target=self._loop, name=f"klamm-handler-{self._next_id}", daemon=True)
                self._next_id += 1
                self._threads.add(thread)
                thread.start()
        for _ in range(surplus):
            self._channel.wake_handler()

    def shutdown(self, timeout_s: float) -> bool:
        """Stop all handlers; False if some were still at a request when the time was up."""
        self.resize(0)
        for thread in list(self._threads):
            thread.join(timeout_s)
        return not self._threads

    def idle_percent(self) -> float:
        """The share of time, 0 to 1, that handlers have waited for requests since the last call."""
        now_ns = self._clock.monotonic_ns()
        capacity_ns = max(1, (now_ns - self._window_start_ns) * max(1, self.size))
        busy_ns, self._busy_ns, self._window_start_ns = self._busy_ns, 0, now_ns
        return max(0.0, 1.0 - busy_ns / capacity_ns)

    def _loop(self) -> None:
        me = threading.current_thread()
        while True:
            request = None
            try:
                request = self._channel.receive_request()
                if request is None:
                    if self._should_stop(me):
                        return
                    continue
                start_ns = self._clock.monotonic_ns()
                try:
                    self._run(request)
                finally:
                    busy_ns = self._clock.monotonic_ns() - start_ns
                    self._busy_ns += busy_ns
                    self._channel.handled(request, busy_ns)
            except BaseException:
                # The last net: `run` answers for what handlers raise, so this is a bug, and must not cost the thread.
                log.exception("request handler failed")
                if request is None:
                    # The queue itself fails: do not fill the log while it does.
                    self._pause.wait(_PAUSE_S)

    def _should_stop(self, thread: threading.Thread) -> bool:
        with self._lock:
            if len(self._threads) <= self._target:
                return False
            self._threads.discard(thread)
            return True
