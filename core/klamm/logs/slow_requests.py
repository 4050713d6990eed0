"""The slow-request log: one line for each request that took longer than its API may, with where the time went."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klamm.logs.escaping import in_one_line
from klamm.logs.rate_limited import Later, RateLimitedLog
from klamm.wire.api_keys import ApiKey, spec_of

if TYPE_CHECKING:
    from klamm.api.context import RequestContext

log = logging.getLogger("klamm.slow_requests")

DEFAULT: Final = "default"
LINES_A_MINUTE: Final = 60
_NAMES: Final = {spec_of(key).name: int(key) for key in ApiKey}


class SlowLog:
    """Thresholds of one listener, in milliseconds by API name; `default` is for all others."""

    def __init__(self, listener: str, thresholds: Mapping[str, int], later: Later) -> None:
        self._listener = listener
        default = thresholds.get(DEFAULT)
        self._limits_ms = {key: thresholds.get(name, default) for name, key in _NAMES.items()}
        self._lines = RateLimitedLog(log, later, burst=LINES_A_MINUTE)

    def watches(self, api_key: int) -> bool:
        """Whether an API has a threshold: then all of its requests are timed."""
        return self._limits_ms.get(api_key) is not None

    def note(self, request: RequestContext, total_ns: int, end_ns: int) -> None:
        """A request is through; write a line if it took longer than it may."""
        limit_ms = self._limits_ms.get(request.api_key)
        if limit_ms is None or total_ns < limit_ms * 1_000_000:
            return
        start_ns = request.handler_start_ns or request.received_ns
        local_end_ns = request.local_end_ns or start_ns
        completed_ns = request.completed_ns or local_end_ns
        dequeued_ns = request.dequeued_ns or completed_ns
        self._lines.log(
            request.api_key,
            logging.WARNING,
            "slow request: listener=%s connection_id=%s principal=%s client_id=%s api=%s version=%d correlation_id=%d "
            "size_bytes=%d total_ms=%.1f request_queue_ms=%.1f local_ms=%.1f remote_ms=%.1f response_queue_ms=%.1f "
            "send_ms=%.1f throttle_ms=%d",
            self._listener,
            request.connection.connection_id,
            in_one_line(str(request.principal)),
            in_one_line(str(request.client_id)),
            request.handler.name,
            request.api_version,
            request.correlation_id,
            request.size_bytes,
            total_ns / 1e6,
            max(0, start_ns - request.received_ns) / 1e6,
            max(0, local_end_ns - start_ns) / 1e6,
            max(0, completed_ns - local_end_ns) / 1e6 if request.parked else 0.0,
            max(0, dequeued_ns - completed_ns) / 1e6,
            max(0, end_ns - dequeued_ns) / 1e6,
            request.throttle_time_ms,
        )
