"""The pictures of a report as SVG. Horizontal positions are in percent and sizes in pixels, so that they fit every
width.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from math import log10
from typing import Final

from klamm import escape_control_characters
from klamm_spark.report.cards import Card, Moment
from klamm_spark.report.model import Report
from klamm_spark.report.units import moment_of

REFUSED: Final = ("denied", "error", "refused")
LANES: Final = ("changes", "logins", "requests")
_LANE_PX: Final = 22
_TICKS: Final = 5
_FLAG_PX: Final = 22
_FLAG_ROWS: Final = 5
_FLAG_SHARE: Final = 0.07
"""The width of a flag, as a share of a phone's width."""
_ACTIVITY_PX, _REFUSALS_PX = 74, 28


def overview(report: Report, flags: Sequence[Card]) -> str:
    """Return the picture of the whole period: findings as numbered flags, requests, and refused ones below them."""
    requests = {start: sum(counts.values()) for start, counts in report.traffic}
    refusals = {start: counts.get("denied", 0) for start, counts in report.traffic}
    for start, counts in report.logins:
        refusals[start] = refusals.get(start, 0) + counts.get("failure", 0)
    starts = sorted(requests.keys() | refusals.keys())
    if not starts:
        return ""
    begin, bar_s = starts[0].timestamp(), report.bucket_s
    span_s = starts[-1].timestamp() + bar_s - begin
    most, worst = max(requests.values(), default=0), max(refusals.values(), default=0)
    rows = _rows([min(max((card.finding.last_us / 1e6 - begin) / span_s, 0), 1) for card in flags])
    ground = max((row for _, row in rows), default=-1) * _FLAG_PX + _FLAG_PX + 8
    base = ground + _ACTIVITY_PX
    bars = []
    for start in starts:
        count, refused = requests.get(start, 0), refusals.get(start, 0)
        where = f'x="{_percent((start.timestamp() - begin) / span_s)}" width="{_percent(bar_s / span_s * 0.86)}"'
        title = f"<title>{start:%Y-%m-%d %H:%M:%S}: {count:,} requests, {refused:,} refused</title>"
        up, down = _height(count, most, _ACTIVITY_PX), _height(refused, worst, _REFUSALS_PX)
        bars.append(f'<rect class="some" {where} y="{base - up:.1f}" height="{up:.1f}">{title}</rect>')
        if refused:
            bars.append(f'<rect class="bad" {where} y="{base + 4}" height="{down:.1f}">{title}</rect>')
    for number, (card, (place, row)) in enumerate(zip(flags, rows, strict=True), 1):
        across, top = _percent(0.012 + place * 0.976), row * _FLAG_PX + 11
        bars.append(
            f'<a href="#f{number}" class="{card.detection.severity}"><title>{escape(card.detection.title)}</title>'
            f'<line x1="{across}" x2="{across}" y1="{top}" y2="{base}"/><circle cx="{across}" cy="{top}" r="10"/>'
            f'<text x="{across}" y="{top + 4}">{number}</text></a>'
        )
    height = base + 4 + (_REFUSALS_PX if worst else 0)
    legend = (
        f'<p class="legend"><span><i class="some"></i>requests, at most {most / bar_s:,.3g} per second</span>'
        f'<span><i class="bad"></i>denied requests and failed logins, at most {worst:,} in {_length(bar_s)}</span>'
        f"<span><i class=flag></i>findings</span></p>"
    )
    ticks = _ticks(begin, begin + span_s)
    return f'<figure><svg height="{height}" role="img">{"".join(bars)}</svg>{ticks}{legend}</figure>'


def timeline(card: Card, number: int) -> str:
    """Return the picture of the moments around a finding, by lane. Each moment is a link to its line in the card's
    list.
    """
    moments = card.moments
    if not moments:
        return ""
    begin, end = moments[0].time_us / 1e6, moments[-1].time_us / 1e6
    begin, end = (begin - 0.5, end + 0.5) if end - begin < 1 else (begin, end)
    lanes = [lane for lane in LANES if any(moment.lane == lane for moment in moments)]

    def across(time_us: int) -> float:
        return 0.02 + 0.96 * (time_us / 1e6 - begin) / (end - begin)

    left, right = across(card.finding.first_us) - 0.012, across(card.finding.last_us) + 0.012
    height = len(lanes) * _LANE_PX
    parts = [f'<rect class="span" x="{_percent(left)}" width="{_percent(right - left)}" height="{height}"/>']
    parts += [f'<line x2="100%" y1="{_middle(n)}" y2="{_middle(n)}"/>' for n in range(len(lanes))]
    for index, moment in enumerate(moments):
        radius = min(4 + 1.6 * log10(max(moment.requests, 1)), 9) + (1.5 if moment.part else 0)
        style = "bad" if moment.outcome in REFUSED else "change" if moment.lane == "changes" else "some"
        parts.append(
            f'<a href="#f{number}e{index}"><circle class="{style}{" part" if moment.part else ""}" r="{radius:.1f}" '
            f'cx="{_percent(across(moment.time_us))}" cy="{_middle(lanes.index(moment.lane))}">'
            f"<title>{escape(said(moment))}</title></circle></a>"
        )
    names = "".join(f"<span>{lane}</span>" for lane in lanes)
    return (
        f'<div class="timeline"><div class="lanes">{names}</div><div><svg height="{height}">{"".join(parts)}</svg>'
        f"{_ticks(begin, end, 3)}</div></div>"
    )


def said(moment: Moment) -> str:
    """Return a moment in words: time, account, event, object and outcome."""
    times = f" × {moment.requests:,}" if moment.requests > 1 else ""
    words = (moment.principal, moment.what + times, moment.object, moment.outcome)
    return escape_control_characters(f"{moment_of(moment.time_us):%H:%M:%S} " + " · ".join(filter(None, words)))


def _middle(lane: int) -> int:
    return lane * _LANE_PX + _LANE_PX // 2


def _rows(places: Sequence[float]) -> list[tuple[float, int]]:
    """Return each place with a row. Flags in one row do not overlap while there are free rows."""
    ends: list[float] = []
    rows = [0] * len(places)
    for index in sorted(range(len(places)), key=places.__getitem__):
        row = next((n for n, end in enumerate(ends) if places[index] - end >= _FLAG_SHARE), len(ends))
        row = min(row, _FLAG_ROWS - 1)
        ends[row : row + 1] = [places[index]]
        rows[index] = row
    return list(zip(places, rows, strict=True))


def _height(count: int, most: int, height_px: int) -> float:
    return max(1.5, count / most * height_px) if count else 0


def _percent(share: float) -> str:
    return f"{share * 100:.2f}%"


def _length(seconds: int) -> str:
    for unit_s, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit_s:
            return f"{seconds // unit_s} {unit}{'s' if seconds > unit_s else ''}"
    return f"{seconds} second{'s' if seconds > 1 else ''}"


def _ticks(begin_s: float, end_s: float, count: int = _TICKS) -> str:
    moments = [datetime.fromtimestamp(begin_s + (end_s - begin_s) * n / (count - 1), UTC) for n in range(count)]
    step_s = (end_s - begin_s) / (count - 1)
    form = "%b %d" if step_s >= 86_400 else "%b %d %H:%M" if end_s - begin_s >= 86_400 else "%H:%M"
    texts = [f"{moment:{form if step_s >= 60 else '%H:%M:%S'}}" for moment in moments]
    if any(left == right for left, right in pairwise(texts)):
        texts = [f"{moment:%H:%M:%S.%f}"[:-5] for moment in moments]
    return '<div class="ticks">' + "".join(f"<span>{text}</span>" for text in texts) + "</div>"
