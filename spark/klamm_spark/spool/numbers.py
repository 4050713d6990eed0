"""The sequence numbers of a sealed segment's events, from its bytes. The check of the hash chain (`chain`) uses them.

A server writes the fields of a line in one order. So the first line shows how each later line must begin, up to its
number, and only these beginnings are compared. This takes a tenth of the time of parsing. If a line begins otherwise,
all lines are parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import repeat
from typing import Any, Final, NamedTuple

from klamm_spark.events.event import AUDIT_GAP

_NAMES: Final = ("node", "boot", "seq")
_TEXTS: Final = ("node", "boot", "action", "detail", "gap_boot")
_NUMBERS: Final = ("gap_first_seq", "gap_last_seq")
_TIME_US: Final = re.compile(rb'"time_us":(\d{1,16})\D')
_HOUR_US: Final = 3_600_000_000
MOST_HOURS: Final = 10_000
"""The most hours of the events in one segment, because each hour is a file of the lake. The events of a server whose
clock is right are of a few hours.
"""
_MOST: Final = 1 << 63
"""No number of an event reaches this: they have 64 bits."""


class Numbers(NamedTuple):
    """The numbers of a segment. `seqs` has tuples of a node, a boot, a first and a last number. `gaps` has the
    `audit_gap` events, and `lines` is the number of lines.
    """

    seqs: list[tuple[str, str, int, int]]
    gaps: list[dict[str, Any]]
    lines: int


def numbers_of(data: bytes) -> Numbers:
    """Return the numbers in the uncompressed lines of a segment. A line that is not an event has no number."""
    *lines, rest = data.split(b"\n")
    seqs = [] if rest else _in_order(lines)
    return Numbers(seqs or list(_one_by_one([*lines, rest])), gaps_in(data), len(lines))


def hours_of(data: bytes) -> set[int]:
    """Return the hours since 1970 that lines have events of."""
    return {int(time_us) // _HOUR_US for time_us in _TIME_US.findall(data)}


def _in_order(lines: list[bytes]) -> list[tuple[str, str, int, int]]:
    """Return the numbers of the lines. Return nothing if they are of two boots or do not follow one another."""
    if not lines or not all(map(bytes.endswith, lines, repeat(b"}"))):
        return []
    first = _parsed(lines[0])
    node, boot, seq = (first.get(name) for name in _NAMES)
    if not isinstance(node, str) or not isinstance(boot, str) or type(seq) is not int:
        return []
    version, names = json.dumps(first.get("schema_version")), (json.dumps(node), json.dumps(boot))
    before = f'{{"schema_version":{version},"event_id":{json.dumps(f"{node}/{boot}/")[:-1]}'
    after = f'","node":{names[0]},"boot":{names[1]},"seq":'
    # `%` is the fastest way to build the bytes; a `%` in the text around the numbers is doubled.
    form = f"{before}\0{after}\0,".replace("%", "%%").replace("\0", "%d").encode("ascii")
    beginnings = (form % (each, each) for each in range(seq, seq + len(lines)))
    if not 0 <= seq < _MOST - len(lines) or not all(map(bytes.startswith, lines, beginnings)):
        return []
    return [(node, boot, seq, seq + len(lines) - 1)]


def _one_by_one(lines: list[bytes]) -> Iterator[tuple[str, str, int, int]]:
    for line in lines:
        node, boot, seq = map(_parsed(line).get, _NAMES)
        if isinstance(node, str) and isinstance(boot, str) and type(seq) is int and -_MOST <= seq < _MOST:
            yield node, boot, seq, seq


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _lines_with(text: bytes, data: bytes) -> Iterator[bytes]:
    at = data.find(text)
    while at >= 0:
        end = data.index(b"\n", at)
        yield data[data.rfind(b"\n", 0, at) + 1 : end]
        at = data.find(text, end)


def gaps_in(data: bytes) -> list[dict[str, Any]]:
    """Return the `audit_gap` events in the whole lines of a segment. Lines that are not valid events are left out."""
    events = map(_parsed, _lines_with(f'"{AUDIT_GAP}"'.encode(), data[: data.rfind(b"\n") + 1]))
    return [
        event
        for event in events
        if event.get("kind") == AUDIT_GAP and {"node", "boot"} <= event.keys() and _typed(event)
    ]


def _typed(gap: dict[str, Any]) -> bool:
    texts = all(isinstance(gap.get(name, ""), str) for name in _TEXTS)
    numbers = (gap.get(name, 0) for name in _NUMBERS)
    return texts and all(type(number) is int and -_MOST <= number < _MOST for number in numbers)
