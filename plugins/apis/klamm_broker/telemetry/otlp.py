"""Parser of pushed metrics: the part of OpenTelemetry's `MetricsData` (protocol version 1) that KIP-714 uses.

MetricsData     1: ResourceMetrics*
ResourceMetrics 1: Resource, 2: ScopeMetrics*
ScopeMetrics    2: Metric*
Metric          1: name, 5: Gauge, 7: Sum
Gauge, Sum      1: NumberDataPoint*; Sum 2: temporality (1 delta, 2 cumulative)
NumberDataPoint 4: double, 6: integer of 64 bits, 7: KeyValue*
KeyValue        1: key, 2: AnyValue (1: string, 2: bool, 3: integer, 4: double)

`ClientTelemetry.push` calls the parser, on the thread of the request and without its lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

_DOUBLE: Final = Struct("<d")
_SIGNED: Final = Struct("<q")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA: Final = 1
MAX_FIELDS: Final = 50_000
"""Maximum number of fields in one push, including nested ones. 1,000 values with their attributes have half as many."""


class TelemetryError(ValueError):
    """Raised for bytes that are not valid `MetricsData`."""


class MetricPoint(NamedTuple):
    """One value of one metric. If `is_delta` is True, it is to be added to the last value."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_delta: bool


def read_metrics(data: bytes) -> Iterator[MetricPoint]:
    """Return the points in pushed metrics. Raises TelemetryError."""
    return _Reader().points(data)


class _Reader:
    """The reader of one push. A few compressed bytes may contain millions of fields, so it reads at most
    `MAX_FIELDS`.
    """

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def points(self, data: bytes) -> Iterator[MetricPoint]:
        for resource_metrics in self._messages(data, 1):
            for scope_metrics in self._messages(resource_metrics, 2):
                for metric in self._messages(scope_metrics, 2):
                    yield from self._points(metric)

    def _points(self, metric: bytes) -> Iterator[MetricPoint]:
        fields = list(self._fields(metric))
        name = next((_text(value) for number, _kind, value in fields if number == 1), "")
        for number, kind, value in fields:
            if number not in (5, 7) or kind != _BYTES or not isinstance(value, bytes):
                continue
            inner = list(self._fields(value))
            numbers = {field: each for field, field_kind, each in inner if field_kind == _VARINT}
            is_delta = number == 7 and numbers.get(2) == _DELTA
            for field, field_kind, point in inner:
                if field == 1 and field_kind == _BYTES and isinstance(point, bytes):
                    attributes, amount = self._point(point)
                    yield MetricPoint(name, attributes, amount, is_delta)

    def _point(self, data: bytes) -> tuple[tuple[tuple[str, str], ...], float]:
        amount = 0.0
        attributes = []
        for number, kind, value in self._fields(data):
            if kind == _FIXED64 and isinstance(value, bytes) and number in (4, 6):
                amount = float((_DOUBLE if number == 4 else _SIGNED).unpack(value)[0])
            elif number == 7 and isinstance(value, bytes):
                attributes.append(self._attribute(value))
        return tuple(sorted(attributes)), amount

    def _attribute(self, data: bytes) -> tuple[str, str]:
        key = text = ""
        for number, _kind, value in self._fields(data):
            if number == 1:
                key = _text(value)
            elif number == 2 and isinstance(value, bytes):
                for _number, kind, inner in self._fields(value):
                    text = _double(inner) if kind == _FIXED64 and isinstance(inner, bytes) else _text(inner)
        return key, text

    def _messages(self, data: bytes, wanted: int) -> Iterator[bytes]:
        for number, kind, value in self._fields(data):
            if number == wanted and kind == _BYTES and isinstance(value, bytes):
                yield value

    def _fields(self, data: bytes) -> Iterator[tuple[int, int, bytes | int]]:
        """Yield number, kind and value of each field: an integer, or the bytes."""
        position, end = 0, len(data)
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise TelemetryError(f"more than {MAX_FIELDS} fields")
            tag, position = _varint(data, position)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, position = _varint(data, position)
                yield number, kind, value
                continue
            if kind == _BYTES:
                size, position = _varint(data, position)
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
            else:
                raise TelemetryError(f"a field of kind {kind}")
            if size > end - position:
                raise TelemetryError(f"{size} bytes at byte {position} of {end}")
            yield number, kind, data[position : position + size]
            position += size


def _double(data: bytes) -> str:
    return str(_DOUBLE.unpack(data)[0])


def _text(value: bytes | int) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise TelemetryError("an integer does not end")
