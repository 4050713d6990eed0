"""Counting the requests that are too many to be told of one by one.

That happens where requests are served, before anything is queued: a thread that did it later would take the interpreter
from the server for much longer. What is told of by itself goes to the writer's thread; of the rest only sums are kept.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from klamm_spark.encoder import connection_fields, listener_fields
from klamm_spark.policy import ADDED_UP, ADMINISTRATIVE, EVERYTHING, NOTHING, Policy
from klamm_spark.resources import AUTHORIZATION_ERRORS, Summary, TopicNames, add_produced_and_fetched, summarize

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Sequence

    from klamm import ConnectionContext, ListenerContext, RequestContext
    from klamm_spark.settings import AuditSettings

# The kinds of entries in the queue: places in `AuditSink`'s table.
REQUESTS: Final = 0
WINDOW: Final = 1
AUTHENTICATED: Final = 2
OPENED: Final = 3
CLOSED: Final = 4
REFUSED: Final = 5
ANNOUNCED: Final = 6

WINDOW_NS: Final = 1_000_000_000
_ALWAYS: Final = 1 << 62
_MEASURED_FIRST: Final = 16
_MEASURED_EVERY: Final = 8
"""Of a window, the times of so many and then of every so-many-th request are measured."""
_KEPT_UP_TO_BYTES: Final = 2048
"""Requests that moved more are read on the spot, so that nobody holds their frames."""


class ListenerAudit:
    """What one listener wants to be told of. `put` is the queue's; `begun` takes the clients that begin to count."""

    __slots__ = ("aggregate_above", "begun", "fields", "max_resources", "policy", "put", "topics")

    def __init__(
        self,
        listener: ListenerContext,
        settings: AuditSettings,
        topics: TopicNames,
        put: Callable[..., None],
        begun: deque[Client],
    ) -> None:
        self.fields = listener_fields(listener)
        self.policy = Policy(settings)
        above = settings.aggregate_above_per_second
        self.aggregate_above = above if above >= 0 else _ALWAYS
        self.max_resources = settings.max_resources
        self.topics = topics
        self.put = put
        self.begun = begun


