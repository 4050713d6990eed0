"""`render`: makes one HTML file of a report. The file has its styles, pictures and search, and loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

from klamm import escape_control_characters
from klamm_spark.findings.detections import SEVERITIES
from klamm_spark.report.cards import Card, Moment
from klamm_spark.report.model import Report, Table
from klamm_spark.report.pictures import REFUSED, overview, said, timeline
from klamm_spark.report.text import cell, period
from klamm_spark.report.units import moment_of, size

_SECTIONS: Final = (
    ("before", "Against the period before", ("differences", "new_clients")),
    ("access", "Access", ("access", "denials")),
    ("changes", "Changes", ("changes", "interrupted")),
    ("logins", "Logins", ("failed_accounts", "failures", "refused")),
    ("traffic", "Traffic", ("listeners", "apis", "talkers", "errors", "throttled")),
    ("latency", "Latency", ("latency", "slowest", "stages_mean", "stages_p99")),
    ("servers", "Clients and servers", ("census", "admin", "gaps")),
)
_FOLDED: Final = ("traffic", "latency", "servers")
"""The sections for specialists. A click opens them, and they are not printed."""
_TILES: Final = (
    ("requests", "requests"),
    ("denied", "requests denied"),
    ("authentication failures", "logins failed"),
    ("changes", "administrative changes"),
    ("response bytes", "sent to clients"),
)
_WARN: Final = ("denied", "authentication failures")
_STYLES: Final = {"text": "", "id": ' class="id"', "time": ' class="time"'}
_MOST_CARDS: Final = 24
_LONG: Final = 26
"""The length from which a word may break after punctuation. A longer part without punctuation is cut."""
_ROWS: Final = 10
_PIECE: Final = re.compile(r"[^/._:,;=@-]*[/._:,;=@-]*")


def render(report: Report) -> str:
    """Return the report as the text of an HTML file."""
    cards = report.cards[:_MOST_CARDS]
    sections = [(key, title, _section(report, key, keys)) for key, title, keys in _SECTIONS]
    sections = [("findings", "Findings", _findings(report)), *sections]
    links = "".join(f'<a href="#{key}">{title}</a>' for key, title, body in sections if body)
    bodies = "".join(
        f'<section id="{key}" class="{"more" if key in _FOLDED else ""}"><h2>{title}</h2>{body}</section>\n'
        for key, title, body in sections
        if body
    )
    script = _file("page.js")
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    since = f", since {report.since:%Y-%m-%d %H:%M} UTC" if report.since else ""
    when = escape(period(report))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'sha256-{allowed}'">
<title>klamm audit, {when}</title>
<style>{_file("page.css")}</style>
</head>
<body>
<main>
<header>
<p class="dim">klamm audit &middot; {words(report.lake)}</p>
<h1>{_verdict(report)}</h1>
<p class="dim">{when}{since}</p>
{_trail(report)}
</header>
<div class="totals">{_tiles(report)}</div>
{overview(report, cards)}
<nav>{links}<input id="search" type="search" placeholder="Search findings and rows" aria-label="Search">
<span id="found" class="dim"></span></nav>
{bodies}
<footer>Counted by <code>klamm audit report</code> from {report.totals["events"]:,} events; an aggregated event counts
as the requests that it represents. {_empty(report)}</footer>
</main>
<script>{script}</script>
</body>
</html>
"""


@cache
def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def words(value: object) -> str:
    """Return a text as HTML. Words do not break, except long ones after punctuation. A long part without punctuation is
    cut.
    """
    return "".join(map(_word, re.split(r"( +)", escape_control_characters(str(value)))))


def _word(word: str) -> str:
    pieces = [word] if len(word) <= _LONG else filter(None, _PIECE.findall(word))
    return "<wbr>".join(map(_piece, pieces))


def _piece(text: str) -> str:
    if len(text) > _LONG:
        return f'<span class="long" title="{escape(text)}">{escape(text)}</span>'
    return escape(text) if text.isalnum() or text.isspace() else f'<span class="whole">{escape(text)}</span>'


def _verdict(report: Report) -> str:
    counts = dict.fromkeys(SEVERITIES, 0)
    for card in report.cards:
        counts[card.detection.severity] += 1
    grave = [f'<b class="{one}">{counts[one]:,}&nbsp;{one}</b>' for one in SEVERITIES[:2] if counts[one]]
    others = len(report.cards) - sum(counts[one] for one in SEVERITIES[:2])
    if grave:
        total = " and ".join(grave) + f" finding{'s' if counts['critical'] + counts['high'] > 1 else ''}"
        return f"{total} need{'' if counts['critical'] + counts['high'] > 1 else 's'} attention" + (
            f", {others:,} lesser" if others else ""
        )
    return f"Nothing grave, {others:,} lesser finding{'s' if others > 1 else ''}" if others else "Nothing to attend to"


