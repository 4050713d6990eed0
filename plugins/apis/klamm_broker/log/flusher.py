"""`LogFlusher`: syncs logs on its own thread, so that no append waits for the disk.

Each roll of a log requests a sync, as in Kafka's `UnifiedLog.roll`. So does each produced batch for a topic with
`flush.messages`, whose answer waits for the sync. Requests for one log that arrive during a sync share the next sync.
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
"""A callback that the syncing thread calls once, with None, or with the error if the records are not durable."""


class Flushable(Protocol):
    """A log that can be synced."""

    @property
    def directory(self) -> Path: ...

    def flush_to(self, offset: int) -> None:
        """Make the records below an offset durable. Raises KafkaError."""


class LogFlusher:
    """A queue of logs and the thread that syncs them. A test may call `run_pending` instead of `start`. Any thread may
    add a log. `times` collects the microseconds of each sync.
    """

    def __init__(self) -> None:
        self.times = Histogram()
        self._wanted: dict[Flushable, tuple[int, list[Flushed]]] = {}
        # Protects the queued logs, and `_closing`.
        self._changed = threading.Condition()
        self._closing = False
        self._thread: Joinable | None = None

    def request(self, target: Flushable, offset: int, on_flushed: Flushed | None = None) -> None:
        """Queue a sync of a log's records below an offset. Without `on_flushed` a failure is only logged."""
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
        """Sync all logs that are queued now."""
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
            # Without this answer, these requests and all later ones would wait for ever.
            log.exception("%s: the sync failed unexpectedly", target.directory)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(unexpected))
        self.times.add((time.monotonic_ns() - started_ns) // 1000)
        for on_flushed in waiting:
            try:
                on_flushed(error)
            except Exception:
                log.exception("callback %r of a sync failed", on_flushed)
