"""`Refusals`: counts and logs the requests that a filter refuses. All filters here use it, on any thread.

It writes at most five lines a minute for each client and API.
"""

from __future__ import annotations

import logging
from typing import Final

from klamm import ListenerContext, RateLimitedLog, RequestContext, clipped, escape_control_characters
from klamm.metrics import Counter

log = logging.getLogger("klamm.filters")

_NAME: Final = "klamm:type=RequestFilter,name=RefusalsTotal"
_LINES_PER_MINUTE: Final = 5
_DOC: Final = "Requests, or parts of requests, that a filter refused."


class Refusals:
    """The refusals of one filter of one listener. Any thread may call it."""

    def __init__(self, filter_name: str) -> None:
        self._filter_name = filter_name
        self._log: RateLimitedLog | None = None
        self._counter = Counter()

    def open(self, listener: ListenerContext) -> None:
        """Register the counter."""
        services = listener.services
        self._counter = services.metrics.counter(_NAME, _DOC, listener=listener.name, filter=self._filter_name)
        self._log = RateLimitedLog(log, services.scheduler.schedule, burst=_LINES_PER_MINUTE)

    def note(self, context: RequestContext, reason: str) -> None:
        """Count and log a refusal."""
        self._counter.add()
        if self._log is not None:
            # The key excludes the reason, which may contain the client's own words and numbers.
            self._log.log(
                (context.api_key, str(context.principal), context.connection.client_address.host),
                logging.WARNING,
                "listener=%s connection_id=%s principal=%s client_id=%s api=%s: %s refused it: %s",
                context.listener.name,
                context.connection.connection_id,
                clipped(escape_control_characters(str(context.principal))),
                clipped(escape_control_characters(str(context.client_id))),
                context.api_name,
                self._filter_name,
                clipped(escape_control_characters(reason)),
            )
