"""`Thrift`: reads Thrift's compact protocol within limits, for the footer and the pages of a Parquet file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

UNREADABLE: Final = "it has a header or a footer that cannot be read"
_MOST_BITS: Final = 64
_MOST_DEPTH: Final = 8
_MOST_STRUCTURES: Final = 1 << 20
"""The maximum number of structures. PyArrow takes up to a kilobyte for a structure of a single byte in the file.

The largest files of `compact` have an eighth of this number.
"""
_MOST_FIELD: Final = 32
_MOST_FIELD_ID: Final = (1 << 15) - 1
_MOST_SIZE: Final = (1 << 31) - 1
TRUE, FALSE = 1, 2
_BOOLEANS: Final = (TRUE, FALSE)
_BYTE: Final = 3
SHORT: Final = 4
NUMBER: Final = 5
LONG: Final = 6
_BITS: Final = {SHORT: 16, NUMBER: 32, LONG: 64}
_DOUBLE: Final = 7
TEXT: Final = 8
LIST: Final = 9
STRUCTURE: Final = 12
_MORE: Final = 15

Fields = tuple[int, ...]


class Structure(NamedTuple):
    """A structure that was read.

    `place` is the path of field numbers to it. `numbers` has its numbers by field; for a list or a text, this is the
    size.
    """

    place: Fields
    numbers: dict[int, int]


class Thrift:
    """A reader of data in the compact protocol. Methods read from the position `at`, and move it.

    They raise IndexError at the end of the data, and ValueError for data that is invalid, or that readers parse
    differently.
    """

    def __init__(self, data: bytes, fields: Mapping[Fields, Sequence[int]], items: Mapping[Fields, int]) -> None:
        """Create a reader. `fields` has the kinds of structures' fields, from field 1 on. `items` has the kinds of
        lists' items.

        Readers parse a field by its number, and skip numbers that they do not know.
        """
        self._data = data
        self._fields = fields
        self._kinds = items
        self.at = 0
        self.structures: list[Structure] = []
        """The structures that were read. A structure comes after those inside it."""

    def read(self, place: Fields = ()) -> None:
        """Read the structure at the path `place`."""
        if len(place) > _MOST_DEPTH or len(self.structures) >= _MOST_STRUCTURES:
            raise ValueError(UNREADABLE)
        numbers, known = dict[int, int](), self._fields.get(place, ())
        field = 0
        while byte := self._byte():
            step, kind = byte >> 4, byte & 15
            before, field = field, field + step if step else self._signed(SHORT)
            # Refuse fields out of order and repeated fields, because readers differ in the field that they take.
            if not before < field <= _MOST_FIELD_ID:
                raise ValueError(UNREADABLE)
            if field <= len(known) and known[field - 1] != (TRUE if kind == FALSE else kind):
                raise ValueError(UNREADABLE)
            value = self._value(kind, (*place, field))
            if value is not None and field < _MOST_FIELD:
                numbers[field] = value
        self.structures.append(Structure(place, numbers))

    def _value(self, kind: int, place: Fields) -> int | None:
        """Read a value. Return a number, or the size of a list or a text, and None for other kinds."""
        if kind in _BITS:
            return self._signed(kind)
        if kind == LIST:
            return self._items(place)
        if kind == TEXT:
            size_bytes = self._size()
            self.at += size_bytes
            return size_bytes
        if kind == STRUCTURE:
            self.read(place)
        elif kind in (_BYTE, _DOUBLE):
            self.at += 1 if kind == _BYTE else 8
        elif kind not in _BOOLEANS:
            raise ValueError(UNREADABLE)
        return None

    def _items(self, place: Fields) -> int:
        byte = self._byte()
        size, kind = byte >> 4, byte & 15
        if size == _MORE:
            size = self._size()
        # Parquet has no lists of lists. Other kinds than the expected one are refused.
        if kind == LIST or kind != self._kinds.get(place, kind):
            raise ValueError(UNREADABLE)
        if size > len(self._data) - self.at:
            # Each item takes at least one byte.
            raise IndexError
        for _ in range(size):
            self._value(_BYTE if kind in _BOOLEANS else kind, place)
        return size

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
                break
        if byte >= 0x80 or value >> _MOST_BITS:
            raise ValueError(UNREADABLE)
        return value

    def _size(self) -> int:
        value = self._number()
        if value > _MOST_SIZE:
            raise ValueError(UNREADABLE)
        return value

    def _signed(self, kind: int) -> int:
        value = self._number()
        # Other readers ignore the bits above the size of the kind, so refuse them.
        if value >> _BITS[kind]:
            raise ValueError(UNREADABLE)
        return value >> 1 ^ -(value & 1)
