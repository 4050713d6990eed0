"""Detections: one SQL file each, run over the views of `klamm_spark.queries.event_views`.

Those in `compiled` are made from the Sigma rules in `rules`; those in `detections` say what Sigma cannot.

The head of a file has its title, its severity and what a finding means; `key` are the columns that say whether two
findings are the same one, by default principal, address and object; `sentence` says it with the values of a finding
(see `klamm_spark.report.cards`), and `around` is how many seconds before and after it a report shows. The query returns
the columns of `Finding`.
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
"""The gravest first."""
_DEFAULT_KEY: Final = "principal, address, object"
DEFAULT_SENTENCE: Final = "{detail}[, {principal}][, {object}][, from {address}][ by listener {listener}]"
DEFAULT_AROUND_S: Final = 2
FOLDERS: Final = tuple(Path(__file__).with_name(name) for name in ("detections", "compiled"))
"""The detections that are written by hand, because Sigma cannot express them, and those compiled from Sigma rules."""


class Finding(NamedTuple):
    """A finding: who, from where, at what; times in microseconds; the ids of its first and last event."""

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
    """A rule."""

    name: str
    title: str
    severity: str
    doc: str
    key: tuple[str, ...]
    sql: str
    sentence: str
    around_s: int

    def key_of(self, finding: Finding) -> tuple[str, ...]:
        """Return the key of a finding, who, from where or at what; findings of one continuing attack share it."""
        return (self.name, *(str(getattr(finding, column)) for column in self.key))

    def run(self, views: EventViews) -> list[Finding]:
        """Return the findings, the latest first. Raises ValueError if the query has other columns than a finding."""
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
    """klamm's own, the gravest first."""
    return by_severity(one for folder in FOLDERS for one in read_detections(folder))


def read_detections(folder: Path) -> Sequence[Detection]:
    """Return those of a folder's files."""
    return [read_detection(path) for path in folder.glob("*.sql")]


@dataclass(frozen=True, slots=True)
class Rules:
    """The detections that run; `ignored` has patterns of accounts, addresses and objects by the name of a detection."""

    detections: Sequence[Detection] = field(default_factory=lambda: own_detections())
    ignored: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the names. Raises LakeError if a name is not that of a detection."""
        names = [one.name for one in self.detections]
        for name in self.ignored:
            if name not in names:
                raise LakeError(f'[audit.detect] ignore: no detection has the name "{name}"{did_you_mean(name, names)}')

    def findings(self, views: EventViews) -> Iterator[tuple[Detection, Finding]]:
        """Yield what is found and not ignored, the gravest first."""
        for detection in self.detections:
            patterns = self.ignored.get(detection.name, ())
            for finding in detection.run(views):
                about = finding.principal, finding.address, finding.object
                if not any(fnmatchcase(text, pattern) for pattern in patterns for text in about):
                    yield detection, finding


def by_severity(found: Iterable[Detection]) -> Sequence[Detection]:
    """Return detections, the gravest first."""
    return tuple(sorted(found, key=lambda one: (SEVERITIES.index(one.severity), one.name)))
