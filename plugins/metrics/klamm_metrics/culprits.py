"""Functions that name clients, requests and parts to look at, for the rules of `klamm explain`.

They work on samples, without sockets and clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from klamm_metrics.rates import Row
from klamm_metrics.words import short_bytes

_OLD_MS: Final = 1000
_MANY: Final = 0.2


def client_of(row: Row) -> str:
    """Return a text that names the client of a connection."""
    return f"client {row['client_id'] or '(no id)'} of {row['principal']} at {row['client_address'].rpartition(':')[0]}"


def most(rows: Iterable[Row], value: str) -> list[tuple[str, float]]:
    """Return the clients with their sums of a value, the largest sum first."""
    sums: Counter[str] = Counter()
    for row in rows:
        sums[client_of(row)] += row[value]
    return [(client, amount) for client, amount in sums.most_common(3) if amount > 0]


def seconds(milliseconds: float) -> str:
    """Return a time as text."""
    return f"{milliseconds / 1000:,.1f} s"


def _in_handlers(rows: Iterable[Row]) -> list[Row]:
    """Return the connections whose requests are in handlers, the oldest request first."""
    return sorted((row for row in rows if row["waits_for"] == "handler"), key=lambda row: -row["in_flight_ms"])


def running(rows: Iterable[Row]) -> list[str]:
    """Return texts that name the oldest requests in handlers, at most one for each client and API."""
    in_handlers = _in_handlers(rows)
    oldest: dict[tuple[str, str], Row] = {}
    for row in in_handlers:
        oldest.setdefault((row["api"], client_of(row)), row)
    counts = Counter((row["api"], client_of(row)) for row in in_handlers)
    return [
        f"{api} of {client}: {counts[api, client]} in handlers, the oldest for {seconds(row['in_flight_ms'])}"
        for (api, client), row in list(oldest.items())[:3]
    ]


def behind(rows: Iterable[Row]) -> str:
    """Return a text about the oldest request in a handler, or an empty text if it is there for less than a second."""
    oldest = next(iter(_in_handlers(rows)), None)
    if oldest is None or oldest["in_flight_ms"] < _OLD_MS:
        return ""
    return f"behind handlers: {oldest['api']} of {client_of(oldest)} is there for {seconds(oldest['in_flight_ms'])}"


def holders(rows: Sequence[Row]) -> list[str]:
    """Return texts about the clients that hold much of the memory, and about their requests in handlers."""
    total = sum(row["held_bytes"] for row in rows)
    texts = []
    for client, size in most(rows, "held_bytes"):
        if size < _MANY * total:
            continue
        text = f"{client} holds {short_bytes(size)}"
        own = _in_handlers(row for row in rows if client_of(row) == client)
        if own:
            inside = short_bytes(sum(row["held_bytes"] for row in own))
            text += f", {inside} of it in requests in handlers: {own[0]['api']} for {seconds(own[0]['in_flight_ms'])}"
        texts.append(text)
    return texts


def slow_readers(rows: Sequence[Row]) -> list[str]:
    """Return texts about the clients with the most unsent bytes, and about all bytes that their connections hold."""
    held = {client_of(row): 0.0 for row in rows}
    for row in rows:
        held[client_of(row)] += row["held_bytes"]
    return [
        f"{client} holds {short_bytes(held[client])}; {short_bytes(size)} are unsent"
        for client, size in most(rows, "unsent_bytes")
    ]


def parts_of(listeners: Iterable[Row], api: str) -> list[str]:
    """Return texts that name the filters, authorizer and handler set that see an API, and the thread that runs them."""
    texts = []
    for one in listeners:
        seen = one["apis"].get(api)
        if seen is None:
            continue
        names = [f"filter {name}" for name in seen["filters"]]
        if one["authorizer"]:
            names.append(f"authorizer {one['authorizer']}")
        names.append(f"handler set {one['api_set']}")
        thread = "the processor's thread" if seen["inline"] else "threads of handlers"
        texts.append(
            f"the plugins and the handler set that see {api} on listener {one['listener']}: "
            f"{', '.join(names)}; they run on {thread}"
        )
    # With several workers, each worker describes the same listeners.
    return list(dict.fromkeys(texts)) or [f"the plugins and the handler set that see {api}"]


def keeps_accepting(listeners: Iterable[Row]) -> list[str]:
    """Return texts that name the gates in which the acceptors of these listeners have been waiting."""
    return [
        f"gate {one['gate']} of [listeners.{one['listener']}] gates has not returned for {seconds(one['gate_ms'])}, "
        f"on {one['accepted_on']}"
        for one in listeners
        if one["gate"]
    ]
