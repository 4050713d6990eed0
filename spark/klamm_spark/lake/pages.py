"""The check of a Parquet file's pages against its footer. PyArrow allocates as much memory as a page's header requests.

`open_parquet` calls it after `check_footer`.
"""

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
"""The fewest bytes of a file for each of its pages."""
# Field numbers of Parquet's PageHeader, and of the headers of both versions of data pages.
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
"""The kind of each field of a header, from field 1 on."""


def check_pages(file: pa.NativeFile, metadata: pq.FileMetaData) -> None:
    """Raise ValueError if the pages of a column have more bytes or values than the footer says.

    Also raise it for more pages than a file of this size can have.
    """
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
        # Refuse overlapping columns: many could share the same pages, and each page would be checked again for each of
        # them.
        if at < last or end > size_bytes:
            raise ValueError(f"{column.path_in_schema} is where another column or the end of the file is")
        last, left = end, left - _check_column(file, column, at, left)


def _place(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Return the positions at which a column begins and ends."""
    at = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
        at = column.dictionary_page_offset
    return at, at + column.total_compressed_size


def _check_column(file: pa.NativeFile, column: pq.ColumnChunkMetaData, at: int, most_pages: int) -> int:
    """Check the pages of a column that begins at the position `at`. Return their number. Raises ValueError."""
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
    """Return the header of the page at a position. Raises ValueError."""
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
