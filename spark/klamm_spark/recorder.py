"""From what observers were told to lines of JSON: outcomes, resources, times. Runs on the writer's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klamm_spark.aggregation import WINDOW_NS, Client, Window
from klamm_spark.encoder import (
    LineEncoder,
    address_fields,
    error_fields,
    fields_of,
    request_fields,
    resource_fields,
    stage_fields,
    stage_times,
)
from klamm_spark.event import ADMIN, AUDIT_GAP, AUTHENTICATION, CONNECTION, REQUEST
from klamm_spark.policy import EVERYTHING, NOTHING
from klamm_spark.resources import Summary, learn_topic_ids, summarize, summarize_errors

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Sequence

    from klamm import Address, AdminEvent, RequestContext
    from klamm.runtime import Clock
    from klamm_spark.aggregation import ListenerAudit

_SASL_AUTHENTICATION_FAILED: Final = 58


class Recorder:
    """Collects lines until `take`. Sequence numbers are given in the order of the calls."""

    def __init__(self, encoder: LineEncoder, clock: Clock, begun: deque[Client]) -> None:
        self._encoder = encoder
        self._clock = clock
        self._begun = begun
        self._lines: list[str] = []
        self._wall_offset_ns = 0
        self._counting: set[Client] = set()
        self._next_sweep_ns = 0
        self.set_time()

    def set_time(self) -> None:
        """Compare the wall clock with the other, whose readings become wall-clock times."""
        self._wall_offset_ns = self._clock.wall_us() * 1000 - self._clock.monotonic_ns()

    def take(self) -> bytes:
        """The lines that have come together."""
        data = "".join(self._lines).encode("ascii")
        self._lines = []
        return data

    @property
    def count(self) -> int:
        """How many lines have come together."""
        return len(self._lines)

    def _line(self, monotonic_ns: int, kind: str, action: str, outcome: str, fields: str) -> None:
        time_us = (monotonic_ns + self._wall_offset_ns) // 1000
        self._lines.append(self._encoder.line(time_us, kind, action, outcome, fields))

    # ---- requests

    def requests(self, client: Client, requests: Sequence[RequestContext], end_ns: int) -> None:
        """Requests of one connection that are told of by themselves; their answers left at `end_ns`."""
        client.refresh()
        for request in requests:
            summary = self._summary(client, request)
            if self._is_told(client, request) or summary.denied or request.refused:
                fields = (
                    f'"request_bytes":{request.size_bytes},"response_bytes":{request.response_bytes}'
                    f"{stage_times(request, end_ns)}"
                )
                self._request_line(client, request, summary, fields, end_ns)

    def window(self, client: Client, window: Window) -> None:
        """A second's worth of requests of one connection, client id, API and result."""
        client.refresh()
        request, count = window.first, window.count
        assert request is not None
        if not self._is_told(client, request) and not request.refused:
            return
        summary = self._summary(client, request)
        if window.added_up:
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
        self._request_line(client, request, summary, fields, window.last_ns)

    def _is_told(self, client: Client, request: RequestContext) -> bool:
        excluded_ids = client.listener.policy.excluded_client_ids
        return client.level(request.api_key) != NOTHING and request.client_id not in excluded_ids

    def _summary(self, client: Client, request: RequestContext) -> Summary:
        if type(request.frame) is Summary:
            return request.frame
        topics, most = client.listener.topics, client.listener.max_resources
        learn_topic_ids(request, topics)
        if client.level(request.api_key) == EVERYTHING:
            return summarize(request, topics, most)
        return summarize_errors(request, most)

    def _request_line(
        self, client: Client, request: RequestContext, summary: Summary, fields: str, end_ns: int
    ) -> None:
        if request.refused:
            outcome = "refused"
        elif summary.denied:
            outcome = "denied"
        elif summary.error_code:
            outcome = "error"
        else:
            outcome = "throttled" if request.throttle_time_ms else "ok"
        resources = resource_fields(summary) if summary.denied or client.level(request.api_key) == EVERYTHING else ""
        self._line(
            end_ns,
            REQUEST,
            "completed",
            outcome,
            f"{client.fields}{request_fields(request)}{error_fields(summary.error_code)},{fields}{resources}",
        )

    def sweep(self, *, everything: bool = False) -> None:
        """Put out the rows of the seconds that are over; does nothing more than once a second."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._next_sweep_ns and not everything:
            return
        self._next_sweep_ns = now_ns + WINDOW_NS
        while self._begun:
            self._counting.add(self._begun.popleft())
        for client in list(self._counting):
            for window in client.take_windows(None if everything else now_ns):
                self.window(client, window)
            if not client.counting:
                self._counting.discard(client)

    # ---- everything else

    def authentication(self, client: Client, action: str, reason: str, now_ns: int) -> None:
        """A client has, or has not, proved who it is."""
        client.refresh()
        failed = action.endswith("failure")
        if client.excluded and not failed:
            return
        code = _SASL_AUTHENTICATION_FAILED if failed else 0
        outcome = "denied" if failed else "closed" if action == "expiry" else "ok"
        fields = f"{client.fields}{error_fields(code)}{fields_of(reason=reason)}"
        self._line(now_ns, AUTHENTICATION, action, outcome, fields)

    def opened(self, client: Client, now_ns: int) -> None:
        """A connection became READY."""
        client.refresh()
        if not client.excluded:
            self._line(now_ns, CONNECTION, "opened", "ok", client.fields)

    def closed(self, client: Client, reason: str, now_ns: int) -> None:
        """A connection is gone."""
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
        """A gate did not let a connection in."""
        fields = f"{listener.fields}{address_fields(address)}{fields_of(reason=reason, detail=detail)}"
        self._line(now_ns, CONNECTION, "refused", "refused", fields)

    def admin_event(self, event: AdminEvent) -> None:
        """An administrative act."""
        outcome = "error" if event.failed else "ok"
        fields = fields_of(listener=event.listener, detail=event.detail)
        self._lines.append(self._encoder.line(event.time_us, ADMIN, event.action, outcome, fields))

    def gap(self, action: str, reason: str, **gap: Any) -> None:
        """Events are missing: `gap_boot`, `gap_first_seq`, `gap_last_seq`, `gap_count`, `detail`."""
        self._line(self._clock.monotonic_ns(), AUDIT_GAP, action, "error", fields_of(reason=reason, **gap))

    def dropped(self, boot: str, count: int, reason: str) -> None:
        """`count` events had no room: their numbers are used up, and a gap tells so."""
        first = self._encoder.next_seq
        self._encoder.next_seq = first + count
        self.gap("dropped", reason, gap_boot=boot, gap_first_seq=first, gap_last_seq=first + count - 1, gap_count=count)


def _repeats(count: int, span_ns: int, longest_ns: int) -> str:
    if count == 1:
        return ""
    longest = f',"total_time_max_ms":{longest_ns / 1e6:.3f}' if longest_ns else ""
    return f'{longest},"repeat_count":{count},"duration_ms":{span_ns / 1e6:.3f}'
