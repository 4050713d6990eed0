"""The command `klamm connections`: shows each connection of a running server, and which ones use its threads most."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from rich.table import Table

from klamm_metrics.culprits import keeps_accepting
from klamm_metrics.rates import Row, unanswered_line, with_rates
from klamm_metrics.running_server import RunningServer, UnreachableError, add_server_arguments, find
from klamm_metrics.words import plain, short_bytes, short_number, terminal

SORTS: Final = {
    "time": lambda row: row["processor_share"] + row["handler_share"],
    "requests": lambda row: row["requests_per_s"],
    "received": lambda row: row["received_bytes_per_s"],
    "sent": lambda row: row["sent_bytes_per_s"],
    "held": lambda row: row["held_bytes"],
    "unsent": lambda row: row["unsent_bytes"],
    "in-flight": lambda row: row["in_flight_ms"],
    "age": lambda row: row["age_ms"],
    "quiet": lambda row: row["quiet_ms"],
}
_FILTERS: Final = (
    "client_id, client_address, principal, listener, processor, software, state, mute_state, waits_for, api"
)


def main(arguments: list[str]) -> int:
    """Print the connections, or close or move one. Return the exit code."""
    options = _options(arguments)
    try:
        server = find(options.server, options.token_file)
        if options.close:
            server.act("close", id=options.close)
            print(f"{options.close}: closes")
            return 0
        if options.move:
            server.act("move", id=options.move[0], processor=options.move[1])
            print(f"{options.move[0]}: moves to processor {options.move[1]} when it is quiet")
            return 0
        seen = observe(server, options.interval)
    except UnreachableError as error:
        print(f"klamm connections: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    rows = select(seen["connections"], options.filter, options.sort, options.limit)
    if options.json:
        print(json.dumps({**seen, "connections": rows}, indent=1))
    else:
        console = terminal()
        if rows:
            console.print(table(rows))
        else:
            print(empty_line(seen))
        for one in seen["unanswered"]:
            print(unanswered_line(one))
    return 0


def empty_line(seen: Row) -> str:
    """Return the line for an empty table: the server has no connections, or none that matches the filters."""
    line = "no connections match" if seen["connections"] else "no connections"
    listeners = seen.get("listeners", [])
    waiting = [f"{one['waiting']} to be accepted by listener {one['listener']}" for one in listeners if one["waiting"]]
    parts = [line, *([f"waiting: {', '.join(waiting)}"] if waiting else []), *keeps_accepting(listeners)]
    return "; ".join(parts)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="klamm connections", description="Show what each connection of a running server does now."
    )
    add_server_arguments(parser)
    parser.add_argument("--json", action="store_true", help="as JSON, with every value")
    parser.add_argument("--sort", choices=SORTS, default="time", help="the largest first; default: time")
    parser.add_argument(
        "--filter",
        metavar="NAME=TEXT",
        action="append",
        default=[],
        type=_filter,
        help=f"only those whose value contains the text; names: {_FILTERS}",
    )
    parser.add_argument("--limit", metavar="COUNT", type=int, default=40, help="at most so many; default: 40")
    parser.add_argument(
        "--interval", metavar="SECONDS", type=float, default=1.0, help="time over which rates are taken; default: 1"
    )
    parser.add_argument("--token-file", metavar="FILE", type=Path, help="default: that of the TOML file")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--close", metavar="ID", help="close a connection")
    action.add_argument("--move", metavar=("ID", "PROCESSOR"), nargs=2, help="move a connection to a processor")
    options = parser.parse_args(arguments)
    if options.interval <= 0:
        parser.error("--interval must be more than 0")
    return options


def _filter(text: str) -> tuple[str, str]:
    name, equals, wanted = text.partition("=")
    if not equals or name not in _FILTERS.split(", "):
        raise argparse.ArgumentTypeError(f"{text} is not NAME=TEXT; names: {_FILTERS}")
    return name, wanted


def observe(server: RunningServer, interval_s: float, sleep: Callable[[float], None] = time.sleep) -> Row:
    """Return the connections after an interval, with rates over this interval. Raises UnreachableError."""
    started_s = time.monotonic()
    before = server.connections()
    sleep(interval_s)
    seconds = time.monotonic() - started_s
    return with_rates(server.connections(), before, seconds)


def select(rows: Iterable[Row], filters: Sequence[tuple[str, str]], sort: str, limit: int) -> list[Row]:
    """Return the rows that match all filters, the largest first, at most `limit`."""
    wanted = [row for row in rows if all(text in str(row[name]) for name, text in filters)]
    return sorted(wanted, key=SORTS[sort], reverse=True)[:limit]


def table(rows: Sequence[Row]) -> Table:
    """Return the connections as a table for a terminal."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("id", "client id", "principal", "software", "state", "waits for", "api"):
        made.add_column(column, overflow="fold")
    for column in ("for ms", "processor", "handler", "requests/s", "in/s", "out/s", "held", "unsent"):
        made.add_column(column, justify="right", overflow="fold")
    for row in rows:
        state = row["state"] if row["mute_state"] == "NOT_MUTED" else f"{row['state']} {row['mute_state']}"
        made.add_row(
            *(plain(row[name]) for name in ("id", "client_id", "principal", "software")),
            state,
            row["waits_for"],
            row["api"],
            short_number(row["in_flight_ms"]) if row["api"] else "",
            f"{row['processor_share']:.1%}",
            f"{row['handler_share']:.1%}",
            short_number(row["requests_per_s"]),
            short_bytes(row["received_bytes_per_s"]),
            short_bytes(row["sent_bytes_per_s"]),
            short_bytes(row["held_bytes"]),
            short_bytes(row["unsent_bytes"]),
        )
    return made