def _trail(report: Report) -> str:
    gaps = sum(row[-1] or 0 for row in report.tables["gaps"].rows) if report.tables["gaps"].rows else None
    bad = report.totals["lines in quarantine"]
    if gaps is None and not bad:
        return '<p class="trail dim">The trail reports no gap; <code>klamm audit verify</code> proves it.</p>'
    lacks = [f"{gaps:,} events are missing"] if gaps is not None else []
    lacks += [f"{bad:,} lines are no events"] if bad else []
    return f'<p class="trail warn">The trail is not complete: {" and ".join(lacks)}.</p>'


def _tiles(report: Report) -> str:
    tiles = []
    for name, title in _TILES:
        count = report.totals[name]
        text = size(count) if name.endswith("bytes") else f"{count:,}"
        style = ' class="warn"' if count and name in _WARN else ""
        number = f'<b data-total="{name}">{text}</b>'
        tiles.append(f"<div{style}>{number}<span>{title}</span>{_change(report, name)}</div>")
    return "".join(tiles)


def _change(report: Report, name: str) -> str:
    """Return the change compared with the period before."""
    before = report.earlier.get(name)
    if before is None:
        return ""
    now = report.totals[name]
    if not before:
        return "<small>none before</small>" if now else ""
    share = (now - before) / before
    return f"<small>{abs(share):.0%} {'more' if share > 0 else 'less'} than before</small>" if share else ""


def _findings(report: Report) -> str:
    cards = "".join(_card(card, number) for number, card in enumerate(report.cards[:_MOST_CARDS], 1))
    more = report.tables["findings"].rows[_MOST_CARDS:]
    if more:
        table = report.tables["findings"]
        rest = Table("more", f"{len(more):,} more findings", table.doc, table.columns, more)
        cards += f'<div class="card more"><h3>{rest.title}</h3>{_table(rest)}</div>'
    return cards or '<p class="doc">The detections found nothing.</p>'


def _card(card: Card, number: int) -> str:
    detection, finding = card.detection, card.finding
    first, last = (cell(moment_of(time_us), "time") for time_us in (finding.first_us, finding.last_us))
    when = first if first == last else f"{first} to {last[11:] if last[:10] == first[:10] else last}"
    sentence = card.sentence(lambda value: f"<b>{words(value)}</b>", words)
    lines = "".join(_line(moment, f"f{number}e{index}") for index, moment in enumerate(card.moments))
    events = f"<details><summary>What happened around it</summary><ol>{lines}</ol></details>" if lines else ""
    return f"""<article class="card finding {detection.severity}" id="f{number}">
<p class="head"><a href="#f{number}">{number}</a><strong>{detection.severity}</strong>\
<span>{escape(detection.title)}</span><time>{when}</time></p>
<p class="sentence">{sentence}.</p>
<p class="doc">{escape(detection.doc)}</p>
{timeline(card, number)}{events}</article>
"""


def _line(moment: Moment, identifier: str) -> str:
    style = ' class="bad"' if moment.outcome in REFUSED else ""
    where = "".join(
        f" {word} {words(value)}" for word, value in (("from", moment.address), ("by", moment.listener)) if value
    )
    return f'<li id="{identifier}"{style}>{words(said(moment))}{where} <code>{words(moment.event_id)}</code></li>'


def _section(report: Report, key: str, keys: tuple[str, ...]) -> str:
    tables = (report.tables[one] for one in keys)
    cards = "".join(
        f'<div class="card" data-card="{table.key}"><h3>{escape(table.title)}</h3>'
        f'<p class="doc">{escape(table.doc)}</p>{_table(table)}</div>'
        for table in tables
        if table.rows
    )
    if key not in _FOLDED or not cards:
        return cards
    titles = ", ".join(report.tables[one].title for one in keys if report.tables[one].rows)
    return f"<details><summary>{escape(titles)}</summary>{cards}</details>"


def _empty(report: Report) -> str:
    titles = ", ".join(table.title.lower() for table in report.tables.values() if not table.rows)
    return f"Nothing to report: {escape(titles)}." if titles else ""


def _table(table: Table) -> str:
    styles = [_STYLES.get(column.kind, ' class="number"') for column in table.columns]
    heads = "".join(f"<th{style}>{escape(c.title)}</th>" for c, style in zip(table.columns, styles, strict=True))
    rows = []
    for index, row in enumerate(table.rows):
        cells = zip(row, table.columns, styles, strict=True)
        texts = "".join(
            f'<td{style} data-of="{escape(column.title)}">{_cell(value, column.kind)}</td>'
            for value, column, style in cells
        )
        rows.append(f"<tr{' class=marked' if index in table.marked else ''}>{texts}</tr>")
    if table.columns[0].kind == "time":
        # Show the latest row first.
        rows.reverse()
    parts = [rows[:_ROWS], rows[_ROWS:]] if len(rows) > _ROWS * 2 else [rows]
    first, *rest = (f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(part)}</tbody></table>" for part in parts)
    return first + "".join(f"<details><summary>{len(rows) - _ROWS:,} more</summary>{one}</details>" for one in rest)


def _cell(value: Any, kind: str) -> str:
    return words(cell(value, kind)) if kind in ("text", "id") else escape(cell(value, kind))
