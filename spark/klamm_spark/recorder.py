"""From what observers were told to lines of JSON: levels, outcomes, aggregation. Runs on the writer's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klamm.wire.response_errors import first_error
from klamm_spark.encoder import (
    LineEncoder,
    StageTimes,
    address_fields,
    connection_fields,
    error_fields,
    fields_of,
    listener_fields,
    request_fields,
    resource_fields,
)
from klamm_spark.event import ADMIN, AUDIT_GAP, AUTHENTICATION, CONNECTION, REQUEST
from klamm_spark.policy import ADMINISTRATIVE, EVERYTHING, NOTHING, Policy
from klamm_spark.resources import (
    AUTHORIZATION_ERRORS,
    Summary,
    TopicNames,
    learn_topic_ids,
    summarize,
    summarize_errors,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klamm import Address, Announcement, Clock, ConnectionContext, ListenerContext, RequestContext
    from klamm_spark.settings import AuditSettings

_WINDOW_NS: Final = 1_000_000_000
_NO_SUMMARY: Final = Summary(0, False, [], 0)
_STATE: Final = "klamm_spark.audit"
_SASL_AUTHENTICATION_FAILED: Final = 58
# Their rows add up what each request moved; those of other APIs tell the resources of the first.
_SUMMED: Final = frozenset({0, 1})


class ListenerAudit:
    """What one listener's observer wants to be told."""

    __slots__ = ("aggregate_above", "fields", "max_resources", "policy")

    def __init__(self, listener: ListenerContext, settings: AuditSettings) -> None:
        self.fields = listener_fields(listener)
        self.policy = Policy(settings)
        above = settings.aggregate_above_per_second
        self.aggregate_above = above if above >= 0 else None
        self.max_resources = settings.max_resources


class _Window:
    """Requests of one connection, API and result in one second: the first go out by themselves, the rest as a row."""

    __slots__ = (
        "count",
        "end_ns",
        "first",
        "last_ns",
        "request_bytes",
        "response_bytes",
        "seen",
        "start_ns",
        "summary",
        "times",
    )

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.end_ns = start_ns + _WINDOW_NS
        self.last_ns = start_ns
        self.seen = 0
        self.count = 0
        self.first: RequestContext | None = None
        self.request_bytes = 0
        self.response_bytes = 0
        self.times = StageTimes()
        self.summary = _NO_SUMMARY


class _Client:
    """One connection as the writer knows it."""

    __slots__ = ("connection", "excluded", "fields", "levels", "listener", "principal", "software", "windows")

    def __init__(self, connection: ConnectionContext, listener: ListenerAudit) -> None:
        self.connection = connection
        self.listener = listener
        self.windows: dict[Any, _Window] = {}
        self.refresh()

    def refresh(self) -> None:
        """Take over what the connection says of itself now."""
        connection = self.connection
        self.principal = connection.principal
        self.software = connection.client_software_name
        self.fields = connection_fields(connection)
        self.excluded = self.listener.policy.excludes(str(self.principal), connection.client_address.host)
        self.levels: dict[int, int] = {}

    def level(self, api_key: int) -> int:
        """How much of its requests of an API is told."""
        level = self.levels.get(api_key)
        if level is None:
            level = NOTHING if self.excluded else self.listener.policy.level(str(self.principal), api_key)
            self.levels[api_key] = level
        return level


def _is_denial(request: RequestContext, error_code: int) -> bool:
    return error_code in AUTHORIZATION_ERRORS or any(not granted for *_, granted in request.decisions or ())


