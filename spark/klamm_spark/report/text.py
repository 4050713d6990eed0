"""`show`: prints a report in the terminal, for `klamm audit report`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import compress
from typing import Any, Final

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from klamm_spark.report.model import Report, Table
from klamm_spark.report.units import size

LINES: Final = 20
FILE_WIDTH: Final = 140
"""The width for a file or a pipe, which have no width. In a smaller one, names and times would not fit in a line."""


def show(report: Report, console: Console | None = None) -> None:
    """Print a report, to standard output unless another console is given."""
    console = console or _standard_output()
    console.rule("[bold]klamm audit")
    console.print(f"{period(report)} · {report.lake}", justify="center", style="dim", highlight=False)
    console.print(_totals(report))
    for table in report.tables.values():
        if table.rows:
            console.print(Padding(_table(table), (1, 0, 0, 0)))
    empty = [table.title.lower() for table in report.tables.values() if not table.rows]
    if empty:
        console.print(f"\nnothing to report: {', '.join(empty)}", style="dim", highlight=False)


def show_table(table: Table) -> None:
    """Print all rows of one table to standard output."""
    _standard_output().print(_table(table, len(table.rows)))


def _standard_output() -> Console:
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = FILE_WIDTH
    return console


def period(report: Report) -> str:
    """Return the period, e.g. `2026-01-01 00:00:00 to 2026-01-01 12:00:00 UTC`."""
    return f"{report.first:%Y-%m-%d %H:%M:%S} to {report.last:%Y-%m-%d %H:%M:%S} UTC"


def cell(value: Any, kind: str) -> str:
    """Return a value as text for people."""
    if value is None or value == "":
        return ""
    if kind == "count":
        return f"{value:,}"
    if kind == "ms":
        return f"{value:,.2f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"
    if kind == "bytes":
        return size(value)
    if kind == "time":
        # Spark returns times in the session's zone, UTC, without a zone.
        moment = value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
        return f"{moment:%Y-%m-%d %H:%M:%S}"
    return str(value)


def _totals(report: Report) -> RichTable:
    grid = RichTable.grid(padding=(0, 3))
    items = [(name, size(n) if name.endswith("bytes") else f"{n:,}") for name, n in report.totals.items()]
    columns = 3
    for _ in range(columns):
        grid.add_column(style="dim")
        grid.add_column(justify="right", style="bold")
    for start in range(0, len(items), columns):
        grid.add_row(*(text for item in items[start : start + columns] for text in item))
    return grid


def _table(table: Table, lines: int = LINES) -> Group:
    made = RichTable(header_style="bold", box=None, padding=(0, 2, 0, 0))
    shown_columns = [column.kind != "id" for column in table.columns]
    for column in compress(table.columns, shown_columns):
        made.add_column(column.title, justify="left" if column.kind in ("text", "time") else "right", overflow="fold")
    hidden = max(0, len(table.rows) - lines)
    # A table by time shows the latest rows, and others the first ones.
    shown = range(hidden, len(table.rows)) if table.columns[0].kind == "time" else range(min(lines, len(table.rows)))
    for index in shown:
        row = table.rows[index]
        texts = [cell(value, column.kind) for value, column in zip(row, table.columns, strict=True)]
        texts = list(compress(texts, shown_columns))
        # Text, so that `rich` does not parse names of clients as markup.
        made.add_row(*map(Text, texts), style="yellow" if index in table.marked else "")
    more = [Text(f"and {hidden:,} more; --html shows them", style="dim")] if hidden else []
    return Group(Text(table.title, style="bold cyan"), Text(table.doc, style="dim"), made, *more)
