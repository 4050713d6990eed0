"""Detections. Each is one SQL file, a query over the views of `klamm_spark.queries.event_views`.

The folder `compiled` has the detections that are compiled from the Sigma rules in `rules`. The folder `detections` has
the detections that Sigma cannot express.

The head of a file has the title, the severity and the meaning of a finding. It may have three more entries. `key` names
the columns that decide if two findings are the same one; by default these are principal, address and object. `sentence`
is a text with the values of a finding (see `klamm_spark.report.cards`). `around` is the number of seconds before and
after a finding that a report shows. The query returns the columns of `Finding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from klamm.config import did_you_mean
from klamm_spark.errors import LakeError
from klamm_spark.queries.event_views import EventViews
from klamm_spark.queries.sql_files import read_sql

SEVERITIES: Final = ("critical", "high", "medium", "low")
"""The severities, the highest first."""
_DEFAULT_KEY: Final = "principal, address, object"
DEFAULT_SENTENCE: Final = "{detail}[, {principal}][, {object}][, from {address}][ by listener {listener}]"
DEFAULT_AROUND_S: Final = 2
FOLDERS: Final = tuple(Path(__file__).with_name(name) for name in ("detections", "compiled"))
"""The folder of detections that are written by hand, and the folder of those compiled from Sigma rules."""


class Finding(NamedTuple):
    """A finding: who did it, from where, to which object. Times are in microseconds; events are those at its ends."""

    principal: str
    address: str
    object: str
    events: int
    first_us: int
    last_us: int
    first_event: str
    last_event: str
    detail: str


@dataclass(frozen=True, slots=True)
class Detection:
    """One detection: its query, and the head of its file."""

    name: str
    title: str
    severity: str
    doc: str
    key: tuple[str, ...]
    sql: str
    sentence: str
    around_s: int

    def key_of(self, finding: Finding) -> tuple[str, ...]:
        """Return the key of a finding. All findings of one continuing attack have the same key."""
        return (self.name, *(str(getattr(finding, column)) for column in self.key))

    def run(self, views: EventViews) -> list[Finding]:
        """Return the findings, the latest first. Raises ValueError if the query does not return the columns of
        `Finding`.
        """
        result = views.query(self.sql)
        if result.names != Finding._fields:
            raise ValueError(f"detection {self.name}: has columns {result.names}, not {Finding._fields}")
        found = [Finding(*row)._replace(events=int(row[3])) for row in result.rows]
        return sorted(found, key=lambda finding: (-finding.last_us, finding.principal, finding.address))


def read_detection(path: Path) -> Detection:
    """Read a file. Raises OSError, ValueError."""
    file = read_sql(path, "title", "severity", "doc")
    if file.head["severity"] not in SEVERITIES:
        raise ValueError(f"{path}: severity is one of {', '.join(SEVERITIES)}, not {file.head['severity']}")
    key = tuple(column.strip() for column in file.head.get("key", _DEFAULT_KEY).split(","))
    if not set(key) <= set(Finding._fields):
        raise ValueError(f"{path}: key names columns of a finding, not {', '.join(key)}")
    sentence = file.head.get("sentence", DEFAULT_SENTENCE)
    title, severity, doc = (file.head[name] for name in ("title", "severity", "doc"))
    return Detection(
        file.name, title, severity, doc, key, file.sql, sentence, int(file.head.get("around", DEFAULT_AROUND_S))
    )


@cache
def own_detections() -> Sequence[Detection]:
    """Return klamm's own detections, the highest severity first."""
    return by_severity(one for folder in FOLDERS for one in read_detections(folder))


def read_detections(folder: Path) -> Sequence[Detection]:
    """Return the detections in a folder."""
    return [read_detection(path) for path in folder.glob("*.sql")]


@dataclass(frozen=True, slots=True)
class Rules:
    """The detections that run. `ignored` maps names of detections to patterns of accounts, addresses and objects."""

    detections: Sequence[Detection] = field(default_factory=lambda: own_detections())
    ignored: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise LakeError if `ignored` has a name that no detection has."""
        names = [one.name for one in self.detections]
        for name in self.ignored:
            if name not in names:
                raise LakeError(f'[audit.detect] ignore: no detection has the name "{name}"{did_you_mean(name, names)}')

    def findings(self, views: EventViews) -> Iterator[tuple[Detection, Finding]]:
        """Yield each finding that no pattern ignores, with its detection, the highest severity first."""
        for detection in self.detections:
            patterns = self.ignored.get(detection.name, ())
            for finding in detection.run(views):
                about = finding.principal, finding.address, finding.object
                if not any(fnmatchcase(text, pattern) for pattern in patterns for text in about):
                    yield detection, finding


def by_severity(found: Iterable[Detection]) -> Sequence[Detection]:
    """Return detections in the order of their severity, the highest first."""
    return tuple(sorted(found, key=lambda one: (SEVERITIES.index(one.severity), one.name)))
