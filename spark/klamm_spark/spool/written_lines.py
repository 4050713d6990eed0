"""The line that the columns of an event give, as the server writes it. Arrow does it, many at a time.

Columns that stand side by side and have few values together are joined once for each combination of them: a row copies
the text of all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import groupby, pairwise
from math import prod
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from klamm_spark.events.event import CONNECTION, FIELDS, LISTS, Field
from klamm_spark.events.line_order import CLOSED_AFTER, FIRST, REST
from klamm_spark.spool.layout import DIGEST_DIGITS

MAX_TIME_US: Final = 253_402_300_800_000_000
"""The end of the year 9999: later ones have no date."""
DIGEST: Final = pa.binary(DIGEST_DIGITS // 2)
_BY_NAME: Final = {field.name: field for field in FIELDS}
_REQUIRED: Final = tuple(field.name for field in FIELDS if field.required)
_FEW: Final = 8
"""A column has few values if each value is in this many rows on average."""
_LOOKED_AT: Final = 1024
"""Rows that show whether the values of a column may be few."""
_LINES_AT_ONCE: Final = 4096
_MOST_CODES: Final = 1 << 62
_NONE: Final = "\\"
"""The text of a value that a line without an escape cannot have."""
_MOST: Final = 1e15
"""Above it, no number of milliseconds has three digits in 64 bits."""
_CAST: Final = {
    "boolean": pa.types.is_boolean,
    "int": pa.types.is_signed_integer,
    "long": pa.types.is_signed_integer,
}
"""Types of which Arrow has the text."""
_ZEROS: Final = pa.array([f".{number:03}" for number in range(1000)])

_Part = Any
"""Texts of rows: one for all, an array with one for each, or a dictionary if there are few."""


def written_lines(events: pa.RecordBatch, end: str = "") -> pa.Array:
    """Return a line for each event, and null if its columns give none that has no escape."""
    return pa.concat_arrays([pa.array([], pa.string()), *some_written_lines(events, end)])


def some_written_lines(events: pa.RecordBatch, end: str = "") -> Iterator[pa.Array]:
    """Yield `written_lines`, some at a time: they stay in a processor's cache while they are hashed."""
    return _Writer().lines(events, end)


def digests_of_lines(lines: pa.Array) -> pa.Array:
    """Return the digest of each line, in bytes, and null for null."""
    ends, view, size = _ends(lines), memoryview(lines.buffers()[2] or b""), DIGEST.byte_width
    digests = b"".join([sha256(view[start:end]).digest()[:size] for start, end in pairwise(ends)])
    found = pa.Array.from_buffers(DIGEST, len(lines), [None, pa.py_buffer(digests)])
    return pc.if_else(lines.is_valid(), found, None) if lines.null_count else found


def content_of(lines: pa.Array) -> memoryview:
    """Return the bytes of lines, one after the other; of null none."""
    ends = _ends(lines)
    return memoryview(lines.buffers()[2] or b"")[ends[0] : ends[-1]]


def _ends(lines: pa.Array) -> memoryview:
    """Return where each line ends, and before them where the first one begins."""
    return memoryview(lines.buffers()[1]).cast("i")[lines.offset : lines.offset + len(lines) + 1]


