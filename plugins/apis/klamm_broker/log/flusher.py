"""`LogFlusher`: syncs logs on its own thread, so that no append waits for the disk.

A sync is requested at each roll, as by Kafka's `UnifiedLog.roll`, and by producers to topics with `flush.messages`,
whose answers wait for it. Requests for one log that arrive during a sync share the next one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from klamm import ErrorCode, KafkaError
from klamm.metrics import Histogram
from klamm.runtime import SYSTEM_THREADS, Joinable, Threads

log = logging.getLogger("klamm.broker.log")

Flushed: TypeAlias = "Callable[[KafkaError | None], None]"
"""Called once, on the thread that syncs, with the error if the records could not be made durable."""


class Flushable(Protocol):
    """A log that can be synced."""

    @property
    def directory(self) -> Path: ...

    def flush_to(self, offset: int) -> None:
        """Make the records below an offset durable. Raises KafkaError."""


class LogFlusher:
    """A queue of logs and the thread that syncs them; without `start`, `run_pending` does it. Any thread may add a
    log. `times` has the microseconds of each sync.
    """

    def __init__(self) -> None:
        self.times = Histogram()
        self._wanted: dict[Flushable, tuple[int, list[Flushed]]] = {}
        # Protects the queued logs, and `_closing`.
        self._changed = threading.Condition()
        self._closing = False
        self._thread: Joinable | None = None

    def request(self, target: Flushable, offset: int, on_flushed: Flushed | None = None) -> None:
        """Sync the records of a log below an offset, soon. Without `on_flushed` a failure is only logged."""
        with self._changed:
            wanted_offset, waiting = self._wanted.get(target, (0, []))
            if on_flushed is not None:
                waiting.append(on_flushed)
            self._wanted[target] = max(offset, wanted_offset), waiting
            self._changed.notify()

    def start(self, threads: Threads = SYSTEM_THREADS) -> None:
        """Start the thread."""
        self._thread = threads.start_loop(self._run, self._step, "klamm-log-flusher")

    def close(self) -> None:
        """Sync the queued logs and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.run_pending()

    def run_pending(self) -> None:
        """Sync all that is wanted now."""
        while self._step():
            pass

    def _step(self) -> bool:
        entry = self._take()
        if entry is not None:
            self._flush(*entry)
        return entry is not None

    def _take(self) -> tuple[Flushable, int, list[Flushed]] | None:
        with self._changed:
            target = next(iter(self._wanted), None)
            return None if target is None else (target, *self._wanted.pop(target))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._closing)
                if not self._wanted:
                    return
            self.run_pending()

    def _flush(self, target: Flushable, offset: int, waiting: list[Flushed]) -> None:
        error: KafkaError | None = None
        started_ns = time.monotonic_ns()
        try:
            target.flush_to(offset)
        except KafkaError as caught:
            error = caught
            if not waiting:
                log.error("%s: %s", target.directory, error)
        except Exception as unexpected:
            # Without an answer these requests would wait for ever, and so would all later ones.
            log.exception("%s: the sync failed unexpectedly", target.directory)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(unexpected))
        self.times.add((time.monotonic_ns() - started_ns) // 1000)
        for on_flushed in waiting:
            try:
                on_flushed(error)
            except Exception:
                log.exception("callback %r of a sync failed", on_flushed)
