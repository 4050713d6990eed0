"""The plots of a report as SVG, without scripts and embedded fonts: they print as they look."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from klamm_spark.events.event import REQUEST_OUTCOMES
from klamm_spark.report.model import Report
from klamm_spark.report.text import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#22303c"
FAINT: Final = "#d9dfe4"
OUTCOME_COLOURS: Final = {
    "ok": "#4c86b0",
    "throttled": "#e3a52f",
    "denied": "#c8454d",
    "error": "#7d5ba6",
    "success": "#4c86b0",
    "failure": "#c8454d",
}
STAGE_COLOURS: Final = ("#9db8cb", "#4c86b0", "#24506f", "#e3a52f", "#b9c98d", "#6d8f3f")
_WIDTH_IN: Final = 9.4
_STYLE: Final = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "svg.hashsalt": "klamm",
    # A dollar sign in a client's name must not begin a formula.
    "text.parse_math": False,
}


def all_charts(report: Report) -> dict[str, str]:
    """SVG texts by the key of their table or series; plots without data are left out."""
    makers: dict[str, Callable[[Report], Figure | None]] = {
        "traffic": _traffic,
        "latency": _latency,
        "stages_mean": _stages,
        "talkers": _talkers,
        "logins": _logins,
    }
    with mpl.rc_context(_STYLE):
        figures = {key: make(report) for key, make in makers.items()}
        return {key: _svg(figure, key) for key, figure in figures.items() if figure is not None}


def _svg(figure: Figure, key: str) -> str:
    out = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(out, format="svg", metadata={"Date": None}, bbox_inches="tight", pad_inches=0.05)
    text = out.getvalue()
    # In HTML the plot is an element: no prologue, unique ids, and the width of its container.
    text = text[text.index("<svg") :]
    text = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{key}-", text)
    text = re.sub(r'(<svg [^>]*?)width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?)height="[^"]*"', r"\1", text, count=1)
    return re.sub(
        r"font: ([^;\"]*?)'DejaVu Sans'[^;\"]*", r"font: \1system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif", text
    )


def _axes(height_in: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH_IN, height_in))
    axes = figure.subplots()
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _over_time(series: Sequence[tuple[datetime, dict[str, int]]], parts: Sequence[str], bucket_s: int) -> Figure | None:
    shown = [part for part in parts if any(part in counts for _, counts in series)]
    if not series or not shown:
        return None
    figure, axes = _axes(2.5)
    starts = date2num([start for start, _ in series])
    bottom = [0.0] * len(series)
    width_days = bucket_s / 86_400 * 0.9
    for part in shown:
        heights = [counts.get(part, 0) / bucket_s for _, counts in series]
        axes.bar(
            starts, heights, width_days, bottom=bottom, align="edge", label=part, color=OUTCOME_COLOURS.get(part, INK)
        )
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.xaxis_date(UTC)
    locator = AutoDateLocator(minticks=4, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("per second")
    axes.legend(ncols=len(shown), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, handlelength=1)
    return figure


def _traffic(report: Report) -> Figure | None:
    return _over_time(report.traffic, REQUEST_OUTCOMES, report.bucket_s)


def _logins(report: Report) -> Figure | None:
    return _over_time(report.logins, ("success", "failure"), report.bucket_s)


def _bars(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(6))


def _latency(report: Report) -> Figure | None:
    rows = report.tables["latency"].rows[:12]
    if not rows:
        return None
    figure, axes = _axes(0.9 + 0.3 * len(rows))
    names = [str(row[0]) for row in rows]
    for place, row in enumerate(rows):
        p50, p95, p99 = (max(value, 0.01) for value in row[2:5])
        axes.plot([p50, p99], [place, place], color=FAINT, linewidth=5, solid_capstyle="round", zorder=1)
        axes.text(p99 * 1.12, place, f"{p99:,.2f} ms", va="center", fontsize=8)
        for value, colour in ((p50, "#9db8cb"), (p95, "#4c86b0"), (p99, "#c8454d")):
            axes.plot([value], [place], "o", color=colour, markersize=7, zorder=2)
    for name, colour in (("p50", "#9db8cb"), ("p95", "#4c86b0"), ("p99", "#c8454d")):
        axes.plot([], [], "o", color=colour, label=name)
    axes.set_xscale("log")
    _bars_log(axes, names)
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * 1.6)
    axes.set_xlabel("milliseconds")
    axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, handlelength=1)
    return figure


def _bars_log(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _stages(report: Report) -> Figure | None:
    table = report.tables["stages_mean"]
    rows = table.rows[:12]
    if not rows:
        return None
    figure, axes = _axes(0.9 + 0.3 * len(rows))
    left = [0.0] * len(rows)
    for column, (heading, colour) in enumerate(zip(table.columns[1:], STAGE_COLOURS, strict=True), 1):
        widths = [row[column] or 0.0 for row in rows]
        axes.barh(range(len(rows)), widths, 0.6, left=left, label=heading.title, color=colour)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    _bars(axes, [str(row[0]) for row in rows])
    axes.set_xlabel("milliseconds, mean")
    axes.legend(ncols=6, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, handlelength=1, columnspacing=1.2)
    return figure


def _talkers(report: Report) -> Figure | None:
    rows = report.tables["talkers"].rows[:10]
    if not rows:
        return None
    figure = Figure(figsize=(_WIDTH_IN, 0.8 + 0.27 * len(rows)))
    sides: tuple[tuple[str, Callable[[tuple[Any, ...]], float], Callable[[float], str]], ...] = (
        ("requests", lambda row: row[3], lambda value: f"{value:,.0f}"),
        ("bytes in and out", lambda row: (row[4] or 0) + (row[5] or 0), size),
    )
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, (title, of, text) in zip((left, right), sides, strict=True):
        values = [of(row) for row in rows]
        axes.barh(range(len(rows)), values, 0.62, color="#4c86b0")
        for place, value in enumerate(values):
            axes.text(value, place, f" {text(value)}", va="center", fontsize=8)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xlim(0, max(values) * 1.25 or 1)
        axes.xaxis.set_visible(False)
        for side in ("top", "right", "bottom"):
            axes.spines[side].set_visible(False)
        axes.grid(visible=False)
    left.set_yticks(range(len(rows)), [_short(row[0], row[1]) for row in rows])
    left.invert_yaxis()
    figure.subplots_adjust(wspace=0.08)
    return figure


def _short(principal: str | None, client_id: str | None, longest: int = 38) -> str:
    text = " / ".join(part for part in (principal, client_id) if part) or "unknown"
    return text if len(text) <= longest else text[: longest - 1] + "…"
