"""Thrift's compact protocol, as the footer and the pages of a Parquet file have it, read within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

UNREADABLE: Final = "it has a header or a footer that cannot be read"
_MOST_BITS: Final = 64
_MOST_DEPTH: Final = 8
_MOST_STRUCTURES: Final = 1 << 20
"""PyArrow takes up to a kilobyte for one, which has a byte in a file. The largest files of `compact` have an eighth."""
_MOST_FIELD: Final = 32
_BOOLEANS: Final = (1, 2)
_BYTE: Final = 3
NUMBER: Final = 5
LONG: Final = 6
_NUMBERS: Final = (4, NUMBER, LONG)
_DOUBLE: Final = 7
TEXT: Final = 8
_LISTS: Final = (9, 10)
STRUCTURE: Final = 12
_MORE: Final = 15

Fields = tuple[int, ...]


class Structure(NamedTuple):
    """A structure: the fields that lead to it, and its numbers of 32 bits by their fields; that of a list is its size.
    Readers leave out what has another type than they know."""

    place: Fields
    numbers: dict[int, int]


class Thrift:
    """Data in the compact protocol. Methods continue to read at `at`. They raise IndexError at the end of the data, and
    ValueError for what cannot be read."""

    def __init__(self, data: bytes, items: Mapping[Fields, int] | None = None) -> None:
        """`items` are the kinds that lists must have: readers take them for those that they know."""
        self._data = data
        self._kinds = items or {}
        self.at = 0
        self.structures: list[Structure] = []
        """The structures that were read, each after those inside it."""

    def read(self, place: Fields = ()) -> None:
        """Read a structure, which these fields lead to."""
        if len(place) > _MOST_DEPTH or len(self.structures) >= _MOST_STRUCTURES:
            raise ValueError(UNREADABLE)
        numbers = dict[int, int]()
        field = 0
        while byte := self._byte():
            step, kind = byte >> 4, byte & 15
            field = field + step if step else self._signed()
            value = self._value(kind, (*place, field))
            if value is not None and 0 <= field < _MOST_FIELD:
                numbers[field] = value
        self.structures.append(Structure(place, numbers))

    def _value(self, kind: int, place: Fields) -> int | None:
        """Read a value, and return it if it is a number, or of a list the size."""
        if kind in _NUMBERS:
            value = self._signed()
            return value if kind == NUMBER else None
        if kind in _LISTS:
            return self._items(place)
        if kind == STRUCTURE:
            self.read(place)
        elif kind == TEXT:
            size_bytes = self._number()
            self.at += size_bytes
        elif kind in (_BYTE, _DOUBLE):
            self.at += 1 if kind == _BYTE else 8
        elif kind not in _BOOLEANS:
            raise ValueError(UNREADABLE)
        return None

    def _items(self, place: Fields) -> int:
        byte = self._byte()
        size, kind = byte >> 4, byte & 15
        if size == _MORE:
            size = self._number()
        if kind != self._kinds.get(place, kind):
            raise ValueError(UNREADABLE)
        if size > len(self._data) - self.at:
            # Each takes a byte at least.
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
                return value
        raise ValueError(UNREADABLE)

    def _signed(self) -> int:
        value = self._number()
        return value >> 1 ^ -(value & 1)
