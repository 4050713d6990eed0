"""Aggregation of requests, because there are too many to record each of them by itself.

The thread that serves the requests aggregates them before it queues anything. Another thread would keep the interpreter
from the server for much longer. Requests that are recorded one by one go to the writer's thread. Of the others only
sums are kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from klamm import ConnectionContext, ListenerContext, RequestContext, RequestEvent, RequestOutcome, StageTimes
from klamm.runtime import switch_threads_often
from klamm_spark.observer.encoder import connection_fields, listener_fields
from klamm_spark.observer.event_queue import Entry, EventQueue
from klamm_spark.observer.long_events import RESOURCES_OF_ONE_EVENT, LongEvent, long_event
from klamm_spark.observer.policy import EVERYTHING, NOTHING, SUMMED_BY_TOPIC, Policy
from klamm_spark.requests.resources import (
    AUTHORIZATION_ERRORS,
    Summary,
    TopicNames,
    add_produced_and_fetched,
    summarize,
)
from klamm_spark.requests.state_changes import CHANGING, is_change, summarize_change
from klamm_spark.settings.audit import AuditSettings

WINDOW_NS: Final = 1_000_000_000
_SUMMED_OUTCOMES: Final = frozenset({RequestOutcome.ANSWERED, RequestOutcome.NO_ANSWER, RequestOutcome.REFUSED})
_ALWAYS: Final = 1 << 62
_MEASURED_FIRST: Final = 16
_MEASURED_EVERY: Final = 8
"""A window measures the times of its first `_MEASURED_FIRST` requests, and then of each `_MEASURED_EVERY`-th."""
_KEPT_UP_TO_BYTES: Final = 2048
"""Larger requests are summarized at once, so that the queue does not hold their frames."""
MAX_WINDOWS: Final = 64
"""The maximum number of windows of one connection. Requests beyond it are recorded one by one."""
_NO_CLIENT_ID_YET: Final = object()
_NOT_RUN: Final = frozenset({RequestOutcome.FAILED, RequestOutcome.LOST_BEFORE})


class ListenerAudit:
    """The audit of one listener. All its connections share it, on any thread.

    `put`, `put_security` and `put_administration` belong to the `queues`, in this order. `new_counting` receives
    clients whose first window begins. `abandon` is the method of the intents' journal.
    """

    def __init__(
        self,
        listener: ListenerContext,
        settings: AuditSettings,
        queues: tuple[EventQueue, EventQueue, EventQueue],
        topics: TopicNames,
        new_counting: deque[Client],
        abandon: Callable[[str], None],
    ) -> None:
        self.fields = listener_fields(listener)
        self.policy = Policy(settings)
        above = settings.aggregate_above_per_second
        self.aggregate_above = above if above >= 0 else _ALWAYS
        self.max_resources = settings.max_resources
        self.topics = topics
        self.put, self.put_security, self.put_administration = (queue.put for queue in queues)
        self.abandon = abandon
        self.new_counting = new_counting
        self.switch_often = partial(switch_threads_often, listener.services.scheduler.schedule)
        self._queues = queues

    def has_room(self, size: int) -> bool:
        """Return True if each queue stays at most half full with `size` further events."""
        return all(2 * (queue.size + size) <= queue.capacity for queue in self._queues)


@dataclass(slots=True, eq=False)
class Window:
    """The sums of requests of one connection, client id, API and result within one second after the first of them.

    The next `individual_left` requests are recorded one by one; the others are added up if `recorded`. The sums of
    `received_ns`, `started_ns`, `completed_ns` and `sent_ns` give the mean times of the stages. They are the sums of
    `measured` requests. If there are many requests, only some of them are measured.
    """

    end_ns: int
    individual_left: int
    recorded: bool
    topics_summed: bool
    first: RequestEvent | None = None
    measured: int = 0
    count: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    throttle_ms: int = 0
    start_ns: int = 0
    last_ns: int = 0
    longest_ns: int = 0
    received_ns: int = 0
    started_ns: int = 0
    completed_ns: int = 0
    sent_ns: int = 0
    remote_ns: int = 0
    response_queue_ns: int = 0
    topics: dict[str, list[int]] = field(default_factory=dict)

    def measure(self, times: StageTimes) -> None:
        """Add the times of a request."""
        self.measured += 1
        self.received_ns += times.received_ns
        self.started_ns += times.handler_start_ns
        self.completed_ns += times.completed_ns
        self.sent_ns += times.end_ns
        self.longest_ns = max(self.longest_ns, times.total_ns)
        self.remote_ns += times.remote_ns
        self.response_queue_ns += times.response_queue_ns


class Client:
    """One connection. Its processor's thread and the writer's thread share it, under `lock`.

    `intents` has the ids of the intents of its running requests, by the identity of their contexts.

    A key of `windows` begins with the API key, or with the API key and the client id if this is not `client_id`, the
    first one of the connection. If the request had an error, was refused or throttled, the key says so.
    """

    __slots__ = (
        "client_id",
        "connection",
        "counting",
        "excluded",
        "fields",
        "intents",
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
        # Protects the windows.
        self.lock = threading.Lock()
        self.windows: dict[Any, Window] = {}
        self.client_id: Any = _NO_CLIENT_ID_YET
        self.counting = False
        self.intents: dict[int, str] = {}
        self._copy_connection()

    def _copy_connection(self) -> None:
        connection = self.connection
        self.principal = connection.principal
        self.software = connection.client_software_name
        self.fields = connection_fields(connection, self.principal)
        self.excluded = self.listener.policy.excludes(str(self.principal), connection.client_address.host)
        self.levels: dict[int, int] = {}

    def refresh(self) -> None:
        """Copy the principal and the software of the connection again, if they have changed."""
        connection = self.connection
        if self.principal is not connection.principal or self.software is not connection.client_software_name:
            self._copy_connection()

    def level(self, api_key: int) -> int:
        """Return the level at which this client's requests of an API are recorded."""
        level = self.levels.get(api_key)
        if level is None:
            level = NOTHING if self.excluded else self.listener.policy.level(str(self.principal), api_key)
            self.levels[api_key] = level
        return level

    def add_events(self, events: Sequence[RequestEvent]) -> None:
        """Queue the requests that are recorded one by one, and add up the others."""
        individual: list[RequestEvent] = []
        ended: list[Window] = []
        apart: list[RequestEvent] = []
        windows, client_id = self.windows, self.client_id
        with self.lock:
            for event in events:
                context = event.context
                key: Any = context.api_key
                if context.client_id != client_id:
                    key = self._key_of_other(context)
                    client_id = self.client_id
                if context.api_key in CHANGING and is_change(context.api_key, event.request):
                    apart.append(event)
                    continue
                if event.outcome not in _SUMMED_OUTCOMES or (event.error_code and _is_denial(event)):
                    (apart if event.error_code and _is_denial(event) else individual).append(event)
                    continue
                refused = event.outcome is RequestOutcome.REFUSED
                if event.error_code or refused or context.throttle_time_ms:
                    key = (key, event.error_code, refused, context.throttle_time_ms > 0)
                end_ns = event.times.end_ns
                window = windows.get(key)
                if window is None or end_ns >= window.end_ns:
                    if window is None and len(windows) >= MAX_WINDOWS:
                        if refused or self.level(context.api_key) != NOTHING:
                            individual.append(event)
                        continue
                    window = self._begin(key, context.api_key, end_ns, ended, refused=refused)
                if window.individual_left:
                    window.individual_left -= 1
                    individual.append(event)
                elif window.recorded:
                    self._add(window, event)
        # Outside the lock: `put` may wait for the writer's thread, which may need the lock.
        for window in ended:
            self.put_window(window)
        if individual:
            kept = [_kept(event, self.listener) for event in individual]
            size = sum(each.size if isinstance(each, LongEvent) else 1 for each in kept)
            if size > len(kept):
                self.listener.switch_often()
            self.listener.put(self._requests(kept), size, request=True)
        for event in apart:
            self._put_apart(event)

    def _put_apart(self, event: RequestEvent) -> None:
        """Queue a state change or a denied request.

        An executed state change goes to the queue of administration. A client without rights cannot fill this queue.
        Everything else goes to the queue of security.
        """
        intent_id = self.intents.pop(id(event.context), None)
        changes = is_change(event.context.api_key, event.request)
        kept = _kept(event, self.listener, change=changes)
        size = _size_of(kept)
        if size > 1:
            # The writer's thread needs a millisecond or more for such an event.
            self.listener.switch_often()
        not_run = intent_id is None and event.outcome in _NOT_RUN
        if not changes or not_run or event.outcome is RequestOutcome.REFUSED or _is_denied_whole(event):
            if intent_id is not None:
                self.listener.abandon(intent_id)
            put = self.listener.put_security
        else:
            put = self.listener.put_administration
        if changes:
            put(lambda recorder: recorder.change(self, kept, intent_id), size)
        else:
            put(self._requests([kept]), size)

    def _requests(self, kept: Sequence[RequestEvent | LongEvent]) -> Entry:
        return lambda recorder: recorder.requests(self, kept)

    def put_window(self, window: Window) -> None:
        """Queue a window that has ended."""
        self.listener.put(lambda recorder: recorder.window(self, window), request=True)

    def _add(self, window: Window, event: RequestEvent) -> None:
        count = window.count = window.count + 1
        window.request_bytes += event.context.size_bytes
        window.response_bytes += event.response_bytes
        window.last_ns = event.times.end_ns
        if count <= _MEASURED_FIRST or not count % _MEASURED_EVERY:
            window.measure(event.times)
            if count == 1:
                window.first = without_messages(event, self.listener)
                window.start_ns = event.times.end_ns
        window.throttle_ms += event.context.throttle_time_ms
        if window.topics_summed:
            add_produced_and_fetched(event, window.topics, self.listener.topics)

    def _key_of_other(self, context: RequestContext) -> Any:
        """Return the key of a request if its client id differs from the client id of the connection's first request."""
        if self.client_id is _NO_CLIENT_ID_YET:
            self.client_id = context.client_id
            return context.api_key
        return context.api_key, context.client_id

    def _begin(self, key: Any, api_key: int, now_ns: int, ended: list[Window], *, refused: bool) -> Window:
        old = self.windows.get(key)
        if old is not None and old.count:
            ended.append(old)
        if not self.counting:
            self.counting = True
            self.listener.new_counting.append(self)
        level = self.level(api_key)
        window = self.windows[key] = Window(
            now_ns + WINDOW_NS,
            self.listener.aggregate_above,
            recorded=level != NOTHING or refused,
            topics_summed=level == EVERYTHING and api_key in SUMMED_BY_TOPIC,
        )
        return window

    def take_windows(self, now_ns: int | None) -> list[Window]:
        """Remove the windows that have ended, or all if `now_ns` is None. Return those with requests."""
        with self.lock:
            ended = [key for key, window in self.windows.items() if now_ns is None or now_ns >= window.end_ns]
            taken = [self.windows.pop(key) for key in ended]
            self.counting = bool(self.windows)
        return [window for window in taken if window.count]


