"""`Report`: a report as tables and series. `command` fills it, and `text` and `html` make the output."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klamm_spark.report.cards import Card


@dataclass(frozen=True, slots=True)
class Heading:
    """A column of a table. `kind` is `text`, `count`, `bytes`, `ms`, `time` or, only for HTML, `id`."""

    title: str
    kind: str = "text"


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a report. `marked` are the indexes of rows that need attention; `doc` describes a row."""

    key: str
    title: str
    doc: str
    columns: tuple[Heading, ...]
    rows: tuple[tuple[Any, ...], ...]
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Report:
    """A report.

    `traffic` has `(start, counts by outcome)` for each `bucket_s` seconds, and so has `logins`. `lake` is the place of
    the lake or of the spool. `earlier` are the totals of the period before `since`, which has the same length. `cards`
    are the findings, the highest severity first.
    """

    lake: str
    since: datetime | None
    first: datetime
    last: datetime
    totals: dict[str, int]
    earlier: dict[str, int]
    cards: tuple[Card, ...]
    tables: dict[str, Table]
    bucket_s: int
    traffic: tuple[tuple[datetime, dict[str, int]], ...]
    logins: tuple[tuple[datetime, dict[str, int]], ...]
