"""`SessionRegistry`: the sessions of authenticated connections. It ends a session if its credential is revoked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from klamm.api.context import ListenerContext
from klamm.logs.escaping import clipped
from klamm.logs.rate_limited import RateLimitedLog
from klamm.runtime.scheduler import Timer
from klamm.shared.principal import KafkaPrincipal

log = logging.getLogger("klamm.sessions")

RevocationCheck: TypeAlias = Callable[[], str | None]
"""Returns the reason why a session's credential is invalid, or None if it is valid.

Any thread may call it, and it must not block.
"""

RECHECK_DELAY_MS: Final = 200
"""The delay of a check, so that a client that changes its own credential gets the response before the close."""
RETRY_CHECK_MS: Final = 5_000
"""The time after which a check that has raised is tried again."""
UNCHECKED_MAX_MS: Final = 60_000
"""A session ends if its check has raised for this long, because its credential may have been revoked."""
_NAMED_PRINCIPALS: Final = 20


class Authenticated(Protocol):
    """The owner of a session: a connection, or its transport."""

    @property
    def principal(self) -> KafkaPrincipal: ...


C = TypeVar("C", bound=Authenticated)


@dataclass(slots=True, eq=False)
class _Session:
    """A session: the key by which it is found, the check of its credential, and the timer of its expiry."""

    key: Hashable
    revoked_because: RevocationCheck
    timer: Timer | None = None
    failing_since_ns: int | None = None


class SessionRegistry(Generic[C]):
    """The sessions of one listener that depend on a credential, a token, a key or a certificate.

    A part that authenticates clients adds a session when a client has proved its identity, and calls `recheck` when a
    credential, token, key or certificate has changed. The registry ends a session that has become invalid: it closes
    the connection, and the log and an administrative event `sessions_ended` give the reason. A session that expires
    causes no event, unless it has also become invalid.

    If a check raises, it is tried again every `RETRY_CHECK_MS`, and the session goes on meanwhile. If the check raises
    for `UNCHECKED_MAX_MS`, the session ends as if its credential were revoked.

    `disconnect(connection, reason)` closes a connection, from any thread.

    Any thread may call all methods. `close` cancels all timers, and no session is ended afterwards.
    """

    def __init__(self, listener: ListenerContext, disconnect: Callable[[C, str], object]) -> None:
        self._listener = listener
        self._disconnect = disconnect
        # Protects the sessions, their keys and timers, and the pending checks.
        self._lock = threading.Lock()
        self._sessions: dict[C, _Session] = {}
        self._by_key: dict[Hashable, dict[C, None]] = {}
        # The keys that the next recheck examines, or None for all sessions.
        self._due: dict[Hashable, None] | None = {}
        self._recheck_timer: Timer | None = None
        # Sessions whose check has raised; a timer checks them again.
        self._unchecked: dict[C, _Session] = {}
        self._retry_timer: Timer | None = None
        self._closed = False
        self._failures = RateLimitedLog(log, listener.services.scheduler.schedule)

    def __len__(self) -> int:
        return len(self._sessions)

    def add(
        self, connection: C, key: Hashable, revoked_because: RevocationCheck, expires_ns: int | None = None
    ) -> str | None:
        """Begin a session of a connection; it replaces an earlier session of the connection.

        `recheck` selects sessions by `key`, e.g. the name of a user. The connection is closed at the monotonic time
        `expires_ns` unless the session is renewed before. If the credential has been revoked since the client proved
        its identity, return the reason, and add no session.
        """
        session = _Session(key, revoked_because)
        with self._lock:
            self._forget(connection)
            if self._closed:
                return None
            self._sessions[connection] = session
            self._by_key.setdefault(key, {})[connection] = None
            if expires_ns is not None:
                services = self._listener.services
                delay_ms = max(0.0, (expires_ns - services.clock.monotonic_ns()) / 1e6)
                session.timer = services.scheduler.schedule(delay_ms, lambda: self._expire(connection, session))
        # The check follows the addition, so that the `recheck` of any later change finds the session.
        reason = self._revocation_of(connection, session)
        if reason is not None:
            self.remove(connection)
        return reason

    def renewing(self, connection: C) -> None:
        """Stop the expiry of a session, because its client has started to authenticate again."""
        with self._lock:
            session = self._sessions.get(connection)
            if session is not None and session.timer is not None:
                session.timer.cancel()
                session.timer = None

    def remove(self, connection: C) -> None:
        """Remove the session of a connection that has closed; does nothing if it has none."""
        with self._lock:
            self._forget(connection)

    def has(self, key: Hashable) -> bool:
        """Return True if there is a session with that key."""
        return key in self._by_key

    def recheck(self, keys: Iterable[Hashable] | None = None) -> None:
        """Check all sessions, or those with one of `keys`, and end the invalid ones.

        The checks run on the scheduler's thread, `RECHECK_DELAY_MS` after the first call. Any thread may call this.
        """
        with self._lock:
            if keys is None:
                self._due = None
            elif self._due is not None:
                self._due.update(dict.fromkeys(keys))
            if self._recheck_timer is None and not self._closed:
                self._recheck_timer = self._listener.services.scheduler.schedule(RECHECK_DELAY_MS, self._recheck)

    def _recheck(self) -> None:
        with self._lock:
            self._recheck_timer = None
            keys, self._due = self._due, {}
            if keys is None:
                found = list(self._sessions)
            else:
                found = [connection for key in keys for connection in self._by_key.get(key, ())]
            sessions = [(connection, self._sessions[connection]) for connection in found]
        self._check(sessions)

    def _retry(self) -> None:
        with self._lock:
            self._retry_timer = None
            sessions, self._unchecked = list(self._unchecked.items()), {}
        self._check(sessions)

    def _check(self, sessions: list[tuple[C, _Session]]) -> None:
        ended: dict[str, list[C]] = {}
        for connection, session in sessions:
            reason = self._revocation_of(connection, session)
            if reason is not None and self._take(connection, session):
                ended.setdefault(reason, []).append(connection)
        for reason, connections in ended.items():
            self._report(reason, connections)
            for connection in connections:
                self._end(connection, reason)

    def close(self) -> None:
        """Remove all sessions, and cancel all timers."""
        with self._lock:
            self._closed = True
            for timer in (self._recheck_timer, self._retry_timer):
                if timer is not None:
                    timer.cancel()
            for connection in list(self._sessions):
                self._forget(connection)

    def _revocation_of(self, connection: C, session: _Session) -> str | None:
        try:
            reason = session.revoked_because()
        except Exception as error:
            return self._unchecked_because(connection, session, error)
        session.failing_since_ns = None
        return reason

    def _unchecked_because(self, connection: C, session: _Session, error: Exception) -> str | None:
        """Schedule another check of a session whose check has raised, or return the reason why the session ends."""
        self._failures.log(
            type(error).__name__,
            logging.ERROR,
            "listener=%s principal=%s: cannot check whether the session may continue",
            self._listener.name,
            clipped(connection.principal.name),
            error=error,
        )
        services = self._listener.services
        now_ns = services.clock.monotonic_ns()
        if session.failing_since_ns is None:
            session.failing_since_ns = now_ns
        if now_ns - session.failing_since_ns >= UNCHECKED_MAX_MS * 1_000_000:
            return f"the session could not be checked for {UNCHECKED_MAX_MS // 1000} s"
        with self._lock:
            if self._sessions.get(connection) is session:
                self._unchecked[connection] = session
                if self._retry_timer is None:
                    self._retry_timer = services.scheduler.schedule(RETRY_CHECK_MS, self._retry)
        return None

    def _forget(self, connection: C) -> None:
        session = self._sessions.pop(connection, None)
        if session is None:
            return
        self._unchecked.pop(connection, None)
        if session.timer is not None:
            session.timer.cancel()
        connections = self._by_key[session.key]
        del connections[connection]
        if not connections:
            del self._by_key[session.key]

    def _take(self, connection: C, session: _Session) -> bool:
        """Remove a session and return True; return False if it was renewed or has ended meanwhile."""
        with self._lock:
            if self._sessions.get(connection) is not session:
                return False
            self._forget(connection)
            return True

    def _expire(self, connection: C, session: _Session) -> None:
        reason = self._revocation_of(connection, session)
        if not self._take(connection, session):
            return
        if reason is not None:
            self._report(reason, [connection])
        self._end(connection, reason or "the session has expired and was not renewed")

    def _end(self, connection: C, reason: str) -> None:
        try:
            self._disconnect(connection, reason)
        except Exception:
            log.exception("principal=%s: the session cannot be ended", clipped(connection.principal.name))

    def _report(self, reason: str, connections: list[C]) -> None:
        counts: dict[str, int] = {}
        for connection in connections:
            principal = f"{connection.principal.type}:{connection.principal.name}"
            counts[principal] = counts.get(principal, 0) + 1
        named = ", ".join(f"{clipped(name)} ({count})" for name, count in list(counts.items())[:_NAMED_PRINCIPALS])
        more = len(counts) - _NAMED_PRINCIPALS
        detail = f"{reason}: connections of {named}" + (f" and {more} more principals" if more > 0 else "")
        log.warning("listener=%s: %d sessions end: %s", self._listener.name, len(connections), detail)
        self._listener.services.emit_admin_event("sessions_ended", detail, listener=self._listener.name)
