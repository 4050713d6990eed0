"""`klamm audit report`: answers the questions of `klamm_spark.report.queries` from a spool or a lake.

An aggregated event counts as the number of requests that it represents. The command starts no threads.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm_spark.errors import LakeError
from klamm_spark.events.event import AUTHENTICATION, REQUEST
from klamm_spark.findings.detections import SEVERITIES
from klamm_spark.lake.layout import Lake
from klamm_spark.queries.event_views import DuckDbViews, EventViews, Period
from klamm_spark.report.cards import Card, cards
from klamm_spark.report.model import Heading, Report, Table
from klamm_spark.report.queries import Question, questions, series, totals
from klamm_spark.report.text import show, show_table
from klamm_spark.report.units import moment_of

_BUCKETS_S: Final = (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86_400)
_WANTED_BUCKETS: Final = 90
_LIMIT: Final = re.compile(r"\s+LIMIT \d+\s*$")
_FINDINGS: Final = (
    Heading("finding"),
    Heading("severity"),
    Heading("what happened"),
    Heading("events", "count"),
    Heading("first", "time"),
    Heading("last", "time"),
    Heading("first event", "id"),
    Heading("last event", "id"),
)


class Asked(NamedTuple):
    """The question to answer, or None for all, and a condition in SQL on the columns of its answer."""

    question: str | None = None
    where: str = ""


_ALL: Final = Asked()


def run(
    place: Path | Lake,
    *,
    since: datetime | None,
    html: Path | None,
    asked: Asked = _ALL,
    print_line: Callable[[str], None],
) -> int:
    """Print the report on a spool or a lake, and write it to `html` if this is given. Return the exit code.

    Raises LakeError.
    """
    with closing(DuckDbViews(place, _period(since))) as views:
        if asked.question is not None:
            return answer_one(views, asked)
        report = answer(views, name_of(place), since)
    return _give_out(report, html, print_line)


def name_of(place: Path | Lake) -> str:
    """Return the name of a spool or a lake in messages."""
    return str(place if isinstance(place, Path) else place.root)


def _give_out(report: Report, html: Path | None, print_line: Callable[[str], None]) -> int:
    if html is not None:
        from klamm_spark.report import html as report_html

        # Write the file first. A reader such as `| head` may close the pipe, and this ends the process.
        html.write_text(report_html.render(report), encoding="utf-8")
    show(report)
    if html is not None:
        print_line(f"written: {html} ({html.stat().st_size / 1024:,.0f} KiB)")
    return 0


def build(lake: Lake, since: datetime | None = None) -> Report:
    """Return the report on a lake. Raises LakeError if there are no events."""
    with closing(DuckDbViews(lake, _period(since))) as views:
        return answer(views, name_of(lake), since)


def answer_one(views: EventViews, asked: Asked) -> int:
    """Print the answer to one question with all of its rows. Return the exit code. Raises LakeError."""
    (question,) = (one for one in questions() if one.key == asked.question)
    sql = _LIMIT.sub("", question.sql)
    if asked.where:
        sql = f"SELECT * FROM ({sql}\n) answer WHERE {asked.where}"
    try:
        table = _table(views, replace(question, sql=sql))
    except LakeError:
        raise
    except Exception as error:
        # Each engine raises its own errors for a wrong condition.
        raise LakeError(f"the condition is wrong: {str(error).splitlines()[0]}") from error
    show_table(table)
    return 0


def _period(since: datetime | None) -> Period:
    if since is None:
        return Period()
    return Period.since(round(since.timestamp() * 1e6), time.time_ns() // 1000)


def answer(views: EventViews, place: str, since: datetime | None = None) -> Report:
    """Return the report with the answers to all questions. Raises LakeError if there are no events in the period."""
    span = views.query("SELECT min(time_us) AS first, max(time_us) AS last FROM events").rows[0]
    if span[0] is None:
        raise LakeError(f"there are no events in {place}" + (f" since {since:%Y-%m-%d %H:%M} UTC" if since else ""))
    first, last = (moment_of(time_us) for time_us in span)
    bucket_s = bucket_of((last - first).total_seconds())
    found = tuple(cards(views))
    tables = [_findings(found), *(_table(views, question) for question in questions())]
    return Report(
        lake=place,
        since=since,
        first=first,
        last=last,
        totals=_totals(views, "events") | {"lines in quarantine": views.bad_lines},
        earlier=_totals(views, "earlier") if since is not None else {},
        cards=found,
        tables={table.key: table for table in tables},
        bucket_s=bucket_s,
        traffic=_series(views, series(REQUEST, "outcome", bucket_s), bucket_s),
        logins=_series(views, series(AUTHENTICATION, "action", bucket_s), bucket_s),
    )


def bucket_of(span_s: float) -> int:
    """Return the seconds per bar in a plot of `span_s` seconds."""
    return next((bucket for bucket in _BUCKETS_S if span_s / bucket <= _WANTED_BUCKETS), _BUCKETS_S[-1])


def _totals(views: EventViews, view: str) -> dict[str, int]:
    result = views.query(totals(view))
    return {name: int(value) for name, value in zip(result.names, result.rows[0], strict=True)}


def _series(views: EventViews, sql: str, bucket_s: int) -> tuple[tuple[datetime, dict[str, int]], ...]:
    found: dict[int, dict[str, int]] = {}
    for start, name, count in views.query(sql).rows:
        found.setdefault(int(start), {})[name] = int(count)
    if not found:
        return ()
    starts = range(min(found), max(found) + bucket_s, bucket_s)
    return tuple((datetime.fromtimestamp(start, UTC), found.get(start, {})) for start in starts)


def _findings(found: Sequence[Card]) -> Table:
    rows = []
    for card in found:
        one = card.finding
        times = moment_of(one.first_us), moment_of(one.last_us)
        what = (card.detection.title, card.detection.severity, card.sentence(), one.events)
        rows.append((*what, *times, one.first_event, one.last_event))
    grave = frozenset(index for index, row in enumerate(rows) if row[1] in SEVERITIES[:2])
    doc = "What the detections found, the gravest first. `klamm audit sql` shows an event by its id."
    return Table("findings", "What needs attention?", doc, _FINDINGS, tuple(rows), grave)


def _table(views: EventViews, question: Question) -> Table:
    result = views.query(question.sql)
    kinds = [question.kind_of(name) for name in result.names]
    rows = [tuple(map(_value, row, kinds)) for row in result.rows]
    if question.newest_last:
        rows.reverse()
    columns = tuple(
        Heading(name.removesuffix("_us").replace("_", " "), kind)
        for name, kind in zip(result.names, kinds, strict=True)
    )
    needs_attention = question.needs_attention(result.names)
    marked = frozenset(index for index, row in enumerate(rows) if needs_attention(row))
    return Table(question.key, question.title, question.doc, columns, tuple(rows), marked)


def _value(value: Any, kind: str) -> Any:
    if value is None or kind == "text":
        return value
    if kind == "time":
        return moment_of(value)
    # One engine returns sums as decimals, the other as large integers.
    return float(value) if kind == "ms" else int(value)
