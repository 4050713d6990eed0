"""A report as one HTML file with its styles and plots: no script, no other resource."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from klamm_spark.report.charts import all_charts
from klamm_spark.report.model import Report, Table
from klamm_spark.report.text import cell, period, size

_SECTIONS: Final = (
    ("Attention", ("findings",)),
    ("Changes and access", ("changes", "interrupted", "access", "denials")),
    ("Logins and connections", ("logins", "failed_accounts", "failures", "new_clients", "refused")),
    ("Traffic", ("traffic", "listeners", "apis", "talkers", "errors", "throttled")),
    ("Latency", ("latency", "slowest", "stages_mean", "stages_p99")),
    ("Clients and servers", ("census", "admin", "gaps")),
)
_CAPTIONS: Final = {
    "traffic": ("How many requests came when?", "By outcome, UTC."),
    "logins": ("How many logins came when?", "UTC."),
}
_WARN: Final = frozenset({"denied", "error", "authentication failures", "connections refused", "lines in quarantine"})

_STYLE: Final = """
:root { --ink: #22303c; --faint: #d9dfe4; --dim: #5d6b78; --paper: #fff; --warn: #b23a42; --ground: #f4f6f8; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 14px/1.45 system-ui, "Segoe UI", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 24px 60px; }
header h1 { margin: 0; font-size: 26px; letter-spacing: -.01em; }
header p, .doc { color: var(--dim); margin: 2px 0 0; }
.totals { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 10px; margin: 20px 0 8px; }
.totals div { background: var(--paper); border: 1px solid var(--faint); border-radius: 8px; padding: 10px 14px; }
.totals b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; }
.totals span { color: var(--dim); font-size: 12px; }
.totals .warn b { color: var(--warn); }
h2 { margin: 34px 0 10px; font-size: 19px; }
section.card { background: var(--paper); border: 1px solid var(--faint); border-radius: 8px; padding: 14px 18px 16px;
  margin: 0 0 14px; }
h3 { margin: 0; font-size: 15px; }
.plot { margin: 10px 0 4px; }
.plot svg { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: 10px; font-size: 13px; }
th { text-align: left; color: var(--dim); font-weight: 600; font-size: 12px; }
th, td { padding: 4px 12px 4px 0; border-bottom: 1px solid var(--faint); vertical-align: top; }
td { overflow-wrap: anywhere; min-width: 6em; }
td.number, td.time { min-width: 0; }
td.id { font-size: 11px; color: var(--dim); }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.time { white-space: nowrap; font-variant-numeric: tabular-nums; }
tr:last-child td { border-bottom: 0; }
tr.marked td:first-child { box-shadow: inset 3px 0 var(--warn); padding-left: 9px; }
.none { color: var(--dim); }
footer { color: var(--dim); font-size: 12px; margin-top: 26px; }
.totals small { color: var(--dim); font-size: 12px; font-weight: 400; margin-left: 6px; }
@media (max-width: 600px) {
  main { padding: 16px 10px 40px; } section.card { padding: 12px; } .totals { grid-template-columns: 1fr 1fr; }
  .wide table { min-width: 560px; }
}
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #dfe6ec; --faint: #34414c; --dim: #9aa8b4; --paper: #1b242c; --warn: #ff8a8f; --ground: #11181e; }
  .plot { background: #fff; border-radius: 6px; padding: 6px; }
}
@media print {
  @page { size: A4; margin: 14mm 12mm; }
  body { background: none; font-size: 10px; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  .totals { grid-template-columns: repeat(5, 1fr); gap: 6px; }
  .totals div { padding: 5px 8px; } .totals b { font-size: 14px; } .totals span { font-size: 9px; }
  table { font-size: 8.5px; } th { font-size: 8px; } th, td { padding: 2px 7px 2px 0; }
  h2 { font-size: 15px; margin: 16px 0 6px; break-after: avoid; } h3, .doc { break-after: avoid; }
  section.card { padding: 8px 10px; margin-bottom: 8px; }
  .plot, tr { break-inside: avoid; } .wide { overflow: visible; }
}
"""


def render(report: Report) -> str:
    """The file's text."""
    charts = all_charts(report)
    parts = [f"<h2>{escape(title)}</h2>\n{_section(report, charts, keys)}" for title, keys in _SECTIONS]
    since = f", since {report.since:%Y-%m-%d %H:%M} UTC" if report.since else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>klamm audit, {escape(period(report))}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<header>
<h1>klamm audit</h1>
<p>{escape(period(report))}{since} &middot; {escape(report.lake)}</p>
</header>
<div class="totals">{_totals(report)}</div>
{"".join(parts)}
<footer>Counted by <code>klamm audit report</code>; an aggregated event counts as the requests that it
represents.{_compared(report)}</footer>
</main>
</body>
</html>
"""


def _compared(report: Report) -> str:
    return " Percentages compare with as long a period before." if report.earlier else ""


def _totals(report: Report) -> str:
    tiles = []
    for name, count in report.totals.items():
        text = size(count) if name.endswith("bytes") else f"{count:,}"
        style = ' class="warn"' if count and name in _WARN else ""
        number = f'<b data-total="{escape(name)}">{text}</b>'
        tiles.append(f"<div{style}>{number}<span>{escape(name)}{_change(report, name)}</span></div>")
    return "".join(tiles)


def _change(report: Report, name: str) -> str:
    """How much more or less than in the period before."""
    before = report.earlier.get(name)
    if before is None:
        return ""
    if not before:
        return "<small>none before</small>" if report.totals[name] else ""
    return f"<small>{(report.totals[name] - before) / before:+.0%}</small>"


def _section(report: Report, charts: dict[str, str], keys: tuple[str, ...]) -> str:
    cards, empty = [], []
    for key in keys:
        table = report.tables.get(key)
        if key in _CAPTIONS:
            title, doc = _CAPTIONS[key]
        elif table is not None:
            title, doc = table.title, table.doc
        else:
            continue
        chart = f'<div class="plot" data-plot="{key}">{charts[key]}</div>' if key in charts else ""
        rows = _table(table) if table is not None and table.rows else ""
        if not chart and not rows:
            empty.append(title.lower())
            continue
        head = f'<h3>{escape(title)}</h3><p class="doc">{escape(doc)}</p>'
        cards.append(f'<section class="card" data-card="{key}">{head}{chart}{rows}</section>\n')
    if empty:
        cards.append(f'<p class="none">Nothing to report: {escape(", ".join(empty))}.</p>\n')
    return "".join(cards)


def _table(table: Table) -> str:
    styles = [_class(column.kind) for column in table.columns]
    heads = "".join(f"<th{style}>{escape(c.title)}</th>" for c, style in zip(table.columns, styles, strict=True))
    body = "".join(_rows(table, styles))
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _rows(table: Table, styles: list[str]) -> list[str]:
    rows = []
    for index, row in enumerate(table.rows):
        cells = zip(row, table.columns, styles, strict=True)
        texts = "".join(f"<td{style}>{_cell(value, column.kind)}</td>" for value, column, style in cells)
        rows.append(f"<tr{' class=marked' if index in table.marked else ''}>{texts}</tr>")
    return rows


def _cell(value: Any, kind: str) -> str:
    return escape(cell(value, kind))


def _class(kind: str) -> str:
    return {"text": "", "id": ' class="id"', "time": ' class="time"'}.get(kind, ' class="number"')
