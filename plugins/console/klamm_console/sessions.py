"""`Sessions`: the users who are logged in to the console."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klamm.runtime import Clock
from klamm.testing import Admin

MAX_SESSIONS: Final = 64
_ID_BYTES: Final = 32


class TooManySessionsError(Exception):
    """Raised if no further user can log in now."""


@dataclass(slots=True, eq=False)
class Session:
    """A user who is logged in, with a connection of the own. `csrf` proves that a request comes from the page."""

    key: str
    csrf: str
    user: str
    admin: Admin
    last_ns: int


class Sessions:
    """Any thread may call it. A session ends when its user logs out, or has made no request for a time."""

    def __init__(self, clock: Clock, random_bytes: Callable[[int], bytes], idle_minutes: int) -> None:
        self._clock = clock
        self._random_bytes = random_bytes
        self._idle_ns = idle_minutes * 60 * 1_000_000_000
        # Protects the table.
        self._lock = threading.Lock()
        self._open: dict[str, Session] = {}

    def add(self, user: str, admin: Admin) -> Session:
        """Return a new session. Raises TooManySessionsError."""
        made = Session(self._secret(), self._secret(), user, admin, self._clock.monotonic_ns())
        self._end_idle()
        with self._lock:
            if len(self._open) >= MAX_SESSIONS:
                raise TooManySessionsError(f"{MAX_SESSIONS} users are logged in")
            self._open[made.key] = made
        return made

    def find(self, key: str) -> Session | None:
        """Return the session of a cookie, and note that it is in use; None if it has ended."""
        self._end_idle()
        with self._lock:
            found = self._open.get(key)
            if found is not None:
                found.last_ns = self._clock.monotonic_ns()
            return found

    def end(self, session: Session) -> None:
        """Log a user out."""
        with self._lock:
            self._open.pop(session.key, None)
        session.admin.close()

    def end_all(self) -> None:
        """Log all users out."""
        with self._lock:
            ended = [*self._open.values()]
            self._open.clear()
        for each in ended:
            each.admin.close()

    def _end_idle(self) -> None:
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            ended = [each for each in self._open.values() if now_ns - each.last_ns > self._idle_ns]
        for each in ended:
            self.end(each)

    def _secret(self) -> str:
        return self._random_bytes(_ID_BYTES).hex()


def is_same(shown: str, secret: str) -> bool:
    """Compare a secret with what a client shows, in a time that does not depend on it."""
    return hmac.compare_digest(shown.encode("utf-8", "replace"), secret.encode())
