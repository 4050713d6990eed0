"""The pages of a Parquet file, held against its footer: PyArrow makes as much room as the header of a page asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_HEADER_BYTES: Final = 4096
_MOST_HEADER_BYTES: Final = 1 << 24
_MOST_BITS: Final = 64
_MOST_DEPTH: Final = 8
_UNREADABLE: Final = "a page has no header that can be read"
# Kinds of Thrift's compact protocol. Headers have no others.
_BOOLEANS: Final = (1, 2)
_NUMBERS: Final = (4, 5, 6)
_TEXT: Final = 8
_STRUCTURE: Final = 12
# Fields of Parquet's PageHeader: those of the values are in the headers of either version of data pages.
_UNCOMPRESSED_SIZE: Final = (2,)
_COMPRESSED_SIZE: Final = (3,)
_VALUES: Final = ((5, 1), (8, 1))


def check_pages(file: pa.NativeFile, column: pq.ColumnChunkMetaData) -> None:
    """Raise ValueError if a column's pages unpack to more bytes or values than the footer says of it."""
    at = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
        at = column.dictionary_page_offset
    end = at + column.total_compressed_size
    size_bytes = values = 0
    while at < end:
        header = _read_header(file, at)
        sizes = [header.numbers.get(field, -1) for field in (_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE)]
        if min(sizes) < 0:
            raise ValueError(f"a page of {column.path_in_schema} has no size")
        size_bytes += sizes[0]
        values += sum(max(0, header.numbers.get(field, 0)) for field in _VALUES)
        if size_bytes > column.total_uncompressed_size or values > column.num_values:
            raise ValueError(f"the pages of {column.path_in_schema} unpack to more than its footer says")
        at += header.at + sizes[1]


def _read_header(file: pa.NativeFile, at: int) -> _Header:
    """Return the header of the page at a place. Raises ValueError."""
    size_bytes = _HEADER_BYTES
    while size_bytes <= _MOST_HEADER_BYTES:
        file.seek(at)
        header = _Header(file.read(size_bytes))
        try:
            header.read()
        except IndexError:
            size_bytes *= 4
        else:
            return header
    raise ValueError(_UNREADABLE)


class _Header:
    """A header in Thrift's compact protocol: its `numbers` by the fields that they are in. Methods read on from `at`.
    They raise IndexError at the end of the data, and ValueError for what no header has."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self.numbers: dict[tuple[int, ...], int] = {}

    def read(self, outer: tuple[int, ...] = ()) -> None:
        """Read a structure, in the field `outer`."""
        if len(outer) > _MOST_DEPTH:
            raise ValueError(_UNREADABLE)
        field = 0
        while byte := self._byte():
            step, kind = byte >> 4, byte & 15
            field = field + step if step else self._signed()
            if kind in _NUMBERS:
                self.numbers[(*outer, field)] = self._signed()
            elif kind == _STRUCTURE:
                self.read((*outer, field))
            elif kind == _TEXT:
                size_bytes = self._number()
                self.at += size_bytes
            elif kind not in _BOOLEANS:
                raise ValueError(_UNREADABLE)

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _number(self) -> int:
        value = bits = 0
        while bits < _MOST_BITS:
            byte = self._byte()
            value |= (byte & 0x7F) << bits
            bits += 7
            if byte < 0x80:
                return value
        raise ValueError(_UNREADABLE)

    def _signed(self) -> int:
        value = self._number()
        return value >> 1 ^ -(value & 1)
