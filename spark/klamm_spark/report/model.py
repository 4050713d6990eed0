"""A report as plain tables and series, before it is text or HTML."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klamm_spark.report.cards import Card


@dataclass(frozen=True, slots=True)
class Heading:
    """A column of a report's table; `kind` is `text`, `count`, `bytes`, `ms`, `time` or `id` (in HTML only)."""

    title: str
    kind: str = "text"


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a report. `marked` are the rows that need attention; `doc` says what a row is."""

    key: str
    title: str
    doc: str
    columns: tuple[Heading, ...]
    rows: tuple[tuple[Any, ...], ...]
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Report:
    """A report. `traffic` has one `(start, counts by outcome)` per `bucket_s` seconds, `logins` likewise.

    `lake` is the place of the lake or of the spool. `earlier` are the totals of as long a period before `since`.
    `cards` are the findings, the gravest first.
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
