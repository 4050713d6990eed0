"""Reading Parquet within limits. A few bytes of a file can stand for any number of rows and texts.

The commands that read the lake use it for all files, because an attacker may have written them.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm_spark.lake.footer import END_BYTES, check_footer, footer_bytes
from klamm_spark.lake.pages import check_pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    import pyarrow.parquet as pq

_MOST_GROUP_BYTES: Final = 4 * 1024**3
_MOST_BYTES: Final = 1024**3
"""The maximum bytes of a column in a group of rows, and of texts that are read together.

`compact` writes at most 16,384 events of 64 KiB into a group.
"""
_BATCH_BYTES: Final = 128 * 1024**2
"""The maximum bytes of the texts that are read together, unless a single event has more."""
_ITEM_BYTES: Final = 512
"""An estimate of the bytes that an item of a list takes, besides its texts."""
_ROWS: Final = 1 << 16
_MOST_BATCHES: Final = 1 << 20
"""The maximum number of batches of a column whose values are checked a few at a time."""
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}
"""The bytes that a value takes in memory. For a text, this is its index in a dictionary, and later its end."""
_LEVEL_BYTES: Final = 4
"""The bytes of a value's two levels, which define nulls and the beginnings of lists."""


@contextmanager
def _named() -> Iterator[None]:
    """Raise ValueError for the errors, besides OSError, with which PyArrow reports an invalid file."""
    import pyarrow as pa

    try:
        yield
    except (ArithmeticError, LookupError, RecursionError, TypeError, pa.ArrowException) as error:
        raise ValueError(f"it cannot be read: {' '.join(str(error).split())}") from error


