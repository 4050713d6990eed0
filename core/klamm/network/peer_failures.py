"""`PeerFailureLog`: log lines that any peer can cause, limited in number per minute and address."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from klamm.api.context import ListenerContext
from klamm.logs.rate_limited import RateLimitedLog
from klamm.runtime.scheduler import Scheduler
from klamm.shared.addresses import source_of

SUPPRESSED_NAME: Final = "klamm:type=Listener,name=SuppressedFailureLines"
SUPPRESSED_DOC: Final = (
    "Log lines about failed connections that were left out because their address had reached its limit."
)


class PeerFailureLog:
    """The log of failed peers of one listener. Any thread may call it.

    At the end of a minute one line gives the number of suppressed lines. IPv6 addresses of one /64 count as one
    address. From the thousandth address of a minute on, all further addresses share one limit.
    """

    def __init__(
        self, logger: logging.Logger, later: Callable[[float, Callable[[], object]], object], lines_per_minute: int
    ) -> None:
        self._lines = RateLimitedLog(logger, later, burst=lines_per_minute)

    @property
    def suppressed(self) -> int:
        """Return the number of suppressed lines."""
        return self._lines.suppressed

    def log(self, host: str, level: int, message: str, *arguments: object) -> None:
        """Log a line about a connection from `host`, unless the limit of its address is reached."""
        self._lines.log(source_of(host), level, message, *arguments)


def failure_log_of(listener: ListenerContext, lines_per_minute: int, scheduler: Scheduler) -> PeerFailureLog:
    """Return the log of a listener, and register the metric of suppressed lines."""
    made = PeerFailureLog(logging.getLogger("klamm.network"), scheduler.schedule, lines_per_minute)
    labels = {"listener": listener.name}
    listener.services.metrics.register(
        SUPPRESSED_NAME, "counter", SUPPRESSED_DOC, lambda: ((labels, made.suppressed),), listener.name
    )
    return made
