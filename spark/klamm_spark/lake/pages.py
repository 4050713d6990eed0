"""The pages of a Parquet file, held against its footer: PyArrow makes as much room as the header of a page asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_spark.lake.thrift import UNREADABLE, Thrift

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_HEADER_BYTES: Final = 4096
_MOST_HEADER_BYTES: Final = 1 << 24
# Fields of Parquet's PageHeader, and of the headers of either version of data pages.
_UNCOMPRESSED_SIZE: Final = 2
_COMPRESSED_SIZE: Final = 3
_DATA: Final = ((5,), (8,))
_VALUES: Final = 1


def check_pages(file: pa.NativeFile, column: pq.ColumnChunkMetaData) -> None:
    """Raise ValueError if a column's pages unpack to more bytes or values than the footer says of it."""
    at = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
        at = column.dictionary_page_offset
    end = at + column.total_compressed_size
    size_bytes = values = 0
    while at < end:
        header = _read_header(file, at)
        sizes = [header.structures[-1].numbers.get(field, -1) for field in (_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE)]
        if min(sizes) < 0:
            raise ValueError(f"a page of {column.path_in_schema} has no size")
        size_bytes += sizes[0]
        values += sum(max(0, each.numbers.get(_VALUES, 0)) for each in header.structures if each.place in _DATA)
        if size_bytes > column.total_uncompressed_size or values > column.num_values:
            raise ValueError(f"the pages of {column.path_in_schema} unpack to more than its footer says")
        at += header.at + sizes[1]


def _read_header(file: pa.NativeFile, at: int) -> Thrift:
    """Return the header of the page at a place. Raises ValueError."""
    size_bytes = _HEADER_BYTES
    while size_bytes <= _MOST_HEADER_BYTES:
        file.seek(at)
        header = Thrift(file.read(size_bytes))
        try:
            header.read()
        except IndexError:
            size_bytes *= 4
        else:
            return header
    raise ValueError(UNREADABLE)
