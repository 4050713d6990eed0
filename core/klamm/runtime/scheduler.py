"""`Scheduler`, which runs timers on one thread, for the expiry of delayed operations and for periodic work.

It follows Kafka's `SystemTimer` and `KafkaScheduler`, but has a heap instead of timing wheels. A cancelled timer stays
in the heap until it is due, or until more than 1,024 timers, and most timers of the heap, are cancelled.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from typing import final

from klamm.runtime.clock import Clock
from klamm.runtime.threads import SYSTEM_THREADS, Joinable, Threads

log = logging.getLogger("klamm.scheduler")


@final
class Timer:
    """One call of `callback` in the future. Any thread may cancel it at any time, even after the call.

    `deadline_ns` is the time of the call on the monotonic clock. If `period_ns` is not 0, the call is repeated, each
    time that many nanoseconds after the end of the last one.
    """

    __slots__ = ("_scheduler", "callback", "deadline_ns", "period_ns")

    def __init__(
        self, scheduler: Scheduler, deadline_ns: int, callback: Callable[[], object] | None, period_ns: int = 0
    ) -> None:
        self._scheduler = scheduler
        self.deadline_ns = deadline_ns
        self.callback = callback
        self.period_ns = period_ns

    def cancel(self) -> None:
        """Prevent the call. If the call already runs, it is not interrupted."""
        if self.callback is not None:
            self.callback = None
            self._scheduler.note_cancelled()


class Scheduler:
    """Calls functions later, one after the other. Exceptions are logged and do not affect later calls.

    `run_due()` runs the calls that are due; tests call it after moving a manual clock. `start()` starts a thread that
    runs each call when it is due.
    """

    _COMPACT_AT = 1024

    def __init__(self, clock: Clock, threads: Threads = SYSTEM_THREADS) -> None:
        self._clock = clock
        self._threads = threads
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        # Protects the heap, the count of cancelled timers and `_stopping`.
        self._condition = threading.Condition()
        self._cancelled = 0
        self._stopping = False
        self._thread: Joinable | None = None
        self._siblings: list[Scheduler] = []

    def sibling(self) -> Scheduler:
        """Return another scheduler with the same clock, for calls that would hold up this scheduler.

        The caller starts and stops the new scheduler. `wake` of this scheduler also wakes the new one.
        """
        made = Scheduler(self._clock, self._threads)
        self._siblings.append(made)
        return made

    def schedule(self, delay_ms: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` once, in `delay_ms` milliseconds."""
        return self._add(Timer(self, self._clock.monotonic_ns() + int(delay_ms * 1_000_000), callback))

    def every(self, period_ms: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` again and again, each time `period_ms` milliseconds after the end of the last call."""
        period_ns = int(period_ms * 1_000_000)
        return self._add(Timer(self, self._clock.monotonic_ns() + period_ns, callback, period_ns))

    def _add(self, timer: Timer) -> Timer:
        with self._condition:
            first = not self._heap or timer.deadline_ns < self._heap[0][0]
            heapq.heappush(self._heap, (timer.deadline_ns, next(self._order), timer))
            if first:
                self._condition.notify()
        return timer

    def wake(self) -> None:
        """Make the thread read the clock again, because a test has moved the clock. Any thread may call this."""
        with self._condition:
            self._condition.notify()
        for sibling in self._siblings:
            sibling.wake()

    def note_cancelled(self) -> None:
        """Count a cancelled timer. If cancelled timers outnumber the others, remove them from the heap."""
        with self._condition:
            self._cancelled += 1
            if self._cancelled > self._COMPACT_AT and self._cancelled * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2].callback is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def run_due(self) -> float | None:
        """Run all calls that are due; return the seconds until the next call, or None if none is scheduled."""
        while self.run_one():
            pass
        due_ns = self.next_due_ns()
        return None if due_ns is None else max(0, due_ns - self._clock.monotonic_ns()) / 1e9

    @property
    def timer_count(self) -> int:
        """Return the number of timers in memory, including cancelled ones."""
        return len(self._heap)

    def next_due_ns(self) -> int | None:
        """Return the monotonic time of the next timer, which may be cancelled; None if none is scheduled."""
        with self._condition:
            return self._heap[0][0] if self._heap else None

    def run_one(self) -> bool:
        """Run the next call if it is due, or drop it if it is cancelled; return False if no call is due."""
        with self._condition:
            if not self._heap or self._heap[0][0] > self._clock.monotonic_ns():
                return False
            timer = heapq.heappop(self._heap)[2]
            callback = timer.callback
            if callback is None:
                self._cancelled = max(0, self._cancelled - 1)
                return True
            if not timer.period_ns:
                timer.callback = None
        try:
            callback()
        except Exception:
            log.exception("scheduled call %r failed", callback)
        if timer.period_ns and timer.callback is not None:
            timer.deadline_ns = self._clock.monotonic_ns() + timer.period_ns
            self._add(timer)
        return True

    def start(self, name: str = "klamm-scheduler") -> None:
        """Start a thread of this name, which runs the calls until `stop`."""
        self._thread = self._threads.start_loop(self._run, self.run_one, name, self.next_due_ns)

    def stop(self) -> None:
        """End the thread after its current call. Remaining timers never run."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            wait_s = self.run_due()
            with self._condition:
                if self._stopping:
                    return
                if self._heap and self._heap[0][0] <= self._clock.monotonic_ns():
                    continue
                if wait_s is not None and self._heap:
                    wait_s = max(0.0, (self._heap[0][0] - self._clock.monotonic_ns()) / 1e9)
                elif self._heap:
                    continue
                self._condition.wait(wait_s)
                if self._stopping:
                    return
