"""`ServedUntil`: up to which moment the server has dealt with what clients sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.server.metric_tables import processors_of

if TYPE_CHECKING:
    from klamm.requests.request_channel import RequestChannel
    from klamm.runtime.clock import Clock
    from klamm.server.listener import Listener


class ServedUntil:
    """See `klamm.api.context.ServerServices`. From any thread; no request pays for it.

    The processor that is furthest behind counts, and the request that has waited longest for a handler. What a client
    has sent behind a request of its own that is being answered does not: the order of answers holds it back.
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
