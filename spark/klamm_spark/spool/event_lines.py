"""`EventLines`: turns lines of the spool into rows of the lake, by DuckDB, and rows into lines again, by Arrow.

The server writes the fields in one order, texts in ASCII, and times with three digits. So the columns of a row give its
line again, byte by byte, and the line's digest shows if the row still fits its seal. If the columns do not give the
line again, e.g. because of an escaped character, Python parses the line, and the row keeps it whole in one of these
columns:

- `bad_line`: a line that is not an event: it is not a JSON object, or a field has the wrong type, or a required field
  is missing.
- `newer_line`: an event that a later klamm has written. The known fields are in columns.
- `kept_line`: any other event whose columns do not give its line again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from klamm_spark.events.event import (
    ACTIONS,
    DUCKDB_TYPES,
    FIELD_NAMES,
    FIELDS,
    LISTS,
    SCHEMA_VERSION,
    Field,
)
from klamm_spark.spool.written_lines import MAX_TIME_US, written_lines
from klamm_spark.storage.database import connect

_ARROW_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
_PYTHON_TYPES: Final[dict[str, Any]] = {
    "string": (str,),
    "int": (int,),
    "long": (int,),
    "double": (int, float),
    "boolean": (bool,),
}
_BITS: Final = {"int": 31, "long": 63}


def _arrow_type(field: Field) -> pa.DataType:
    return pa.list_(pa.struct(_arrow_fields(LISTS[field.type]))) if field.type in LISTS else _ARROW_TYPES[field.type]


def _arrow_fields(fields: Sequence[Field]) -> list[pa.Field]:
    return [pa.field(field.name, _arrow_type(field)) for field in fields]


EVENT: Final = pa.schema(_arrow_fields(FIELDS))
WHOLE_LINES: Final = ("bad_line", "newer_line", "kept_line")
ROW: Final = pa.schema([*EVENT, *(pa.field(name, pa.string()) for name in WHOLE_LINES)])
"""The columns of a row. The lake has more columns: the segment, and times as timestamps."""


# ---- by DuckDB


def _structure(fields: Sequence[Field]) -> dict[str, Any]:
    return {
        field.name: [_structure(LISTS[field.type])] if field.type in LISTS else DUCKDB_TYPES[field.type]
        for field in fields
    }


_PARSE: Final = f"""
SELECT line, unnest(try(json_transform(line, '{json.dumps(_structure(FIELDS))}'))) FROM lines"""


class EventLines:
    """A parser of lines, which also writes them again. Only one thread may use it."""

    def __init__(self) -> None:
        self._database = connect(threads=1)

    def rows_of(self, data: bytes) -> pa.Table:
        """Return the rows of complete lines, with the columns of `ROW`."""
        lines = data.split(b"\n")[:-1] if not data.isascii() else None
        if lines is not None:
            return rows_one_by_one([line.decode("utf-8", "replace") for line in lines])
        self._database.register("lines", pa.table({"line": _lines(data)}))
        found = self._database.sql(_PARSE).to_arrow_table()
        self._database.unregister("lines")
        events = found.select(FIELD_NAMES).cast(EVENT).combine_chunks()
        same = pc.equal(self.lines_of(events), found.column("line").combine_chunks())
        known = pc.and_(
            pc.less_equal(events.column("schema_version"), SCHEMA_VERSION),
            pc.is_in(events.column("kind"), pa.array(list(ACTIONS))),
        )
        plain = pc.fill_null(pc.and_(same, known), False)
        rows = with_columns(events, ROW)
        if pc.all(plain).as_py():
            return rows
        apart = rows_one_by_one(found.column("line").filter(pc.invert(plain)).to_pylist())
        places = pa.concat_arrays([pc.indices_nonzero(each) for each in (plain, pc.invert(plain))])
        # In the order of the lines: so their bytes prove the rows, without a digest of each.
        return pa.concat_tables([rows.filter(plain), apart]).combine_chunks().take(pc.array_sort_indices(places))

    def lines_of(self, events: pa.Table) -> pa.Array:
        """Return the line that each event gives, or null if its columns give none."""
        batches = events.combine_chunks().to_batches()
        return pa.concat_arrays([pa.array([], pa.string()), *map(written_lines, batches)])


def _lines(data: bytes) -> pa.Array:
    # Arrow splits one text in a fifth of the time that Python takes.
    return pc.split_pattern(pa.array([data[:-1]], pa.large_binary()).cast(pa.large_string()), "\n").values


def with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with all columns of a schema. Missing ones are null."""
    missing = [field for field in schema if field.name not in table.column_names]
    for field in missing:
        table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.select(schema.names)


# ---- one by one


def rows_one_by_one(lines: Sequence[str]) -> pa.Table:
    """Return the rows of lines, with the columns of `ROW`. Python takes ten times as long for this as DuckDB."""
    return pa.Table.from_pylist([row_of(line) for line in lines], ROW)


def row_of(line: str) -> dict[str, Any]:
    """Return the values of a row that keeps its line whole."""
    event: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        event = json.loads(line)
    if not isinstance(event, dict) or not _is_typed(event, FIELDS):
        return {"bad_line": line}
    newer = event["schema_version"] > SCHEMA_VERSION
    if not 0 <= event["time_us"] < MAX_TIME_US or (not newer and event["kind"] not in ACTIONS):
        return {"bad_line": line}
    return {**_known(event, FIELDS), "newer_line" if newer else "kept_line": line}


def _is_typed(values: Mapping[str, Any], fields: Sequence[Field]) -> bool:
    return all(
        not field.required if (value := values.get(field.name)) is None else _has_type(value, field) for field in fields
    )


def _has_type(value: Any, field: Field) -> bool:
    if field.type in LISTS:
        return isinstance(value, list) and all(
            isinstance(item, dict) and _is_typed(item, LISTS[field.type]) for item in value
        )
    if not isinstance(value, _PYTHON_TYPES[field.type]) or (field.type == "boolean") != isinstance(value, bool):
        return False
    if field.type == "double":
        return _is_double(value)
    bits = _BITS.get(field.type)
    return bits is None or -(1 << bits) <= value < 1 << bits


def _is_double(value: float) -> bool:
    """Return True if a JSON number fits a double. A whole number may have too many digits."""
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _known(values: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    found = {}
    for field in fields:
        value = values.get(field.name)
        if value is not None:
            if field.type in LISTS:
                value = [_known(item, LISTS[field.type]) for item in value]
            elif field.type == "string":
                # Arrow has no text with half a surrogate pair.
                value = value.encode("utf-8", "replace").decode()
            elif field.type == "double":
                value = float(value)
            found[field.name] = value
    return found