def _is_denial(event: RequestEvent) -> bool:
    decisions = event.context.decisions or ()
    return event.error_code in AUTHORIZATION_ERRORS or any(not granted for *_, granted, _ in decisions)


def _is_denied_whole(event: RequestEvent) -> bool:
    """Return True if a request was denied, and no part of it was granted."""
    if not event.error_code or not _is_denial(event):
        return False
    return not any(granted for *_, granted, _ in event.context.decisions or ())


def _kept(event: RequestEvent, listener: ListenerAudit, *, change: bool = False) -> RequestEvent | LongEvent:
    """Return the event for the queue: without its messages, or unchanged if it takes long to summarize."""
    if event.context.size_bytes + event.response_bytes > _KEPT_UP_TO_BYTES:
        long = long_event(event)
        if long is not None and listener.has_room(long.size):
            return long
    return without_messages(event, listener, change=change)


def _size_of(kept: RequestEvent | LongEvent) -> int:
    """Return the number of events that an entry counts for in a queue."""
    if isinstance(kept, LongEvent):
        return kept.size
    if type(kept.request) is Summary:
        return 1 + len(kept.request.resources) // RESOURCES_OF_ONE_EVENT
    return 1


def without_messages(event: RequestEvent, listener: ListenerAudit, *, change: bool = False) -> RequestEvent:
    """Return the event. A summary replaces large messages, so that an event in the queue holds no frame."""
    if event.context.size_bytes + event.response_bytes > _KEPT_UP_TO_BYTES and type(event.request) is not Summary:
        if change:
            summary = summarize_change(event, listener.topics)
        else:
            summary = summarize(event, listener.topics, listener.max_resources)
        return event._replace(request=summary, response=None)
    return event
