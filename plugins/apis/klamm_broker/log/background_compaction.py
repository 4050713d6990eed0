"""`BackgroundCompaction`: runs compaction on its own thread while there is something to compact."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm_broker.log.compaction_schedule import LogCompaction

log = logging.getLogger("klamm.broker")


class BackgroundCompaction:
    """One run at a time. From any thread."""

    def __init__(self, schedule: LogCompaction) -> None:
        self._schedule = schedule
        # Held while logs are compacted.
        self._running = threading.Lock()

    def run(self, now_ms: int) -> None:
        """Start a run if there is something to compact and no run is in progress."""
        if self._schedule.has_cleanable(now_ms) and self._running.acquire(blocking=False):
            try:
                threading.Thread(target=self._clean, args=(now_ms,), name="klamm-log-cleaner", daemon=True).start()
            except RuntimeError:
                # The system cannot start a thread; the next run tries again.
                self._running.release()
                raise

    def _clean(self, now_ms: int) -> None:
        try:
            self._schedule.clean(now_ms)
        except Exception:
            log.exception("compaction failed")
        finally:
            self._running.release()

    def stop(self) -> None:
        """End a run soon, and wait for that."""
        self._schedule.stop()
        with self._running:
            pass
