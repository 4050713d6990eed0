"""The streaming aggregates as plain Python counts them, and the rows of their tables in the same shape."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

MINUTE_US = 60_000_000
WINDOW_US = 300_000_000

Event = Mapping[str, Any]
Counted = Mapping[Any, Any]


def expected(events: Iterable[Event], settings: Any) -> dict[str, Counted]:
    """What each table and view must have by its keys."""
    events = list(events)
    requests = [event for event in events if event["kind"] == "request"]
    return {
        "traffic_per_minute": _traffic(requests),
        "hot_clients": _hot_clients(requests, settings.hot_client_requests_per_minute),
        "denials": Counter(event["event_id"] for event in requests if event["outcome"] == "denied"),
        "refused_per_minute": _refused(events),
        "failures_per_minute": _failures(events),
        "brute_force": _brute_force(events, settings.failures_threshold),
        "success_after_failures": _success_after_failures(events, settings.failures_threshold),
        "first_seen": _first_seen(events),
    }


def found(name: str, rows: Iterable[Any]) -> Counted:
    """The rows of a table or view in the shape of `expected`; counts of several micro-batches are added up, and any
    other row that is there twice is an error."""
    keyed = [_ROWS[name](row) for row in rows]
    if name == "denials":
        return Counter(key for key, _ in keyed)
    if name in ("traffic_per_minute", "refused_per_minute", "failures_per_minute"):
        return _added_up(keyed)
    counts = Counter(key for key, _ in keyed)
    assert not [key for key, count in counts.items() if count > 1], name
    return dict(keyed)


def _added_up(keyed: Iterable[tuple[Any, Any]]) -> Counted:
    sums: dict[Any, Any] = {}
    for key, value in keyed:
        before = sums.get(key)
        if before is None:
            sums[key] = value
        elif isinstance(value, dict):
            longest = max(before["total_time_max_ms"], value["total_time_max_ms"])
            sums[key] = {name: before[name] + value[name] for name in _SUMS} | {"total_time_max_ms": longest}
        else:
            sums[key] = before + value
    return {key: _rounded(value) for key, value in sums.items()}


def _rounded(value: Any) -> Any:
    """Sums of floats depend on their order."""
    if isinstance(value, dict):
        return {name: round(number, 6) for name, number in value.items()}
    return value


def _micros(moment: datetime) -> int:
    # Spark hands times over without a zone; the session's is UTC.
    return int(moment.replace(tzinfo=UTC).timestamp() * 1_000_000)


def _count(event: Event) -> int:
    count: int = event.get("repeat_count", 1)
    return count


def _minute(event: Event) -> int:
    minute: int = event["time_us"] // MINUTE_US * MINUTE_US
    return minute


_SUMS = ("requests", "errors", "denied", "throttled", "request_bytes", "response_bytes", "throttle_time_ms")

_ROWS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "traffic_per_minute": lambda row: (
        (_micros(row.minute), row.listener, row.principal, row.client_id, row.client_address, row.api_name),
        {name: row[name] for name in (*_SUMS, "total_time_max_ms")},
    ),
    "hot_clients": lambda row: ((_micros(row.minute), row.client_id), row.requests),
    "denials": lambda row: (row.event_id, None),
    "refused_per_minute": lambda row: (
        (_micros(row.minute), row.listener, row.client_address, row.reason),
        row.connections,
    ),
    "failures_per_minute": lambda row: (
        (_micros(row.minute), row.client_address, row.listener, row.sasl_mechanism),
        row.failures,
    ),
    "brute_force": lambda row: ((_micros(row.window_start), row.client_address), row.failures),
    "success_after_failures": lambda row: (row.event_id, row.failures),
    "first_seen": lambda row: ((row.what, row.value), None),
}


def _traffic(requests: list[Event]) -> Counted:
    counted: dict[Any, Counter[str]] = defaultdict(Counter)
    for event in requests:
        names = ("listener", "principal", "client_id", "client_address", "api_name")
        key = (_minute(event), *(event[name] for name in names))
        counts, count = counted[key], _count(event)
        counts["requests"] += count
        counts["errors"] += count if event["error_code"] else 0
        counts["denied"] += count if event["outcome"] == "denied" else 0
        counts["throttled"] += count if event["outcome"] == "throttled" else 0
        counts["request_bytes"] += event["request_bytes"]
        counts["response_bytes"] += event["response_bytes"]
        counts["throttle_time_ms"] += event["throttle_time_ms"] * count
        longest = event.get("total_time_max_ms", event["total_time_ms"])
        counts["total_time_max_ms"] = max(counts["total_time_max_ms"], longest)
    return {key: _rounded(dict(counts)) for key, counts in counted.items()}


def _hot_clients(requests: list[Event], threshold: int) -> Counted:
    counts: Counter[Any] = Counter()
    for event in requests:
        counts[_minute(event), event["client_id"]] += _count(event)
    return {key: count for key, count in counts.items() if count >= threshold}


def _refused(events: list[Event]) -> Counted:
    counts: Counter[Any] = Counter()
    for event in events:
        if event["action"] == "refused":
            counts[_minute(event), event["listener"], event["client_address"], event["reason"]] += 1
    return dict(counts)


def _logins(events: list[Event], action: str) -> Iterable[Event]:
    return (event for event in events if event["kind"] == "authentication" and event["action"] == action)


def _failures(events: list[Event]) -> Counted:
    return Counter(
        (_minute(event), event["client_address"], event["listener"], event.get("sasl_mechanism"))
        for event in _logins(events, "failure")
    )


def _brute_force(events: list[Event], threshold: int) -> Counted:
    counts: Counter[Any] = Counter()
    for event in _logins(events, "failure"):
        last = _minute(event)
        for start in range(last - WINDOW_US + MINUTE_US, last + 1, MINUTE_US):
            counts[start, event["client_address"]] += 1
    return {key: count for key, count in counts.items() if count >= threshold}


def _success_after_failures(events: list[Event], threshold: int) -> Counted:
    failures: dict[str, list[int]] = defaultdict(list)
    successes = {}
    for event in events:
        if event["kind"] != "authentication":
            continue
        times = failures[event["client_address"]]
        if event["action"] == "failure":
            times.append(event["time_us"])
            continue
        recent = sum(event["time_us"] - WINDOW_US <= failed_us for failed_us in times)
        if recent >= threshold:
            successes[event["event_id"]] = recent
            times.clear()
    return successes


def _first_seen(events: list[Event]) -> Counted:
    seen = set()
    for event in events:
        seen |= {("principal", event.get("principal")), ("client_address", event.get("client_address"))}
        if "client_software_name" in event:
            software = f"{event['client_software_name']} {event['client_software_version']}"
            seen.add(("client_software", software))
    return {subject: None for subject in seen if subject[1]}
