"""klamm-request-log: the observer `request_log`.

klamm imports this module at every start, so it holds the hook alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_request_observers() -> Iterator[Provider]:
    """Yield the names that a configuration can use, and the place of their code."""
    yield Provider(
        "request_log",
        factory="klamm_request_log.observer:RequestLog",
        settings="klamm_request_log.observer:RequestLogSettings",
        summary="writes a JSON line for each request",
    )
