"""A timeline as lines for a terminal: seconds before the end, a column for each client and node, and the event."""

from __future__ import annotations

import string
from typing import Final

from klamm.logs.escaping import escape_control_characters
from klamm.testing.timeline.moments import Lanes, Mark

_SIGNS: Final = {
    Mark.FAILURE: "#",
    Mark.FAULT: "!",
    Mark.ERROR: "x",
    Mark.REBALANCE: "~",
    Mark.LEADER: ">",
    Mark.NODE: ">",
    Mark.TRANSACTION: "=",
}
_LEGEND: Final = "! fault, x error, ~ rebalance, > leader or node, = transaction"
_LETTERS: Final = string.ascii_lowercase


def render_text(timeline: Lanes, columns: int, lines: int) -> str:
    """Return the latest `lines` of a timeline, none of them longer than `columns`."""
    letters = dict(zip(timeline.clients, _LETTERS, strict=False))
    head = [f"{letter} {client}" for client, letter in letters.items()]
    head += [f"{_digit(node)} node {node}" for node in timeline.nodes]
    found = [_LEGEND, *head]
    shown = timeline.moments[-lines:]
    hidden = timeline.dropped + len(timeline.moments) - len(shown)
    if hidden:
        found.append(f"... {hidden:,} lines before")
    for moment in shown:
        lanes = [letter if client == moment.client else "." for client, letter in letters.items()]
        lanes += [_digit(node) if node in moment.nodes else "." for node in timeline.nodes]
        at_s = timeline.seconds_before_end(moment)
        found.append(f"{at_s:>9}  {''.join(lanes)} {_SIGNS.get(moment.mark, ' ')} {moment.shown}")
    return "\n".join(_cut(line, columns) for line in found)


def _digit(node: int) -> str:
    return str(node % 10)


def _cut(line: str, columns: int) -> str:
    line = escape_control_characters(line)
    return line if len(line) <= columns else line[: columns - 3] + "..."
