"""`Card`: a finding for a reader of the report, with one sentence about it and the events around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from klamm_spark.findings.detections import Detection, Finding, own_detections
from klamm_spark.queries.event_views import EventViews
from klamm_spark.queries.sql_files import read_sql
from klamm_spark.report.units import size

MOST: Final = 24
"""The number of latest findings of a detection whose surrounding events are shown."""
_AROUND: Final = Path(__file__).with_name("around.sql")
_PART: Final = re.compile(r"\[([^\]]*)\]|\{(\w+)\}")
_NAMES: Final = ("principal", "address", "object", "by", "bytes")
_BYTES: Final = re.compile(r"(\d+) bytes$")
_NUMBERS: Final = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
_KEYS: Final = 5
"""The number of columns of `around.sql` that identify a finding. They come first."""
_UNITS: Final = ((86_400, "day", 2), (3600, "hour", 2), (60, "minute", 2), (1, "second", 1))


class Moment(NamedTuple):
    """Similar events of one account and address at about the same time.

    `part` is "first" or "last" for the event that begins or completes the finding, and else empty.
    """

    time_us: int
    lane: str
    part: str
    what: str
    outcome: str
    principal: str | None
    address: str | None
    listener: str | None
    object: str | None
    requests: int
    event_id: str


@dataclass(frozen=True, slots=True)
class Card:
    """A finding of a detection with the moments around it."""

    detection: Detection
    finding: Finding
    moments: tuple[Moment, ...]

    def sentence(self, say: Callable[[str], str] = str, rest: Callable[[str], str] = str) -> str:
        """Return the detection's sentence with the values of this finding.

        A part in brackets is left out if one of its values is empty. `say` formats the values of `_NAMES`, and `rest`
        all other text.
        """
        values = self._values()

        def filled(template: str) -> str:
            text, end = "", 0
            for found in _PART.finditer(template):
                text += rest(template[end : found.start()])
                end = found.end()
                if found[2]:
                    text += (say if found[2] in _NAMES else rest)(values[found[2]])
                elif all(values[name] for name in re.findall(r"\{(\w+)\}", found[1])):
                    text += filled(found[1])
            return text + rest(template[end:])

        return filled(self.detection.sentence)

    def _values(self) -> dict[str, str]:
        finding = self.finding
        parts = {moment.part: moment for moment in self.moments}
        first = parts.get("first")
        last = parts.get("last", first)
        touched = (m.time_us for m in self.moments if m.object == finding.object and m.time_us > finding.first_us)
        counted = _BYTES.search(finding.detail)
        return {
            "principal": finding.principal,
            "address": finding.address,
            "object": finding.object,
            "detail": finding.detail,
            "events": f"{finding.events:,}",
            "span": duration(finding.last_us - finding.first_us),
            "delay": duration(next(touched, finding.last_us) - finding.first_us),
            "bytes": size(int(counted[1])) if counted else "much",
            "by": (first and first.principal) or "another account",
            "listener": (last and last.listener) or "",
        }


def duration(length_us: int) -> str:
    """Return a duration in words, e.g. `four seconds` or `25 minutes`."""
    for length_s, unit, least in _UNITS:
        if length_us >= least * length_s * 1e6:
            count = round(length_us / 1e6 / length_s)
            return f"{_NUMBERS[count] if count < len(_NUMBERS) else count} {unit}{'s' if count > 1 else ''}"
    return "less than a second"


def cards(views: EventViews) -> list[Card]:
    """Return all findings, the highest severity first."""
    return [card for detection in own_detections() for card in _cards(views, detection)]


def _cards(views: EventViews, detection: Detection) -> Sequence[Card]:
    found = detection.run(views)
    if not found:
        return ()
    around: dict[tuple[str, ...], list[Moment]] = {}
    sql = (
        _around()
        .replace("{most}", str(MOST))
        .replace("{around}", str(detection.around_s * 1_000_000))
        .replace("{detection}", detection.sql)
    )
    for row in views.query(sql).rows:
        moment = Moment(*row[_KEYS:])
        around.setdefault(row[:_KEYS], []).append(moment._replace(requests=int(moment.requests)))
    return [Card(detection, one, tuple(around.get(_key(one), ()))) for one in found]


def _key(finding: Finding) -> tuple[str, ...]:
    return finding.first_event, finding.last_event, finding.object, finding.principal, finding.address


@cache
def _around() -> str:
    return read_sql(_AROUND).sql
