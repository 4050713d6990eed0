"""`klamm audit tail`, `sql` and `export`. They read a spool of this machine, while the server may write it."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import sys
import time
from argparse import ArgumentParser, _SubParsersAction
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TextIO

from klamm import escape_control_characters
from klamm_spark.errors import LakeError
from klamm_spark.events.lineage import open_lineage
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.reader import local_spool
from klamm_spark.terminal.event_table import EventTable, QueryError
from klamm_spark.terminal.formats import FORMATS, as_json
from klamm_spark.terminal.spool_lines import SpoolLines

COMMANDS: Final = ("tail", "sql", "export")
_POLL_MS: Final = 200
_TABLE_CHARACTERS: Final = 60
"""The most characters of a value in a column of `sql`'s table."""
_SAMPLE_ROWS: Final = 500
"""The number of first rows whose longest value sets the width of a column of `sql`'s table."""
_END_OF_TIME: Final = 1 << 62


def add_commands(
    commands: _SubParsersAction[ArgumentParser], spool: list[ArgumentParser], since: Callable[[str], datetime]
) -> None:
    """Add the subcommands. `spool` has the arguments for the place of the spool, and `since` parses a moment."""
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--where", metavar="SQL", default="", help="a condition on the fields: \"outcome = 'denied'\"")
    where.add_argument("--since", metavar="WHEN", type=since, help="e.g. 24h, 7d, 2026-01-31; default: everything")

    tail = commands.add_parser("tail", parents=[*spool, where], help="print the newest events of the spool")
    tail.add_argument("-n", "--lines", metavar="N", type=_count, default=20, help="number of events; default: 20")
    tail.add_argument("-f", "--follow", action="store_true", help="continue with new events until interrupted")
    tail.add_argument("--format", choices=list(FORMATS), default="text", help="default: text")

    export = commands.add_parser("export", parents=[*spool, where], help="print events of the spool in another format")
    export.add_argument("--until", metavar="WHEN", type=since, help="only events before; as for --since")
    export.add_argument("--format", choices=list(FORMATS), default="jsonl", help="default: jsonl")
    export.add_argument(
        "--namespace", metavar="URI", default="", help="with openlineage: of the topics, e.g. kafka://broker:9092"
    )

    query = argparse.ArgumentParser(add_help=False)
    query.add_argument("query", metavar="QUERY", help='e.g. "SELECT principal, count(*) FROM events GROUP BY 1"')
    sql = commands.add_parser(
        "sql", parents=[query, *spool], help="query the spool's tables events, resources and attributes with SQLite"
    )
    sql.add_argument("--since", metavar="WHEN", type=since, help="leave older segments out; default: everything")
    sql.add_argument("--format", choices=list(_WRITERS), default="table", help="default: table")


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count


def run(
    options: argparse.Namespace,
    pipeline: Pipeline,
    out: TextIO | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run one of `COMMANDS`. Raises LakeError."""
    spool = local_spool(pipeline, options.command)
    since_us = _microseconds(options.since, 0)
    # With a condition, any event may be wanted; without one, the newest are enough.
    newest = options.lines if options.command == "tail" and not options.where else None
    reader = SpoolLines(spool, since_us=since_us, newest=newest, on_problem=_say)
    table = EventTable(since_us)
    try:
        _run(options, reader, table, out or sys.stdout, sleep)
    except QueryError as error:
        raise LakeError(f"the query is wrong: {error}") from error
    except BrokenPipeError:
        # The reader has closed the pipe. Otherwise Python would print an error at exit.
        sys.stderr.close()
        return 0
    finally:
        table.close()
        reader.close()
    return 1 if reader.problems else 0


def _say(problem: str) -> None:
    print(f"klamm audit: {problem}", file=sys.stderr)


def _run(
    options: argparse.Namespace,
    reader: SpoolLines,
    table: EventTable,
    out: TextIO,
    sleep: Callable[[float], None],
) -> None:
    table.add(reader.new_lines())
    if options.command == "sql":
        _WRITERS[options.format](out, *table.select(options.query))
        return
    if options.command == "export":
        _print(
            out,
            table.events(options.where, _microseconds(options.until, _END_OF_TIME)),
            options.format,
            options.namespace,
        )
        return
    _print(out, deque(table.events(options.where), options.lines), options.format)
    # Only an interrupt ends this loop.
    with contextlib.suppress(KeyboardInterrupt):
        while options.follow:
            out.flush()
            table.clear()
            if table.add(reader.new_lines()):
                _print(out, table.events(options.where), options.format)
            else:
                sleep(_POLL_MS / 1000)


def _microseconds(moment: datetime | None, default: int) -> int:
    return default if moment is None else round(moment.timestamp() * 1_000_000)


def _print(out: TextIO, events: Iterable[str], format_name: str, namespace: str = "") -> None:
    if format_name == "jsonl":
        out.writelines(f"{event}\n" for event in events)
        return
    render = FORMATS[format_name]
    if namespace and format_name == "openlineage":
        render = as_json(partial(open_lineage, namespace=namespace))
    for event in events:
        line = render(json.loads(event))
        if line is not None:
            out.write(f"{line}\n")


def _write_table(out: TextIO, names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    sample = [[_cell(value) for value in row] for _, row in zip(range(_SAMPLE_ROWS), rows, strict=False)]
    widths = [max(map(len, column)) for column in zip(names, *sample, strict=True)]
    for cells in (list(names), ["-" * width for width in widths], *sample):
        out.write(_aligned(cells, widths))
    for row in rows:
        out.write(_aligned([_cell(value) for value in row], widths))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() + "\n"


def _cell(value: object) -> str:
    text = "" if value is None else escape_control_characters(str(value))
    return text if len(text) <= _TABLE_CHARACTERS else text[: _TABLE_CHARACTERS - 1] + "…"


def _write_csv(out: TextIO, names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)


def _write_jsonl(out: TextIO, names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    out.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)


_WRITERS: Final[dict[str, Callable[[TextIO, Sequence[str], Iterator[tuple[Any, ...]]], None]]] = {
    "table": _write_table,
    "csv": _write_csv,
    "jsonl": _write_jsonl,
}
