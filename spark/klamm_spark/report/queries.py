"""The questions of a report. Each is an SQL file in `questions/`, over the views of `klamm_spark.queries.event_views`.

The head of a file has the title and the meaning of a row (`doc`). It may have three more kinds of entries. `count`,
`bytes` and `ms` name the columns of these kinds, which are text otherwise; `all` means every column except names.
`mark` selects rows that need attention: `always`, or `COLUMN not in VALUES`. `newest: last` means that the query
returns the newest rows first and the report shows them last. Columns whose names end with `_us` are times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from klamm_spark.queries.sql_files import COUNTS, read_sql
from klamm_spark.requests.state_changes import ADMINISTRATIVE

ORDER: Final = (
    "changes",
    "interrupted",
    "access",
    "denials",
    "failed_accounts",
    "failures",
    "differences",
    "new_clients",
    "refused",
    "listeners",
    "apis",
    "talkers",
    "errors",
    "throttled",
    "latency",
    "slowest",
    "stages_mean",
    "stages_p99",
    "census",
    "admin",
    "gaps",
)
_FOLDER: Final = Path(__file__).with_name("questions")
_NAMES: Final = frozenset({"listener", "api_name"})
_KINDS: Final = ("count", "bytes", "ms")


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the events. Its answer is one table of a report."""

    key: str
    title: str
    doc: str
    sql: str
    kinds: dict[str, str]
    mark: str
    newest_last: bool

    def kind_of(self, column: str) -> str:
        """Return the kind of a column: `text`, `time`, `count`, `bytes` or `ms`."""
        if column.endswith("_us"):
            return "time"
        return self.kinds.get(column) or ("text" if column in _NAMES else self.kinds.get("all", "text"))

    def needs_attention(self, columns: Sequence[str]) -> Callable[[tuple[Any, ...]], bool]:
        """Return a function that returns True for a row that needs attention."""
        if self.mark in ("", "always"):
            return lambda row: bool(self.mark)
        column, _, values = self.mark.partition(" not in ")
        place, usual = list(columns).index(column), frozenset(values.split(", "))
        return lambda row: str(row[place]) not in usual


@cache
def questions() -> Sequence[Question]:
    """Return all questions, in the order of the report."""
    return tuple(_read(key) for key in ORDER)


def _read(key: str) -> Question:
    file = read_sql(_FOLDER / f"{key}.sql", "title", "doc")
    kinds = {name: kind for kind in _KINDS if kind in file.head for name in file.head[kind].split(", ")}
    head = file.head
    return Question(
        key, head["title"], head["doc"], file.sql, kinds, head.get("mark", ""), head.get("newest") == "last"
    )


def totals(view: str) -> str:
    """Return the query for all counts of a period. `view` is `events` or `earlier`."""
    return (
        f"SELECT count(*) AS events, {COUNTS}, "
        "coalesce(sum(CASE WHEN kind = 'request' AND api_key IN "
        f"({', '.join(map(str, sorted(ADMINISTRATIVE)))}) THEN requests END), 0) AS changes, "
        "coalesce(sum(CASE WHEN kind = 'request' THEN request_bytes END), 0) AS `request bytes`, "
        f"coalesce(sum(CASE WHEN kind = 'request' THEN response_bytes END), 0) AS `response bytes` FROM {view}"
    )


def series(kind: str, by: str, bucket_s: int) -> str:
    """Return the query that counts the requests of a kind of event, by bucket of time and by a column."""
    return (
        f"SELECT cast(floor(time_us / {bucket_s * 1_000_000}.0) AS BIGINT) * {bucket_s} AS start, {by}, "
        f"sum(requests) AS n FROM events WHERE kind = '{kind}' GROUP BY 1, 2"
    )