@_named()
def open_parquet(source: Path | pa.BufferReader) -> pq.ParquetFile:
    """Open Parquet for `batches_of` or `whole_batches_of`.

    Raises OSError, and ValueError if its rows have too many bytes, or differ from its footer.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pa.OSFile(str(source)) if isinstance(source, Path) else nullcontext(source) as file:
        check_footer(_footer(file))
        metadata = pq.read_metadata(source)
        check_pages(file, metadata)
    texts, deltas, values = set[str](), dict[str, int](), Counter[str]()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        group_bytes = 0
        for number in range(group.num_columns):
            column, kind = group.column(number), metadata.schema.column(number)
            path, is_delta = column.path_in_schema, "DELTA_BYTE_ARRAY" in column.encodings
            # Groups are read one after the other, so values of several groups are in memory only for lists.
            values[path] = column.num_values if kind.max_repetition_level else values[path] + column.num_values
            size_bytes = max(column.total_uncompressed_size, _least_bytes(kind, values[path]))
            group_bytes += size_bytes
            if size_bytes > _MOST_BYTES or group_bytes > _MOST_GROUP_BYTES:
                raise ValueError(f"{group.num_rows:,} of its rows unpack to {group_bytes:,} bytes: {path}")
            if is_delta and column.physical_type == "BYTE_ARRAY":
                deltas[path] = number
            elif column.physical_type == "BYTE_ARRAY":
                texts.add(path)
    # PyArrow cannot read a column of an own encoding as a dictionary.
    try:
        parquet = pq.ParquetFile(source, read_dictionary=texts - deltas.keys())
    except LookupError as error:
        raise ValueError(f"its schema and its groups of rows do not have the same columns: {error}") from error
    for field in parquet.schema_arrow:
        _check_type(field)
    for path, number in deltas.items():
        _check_delta(parquet, path, number)
    return parquet


def _check_type(field: pa.Field) -> None:
    """Raise ValueError for a type whose texts and items this module cannot count. A schema may have any type."""
    import pyarrow as pa

    kind, types = field.type, pa.types
    if types.is_struct(kind):
        inner = list(kind)
    elif types.is_map(kind):
        inner = [kind.key_field, kind.item_field]
    elif types.is_list(kind):
        inner = [kind.value_field]
    else:
        value = kind.value_type if types.is_dictionary(kind) else kind
        is_text = types.is_string(value) or types.is_binary(value)
        if not is_text and (value is not kind or not _is_plain(kind)):
            raise ValueError(f"{field.name} has a type that is not read: {kind}")
        return
    for one in inner:
        _check_type(one)


def _is_plain(kind: pa.DataType) -> bool:
    """Return True if each value of the type takes a fixed number of bytes."""
    import pyarrow as pa

    types = pa.types
    return any(
        is_kind(kind) for is_kind in (types.is_primitive, types.is_decimal, types.is_fixed_size_binary, types.is_null)
    )


def _footer(file: pa.NativeFile) -> bytes:
    file.seek(max(0, file.size() - END_BYTES))
    size_bytes = footer_bytes(file.read())
    file.seek(max(0, file.size() - END_BYTES - size_bytes))
    return bytes(file.read(size_bytes))


def _least_bytes(column: pq.ColumnSchema, values: int) -> int:
    """Return the fewest bytes that values take when they are read. All items of lists may belong to one row."""
    at_once = values if column.max_repetition_level else min(values, _ROWS)
    value_bytes = column.length if column.physical_type == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS[column.physical_type]
    return int(at_once * (value_bytes + _LEVEL_BYTES * (column.max_definition_level + column.max_repetition_level > 0)))


def _check_delta(parquet: pq.ParquetFile, path: str, number: int) -> None:
    """Raise ValueError if a batch of texts with the encoding DELTA_BYTE_ARRAY would fill the memory.

    In this encoding, a text repeats the beginning of the text before it. No text is longer than the column in the file.
    """
    import pyarrow.compute as pc

    if "." in path:
        # A row may have any number of list items, so a batch of rows has no limit.
        raise ValueError(f"{path} has an encoding that texts in lists are not read in")
    if parquet.schema_arrow.names.count(path) > 1:
        raise ValueError(f"it has the column {path} twice")
    columns = [parquet.metadata.row_group(at).column(number) for at in range(parquet.num_row_groups)]
    rows = [max(1, min(_ROWS, _MOST_BYTES // 4 // max(1, each.total_uncompressed_size))) for each in columns]
    if sum(column.num_values // few for column, few in zip(columns, rows, strict=True)) > _MOST_BATCHES:
        raise ValueError(f"the values of {path} are too many to be read a few at a time")
    for at, few in enumerate(rows):
        found, size_bytes = deque[int](), 0
        for batch in parquet.iter_batches(batch_size=few, row_groups=[at], columns=[path]):
            found.append(pc.sum(pc.binary_length(batch.column(0)).cast("int64")).as_py() or 0)
            size_bytes += found[-1]
            if len(found) * few > _ROWS:
                size_bytes -= found.popleft()
            if size_bytes > _MOST_BYTES:
                raise ValueError(f"{_ROWS:,} values of {path} unpack to {size_bytes:,} bytes")


def batches_of(parquet: pq.ParquetFile, **which: Any) -> Iterator[pa.RecordBatch]:
    """Read rows like `packed_batches_of`, with plain texts."""
    with _named():
        yield from map(_unpacked, packed_batches_of(parquet, **which))


def packed_batches_of(parquet: pq.ParquetFile, **which: Any) -> Iterator[pa.RecordBatch]:
    """Read rows like PyArrow's `iter_batches`, but fewer at a time if their texts are long.

    Texts may be in dictionaries. Raises ValueError before the texts of one row fill the memory.
    """
    with _named():
        for batch in _packed_batches(parquet, **which):
            # No file of klamm has more; to read it in parts would take for ever.
            text_bytes = _packed_bytes(batch)
            _check_size(batch, text_bytes)
            yield from _parts(batch, text_bytes)


def whole_batches_of(parquet: pq.ParquetFile, **which: Any) -> Iterator[pa.RecordBatch]:
    """Read rows that the caller keeps in memory.

    Raises ValueError before a text that many rows share fills the memory.
    """
    with _named():
        for batch in _packed_batches(parquet, **which):
            _check_size(batch, _packed_bytes(batch))
            yield _unpacked(batch)


@_named()
def check_rows(parquet: pq.ParquetFile, *, are_kept: bool) -> None:
    """Raise ValueError if the rows would fill the memory of a reader without limits.

    If the rows `are_kept`, this counts all rows, and otherwise the rows of one batch.
    """
    size_bytes = 0
    for batch in _packed_batches(parquet):
        size_bytes = size_bytes * are_kept + _packed_bytes(batch) + batch.nbytes * are_kept
        _check_size(batch, size_bytes)
        # Counted too, because an event with many resources takes several times the memory of its line.
        if batch.nbytes > _MOST_GROUP_BYTES:
            raise ValueError(f"{len(batch):,} of its rows take {batch.nbytes:,} bytes")


def _packed_batches(parquet: pq.ParquetFile, **which: Any) -> Iterator[pa.RecordBatch]:
    """Read rows. Their texts stay in dictionaries."""
    most_rows = which.pop("batch_size", _ROWS)
    for number in which.pop("row_groups", range(parquet.num_row_groups)):
        # Read one group at a time, because Arrow cannot join the dictionaries of two groups within a list.
        rows = min(most_rows, _rows_at_once(parquet.metadata.row_group(number)))
        yield from parquet.iter_batches(row_groups=[number], batch_size=rows, **which)


def _rows_at_once(group: pq.RowGroupMetaData) -> int:
    """Return how many rows of a group have about `_BATCH_BYTES` in its largest column."""
    most_bytes: int = max((group.column(at).total_uncompressed_size for at in range(group.num_columns)), default=0)
    fitting: int = _BATCH_BYTES * group.num_rows // max(1, most_bytes)
    return max(1, min(_ROWS, fitting))


def _parts(batch: pa.RecordBatch, text_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch, whose texts have so many bytes, in parts of at most `_BATCH_BYTES`, or of one row."""
    import pyarrow as pa

    waiting = [(batch, text_bytes)]
    while waiting:
        part, text_bytes = waiting.pop()
        size_bytes = text_bytes + _ITEM_BYTES * sum(map(_items, part.columns))
        if size_bytes > _BATCH_BYTES and len(part) > 1:
            half = len(part) // 2
            waiting += [(each, _packed_bytes(each)) for each in (part.slice(half), part.slice(0, half))]
            continue
        _check_size(part, size_bytes)
        # `take` copies the rows. A cast of a slice would unpack the whole list that the slice belongs to.
        yield part if part is batch else part.take(pa.array(range(len(part)), pa.int64()))


