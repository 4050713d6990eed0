"""Administrative acts that parts tell of: settings reloaded, certificates swapped, plugins loaded or failed.

Rare, so whoever comes late is told of the earlier ones too.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from klamm.runtime.clock import Clock

log = logging.getLogger("klamm.announcements")

_KEPT: Final = 1000


@dataclass(frozen=True, slots=True)
class AdminEvent:
    """One act. `action` is one of few words in lower_snake_case, `listener` is empty for what concerns the server."""

    action: str
    detail: str
    listener: str
    failed: bool
    time_us: int


Subscriber: TypeAlias = Callable[[AdminEvent], object]


class Announcements:
    """Any thread may announce and subscribe. The last 1,000 are kept for those who subscribe later."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._subscribers: list[Subscriber] = []
        self._kept: deque[AdminEvent] = deque(maxlen=_KEPT)

    def announce(self, action: str, detail: str = "", *, listener: str = "", failed: bool = False) -> None:
        """Tell all subscribers. Never raises."""
        announcement = AdminEvent(action, detail, listener, failed, self._clock.wall_us())
        with self._lock:
            self._kept.append(announcement)
            for subscriber in self._subscribers:
                self._tell(subscriber, announcement)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Have `subscriber(announcement)` called for what was and what comes; it must not block or announce.

        The function returned ends that.
        """
        with self._lock:
            self._subscribers.append(subscriber)
            for announcement in self._kept:
                self._tell(subscriber, announcement)

        def unsubscribe() -> None:
            with self._lock:
                if subscriber in self._subscribers:
                    self._subscribers.remove(subscriber)

        return unsubscribe

    @staticmethod
    def _tell(subscriber: Subscriber, announcement: AdminEvent) -> None:
        try:
            subscriber(announcement)
        except Exception:
            log.exception("subscriber %r failed", subscriber)
