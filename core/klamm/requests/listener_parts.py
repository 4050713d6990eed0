"""`RequestParts`: the parts that the requests of one listener use, made when the listener is built."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.api.context import ListenerContext
from klamm.logs.rate_limited import RateLimitedLog
from klamm.requests.limits import RequestLimits
from klamm.requests.observers import RequestObservers
from klamm.requests.routes import Routes
from klamm.requests.slow_requests import SlowLog
from klamm.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class RequestParts:
    """The parts for the requests of one listener. All of its processors share them.

    The active throttles are in `listener.throttles`, which may change at any time. `api_set` is the name of the handler
    set."""

    listener: ListenerContext
    routes: Routes
    clock: Clock
    observers: RequestObservers | None
    slow_log: SlowLog | None
    failures: RateLimitedLog
    limits: RequestLimits
    api_set: str = ""
