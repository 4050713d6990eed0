"""`Sessions`: the logged-in users of the console."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from klamm.runtime import Clock, TokenBucket
from klamm.testing import Admin

MAX_SESSIONS: Final = 64
MAX_OF_ONE_USER: Final = 4
_MAX_AGE_NS: Final = 12 * 3600 * 1_000_000_000
_ID_BYTES: Final = 32
_FAILED_PER_S: Final = 1.0
_FAILED_AT_ONCE: Final = 20
"""Number of logins of one user that may fail within a second; afterwards one a second."""
_NAMES: Final = 1_000


class TooManySessionsError(Exception):
    """Raised if no further user can log in now."""


@dataclass(slots=True, eq=False)
class Session:
    """A logged-in user, with a connection to the listener.

    `key` is the cookie, which a browser sends to every port of the host. `csrf` is a secret that only the page knows.
    `about` has the cluster and the user's rights on it at the time `about_ns`. `probe` requests them; it is not `admin`
    if a short wait is enough.
    """

    key: str
    csrf: str
    user: str
    admin: Admin
    probe: Admin
    started_ns: int
    last_ns: int
    about: dict[str, Any] | None = None
    about_ns: int = 0

    def close(self) -> None:
        """Close the connections."""
        self.admin.close()
        self.probe.close()


class Sessions:
    """The open sessions. Any thread may call it. A session ends when its user logs out, or makes no request for some
    time.
    """

    def __init__(self, clock: Clock, random_bytes: Callable[[int], bytes], idle_minutes: int) -> None:
        self._clock = clock
        self._random_bytes = random_bytes
        self._idle_ns = idle_minutes * 60 * 1_000_000_000
        # Protects the table.
        self._lock = threading.Lock()
        self._open: dict[str, Session] = {}

    def add(self, user: str, admin: Admin, probe: Admin) -> Session:
        """Return a new session. The user's oldest session may end to make room. Raises TooManySessionsError."""
        now_ns = self._clock.monotonic_ns()
        made = Session(self._secret(), self._secret(), user, admin, probe, now_ns, now_ns)
        self._end_old()
        with self._lock:
            own = [each for each in self._open.values() if each.user == user]
        for each in own[: max(0, len(own) + 1 - MAX_OF_ONE_USER)]:
            self.end(each)
        with self._lock:
            if len(self._open) >= MAX_SESSIONS:
                raise TooManySessionsError(f"{MAX_SESSIONS} users are logged in")
            self._open[made.key] = made
        return made

    def find(self, key: str, csrf: str, *, is_use: bool = True) -> Session | None:
        """Return the session of a cookie and the page's secret; None if it has ended.

        `is_use` is False for requests that the page makes without a user's action, so that an absent user is logged
        out.
        """
        self._end_old()
        with self._lock:
            found = self._open.get(key)
            if found is None or not is_same(csrf, found.csrf):
                return None
            if is_use:
                found.last_ns = self._clock.monotonic_ns()
            return found

    def end(self, session: Session) -> None:
        """Log a user out."""
        with self._lock:
            self._open.pop(session.key, None)
        session.close()

    def keep(self, advance_ms: int) -> None:
        """Let all sessions stay as old as they are, because the clock is about to be moved forward."""
        with self._lock:
            for each in self._open.values():
                each.started_ns += advance_ms * 1_000_000
                each.last_ns += advance_ms * 1_000_000

    def end_all(self) -> None:
        """Log all users out."""
        with self._lock:
            ended = [*self._open.values()]
            self._open.clear()
        for each in ended:
            each.close()

    def _end_old(self) -> None:
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            ended = [
                each
                for each in self._open.values()
                if now_ns - each.last_ns > self._idle_ns or now_ns - each.started_ns > _MAX_AGE_NS
            ]
        for each in ended:
            self.end(each)

    def _secret(self) -> str:
        return self._random_bytes(_ID_BYTES).hex()


def is_same(shown: str, secret: str) -> bool:
    """Return True if a client's text equals a secret. The time does not depend on the secret."""
    return hmac.compare_digest(shown.encode("utf-8", "replace"), secret.encode())


class FailedLogins:
    """The limit of failed logins, for each user name. Any thread may call it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Protects the table, which has the names of the latest failures.
        self._lock = threading.Lock()
        self._buckets: dict[str, TokenBucket] = {}

    def are_too_many(self, user: str) -> bool:
        """Return True if the user has to wait."""
        with self._lock:
            bucket = self._buckets.get(user)
            return bucket is not None and bucket.tokens(_FAILED_PER_S, self._now_ms()) < 1

    def note(self, user: str) -> None:
        """Count a failed login."""
        with self._lock:
            bucket = self._buckets.pop(user, None) or TokenBucket(_FAILED_AT_ONCE, 1000)
            bucket.take(1, _FAILED_PER_S, self._now_ms())
            while len(self._buckets) >= _NAMES:
                del self._buckets[next(iter(self._buckets))]
            self._buckets[user] = bucket

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000
