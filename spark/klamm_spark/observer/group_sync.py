"""`GroupSync`: makes one fsync for all threads that wait for one, and limits their number per second.

Threads that serve state changes wait here for their intents.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from klamm.runtime import Clock


class _Batch:
    """The threads that wait for the same sync. Once the sync has `ended`, `error` is its failure, if any."""

    __slots__ = ("ended", "error")

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.error: BaseException | None = None


class GroupSync:
    """A shared sync. `wait` returns after a call of `sync` that started after `wait`. Any thread may call it.

    Only one call of `sync` runs at a time, and calls start at least `interval_ms` apart. The first waiting thread makes
    the call for all threads that come before it starts.
    """

    def __init__(
        self, sync: Callable[[], None], clock: Clock, interval_ms: int, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self.count = 0
        self._sync = sync
        self._clock = clock
        self._interval_ns = interval_ms * 1_000_000
        self._sleep = sleep
        # Protects the batch that threads join.
        self._lock = threading.Lock()
        self._joining: _Batch | None = None
        # Held during a call of `sync`, so that one runs at a time. It also protects the time of the next call.
        self._turn = threading.Lock()
        self._next_ns = 0

    def wait(self) -> None:
        """Wait for the sync. Raises OSError if it has failed."""
        with self._lock:
            batch, leads = self._joining, self._joining is None
            if batch is None:
                batch = self._joining = _Batch()
        if leads:
            self._lead(batch)
        else:
            batch.ended.wait()
        if batch.error is not None:
            raise OSError(*batch.error.args) from batch.error

    def _lead(self, batch: _Batch) -> None:
        with self._turn:
            try:
                left_ns = self._next_ns - self._clock.monotonic_ns()
                if left_ns > 0:
                    self._sleep(left_ns / 1e9)
            finally:
                with self._lock:
                    self._joining = None
            self._next_ns = self._clock.monotonic_ns() + self._interval_ns
            self.count += 1
            try:
                self._sync()
            except BaseException as error:
                batch.error = error
            finally:
                batch.ended.set()
