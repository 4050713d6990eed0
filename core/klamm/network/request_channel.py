"""`RequestChannel`: requests to the handlers, responses back to the processors."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from klamm.contracts import RequestScheduler

if TYPE_CHECKING:
    from klamm.context import RequestContext
    from klamm.network.channel import KafkaChannel
    from klamm.network.processor import Processor
    from klamm.network.send import Chunk


class ResponseKind(enum.Enum):
    """Kafka's `RequestChannel.Response` subclasses."""

    SEND = enum.auto()
    NO_OP = enum.auto()
    CLOSE_CONNECTION = enum.auto()
    START_THROTTLING = enum.auto()
    END_THROTTLING = enum.auto()
    RESUME_AUTHENTICATION = enum.auto()


class Response:
    """What a processor is told of one channel; `chunks` is the whole frame of a SEND."""

    __slots__ = ("channel", "chunks", "kind", "reason", "request", "throttle_time_ms")

    def __init__(
        self,
        kind: ResponseKind,
        channel: KafkaChannel,
        request: RequestContext | None = None,
        chunks: list[Chunk] | None = None,
        reason: str = "",
        throttle_time_ms: int = 0,
    ) -> None:
        self.kind = kind
        self.channel = channel
        self.request = request
        self.chunks = chunks
        self.reason = reason
        self.throttle_time_ms = throttle_time_ms


class RequestChannel:
    """The bounded queue between processors and handlers; one per server, shared by its listeners.

    A processor never blocks on a full queue: it keeps the request, and is woken when a handler takes one.
    """

    def __init__(self, scheduler: RequestScheduler) -> None:
        self._scheduler = scheduler
        self._waiting: set[Processor] = set()
        self.take = scheduler.take
        self.wake_handler = scheduler.wake
        self.size = scheduler.size
        self.full_count = 0

    def send_request(self, request: RequestContext, processor: Processor) -> bool:
        """Queue a request; False when the queue is full: try again once woken."""
        if self._scheduler.offer(request):
            return True
        self.full_count += 1
        self._waiting.add(processor)
        # A handler may have emptied the queue between the refusal and the note of it.
        if self._scheduler.offer(request):
            self._waiting.discard(processor)
            return True
        return False

    def receive_request(self) -> RequestContext | None:
        """The next request for a handler; None asks the handler to look whether it shall stop."""
        request = self.take()
        if self._waiting:
            waiting, self._waiting = self._waiting, set()
            for processor in waiting:
                processor.wakeup()
        return request
