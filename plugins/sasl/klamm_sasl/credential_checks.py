"""Where an authenticator's checks run: those of addresses that try many wrong passwords apart from all others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from klamm import ListenerContext, RateLimitedLog
from klamm.runtime import Workers
from klamm_sasl.failed_logins import FAILURES, Suspects, source_of
from klamm_sasl.paced_worker import PacedLane

log = logging.getLogger("klamm.sasl")

Check = Callable[[], bool | None]
"""Returns whether somebody has proved who it is; None says nothing about that."""

_UNPACED: Final = 100
_COSTLY_NS: Final = 100_000
"""Less than any check of a password takes: the answer was remembered while this one waited."""
_LINES: Final = 10
"""Of the log, a minute."""


class Checks:
    """The threads of one listener's authenticator.

    A check of a password takes a processor's time, and the system may wake that thread on the core where a processor's
    thread was about to run: whoever has its passwords checked without a pause slows those down who are in. So checks
    for suspects, see `Suspects`, wait in a lane of their own, which is busy for `suspect_percent` of the time; 100 is
    no such lane.
    """

    def __init__(self, listener: ListenerContext, threads: int, suspect_percent: int) -> None:
        services, name = listener.services, f"klamm-sasl-{listener.name}"
        self._listener_name = listener.name
        self._clock = services.clock
        self._lines = RateLimitedLog(log, services.scheduler.schedule, burst=_LINES)
        self._suspects = Suspects(services.clock, self._tell)
        self._paces = suspect_percent < _UNPACED
        self._paced = services.metrics.counter(
            "klamm:type=sasl,name=paced-authentications-total",
            "Checks of passwords that came to wait because their addresses had tried many wrong ones.",
            listener=listener.name,
        )
        self._lane = lane = PacedLane(f"{name}-suspects", suspect_percent, services.clock)
        with ExitStack() as opened:
            self._workers = workers = Workers(name, threads)
            opened.callback(workers.close)
            opened.callback(lane.close)
            for metric, doc, read in (
                ("waiting-authentications", "Checks of credentials that wait for a thread.", lambda: workers.waiting),
                (
                    "waiting-suspect-authentications",
                    "Checks of passwords that wait because their addresses have tried many wrong ones.",
                    lambda: lane.waiting,
                ),
            ):
                opened.callback(
                    services.metrics.gauge(f"klamm:type=sasl,name={metric}", doc, read, listener=listener.name)
                )
            self._opened = opened.pop_all()

    def submit(self, check: Check, address: str, password_of: str | None) -> Callable[[], object] | None:
        """Have it called on some thread, once.

        `password_of` is the user whose password is checked, None for whatever is not to be paced. What is returned
        forgets a check that waits among suspects; others are called in any case, and soon.
        """
        if password_of is None or not self._paces:
            self._workers.submit(check, address)
            return None
        source, user = source_of(address), password_of

        def run() -> None:
            begun_ns = self._clock.monotonic_ns()
            proved = check()
            # A fleet with yesterday's password that comes all at once costs one check, and fails once.
            if proved is not None and self._clock.monotonic_ns() - begun_ns >= _COSTLY_NS:
                (self._suspects.succeeded if proved else self._suspects.failed)(source)

        def run_or_wait() -> None:
            # What came before its address was a suspect, many at once.
            if source in self._suspects:
                self._wait(run, source, user)
            else:
                run()

        if source in self._suspects:
            self._wait(run, source, user)
        else:
            self._workers.submit(run_or_wait, address)
        return lambda: self._lane.drop(run, source, user)

    def _wait(self, run: Callable[[], None], source: str, user: str) -> None:
        self._paced.add()
        self._lane.submit(run, source, user)

    def close(self) -> None:
        """End the threads after what they are doing."""
        self._opened.close()

    def _tell(self, source: str) -> None:
        self._lines.log(
            "suspect",
            logging.WARNING,
            "listener=%s address=%s: %d checks of passwords have failed; further ones wait (suspect_check_percent)",
            self._listener_name,
            source,
            FAILURES,
        )
