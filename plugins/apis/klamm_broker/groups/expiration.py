"""`ExpirationScheduler`: timers that remove a member, or end a rebalance, because a client was silent.

Such a timer fires only after all requests that had arrived by its deadline are served. While the network threads are
behind, a Heartbeat or JoinGroup may have arrived in time and not been read yet.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.runtime import Clock, Scheduler, Timer
from klamm_broker.numbers import NS_PER_MS

_RETRY_MS = 50


class ExpirationTimer:
    """One call at `deadline_ns` or later, on the scheduler's thread. Any thread may cancel it."""

    __slots__ = ("_callback", "_owner", "_timer", "deadline_ns")

    def __init__(self, owner: ExpirationScheduler, delay_ms: float, callback: Callable[[], object]) -> None:
        self._owner = owner
        self._callback: Callable[[], object] | None = callback
        # Without a delay no client has had time to send a request, so there is nothing to wait for.
        self.deadline_ns = owner.clock.monotonic_ns() + int(delay_ms * NS_PER_MS) if delay_ms > 0 else 0
        self._timer: Timer = owner.scheduler.schedule(delay_ms, self._fire)

    def cancel(self) -> None:
        """Prevent the call. A call that has started is not interrupted."""
        self._callback = None
        self._timer.cancel()

    def _fire(self) -> None:
        callback = self._callback
        if callback is None:
            return
        if self._owner.served_until_ns() < self.deadline_ns:
            self._timer = self._owner.scheduler.schedule(_RETRY_MS, self._fire)
        else:
            callback()


class ExpirationScheduler:
    """Makes a group coordinator's timers. `klamm.api.context.ServerServices` explains `served_until_ns`."""

    def __init__(self, clock: Clock, scheduler: Scheduler, served_until_ns: Callable[[], int]) -> None:
        self.clock = clock
        self.scheduler = scheduler
        self.served_until_ns = served_until_ns

    def schedule(self, delay_ms: float, callback: Callable[[], object]) -> ExpirationTimer:
        """Call `callback` once, in `delay_ms` milliseconds or later. Any thread may call this."""
        return ExpirationTimer(self, delay_ms, callback)
