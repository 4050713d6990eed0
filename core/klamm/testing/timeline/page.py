"""`render_page`, which writes a timeline as one HTML file: lanes with marks, and below them a list of all moments."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from klamm.logs.escaping import escape_control_characters
from klamm.testing.timeline.moments import QUIET, Lanes, Mark, Moment

_DETAILS_CHARACTERS: Final = 2000
_SCRIPT: Final = 'document.querySelector("li:last-child").scrollIntoView({block: "end"});'
_DIGEST: Final = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_LEGEND: Final = " ".join(f'<i class="{mark}">{mark}</i>' for mark in Mark if mark is not Mark.FAILURE)
_NODE: Final = "node {}"


def render_page(timeline: Lanes) -> str:
    """Return the text of the file, which loads no other file. Names that clients have chosen are escaped."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    title = _shown(timeline.title) or "timeline"
    last = timeline.moments[-1] if timeline.moments else None
    reason = f'<p class="reason">{_shown(last.text)}</p>' if last is not None and last.mark is Mark.FAILURE else ""
    before = f"<p>{timeline.dropped:,} lines before.</p>" if timeline.dropped else ""
    rows = "\n".join(_row(timeline, number, moment) for number, moment in enumerate(timeline.moments))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'sha256-{_DIGEST}'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
{reason}
<div class="lanes">
{"".join(_lanes(timeline))}</div>
<p class="legend">{_LEGEND}</p>
</header>
<ol>
{before}{rows}
</ol>
<footer>Times are seconds before the end, by the server's clock.</footer>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _lanes(timeline: Lanes) -> Iterator[str]:
    start_ns = min((each.started_ns for each in timeline.moments), default=timeline.end_ns)
    span_ns = max(1, timeline.end_ns - start_ns)
    named = [(client, [each.client == client for each in timeline.moments]) for client in timeline.clients]
    named += [(_NODE.format(node), [node in each.nodes for each in timeline.moments]) for node in timeline.nodes]
    for name, belongs in named:
        # Notable moments are drawn last, above the others.
        marks = [
            _mark(
                number, moment, *(100 * (at_ns - start_ns) / span_ns for at_ns in (moment.started_ns, moment.ended_ns))
            )
            for number, moment in sorted(enumerate(timeline.moments), key=lambda each: each[1].mark not in QUIET)
            if belongs[number]
        ]
        yield (
            f'<div class="lane"><span class="name" title="{_shown(name)}">{_shown(name)}</span>'
            '<svg><line class="rail" x1="0" x2="100%" y1="8" y2="8"></line>'
            f'<line class="end" x1="100%" x2="100%" y1="0" y2="16"></line>{"".join(marks)}</svg></div>\n'
        )
    yield (
        '<div class="lane"><span></span><span class="scale">'
        f"<span>-{span_ns / 1e9:.3f} s</span><span>0</span></span></div>\n"
    )


def _mark(number: int, moment: Moment, start: float, end: float) -> str:
    radius = 2.5 if moment.mark in QUIET else 5
    return (
        f'<a href="#m{number}" class="{moment.mark}">'
        f'<line x1="{start:.2f}%" x2="{min(end, 100):.2f}%" y1="8" y2="8"></line>'
        f'<circle cx="{start:.2f}%" cy="8" r="{radius}"><title>{_shown(moment.shown)}</title></circle></a>'
    )


def _row(timeline: Lanes, number: int, moment: Moment) -> str:
    nodes = ", ".join(_NODE.format(node) for node in sorted(moment.nodes))
    who = _shown(" to ".join(filter(None, (moment.client, nodes))))
    # The text of a node's change already begins with the node.
    word = "" if moment.mark in (*QUIET, Mark.NODE) else f"<b>{moment.mark}</b> "
    return (
        f'<li id="m{number}" class="{moment.mark}"><time>{timeline.seconds_before_end(moment)}</time>'
        f'<span class="who" title="{who}">{who}</span>{_what(moment, word + _shown(moment.shown))}</li>'
    )


def _what(moment: Moment, shown: str) -> str:
    if moment.source is None:
        return f'<span class="what">{shown}</span>'
    recorded = {key: value for key, value in moment.source.to_json().items() if value and key != "raw"}
    text = json.dumps(recorded, indent=1, ensure_ascii=False)
    text = text if len(text) <= _DETAILS_CHARACTERS else text[:_DETAILS_CHARACTERS] + "…"
    first = "The first of them:\n" if moment.count > 1 else ""
    lines = "\n".join(_shown(line) for line in text.split("\n"))
    return f'<details class="what"><summary>{shown}</summary><pre>{first}{lines}</pre></details>'


def _shown(text: str) -> str:
    return escape(escape_control_characters(text))
