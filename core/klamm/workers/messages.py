"""Messages between the parent and its workers: lines with one JSON object each, over a socket pair.

The parent sends `stop`, `reload`, `metrics`, and `connections` with the arguments and an action on connections or the
dotted name of a function.

A worker sends `ready` with the content of the start message, `failed` with the reason why it cannot start, `reloaded`
with lines for the terminal, `metrics` with all families, and `connections` with the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from klamm.metrics.metrics_registry import Family, HistogramValue, Sample

Message: TypeAlias = dict[str, Any]


def encode(kind: str, **fields: Any) -> bytes:
    """Return a message as bytes."""
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode() + b"\n"


class MessageReader:
    """Parses messages from bytes as they arrive."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are complete after these bytes. Raises ValueError for invalid bytes."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._pieces = []
        if rest:
            self._pieces.append(rest)
        for line in lines:
            yield json.loads(line)


def families_to_json(families: Iterable[Family]) -> list[Any]:
    """Return metric families in the form of JSON."""
    return [
        [family.name, family.kind, family.doc, [[dict(one.labels), _value(one)] for one in family.samples]]
        for family in families
    ]


def _value(sample: Sample) -> Any:
    if isinstance(sample.value, HistogramValue):
        return [sample.value.bounds, sample.value.count, sample.value.total]
    return sample.value


def families_from_json(content: Iterable[Any]) -> list[Family]:
    """Return the families that `families_to_json` has written."""
    return [
        Family(name, kind, doc, tuple(Sample(labels, _read_value(value)) for labels, value in samples))
        for name, kind, doc, samples in content
    ]


def _read_value(value: Any) -> float | HistogramValue:
    if isinstance(value, list):
        bounds, count, total = value
        return HistogramValue(tuple((bound, below) for bound, below in bounds), count, total)
    number: float = value
    return number
