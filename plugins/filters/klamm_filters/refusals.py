"""What a filter that refuses requests does beside that: a counter, and a log line once a minute for each reason."""

from __future__ import annotations

import logging
from typing import Final

from klamm import ListenerContext, RateLimitedLog, RequestContext, clipped, escape_control_characters
from klamm.metrics import Counter

log = logging.getLogger("klamm.filters")

_NAME: Final = "klamm:type=RequestFilter,name=RefusalsTotal"
_DOC: Final = "Requests, or parts of requests, that a filter refused."


class Refusals:
    """Of one filter of one listener. Any thread may call it."""

    def __init__(self, filter_name: str) -> None:
        self._filter_name = filter_name
        self._log: RateLimitedLog | None = None
        self._counter = Counter()

    def open(self, listener: ListenerContext) -> None:
        """Register the counter."""
        services = listener.services
        self._counter = services.metrics.counter(_NAME, _DOC, listener=listener.name, filter=self._filter_name)
        self._log = RateLimitedLog(log, services.scheduler.schedule)

    def note(self, context: RequestContext, reason: str) -> None:
        """Count and log one."""
        self._counter.add()
        if self._log is not None:
            self._log.log(
                (context.api_key, reason),
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
