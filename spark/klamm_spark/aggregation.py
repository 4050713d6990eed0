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
ADMIN_EVENT: Final = 6

WINDOW_NS: Final = 1_000_000_000
_ALWAYS: Final = 1 << 62
_MEASURED_FIRST: Final = 16
_MEASURED_EVERY: Final = 8
"""Of a window, the times of so many and then of every so-many-th request are measured."""
_KEPT_UP_TO_BYTES: Final = 2048
"""Requests that moved more are read on the spot, so that nobody holds their frames."""
MAX_WINDOWS: Final = 64
"""Of one connection. Who has more client ids, APIs and results in a second has the others told of one by one."""
_NO_CLIENT_ID_YET: Final = object()


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
    """Requests of one connection, client id, API and result in one second: some alone, the others summed up.

    The sums of the moments that a request passes are enough to tell the means of its stages: `received_ns`,
    `started_ns`, `completed_ns` and `sent_ns`; of many requests only a part is `measured`. `left` more are told of by
    themselves. The second begins with the first of them.
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
    """One connection. Its processor's thread and the writer's share it, under `lock`.

    The key of a window is the API key, with `client_id`, the first one that the connection named, or both the API key
    and the client id; then what went wrong.
    """

    __slots__ = (
        "client_id",
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
        self.client_id: Any = _NO_CLIENT_ID_YET
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
        over: list[Window] = []
        windows, client_id = self.windows, self.client_id
        with self.lock:
            for request in requests:
                key: Any = request.api_key
                if request.client_id != client_id:
                    key = self._key_of_other(request)
                    client_id = self.client_id
                if request.error_code or request.throttle_time_ms:
                    if request.error_code and _is_denial(request):
                        alone.append(request)
                        continue
                    key = (key, request.error_code, request.refused, request.throttle_time_ms > 0)
                window = windows.get(key)
                if window is None or end_ns >= window.end_ns:
                    if window is None and len(windows) >= MAX_WINDOWS:
                        if request.refused or self.level(request.api_key) != NOTHING:
                            alone.append(request)
                        continue
                    window = self._begin(key, request, end_ns, over)
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
        # Putting may have to wait for the writer, which must then be able to take the lock.
        for window in over:
            self.listener.put((WINDOW, self, window), request=True)
        if alone:
            for request in alone:
                without_frames(request, self.listener)
            self.listener.put((REQUESTS, self, alone, end_ns), len(alone), request=True)

    def take_repeats(
        self, request: RequestContext, count: int, request_bytes: int, response_bytes: int, last_ns: int
    ) -> None:
        """Count requests of one client id that came in a lump: most are without times, so they are only counted."""
        key: Any = request.api_key
        over: list[Window] = []
        with self.lock:
            if request.client_id != self.client_id:
                key = self._key_of_other(request)
            window = self.windows.get(key)
            if window is None or last_ns >= window.end_ns + WINDOW_NS:
                window = self._begin(key, request, last_ns, over)
                window.left = 0
            if window.told:
                if window.first is None:
                    window.first = without_frames(request, self.listener)
                window.start_ns = min(window.start_ns or last_ns, request.completed_ns or last_ns)
                window.count += count
                window.request_bytes += request_bytes
                window.response_bytes += response_bytes
                window.last_ns = max(window.last_ns, last_ns)
        for window in over:
            self.listener.put((WINDOW, self, window), request=True)

    def _key_of_other(self, request: RequestContext) -> Any:
        """The key of a request that is not of the connection's client id; the first to come makes its own that."""
        if self.client_id is _NO_CLIENT_ID_YET:
            self.client_id = request.client_id
            return request.api_key
        return request.api_key, request.client_id

    def _begin(self, key: Any, request: RequestContext, now_ns: int, over: list[Window]) -> Window:
        api_key = request.api_key
        old = self.windows.get(key)
        if old is not None and old.count:
            over.append(old)
        if not self.counting:
            self.counting = True
            self.listener.begun.append(self)
        level = self.level(api_key)
        left = _ALWAYS if api_key in ADMINISTRATIVE else self.listener.aggregate_above
        added_up = level == EVERYTHING and api_key in ADDED_UP
        told = level != NOTHING or request.refused
        window = self.windows[key] = Window(now_ns + WINDOW_NS, left, told=told, added_up=added_up)
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
