"""`Recorder`: turns observed events into lines of JSON, with outcomes, resources and times. It runs on the writer's
thread.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from klamm import Address, AdminEvent, KafkaPrincipal, RequestEvent, RequestOutcome
from klamm.forwarding import free_in_pieces
from klamm.runtime import Clock
from klamm_spark.events.event import ADMIN, AUDIT_GAP, AUTHENTICATION, CONNECTION, REQUEST
from klamm_spark.observer.aggregation import WINDOW_NS, Client, ListenerAudit, Window
from klamm_spark.observer.encoder import (
    LineEncoder,
    address_fields,
    certificate_fields,
    connection_fields,
    context_fields,
    error_fields,
    fields_of,
    principal_fields,
    resource_fields,
    resource_texts,
    split_resources,
    stage_fields,
    stage_times,
)
from klamm_spark.observer.long_events import LongEvent
from klamm_spark.observer.policy import EVERYTHING, NOTHING
from klamm_spark.requests.resources import Summary, learn_topic_ids, summarize, summarize_errors
from klamm_spark.requests.state_changes import summarize_change

_SASL_AUTHENTICATION_FAILED: Final = 58
_NO_FURTHER_REQUEST: Final = '"repeat_count":0'
_NODE_KNOWS: Final = frozenset({RequestOutcome.FAILED, RequestOutcome.LOST_DURING})
"""Outcomes after which it is unknown if a node of a cluster has executed the request."""
_REASONS: Final = frozenset(
    {RequestOutcome.FAILED, RequestOutcome.LOST_BEFORE, RequestOutcome.LOST_DURING, RequestOutcome.LOST_AFTER}
)


class Recorder:
    """A collector of lines until `take`. The order of the calls is the order of the sequence numbers."""

    def __init__(
        self,
        encoder: LineEncoder,
        clock: Clock,
        new_counting: deque[Client],
        named: Callable[[str], str] | None = None,
    ) -> None:
        """Create it. `named` returns a line with pseudonyms in it, see `klamm_spark.events.pseudonyms`."""
        self._encoder = encoder
        self._named = named
        self._clock = clock
        self._new_counting = new_counting
        self._lines: list[str] = []
        self._finished: list[str] = []
        self._size_bytes = 0
        self._wall_offset_ns = 0
        self._counting: set[Client] = set()
        self._next_sweep_ns = 0
        self.set_time()

    def set_time(self) -> None:
        """Read the offset between the wall clock and the monotonic clock, which converts the times of events."""
        self._wall_offset_ns = self._clock.wall_us() * 1000 - self._clock.monotonic_ns()

    def take(self) -> tuple[bytes, list[str]]:
        """Remove and return the collected lines, and the ids of the intents whose outcomes are in them."""
        data, finished = "".join(self._lines).encode("ascii"), self._finished
        self._lines, self._finished, self._size_bytes = [], [], 0
        return data, finished

    @property
    def count(self) -> int:
        """Return the number of collected lines."""
        return len(self._lines)

    @property
    def size_bytes(self) -> int:
        """Return the size of the lines that are collected."""
        return self._size_bytes

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._size_bytes += len(line)

    def _line(self, monotonic_ns: int, kind: str, action: str, outcome: str, fields: str) -> None:
        self._event((monotonic_ns + self._wall_offset_ns) // 1000, kind, action, outcome, fields)

    def _event(self, time_us: int, kind: str, action: str, outcome: str, fields: str) -> None:
        fields = fields if self._named is None else self._named(fields)
        self._add(self._encoder.line(time_us, kind, action, outcome, fields))

    # ---- requests

    def requests(self, client: Client, events: Sequence[RequestEvent | LongEvent]) -> None:
        """Record requests of one connection one by one."""
        client.refresh()
        for each in events:
            event, summary = self._summarized(client, each, change=False)
            if self._is_recorded(client, event) or summary.denied or event.outcome is RequestOutcome.REFUSED:
                self._request_line(client, event, summary, _of_one(event), event.times.end_ns)
            if isinstance(each, LongEvent):
                free_in_pieces(summary.resources)

    def change(self, client: Client, kept: RequestEvent | LongEvent, intent_id: str | None) -> None:
        """Record a state change with all of its resources, no matter which levels and exclusions apply."""
        client.refresh()
        event, summary = self._summarized(client, kept, change=True)
        self._request_line(client, event, summary, _of_one(event), event.times.end_ns, whole=True, intent_id=intent_id)
        if intent_id is not None:
            self._finished.append(intent_id)
        if isinstance(kept, LongEvent):
            free_in_pieces(summary.resources)

    def _summarized(
        self, client: Client, kept: RequestEvent | LongEvent, *, change: bool
    ) -> tuple[RequestEvent, Summary]:
        """Return an event and its summary. A long event has no messages any more: they are freed in pieces, so that no
        thread waits.
        """
        if not isinstance(kept, LongEvent):
            return kept, self._summary(client, kept, change=change)
        event = kept.take()
        summary = self._summary(client, event, change=change)
        messages = [event.request, event.response]
        event = event._replace(request=summary, response=None)
        free_in_pieces(messages)
        return event, summary

    def interrupted(self, intent: dict[str, Any]) -> None:
        """Record a state change that started before the last stop of the server and whose outcome is unknown."""
        others = {name: value for name, value in intent.items() if name not in ("time_us", "resources")}
        fields = f",{json.dumps(others, separators=(',', ':'))[1:-1]}"
        texts = (json.dumps(resource, separators=(",", ":")) for resource in intent.get("resources", ()))
        for number, resources in enumerate(split_resources(texts, len(fields))):
            rest = f",{_NO_FURTHER_REQUEST}{resources}" if number else resources
            # The intent's fields have pseudonyms already.
            self._add(self._encoder.line(intent["time_us"], REQUEST, "interrupted", "unknown", fields + rest))
        self._finished.append(intent["intent_id"])

    def window(self, client: Client, window: Window) -> None:
        """Record the requests of one second with the same connection, client id, API and result."""
        client.refresh()
        event, count = window.first, window.count
        assert event is not None
        if not self._is_recorded(client, event) and event.outcome is not RequestOutcome.REFUSED:
            return
        summary = self._summary(client, event)
        if window.topics_summed:
            summary.add_topics(window.topics, client.listener.max_resources)
        times = ""
        if window.measured:
            times = stage_fields(
                1e6 * window.measured,
                window.started_ns - window.received_ns,
                window.completed_ns - window.started_ns - window.remote_ns,
                window.remote_ns,
                window.throttle_ms / count,
                window.response_queue_ns,
                window.sent_ns - window.completed_ns - window.response_queue_ns,
                window.sent_ns - window.received_ns,
            )
        fields = (
            f'"request_bytes":{window.request_bytes},"response_bytes":{window.response_bytes}'
            f"{times}{_repeats(count, window.last_ns - window.start_ns, window.longest_ns)}"
        )
        self._request_line(client, event, summary, fields, window.last_ns)

    def _is_recorded(self, client: Client, event: RequestEvent) -> bool:
        excluded_ids = client.listener.policy.excluded_client_ids
        return client.level(event.context.api_key) != NOTHING and event.context.client_id not in excluded_ids

    def _summary(self, client: Client, event: RequestEvent, *, change: bool = False) -> Summary:
        if type(event.request) is Summary:
            return event.request
        topics, most = client.listener.topics, client.listener.max_resources
        learn_topic_ids(event, topics)
        if change:
            return summarize_change(event, topics)
        if client.level(event.context.api_key) == EVERYTHING:
            return summarize(event, topics, most)
        return summarize_errors(event)

    def _request_line(
        self,
        client: Client,
        event: RequestEvent,
        summary: Summary,
        fields: str,
        end_ns: int,
        *,
        whole: bool = False,
        intent_id: str | None = None,
    ) -> None:
        """Write the line of a request, with `fields`.

        With `whole`, and for a denied request, write as many lines as its resources need. Only the first line then has
        `fields`.
        """
        outcome = _outcome(event, summary)
        reason = event.outcome.value if event.outcome in _REASONS else None
        all_have = (
            f"{client.fields}{context_fields(event.context)}{error_fields(summary.error_code)}"
            f"{fields_of(upstream_node_id=event.upstream_node_id, reason=reason, intent_id=intent_id)}"
        )
        size = len(all_have) + len(fields)
        if whole or summary.denied:
            for resources in split_resources(resource_texts(summary), size):
                self._line(end_ns, REQUEST, "completed", outcome, f"{all_have},{fields}{resources}")
                fields = _NO_FURTHER_REQUEST
            return
        recorded = client.level(event.context.api_key) == EVERYTHING
        resources = resource_fields(summary, size) if recorded else ""
        self._line(end_ns, REQUEST, "completed", outcome, f"{all_have},{fields}{resources}")

    def sweep(self, *, everything: bool = False) -> None:
        """Record the windows that have ended, at most once a second; with `everything` record all windows at once."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._next_sweep_ns and not everything:
            return
        self._next_sweep_ns = now_ns + WINDOW_NS
        while self._new_counting:
            self._counting.add(self._new_counting.popleft())
        for client in list(self._counting):
            for window in client.take_windows(None if everything else now_ns):
                self.window(client, window)
            if not client.counting:
                self._counting.discard(client)

    # ---- everything else

    def authentication(
        self, client: Client, action: str, reason: str, who: tuple[KafkaPrincipal, str], now_ns: int
    ) -> None:
        """Record that a client has authenticated or failed to. `who` has its principal, and the principal that it
        claimed.
        """
        principal, attempted = who
        client.refresh()
        excluded, connection = client.excluded, client.fields
        if principal is not client.principal:
            excluded = client.listener.policy.excludes(str(principal), client.connection.client_address.host)
            connection = connection_fields(client.connection, principal)
        failed = action.endswith("failure")
        if excluded and not failed:
            return
        code = _SASL_AUTHENTICATION_FAILED if failed else 0
        outcome = "denied" if failed else "closed" if action == "expiry" else "ok"
        claimed = (
            principal_fields(attempted) + certificate_fields(client.connection.transport_details) if failed else ""
        )
        fields = f"{connection}{error_fields(code)}{claimed}{fields_of(reason=reason)}"
        self._line(now_ns, AUTHENTICATION, action, outcome, fields)

    def opened(self, client: Client, now_ns: int) -> None:
        """Record that a connection has become READY."""
        client.refresh()
        if not client.excluded:
            self._line(now_ns, CONNECTION, "opened", "ok", client.fields)

    def closed(self, client: Client, reason: str, now_ns: int) -> None:
        """Record that a connection has closed."""
        client.refresh()
        if client.excluded:
            return
        connection = client.connection
        fields = fields_of(
            reason=reason,
            duration_ms=max(0, now_ns - connection.opened_ns) / 1e6,
            request_bytes=connection.received_bytes,
            response_bytes=connection.sent_bytes,
        )
        self._line(now_ns, CONNECTION, "closed", "closed", client.fields + fields)

    def refused(self, listener: ListenerAudit, address: Address, reason: str, detail: str, now_ns: int) -> None:
        """Record that a gate has refused a connection."""
        fields = f"{listener.fields}{address_fields(address)}{fields_of(reason=reason, detail=detail)}"
        self._line(now_ns, CONNECTION, "refused", "refused", fields)

    def admin_event(self, event: AdminEvent) -> None:
        """Record an administrative act."""
        outcome = "error" if event.failed else "ok"
        fields = fields_of(listener=event.listener, detail=event.detail)
        self._event(event.time_us, ADMIN, event.action, outcome, fields)

    def gap(self, action: str, reason: str, **gap: Any) -> None:
        """Record that events are missing. `gap` has `gap_boot`, `gap_first_seq`, `gap_last_seq`, `gap_count` and
        `detail`.
        """
        self._line(self._clock.monotonic_ns(), AUDIT_GAP, action, "error", fields_of(reason=reason, **gap))

    def dropped(self, boot: str, count: int, reason: str) -> None:
        """Record that `count` events had no room. They get sequence numbers, and a gap event reports these numbers."""
        first = self._encoder.next_seq
        self._encoder.next_seq = first + count
        self.gap("dropped", reason, gap_boot=boot, gap_first_seq=first, gap_last_seq=first + count - 1, gap_count=count)


def _outcome(event: RequestEvent, summary: Summary) -> str:
    """Return the outcome of a request, no matter if the client has received the response."""
    if event.outcome is RequestOutcome.REFUSED:
        return "refused"
    if summary.denied:
        return "denied"
    if event.upstream_node_id is not None and event.outcome in _NODE_KNOWS:
        return "unknown"
    if summary.error_code or event.outcome in (RequestOutcome.FAILED, RequestOutcome.LOST_BEFORE):
        return "error"
    return "throttled" if event.context.throttle_time_ms else "ok"


def _of_one(event: RequestEvent) -> str:
    """Return the sizes and times of a request with a line of its own."""
    sizes = f'"request_bytes":{event.context.size_bytes},"response_bytes":{event.response_bytes}'
    return sizes + stage_times(event)


def _repeats(count: int, span_ns: int, longest_ns: int) -> str:
    if count == 1:
        return ""
    longest = f',"total_time_max_ms":{longest_ns / 1e6:.3f}' if longest_ns else ""
    return f'{longest},"repeat_count":{count},"duration_ms":{span_ns / 1e6:.3f}'
