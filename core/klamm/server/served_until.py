"""`ServedUntil`: the time up to which all arrived requests have been passed to their handlers."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.requests.request_channel import RequestChannel
from klamm.runtime.clock import Clock
from klamm.server.listener import Listener
from klamm.server.metric_tables import processors_of


class ServedUntil:
    """The function `ServerServices.served_until_ns`. Any thread may call it; it adds no work to requests.

    It returns a time of the monotonic clock, in nanoseconds. Each processor has started or queued all requests that had
    arrived by then, and no request in the request queue has arrived earlier. Requests that wait for the answer to an
    earlier request of their connection do not count.
    """

    def __init__(self, clock: Clock, listeners: Sequence[Listener], request_channel: RequestChannel) -> None:
        self._clock = clock
        self._listeners = listeners
        self._channel = request_channel

    def __call__(self) -> int:
        processors = [processor for _, processor in processors_of(self._listeners)]
        until_ns = min((one.served_until_ns() for one in processors), default=self._clock.monotonic_ns())
        if self._channel.size():
            queued = (one.queued_since_ns() for one in processors)
            until_ns = min([until_ns, *(since_ns for since_ns in queued if since_ns is not None)])
        return until_ns