def _items(column: pa.Array) -> int:
    """Return the number of list items in a column."""
    import pyarrow as pa

    inner = [column.flatten()] if pa.types.is_list(column.type) else []
    own = sum(map(len, inner))
    return own + sum(map(_items, column.flatten() if pa.types.is_struct(column.type) else inner))


def _check_size(batch: pa.RecordBatch, size_bytes: int) -> None:
    if size_bytes > _MOST_BYTES:
        raise ValueError(f"{len(batch):,} of its rows unpack to {size_bytes:,} bytes")


def _unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.cast(pa.schema([_plain(field) for field in batch.schema]))


def _packed_bytes(batch: pa.RecordBatch) -> int:
    return sum(map(_text_bytes, batch.columns))


def _text_bytes(column: pa.Array) -> int:
    """Return the bytes of a column's texts. A text in a dictionary counts once for each row that has it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        return pc.sum(pc.binary_length(column.dictionary).cast(pa.int64()).take(column.indices)).as_py() or 0
    if pa.types.is_struct(column.type):
        inner = column.flatten()
    elif pa.types.is_map(column.type):
        inner = [column.keys, column.items]
    else:
        inner = [column.flatten()] if pa.types.is_list(column.type) else []
    return sum(map(_text_bytes, inner))


def _plain(field: pa.Field) -> pa.Field:
    """Return a field in which texts are plain, and not in dictionaries."""
    import pyarrow as pa

    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    elif pa.types.is_list(kind):
        kind = pa.list_(_plain(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_plain(one) for one in kind])
    return field.with_type(kind)
