"""Counting the requests that are too many to be told of one by one.

That happens where requests are served, before anything is queued: a thread that did it later would take the interpreter
from the server for much longer. What is told of by itself goes to the writer's thread; of the rest only sums are kept.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from klamm.wire.api_keys import ApiKey
from klamm.wire.response_errors import first_error
from klamm_spark.encoder import connection_fields, listener_fields
from klamm_spark.policy import ADMINISTRATIVE, EVERYTHING, NOTHING, Policy
from klamm_spark.resources import AUTHORIZATION_ERRORS, Summary, TopicNames, add_produced_and_fetched, summarize

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Sequence

    from klamm import ConnectionContext, ListenerContext, RequestContext
    from klamm_spark.settings import AuditSettings

WINDOW_NS: Final = 1_000_000_000
_KEPT_UP_TO_BYTES: Final = 2048
"""Requests that moved more are read on the spot, so that nobody holds their frames."""
_ADDED_UP: Final = frozenset({int(ApiKey.PRODUCE), int(ApiKey.FETCH)})
"""Their rows tell what all requests moved, by topic; those of other APIs tell the resources of the first."""


class ListenerAudit:
    """What one listener's observer wants to be told. `begun` takes the clients that begin to count."""

    __slots__ = ("aggregate_above", "begun", "fields", "max_resources", "policy", "topics")

    def __init__(
        self, listener: ListenerContext, settings: AuditSettings, topics: TopicNames, begun: deque[Client]
    ) -> None:
        self.fields = listener_fields(listener)
        self.policy = Policy(settings)
        above = settings.aggregate_above_per_second
        self.aggregate_above = above if above >= 0 else None
        self.max_resources = settings.max_resources
        self.topics = topics
        self.begun = begun


class Window:
    """Requests of one connection, API and result in one second, from its first on: `seen`, of which `count` are summed.

    The sums of the moments that a request passed are enough to tell the means of its stages.
    """

    __slots__ = (
        "added_up",
        "api_key",
        "completed_ns",
        "count",
        "dequeued_ns",
        "end_ns",
        "first",
        "last_ns",
        "local_end_ns",
        "longest_ns",
        "received_ns",
        "request_bytes",
        "response_bytes",
        "response_queue_ns",
        "seen",
        "sent_ns",
        "start_ns",
        "started_ns",
        "throttle_ms",
        "told",
        "topics",
    )

    def __init__(self, api_key: int, end_ns: int, *, told: bool, added_up: bool) -> None:
        self.api_key = api_key
        self.end_ns = end_ns
        self.told = told
        self.added_up = added_up
        self.first: RequestContext | None = None
        self.seen = self.count = self.request_bytes = self.response_bytes = 0
        self.start_ns = self.last_ns = self.longest_ns = self.throttle_ms = 0
        self.received_ns = self.started_ns = self.local_end_ns = self.completed_ns = self.sent_ns = 0
        self.dequeued_ns = self.response_queue_ns = 0
        self.topics: dict[str, list[int]] = {}

    def add(self, request: RequestContext, end_ns: int) -> None:
        """Sum up one more request, whose answer was out at `end_ns`."""
        received_ns = request.received_ns
        completed_ns = request.completed_ns
        self.count += 1
        self.request_bytes += request.size_bytes
        self.response_bytes += request.response_bytes
        self.received_ns += received_ns
        self.started_ns += request.handler_start_ns
        self.local_end_ns += request.local_end_ns
        self.completed_ns += completed_ns
        self.sent_ns += end_ns
        self.last_ns = end_ns
        if end_ns - received_ns > self.longest_ns:
            self.longest_ns = end_ns - received_ns
        if request.dequeued_ns:
            self.response_queue_ns += request.dequeued_ns - completed_ns
        if request.throttle_time_ms:
            self.throttle_ms += request.throttle_time_ms


