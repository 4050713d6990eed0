"""`PatientScheduler`: timers that end something because a client was silent.

Such a timer waits until everything is served that clients had sent by its deadline: while the threads that read from
them are behind, a heartbeat or a join may have come in time and lie unread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.runtime import Clock, Scheduler, Timer

_NS_PER_MS = 1_000_000
_LOOK_AGAIN_MS = 50


class PatientTimer:
    """A call at `deadline_ns` or later; see the module. Any thread may cancel it."""

    __slots__ = ("_callback", "_owner", "_timer", "deadline_ns")

    def __init__(self, owner: PatientScheduler, delay_ms: float, callback: Callable[[], object]) -> None:
        self._owner = owner
        self._callback: Callable[[], object] | None = callback
        # Without a delay no client had time to send anything: there is nothing to wait for.
        self.deadline_ns = owner.clock.monotonic_ns() + int(delay_ms * _NS_PER_MS) if delay_ms > 0 else 0
        self._timer: Timer = owner.scheduler.schedule(delay_ms, self._fire)

    def cancel(self) -> None:
        """Prevent the call. One that has begun is not interrupted."""
        self._callback = None
        self._timer.cancel()

    def _fire(self) -> None:
        callback = self._callback
        if callback is None:
            return
        if self._owner.served_until_ns() < self.deadline_ns:
            self._timer = self._owner.scheduler.schedule(_LOOK_AGAIN_MS, self._fire)
        else:
            callback()


class PatientScheduler:
    """`served_until_ns` is that of `klamm.api.context.ServerServices`."""

    def __init__(self, clock: Clock, scheduler: Scheduler, served_until_ns: Callable[[], int]) -> None:
        self.clock = clock
        self.scheduler = scheduler
        self.served_until_ns = served_until_ns

    def schedule(self, delay_ms: float, callback: Callable[[], object]) -> PatientTimer:
        """Call once, in `delay_ms` milliseconds or later."""
        return PatientTimer(self, delay_ms, callback)