class Window:
    """Requests of one connection, API and result in one second, from its first on: some alone, the others summed up.

    The sums of the moments that a request passes are enough to tell the means of its stages: `received_ns`,
    `started_ns`, `completed_ns` and `sent_ns`; of many requests only a part is `measured`. `left` more are told of by
    themselves.
    """

    __slots__ = (
        "added_up",
        "completed_ns",
        "count",
        "end_ns",
        "first",
        "last_ns",
        "left",
        "longest_ns",
        "measured",
        "received_ns",
        "remote_ns",
        "request_bytes",
        "response_bytes",
        "response_queue_ns",
        "sent_ns",
        "start_ns",
        "started_ns",
        "throttle_ms",
        "told",
        "topics",
    )

    def __init__(self, end_ns: int, left: int, *, told: bool, added_up: bool) -> None:
        self.end_ns = end_ns
        self.left = left
        self.told = told
        self.added_up = added_up
        self.first: RequestContext | None = None
        self.measured = 0
        self.count = self.request_bytes = self.response_bytes = self.throttle_ms = 0
        self.start_ns = self.last_ns = self.longest_ns = 0
        self.received_ns = self.started_ns = self.completed_ns = self.sent_ns = 0
        self.remote_ns = self.response_queue_ns = 0
        self.topics: dict[str, list[int]] = {}

    def measure(self, request: RequestContext, end_ns: int) -> None:
        """Add the times of one of the requests, whose answer was out at `end_ns`, if it has any."""
        received_ns = request.received_ns
        if not received_ns:
            return
        self.measured += 1
        self.received_ns += received_ns
        self.started_ns += request.handler_start_ns
        self.completed_ns += request.completed_ns
        self.sent_ns += end_ns
        if end_ns - received_ns > self.longest_ns:
            self.longest_ns = end_ns - received_ns
        if request.dequeued_ns:
            # Only what has left the processor's thread waits for others, or to be sent.
            self.remote_ns += request.completed_ns - request.local_end_ns
            self.response_queue_ns += request.dequeued_ns - request.completed_ns


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

    def take_in(self, requests: Sequence[RequestContext], end_ns: int) -> None:
        """Hand over the requests that are told of by themselves, and count the others."""
        alone: list[RequestContext] = []
        windows = self.windows
        with self.lock:
            for request in requests:
                key: Any = request.api_key
                if request.error_code or request.throttle_time_ms:
                    if request.error_code and _is_denial(request):
                        alone.append(request)
                        continue
                    key = (key, request.error_code, request.refused, request.throttle_time_ms > 0)
                window = windows.get(key)
                if window is None or end_ns >= window.end_ns:
                    window = self._begin(key, request.api_key, window, end_ns)
                if window.left:
                    window.left -= 1
                    alone.append(request)
                elif window.told:
                    count = window.count = window.count + 1
                    window.request_bytes += request.size_bytes
                    window.response_bytes += request.response_bytes
                    window.last_ns = end_ns
                    if count <= _MEASURED_FIRST or not count % _MEASURED_EVERY:
                        window.measure(request, end_ns)
                        if count == 1:
                            window.first = without_frames(request, self.listener)
                            window.start_ns = end_ns
                    if request.throttle_time_ms:
                        window.throttle_ms += request.throttle_time_ms
                    if window.added_up:
                        add_produced_and_fetched(request, window.topics, self.listener.topics)
        if alone:
            for request in alone:
                without_frames(request, self.listener)
            self.listener.put((REQUESTS, self, alone, end_ns), len(alone), request=True)

    def take_repeats(
        self, request: RequestContext, count: int, request_bytes: int, response_bytes: int, last_ns: int
    ) -> None:
        """Count requests that came in a lump: most are without times, so they are only counted."""
        key = request.api_key
        with self.lock:
            window = self.windows.get(key)
            if window is None or last_ns >= window.end_ns + WINDOW_NS:
                window = self._begin(key, request.api_key, window, last_ns)
                window.left = 0
            if not window.told:
                return
            if window.first is None:
                window.first = without_frames(request, self.listener)
            if not window.count or request.completed_ns:
                window.start_ns = min(window.start_ns or last_ns, request.completed_ns or last_ns)
            window.count += count
            window.request_bytes += request_bytes
            window.response_bytes += response_bytes
            window.last_ns = max(window.last_ns, last_ns)

    def _begin(self, key: Any, api_key: int, old: Window | None, now_ns: int) -> Window:
        if old is not None and old.count:
            self.listener.put((WINDOW, self, old), request=True)
        if not self.counting:
            self.counting = True
            self.listener.begun.append(self)
        level = self.level(api_key)
        left = _ALWAYS if api_key in ADMINISTRATIVE else self.listener.aggregate_above
        added_up = level == EVERYTHING and api_key in ADDED_UP
        window = self.windows[key] = Window(now_ns + WINDOW_NS, left, told=level != NOTHING, added_up=added_up)
        return window

    def take_windows(self, now_ns: int | None) -> list[Window]:
        """Take out those that have ended, or all; the ones that have something to tell."""
        with self.lock:
            ended = [key for key, window in self.windows.items() if now_ns is None or now_ns >= window.end_ns]
            taken = [self.windows.pop(key) for key in ended]
            self.counting = bool(self.windows)
        return [window for window in taken if window.count]


def _is_denial(request: RequestContext) -> bool:
    return request.error_code in AUTHORIZATION_ERRORS or any(not granted for *_, granted in request.decisions or ())


def without_frames(request: RequestContext, listener: ListenerAudit) -> RequestContext:
    """The request, with its messages replaced by their summary if they are large."""
    if request.size_bytes + request.response_bytes > _KEPT_UP_TO_BYTES and type(request.frame) is not Summary:
        request.frame = summarize(request, listener.topics, listener.max_resources)
        request.response = None
    return request