class Client:
    """One connection. Its processor's thread and the writer's share it, under `lock`."""

    __slots__ = (
        "connection",
        "counting",
        "excluded",
        "fields",
        "levels",
        "listener",
        "lock",
        "principal",
        "software",
        "windows",
    )

    def __init__(self, connection: ConnectionContext, listener: ListenerAudit) -> None:
        self.connection = connection
        self.listener = listener
        self.lock = threading.Lock()
        self.windows: dict[Any, Window] = {}
        self.counting = False
        self._take_over()

    def _take_over(self) -> None:
        connection = self.connection
        self.principal = connection.principal
        self.software = connection.client_software_name
        self.fields = connection_fields(connection)
        self.excluded = self.listener.policy.excludes(str(self.principal), connection.client_address.host)
        self.levels: dict[int, int] = {}

    def refresh(self) -> None:
        """Take over what the connection says of itself now, if that has changed."""
        connection = self.connection
        if self.principal is not connection.principal or self.software is not connection.client_software_name:
            self._take_over()

    def level(self, api_key: int) -> int:
        """How much of its requests of an API is told."""
        level = self.levels.get(api_key)
        if level is None:
            level = NOTHING if self.excluded else self.listener.policy.level(str(self.principal), api_key)
            self.levels[api_key] = level
        return level

    def sift(self, requests: Sequence[RequestContext], end_ns: int, over: list[Window]) -> Sequence[RequestContext]:
        """The requests that are told of by themselves; the others are counted. Windows that have ended go to `over`."""
        above = self.listener.aggregate_above
        if above is None:
            return requests
        alone: list[RequestContext] = []
        windows = self.windows
        with self.lock:
            for request in requests:
                error_code = request.error_code or first_error(request.response)
                key: Any = request.api_key
                if error_code or request.throttle_time_ms:
                    if error_code and _is_denial(request, error_code):
                        alone.append(request)
                        continue
                    key = (key, error_code, request.refused, request.throttle_time_ms > 0)
                window = windows.get(key)
                if window is None or end_ns >= window.end_ns:
                    if window is not None and window.count:
                        over.append(window)
                    window = windows[key] = self._begin(request.api_key, end_ns)
                window.seen += 1
                if window.seen <= above:
                    alone.append(request)
                elif window.told:
                    if window.first is None:
                        window.first = without_frames(request, self.listener)
                        window.start_ns = end_ns
                    window.add(request, end_ns)
                    if window.added_up:
                        add_produced_and_fetched(request, window.topics, self.listener.topics)
        return alone

    def _begin(self, api_key: int, now_ns: int) -> Window:
        if not self.counting:
            self.counting = True
            self.listener.begun.append(self)
        level = self.level(api_key)
        added_up = level == EVERYTHING and api_key in _ADDED_UP
        window = Window(api_key, now_ns + WINDOW_NS, told=level != NOTHING, added_up=added_up)
        if api_key in ADMINISTRATIVE:
            # Never reached: each one is told of by itself.
            window.seen = -(1 << 62)
        return window

    def take_windows(self, now_ns: int | None) -> list[Window]:
        """Take out those that have ended, or all; the ones that have something to tell."""
        with self.lock:
            ended = [key for key, window in self.windows.items() if now_ns is None or now_ns >= window.end_ns]
            taken = [self.windows.pop(key) for key in ended]
            self.counting = bool(self.windows)
        return [window for window in taken if window.count]


def _is_denial(request: RequestContext, error_code: int) -> bool:
    return error_code in AUTHORIZATION_ERRORS or any(not granted for *_, granted in request.decisions or ())


def without_frames(request: RequestContext, listener: ListenerAudit) -> RequestContext:
    """The request, with its messages replaced by their summary if they are large."""
    if request.size_bytes + request.response_bytes > _KEPT_UP_TO_BYTES and type(request.frame) is not Summary:
        request.frame = summarize(request, listener.topics, listener.max_resources)
        request.response = None
    return request