class Recorder:
    """Collects lines until `take`. Sequence numbers are given in the order of the calls."""

    def __init__(self, encoder: LineEncoder, clock: Clock, topics: TopicNames) -> None:
        self._encoder = encoder
        self._clock = clock
        self._topics = topics
        self._lines: list[str] = []
        self._wall_offset_ns = 0
        self._counting: set[_Client] = set()
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

    def _client(self, connection: ConnectionContext, listener: ListenerAudit) -> _Client:
        client: _Client | None = connection.state.get(_STATE)
        if client is None:
            client = connection.state[_STATE] = _Client(connection, listener)
        elif client.principal is not connection.principal or client.software is not connection.client_software_name:
            client.refresh()
        return client

    # ---- requests

    def requests(self, listener: ListenerAudit, requests: Sequence[RequestContext], end_ns: int) -> None:
        """Requests of one connection whose answers left at `end_ns`."""
        client = self._client(requests[0].connection, listener)
        above = listener.aggregate_above
        for request in requests:
            frame = request.frame
            error_code = (
                frame.error_code if type(frame) is Summary else request.error_code or first_error(request.response)
            )
            if above is None or request.api_key in ADMINISTRATIVE or (error_code and _is_denial(request, error_code)):
                self._alone(client, request, end_ns)
                continue
            key: Any = request.api_key
            if error_code or request.throttle_time_ms:
                key = (key, error_code, request.refused, bool(request.throttle_time_ms))
            window = client.windows.get(key)
            if window is None or end_ns >= window.end_ns:
                if window is not None:
                    self._close_window(client, window)
                window = client.windows[key] = _Window(end_ns)
                self._counting.add(client)
            window.seen += 1
            if window.seen <= above:
                self._alone(client, request, end_ns)
            elif client.level(request.api_key) != NOTHING:
                self._count(client, window, request, end_ns)

    def _count(self, client: _Client, window: _Window, request: RequestContext, end_ns: int) -> None:
        if window.first is None:
            window.first = request
            window.start_ns = end_ns
            window.summary = self._summary(client, request)
        elif request.api_key in _SUMMED and client.level(request.api_key) == EVERYTHING:
            window.summary.add(self._summary(client, request), client.listener.max_resources)
        window.count += 1
        window.last_ns = end_ns
        window.request_bytes += request.size_bytes
        window.response_bytes += request.response_bytes
        window.times.add(request, end_ns)

    def repeated(self, listener: ListenerAudit, request: RequestContext, count: int, last_ns: int) -> None:
        """`count` requests like this one, the first of them, until `last_ns`."""
        client = self._client(request.connection, listener)
        window = _Window(request.received_ns)
        self._count(client, window, request, request.received_ns)
        window.count, window.last_ns = count, last_ns
        window.request_bytes *= count
        window.response_bytes *= count
        if client.level(request.api_key) != NOTHING:
            self._close_window(client, window)

    def _summary(self, client: _Client, request: RequestContext) -> Summary:
        if type(request.frame) is Summary:
            return request.frame
        learn_topic_ids(request, self._topics)
        if client.level(request.api_key) == EVERYTHING:
            return summarize(request, self._topics, client.listener.max_resources)
        return summarize_errors(request, client.listener.max_resources)

    def _alone(self, client: _Client, request: RequestContext, end_ns: int) -> None:
        level = client.level(request.api_key)
        excluded_ids = client.listener.policy.excluded_client_ids
        summary = self._summary(client, request)
        told = level != NOTHING and not (excluded_ids and request.client_id in excluded_ids)
        if not told and not summary.denied and not request.refused:
            return
        times = StageTimes()
        times.add(request, end_ns)
        self._request_line(client, request, summary, times, request.size_bytes, request.response_bytes, end_ns, "")

    def _close_window(self, client: _Client, window: _Window) -> None:
        request = window.first
        if request is None:
            return
        excluded_ids = client.listener.policy.excluded_client_ids
        if excluded_ids and request.client_id in excluded_ids:
            return
        more = ""
        if window.count > 1:
            span_ms = (window.last_ns - window.start_ns) / 1e6
            more = f',"repeat_count":{window.count},"duration_ms":{span_ms:.3f}'
        self._request_line(
            client,
            request,
            window.summary,
            window.times,
            window.request_bytes,
            window.response_bytes,
            window.last_ns,
            more,
            window.count,
        )

    def _request_line(
        self,
        client: _Client,
        request: RequestContext,
        summary: Summary,
        times: StageTimes,
        request_bytes: int,
        response_bytes: int,
        end_ns: int,
        more: str,
        count: int = 1,
    ) -> None:
        if request.refused:
            outcome = "refused"
        elif summary.denied:
            outcome = "denied"
        elif summary.error_code:
            outcome = "error"
        else:
            outcome = "throttled" if request.throttle_time_ms else "ok"
        resources = resource_fields(summary) if client.level(request.api_key) == EVERYTHING or summary.denied else ""
        self._line(
            end_ns,
            REQUEST,
            "completed",
            outcome,
            f"{client.fields}{request_fields(request)}{error_fields(summary.error_code)}"
            f',"request_bytes":{request_bytes},"response_bytes":{response_bytes}'
            f"{times.fields(count)}{more}{resources}",
        )

    def sweep(self, *, everything: bool = False) -> None:
        """Put out the rows of the seconds that are over; does nothing more than once a second."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._next_sweep_ns and not everything:
            return
        self._next_sweep_ns = now_ns + _WINDOW_NS
        for client in list(self._counting):
            for key, window in list(client.windows.items()):
                if everything or now_ns >= window.end_ns:
                    self._close_window(client, window)
                    del client.windows[key]
            if not client.windows:
                self._counting.discard(client)

    @property
    def counting(self) -> bool:
        """Whether `sweep` will have work."""
        return bool(self._counting)

    # ---- everything else

    def authentication(
        self, listener: ListenerAudit, connection: ConnectionContext, action: str, reason: str, now_ns: int
    ) -> None:
        """A client has, or has not, proved who it is."""
        client = self._client(connection, listener)
        failed = action.endswith("failure")
        if client.excluded and not failed:
            return
        code = _SASL_AUTHENTICATION_FAILED if failed else 0
        outcome = "denied" if failed else "closed" if action == "expiry" else "ok"
        fields = f"{client.fields}{error_fields(code)}{fields_of(reason=reason)}"
        self._line(now_ns, AUTHENTICATION, action, outcome, fields)

    def opened(self, listener: ListenerAudit, connection: ConnectionContext, now_ns: int) -> None:
        """A connection became READY."""
        client = self._client(connection, listener)
        if not client.excluded:
            self._line(now_ns, CONNECTION, "opened", "ok", client.fields)

    def closed(self, listener: ListenerAudit, connection: ConnectionContext, reason: str, now_ns: int) -> None:
        """A connection is gone."""
        client = self._client(connection, listener)
        for window in client.windows.values():
            self._close_window(client, window)
        client.windows.clear()
        self._counting.discard(client)
        if client.excluded:
            return
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

    def announced(self, announcement: Announcement) -> None:
        """An administrative act."""
        outcome = "error" if announcement.failed else "ok"
        fields = fields_of(listener=announcement.listener, detail=announcement.detail)
        self._lines.append(self._encoder.line(announcement.time_us, ADMIN, announcement.action, outcome, fields))

    def gap(self, action: str, reason: str, **gap: Any) -> None:
        """Events are missing: `gap_boot`, `gap_first_seq`, `gap_last_seq`, `gap_count`, `detail`."""
        self._line(self._clock.monotonic_ns(), AUDIT_GAP, action, "error", fields_of(reason=reason, **gap))

    def dropped(self, boot: str, count: int, reason: str) -> None:
        """`count` events had no room: their numbers are used up, and a gap tells so."""
        first = self._encoder.next_seq
        self._encoder.next_seq = first + count
        self.gap("dropped", reason, gap_boot=boot, gap_first_seq=first, gap_last_seq=first + count - 1, gap_count=count)
