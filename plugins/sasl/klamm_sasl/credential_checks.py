"""`CredentialChecks`: the threads on which an authenticator checks credentials.

Processors' threads call `submit`; the checks themselves run on the threads here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from klamm import ListenerContext, RateLimitedLog
from klamm.runtime import Workers
from klamm.shared import source_of
from klamm_sasl.failed_logins import MAX_FAILURES, FailedLogins
from klamm_sasl.paced_worker import PacedWorker

log = logging.getLogger("klamm.sasl")

Check = Callable[[], bool | None]
"""A check. It returns True for a proved identity, False for a refused one, and None if the exchange continues."""

_UNPACED: Final = 100
_COSTLY_NS: Final = 100_000
"""A check that takes less time has found a remembered result. Computing one always takes longer."""
_LINES_PER_MINUTE: Final = 10


class CredentialChecks:
    """The threads of one listener's authenticator.

    The check of a password takes processor time, and the system may run it on the core of a network thread. So an
    address that sends passwords without a pause would slow down all clients. To prevent this, the checks of addresses
    with too many failures (`FailedLogins`) run on a `PacedWorker`, which is busy for at most `paced_percent` of the
    time. With 100, no checks are delayed.
    """

    def __init__(self, listener: ListenerContext, threads: int, paced_percent: int) -> None:
        services, name = listener.services, f"klamm-sasl-{listener.name}"
        self._listener_name = listener.name
        self._clock = services.clock
        self._lines = RateLimitedLog(log, services.scheduler.schedule, burst=_LINES_PER_MINUTE)
        self._failed_logins = FailedLogins(services.clock, self._log_exceeded)
        self._paces = paced_percent < _UNPACED
        self._delayed = services.metrics.counter(
            "klamm:type=sasl,name=paced-authentications-total",
            "Checks of passwords that were delayed because their addresses had tried many wrong ones.",
            listener=listener.name,
        )
        self._paced_worker = paced = PacedWorker(
            f"{name}-suspects", paced_percent, services.clock, threads=services.threads
        )
        with ExitStack() as opened:
            self._workers = workers = Workers(name, threads, services.threads)
            opened.callback(workers.close)
            opened.callback(paced.close)
            for metric, doc, read in (
                ("waiting-authentications", "Checks of credentials that wait for a thread.", lambda: workers.waiting),
                (
                    "waiting-suspect-authentications",
                    "Checks of passwords that wait because their addresses have tried many wrong ones.",
                    lambda: paced.waiting,
                ),
            ):
                opened.callback(
                    services.metrics.gauge(f"klamm:type=sasl,name={metric}", doc, read, listener=listener.name)
                )
            self._opened = opened.pop_all()

    def submit(self, check: Check, address: str, password_of: str | None) -> Callable[[], object] | None:
        """Call a check once, on one of the threads. Return a function that drops the check, or None.

        `password_of` is the user whose password is checked, or None for a check that is never delayed. The returned
        function has an effect only while the check waits for the paced worker. Other checks always run, and soon.
        """
        if password_of is None or not self._paces:
            self._workers.submit(check, source_of(address))
            return None
        source, user = source_of(address), password_of

        def run() -> None:
            started_ns = self._clock.monotonic_ns()
            proved = check()
            # A quick check has found a remembered result. It is not counted: many clients may have the same outdated
            # password.
            if proved is not None and self._clock.monotonic_ns() - started_ns >= _COSTLY_NS:
                (self._failed_logins.succeeded if proved else self._failed_logins.failed)(source)

        def run_or_wait() -> None:
            # While the check waited for its thread, its address may have reached the limit.
            if self._failed_logins.exceeds(source):
                self._wait(run, source, user)
            else:
                run()

        if self._failed_logins.exceeds(source):
            self._wait(run, source, user)
        else:
            self._workers.submit(run_or_wait, source)
        return lambda: self._paced_worker.drop(run, source, user)

    def _wait(self, run: Callable[[], None], source: str, user: str) -> None:
        self._delayed.add()
        self._paced_worker.submit(run, source, user)

    def close(self) -> None:
        """End the threads after their present work."""
        self._opened.close()

    def _log_exceeded(self, source: str) -> None:
        self._lines.log(
            "exceeded",
            logging.WARNING,
            "listener=%s address=%s: %d checks of passwords have failed; further ones wait (suspect_check_percent)",
            self._listener_name,
            source,
            MAX_FAILURES,
        )