def plain(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


class _Writer:
    """Writes some events. `_escapes`: one may have a value that gives no line."""

    def __init__(self) -> None:
        self._escapes = False

    def lines(self, events: pa.RecordBatch, end: str) -> Iterator[pa.Array]:
        """Yield the lines, some at a time, with `end` after each."""
        is_connection = pc.equal(plain(events.column("kind")), CONNECTION)
        parts: list[_Part] = ["{"]
        for name in (*FIRST, "", *REST):
            field = _BY_NAME[name or CLOSED_AFTER]
            column = events.column(field.name)
            if field.name == CLOSED_AFTER:
                column = pc.if_else(pc.invert(is_connection) if name else is_connection, column, None)
            parts += self._parts(field, column, f'{"," if len(parts) > 1 else ""}"{field.name}":')
        pieces = _pieces([*parts, f"}}{end}"])
        flawed = [pc.is_null(events.column(name)) for name in _REQUIRED if events.column(name).null_count]
        times = events.column("time_us")
        bounds = pc.min_max(times).as_py()
        if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < MAX_TIME_US:
            flawed.append(pc.or_(pc.less(times, 0), pc.greater_equal(times, MAX_TIME_US)))
        for at in range(0, len(events), _LINES_AT_ONCE):
            some = [piece if isinstance(piece, str) else piece.slice(at, _LINES_AT_ONCE) for piece in pieces]
            lines = plain(_joined(some, min(_LINES_AT_ONCE, len(events) - at)))
            if self._escapes:
                lines = pc.if_else(pc.match_substring(lines, _NONE), None, lines)
            for each in flawed:
                lines = pc.if_else(each.slice(at, _LINES_AT_ONCE), None, lines)
            yield lines

    def _parts(self, field: Field, column: pa.Array, before: str) -> list[_Part]:
        """Return the texts of a column, each after the name of the field. A null has no text and no name."""
        if column.null_count == len(column):
            return [""]
        if field.type in LISTS and pa.types.is_list(column.type):
            return [self._list(field, column, before)]
        after = '"' if field.type == "string" else ""
        before += after
        few = _few(column)
        if few is None:
            texts = self._texts(field, plain(column))
            if column.null_count:
                return [pc.binary_join_element_wise(before, texts, after, "")]
            return [before, texts, after]
        texts = pc.binary_join_element_wise(before, self._texts(field, few.dictionary), after, "")
        return [_with_nulls(few.indices, texts)]

    def _texts(self, field: Field, values: pa.Array) -> pa.Array:
        """Return the text of each value."""
        no_text = None
        if field.type == "string" and _is_text(values.type):
            texts = values.cast(pa.string())
            content = b"" if len(texts) == texts.null_count else texts.buffers()[2].to_pybytes()
            if b'"' in content or b"\\" in content:
                no_text = pc.or_(pc.match_substring(values, '"'), pc.match_substring(values, _NONE))
        elif field.type == "double" and pa.types.is_float64(values.type):
            texts, no_text = _three_digits(values)
        elif field.type in _CAST and _CAST[field.type](values.type):
            texts = values.cast(pa.string())
        else:
            texts, no_text = pa.nulls(len(values), pa.string()), pc.is_valid(values)
        if no_text is not None and pc.any(no_text).as_py():
            self._escapes = True
            texts = pc.if_else(no_text, _NONE, texts)
        return texts

    def _list(self, field: Field, column: pa.ListArray, before: str) -> _Part:
        texts, sizes = self._items(LISTS[field.type], column.flatten()), pc.list_value_length(column)
        if isinstance(texts, pa.DictionaryArray) and pc.max(sizes).as_py() <= 1:
            values = pa.concat_arrays([texts.dictionary, pa.array([""])])
            one = pc.fill_null(pc.equal(sizes, 1), False)
            codes = pc.if_else(pc.equal(sizes, 0), len(values) - 1, pa.scalar(None, pa.int32()))
            codes = pc.replace_with_mask(codes.cast(pa.int32()), one, texts.indices.cast(pa.int32()))
            return _with_nulls(codes, pc.binary_join_element_wise(f"{before}[", values, "]", ""))
        ends = pc.cumulative_sum(pc.fill_null(sizes, 0))
        starts = pa.concat_arrays([pa.array([0], ends.type), ends])
        lists = pa.ListArray.from_arrays(starts, plain(texts), mask=column.is_null())
        return pc.binary_join_element_wise(f"{before}[", pc.binary_join(lists, ","), "]", "")

    def _items(self, fields: Sequence[Field], items: pa.StructArray) -> _Part:
        names = [each.name for each in items.type]
        if len(names) > len(set(names)):
            raise ValueError("it has a column twice")
        unknown = sorted(set(names) - {field.name for field in fields})
        if unknown:
            # DuckDB and Spark would take `Name` for `name`.
            raise ValueError(f"readers may take {unknown[0]} in one of its lists for another field")
        parts: list[_Part] = ["{"]
        for number, field in enumerate(fields):
            if field.name in names:
                column = pc.struct_field(items, field.name)
                parts += self._parts(field, column, f'{"," if number else ""}"{field.name}":')
        texts = _joined(_pieces([*parts, "}"]), len(items))
        return pc.if_else(pc.is_null(items), "null", plain(texts)) if items.null_count else texts


def _is_text(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _few(column: pa.Array) -> pa.DictionaryArray | None:
    """Return a column as a dictionary, and None if it has too many values."""
    if not pa.types.is_dictionary(column.type):
        start = column.slice(0, _LOOKED_AT)
        if pa.types.is_nested(column.type) or len(start.dictionary_encode().dictionary) * 2 > len(start):
            return None
        column = column.dictionary_encode()
    return column if len(column.dictionary) * _FEW <= len(column) else None


def _with_nulls(indices: pa.Array, texts: pa.Array) -> _Part:
    """Return texts of which there are few; that of a null is empty."""
    if indices.null_count:
        texts = pa.concat_arrays([texts, pa.array([""])])
        indices = indices.fill_null(len(texts) - 1)
    return texts[0].as_py() if len(texts) == 1 else pa.DictionaryArray.from_arrays(indices, texts)


def _three_digits(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the texts of doubles, and which of them have another value."""
    fits = pc.less(pc.abs(values), _MOST)
    thousandths = pc.round(pc.multiply(pc.if_else(fits, values, 0.0), 1000.0)).cast(pa.int64())
    same = pc.equal(pc.divide(thousandths.cast(pa.float64(), safe=False), 1000.0), values)
    sizes = pc.abs(thousandths)
    whole = pc.divide(sizes, 1000)
    signs = pc.if_else(pc.less(thousandths, 0), "-", "")
    digits = _ZEROS.take(pc.subtract(sizes, pc.multiply(whole, 1000)))
    # The line of a negative zero has its sign.
    positive = pc.or_(pc.not_equal(values, 0.0), pc.greater(pc.divide(1.0, values), 0.0))
    texts = pc.binary_join_element_wise(signs, whole.cast(pa.string()), digits, "")
    return texts, pc.invert(pc.and_(pc.and_(fits, same), positive))


def _pieces(parts: Sequence[_Part]) -> list[_Part]:
    """Join parts that have few values together."""
    pieces: list[_Part] = []
    for is_few, side_by_side in groupby(_with_constants(parts), _is_dictionary):
        some = list(side_by_side)
        pieces += _combined(some) if is_few else some
    return pieces


def _joined(pieces: Sequence[_Part], rows: int) -> _Part:
    """Join the texts of each row: an array or a dictionary."""
    if len(pieces) == 1:
        piece = pieces[0]
        zeros = pa.repeat(pa.scalar(0, pa.int32()), rows)
        return pa.DictionaryArray.from_arrays(zeros, [piece]) if isinstance(piece, str) else piece
    texts = (piece if isinstance(piece, str) else plain(piece) for piece in pieces)
    return pc.binary_join_element_wise(*texts, "", null_handling="skip")


def _is_dictionary(part: _Part) -> bool:
    return isinstance(part, pa.DictionaryArray)


def _with_constants(parts: Sequence[_Part]) -> list[_Part]:
    """Return parts of which those that are the same in all rows are in others, where that is possible."""
    found: list[_Part] = [""]
    for part in parts:
        last = found[-1]
        if isinstance(last, str) and isinstance(part, str):
            found[-1] = last + part
        elif isinstance(last, str) and _is_dictionary(part):
            found[-1] = _with_texts(part, last, part.dictionary) if last else part
        elif isinstance(part, str) and _is_dictionary(last):
            found[-1] = _with_texts(last, last.dictionary, part) if part else last
        else:
            found.append(part)
    return found


def _with_texts(part: pa.DictionaryArray, *texts: _Part) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(part.indices, pc.binary_join_element_wise(*texts, ""))


def _combined(few: list[pa.DictionaryArray]) -> list[pa.DictionaryArray]:
    """Join dictionaries, all of them if rows have few combinations of their values."""
    if len(few) == 1:
        return few
    sizes = [len(each.dictionary) for each in few]
    if prod(sizes) < _MOST_CODES:
        codes = few[0].indices.cast(pa.int64())
        for each, size in zip(few[1:], sizes[1:], strict=True):
            codes = pc.add(pc.multiply(codes, size), each.indices)
        found = codes.dictionary_encode()
        if len(found.dictionary) * _FEW <= len(found):
            rest, texts = found.dictionary, []
            for each, size in zip(reversed(few), reversed(sizes), strict=True):
                left = pc.divide(rest, size)
                texts.append(each.dictionary.take(pc.subtract(rest, pc.multiply(left, size))))
                rest = left
            joined = pc.binary_join_element_wise(*reversed(texts), "")
            return [pa.DictionaryArray.from_arrays(found.indices, joined)]
    half = len(few) // 2
    return [*_combined(few[:half]), *_combined(few[half:])]
