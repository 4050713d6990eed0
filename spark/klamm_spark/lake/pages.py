"""The pages of a Parquet file, held against its footer: PyArrow makes as much room as the header of a page asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_spark.lake.footer import STATISTICS
from klamm_spark.lake.thrift import NUMBER, STRUCTURE, TRUE, UNREADABLE, Fields, Thrift

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_HEADER_BYTES: Final = 4096
_MOST_HEADER_BYTES: Final = 1 << 24
_LEAST_PAGE_BYTES: Final = 16
"""Of a file for each of its pages."""
# Fields of Parquet's PageHeader, and of the headers of either version of data pages.
_UNCOMPRESSED_SIZE: Final = 2
_COMPRESSED_SIZE: Final = 3
_DATA: Final = ((5,), (8,))
_VALUES: Final = 1
_FIELDS: Final[dict[Fields, tuple[int, ...]]] = {
    (): (*(NUMBER,) * 4, *(STRUCTURE,) * 4),
    (5,): (*(NUMBER,) * 4, STRUCTURE),
    (7,): (NUMBER, NUMBER, TRUE),
    (8,): (*(NUMBER,) * 6, TRUE, STRUCTURE),
    (5, 5): STATISTICS,
    (8, 8): STATISTICS,
}
"""The kinds of a header's fields, from the first on."""


def check_pages(file: pa.NativeFile, metadata: pq.FileMetaData) -> None:
    """Raise ValueError if pages unpack to more bytes or values than the footer says of their column, or are more than
    a file of that size has."""
    size_bytes = file.size()
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    columns = sorted(
        ((*_place(column), column) for group in groups for column in map(group.column, range(group.num_columns))),
        key=lambda each: each[:2],
    )
    last, left = 0, size_bytes // _LEAST_PAGE_BYTES
    for at, end, column in columns:
        if end == at:
            continue
        # Many columns could have the same pages, and each page would be looked at for each of them.
        if at < last or end > size_bytes:
            raise ValueError(f"{column.path_in_schema} is where another column or the end of the file is")
        last, left = end, left - _check_column(file, column, at, left)


def _place(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Return where a column begins and ends."""
    at = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
        at = column.dictionary_page_offset
    return at, at + column.total_compressed_size


def _check_column(file: pa.NativeFile, column: pq.ColumnChunkMetaData, at: int, most_pages: int) -> int:
    """Return the number of pages of a column, which stand from a place on. Raises ValueError."""
    end = at + column.total_compressed_size
    pages = size_bytes = values = 0
    while at < end:
        header = _read_header(file, at)
        sizes = [header.structures[-1].numbers.get(field, -1) for field in (_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE)]
        counts = [each.numbers.get(_VALUES, 0) for each in header.structures if each.place in _DATA]
        if min(*sizes, *counts) < 0:
            raise ValueError(f"a page of {column.path_in_schema} has no size, or a negative one")
        size_bytes += sizes[0]
        values += sum(counts)
        if size_bytes > column.total_uncompressed_size or values > column.num_values:
            raise ValueError(f"the pages of {column.path_in_schema} unpack to more than its footer says")
        at += header.at + sizes[1]
        pages += 1
        if at > end or pages > most_pages:
            raise ValueError(f"{column.path_in_schema} has more pages than its footer or the size of its file allow")
    return pages


def _read_header(file: pa.NativeFile, at: int) -> Thrift:
    """Return the header of the page at a place. Raises ValueError."""
    size_bytes = _HEADER_BYTES
    while size_bytes <= _MOST_HEADER_BYTES:
        file.seek(at)
        data = file.read(size_bytes)
        header = Thrift(data, _FIELDS, {})
        try:
            header.read()
        except IndexError:
            if len(data) < size_bytes:
                break
            size_bytes *= 4
        else:
            return header
    raise ValueError(UNREADABLE)
