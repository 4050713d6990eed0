"""`RequestChannel`: requests to the handlers, responses back to the processors."""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING

from klamm.api.dispatch import RequestScheduler
from klamm.network.channel import ChannelState

if TYPE_CHECKING:
    from klamm.api.context import RequestContext
    from klamm.network.channel import KafkaChannel
    from klamm.network.processor import Processor
    from klamm.network.send import Chunk

log = logging.getLogger("klamm.network")


class ResponseKind(enum.Enum):
    """Kafka's `RequestChannel.Response` subclasses."""

    SEND = enum.auto()
    NO_OP = enum.auto()
    CLOSE_CONNECTION = enum.auto()
    START_THROTTLING = enum.auto()
    END_THROTTLING = enum.auto()
    ADMIT = enum.auto()
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
        self.lane = scheduler.lane
        self.lane_sizes = scheduler.lane_sizes
        self.handled = scheduler.handled
        self.resized = scheduler.resized
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


class WaitingRequests:
    """Requests of one processor for which the queue had no room: by lane, so that none waits for another lane's."""

    def __init__(self, channel: RequestChannel, processor: Processor) -> None:
        self._channel = channel
        self._processor = processor
        self._lanes: dict[Hashable, deque[RequestContext]] = {}

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def send(self, request: RequestContext) -> None:
        """Queue a request, or keep it until `retry`."""
        if self._lanes:
            waiting = self._lanes.get(self._channel.lane(request))
            if waiting is not None:
                waiting.append(request)
                return
        if not self._channel.send_request(request, self._processor):
            self._lanes[self._channel.lane(request)] = deque((request,))

    def retry(self) -> None:
        """A handler may have made room: one request of each lane at a time, while there is any.

        A request that the scheduler raises for costs its connection; those behind it are tried all the same.
        """
        refused: set[Hashable] = set()
        while len(refused) < len(self._lanes):
            for lane in [lane for lane in self._lanes if lane not in refused]:
                waiting = self._lanes[lane]
                while waiting and _is_gone(waiting[0]):
                    waiting.popleft()
                if waiting and not self._sent_or_given_up(waiting[0]):
                    refused.add(lane)
                    continue
                # Whoever got a place is last in the order now: the next goes to another lane.
                del self._lanes[lane]
                if waiting:
                    waiting.popleft()
                if waiting:
                    self._lanes[lane] = waiting

    def _sent_or_given_up(self, request: RequestContext) -> bool:
        try:
            return self._channel.send_request(request, self._processor)
        except Exception as error:
            log.exception("listener=%s: the request scheduler failed", request.listener.name)
            self._processor.close_connection(request, f"the request scheduler failed: {error!r}")
            return True


def _is_gone(request: RequestContext) -> bool:
    channel: KafkaChannel | None = request.owner
    return channel is None or channel.state is ChannelState.CLOSED
