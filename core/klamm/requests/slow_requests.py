"""The slow-request log: a line for each request that took longer than the threshold of its API.

The line has the time of each stage.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from klamm.api.context import RequestContext
from klamm.api.observer import StageTimes
from klamm.logs.escaping import clipped, escape_control_characters
from klamm.logs.rate_limited import Later, RateLimitedLog
from klamm.wire.api_keys import ApiKey, spec_of

log = logging.getLogger("klamm.slow_requests")

DEFAULT: Final = "default"
LINES_A_MINUTE: Final = 60
_NAMES: Final = {spec_of(key).name: int(key) for key in ApiKey}


class SlowLog:
    """The slow-request log of one listener. The ledgers of its processors call it, each on its own thread.

    `thresholds` maps API names to milliseconds; `default` applies to all other APIs.
    """

    def __init__(self, listener: str, thresholds: Mapping[str, int], later: Later) -> None:
        self._listener = listener
        default = thresholds.get(DEFAULT)
        self._limits_ms = {key: thresholds.get(name, default) for name, key in _NAMES.items()}
        self._lines = RateLimitedLog(log, later, burst=LINES_A_MINUTE)

    def watches(self, api_key: int) -> bool:
        """Return True if an API has a threshold. All of its requests are then timed."""
        return self._limits_ms.get(api_key) is not None

    def note(self, context: RequestContext, times: StageTimes) -> None:
        """Write a line about a request that has ended, if it took longer than its threshold."""
        limit_ms = self._limits_ms.get(context.api_key)
        if limit_ms is None or times.total_ns < limit_ms * 1_000_000:
            return
        self._lines.log(
            context.api_key,
            logging.WARNING,
            "slow request: listener=%s connection_id=%s principal=%s client_id=%s api=%s version=%d correlation_id=%d "
            "size_bytes=%d total_ms=%.1f request_queue_ms=%.1f local_ms=%.1f remote_ms=%.1f response_queue_ms=%.1f "
            "send_ms=%.1f throttle_ms=%d",
            self._listener,
            context.connection.connection_id,
            clipped(escape_control_characters(str(context.principal))),
            clipped(escape_control_characters(str(context.client_id))),
            context.api_name,
            context.api_version,
            context.correlation_id,
            context.size_bytes,
            times.total_ns / 1e6,
            times.request_queue_ns / 1e6,
            times.local_ns / 1e6,
            times.remote_ns / 1e6,
            times.response_queue_ns / 1e6,
            times.send_ns / 1e6,
            context.throttle_time_ms,
        )
