"""Administrative events, e.g. settings reloaded, certificates swapped, plugins loaded or failed.

They are rare, so a new subscriber also gets the earlier events.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from klamm.runtime.clock import Clock

log = logging.getLogger("klamm.admin_events")

_HISTORY: Final = 1000


@dataclass(frozen=True, slots=True)
class AdminEvent:
    """One event. `action` is one of a few words in lower_snake_case. `listener` is empty for the whole server."""

    action: str
    detail: str
    listener: str
    failed: bool
    time_us: int


Subscriber: TypeAlias = Callable[[AdminEvent], object]


class AdminEvents:
    """Passes events to subscribers, and keeps the last 1,000 for later subscribers. Any thread may call it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Protects history and subscribers, and is held during notifications, so that events stay in order.
        self._lock = threading.Lock()
        self._subscribers: list[Subscriber] = []
        self._history: deque[AdminEvent] = deque(maxlen=_HISTORY)

    def emit(self, action: str, detail: str = "", *, listener: str = "", failed: bool = False) -> None:
        """Pass an event to all subscribers, on this thread. Never raises."""
        event = AdminEvent(action, detail, listener, failed, self._clock.wall_us())
        with self._lock:
            self._history.append(event)
            for subscriber in self._subscribers:
                self._notify(subscriber, event)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber(event)` for the past events and for each new event; return a function that unsubscribes.

        `subscriber` must not block or emit events.
        """
        with self._lock:
            self._subscribers.append(subscriber)
            for event in self._history:
                self._notify(subscriber, event)

        def unsubscribe() -> None:
            with self._lock:
                if subscriber in self._subscribers:
                    self._subscribers.remove(subscriber)

        return unsubscribe

    @staticmethod
    def _notify(subscriber: Subscriber, event: AdminEvent) -> None:
        try:
            subscriber(event)
        except Exception:
            log.exception("subscriber %r failed", subscriber)
