"""Functions that compare two looks at the connections of a server. They use no sockets and clocks."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Row: TypeAlias = dict[str, Any]
RATES: Final = {
    "processor_ms": "processor_share",
    "handler_ms": "handler_share",
    "requests": "requests_per_s",
    "received_bytes": "received_bytes_per_s",
    "sent_bytes": "sent_bytes_per_s",
}
"""The totals of a connection, and the names of their growth per second. The growth of a time is a share of one
thread.
"""


def with_rates(now: Row, before: Row, seconds: float) -> Row:
    """Return the second of two samples, with the growth of each connection's totals per second."""
    old = {_key(row): row for row in before["connections"]}
    connections = []
    for row in now["connections"]:
        # An older connection is missing in the first sample, because its processor did not answer. So it has no rates.
        earlier = old.get(_key(row), {} if row["age_ms"] <= 1000 * seconds else row)
        rates = {}
        for total, rate in RATES.items():
            # The time of a request that ends just now is counted a moment later.
            grown = max(0, row[total] - earlier.get(total, 0)) / seconds
            rates[rate] = grown / 1000 if total.endswith("_ms") else grown
        connections.append({**row, **rates})
    return {**now, "connections": connections}


def _key(row: Row) -> tuple[Any, ...]:
    return row.get("worker"), row["id"]


def unanswered_line(one: Row) -> str:
    """Return a line about a processor or a whole worker that did not describe its connections in time."""
    worker = f"worker {one['worker']}" if "worker" in one else ""
    if "processor" not in one:
        return f"{worker} does not answer"
    return (
        f"{worker + ', ' if worker else ''}processor {one['processor']} of listener {one['listener']} does not answer: "
        f"its turn has lasted for {one['turn_ms']:,.0f} ms"
    )
