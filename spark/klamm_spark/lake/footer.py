"""The check of a Parquet file's footer before PyArrow reads it. Without it, a file could crash the process or fill
memory.

`open_parquet` calls it. The constants follow Parquet's format definition in Thrift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from klamm_spark.lake.thrift import LIST, LONG, NUMBER, SHORT, STRUCTURE, TEXT, TRUE, UNREADABLE, Fields, Thrift

_MOST_BYTES: Final = 16 * 1024**2
"""The maximum size of a footer. The largest footers of `compact` have a sixth of it."""
END_BYTES: Final = 8
_END: Final = b"PAR1"
_OPTIONAL, _REPEATED = 1, 2
_MOST_DEPTH: Final = 32
# The places of structures within a footer, as paths of field numbers.
_ELEMENT: Final = (2,)
_GROUP: Final = (4,)
_CHUNK: Final = (4, 1)
_COLUMN: Final = (4, 1, 3)
_STATISTICS: Final = (4, 1, 3, 12)
_LEVELS: Final = (4, 1, 3, 16)
STATISTICS: Final = (TEXT, TEXT, LONG, LONG, TEXT, TEXT, TRUE, TRUE)
_FIELDS: Final[dict[Fields, tuple[int, ...]]] = {
    (): (NUMBER, LIST, LONG, LIST, LIST, TEXT, LIST, STRUCTURE, TEXT),
    _ELEMENT: (NUMBER, NUMBER, NUMBER, TEXT, *(NUMBER,) * 5, STRUCTURE),
    _GROUP: (LIST, LONG, LONG, LIST, LONG, LONG, SHORT),
    _CHUNK: (TEXT, LONG, STRUCTURE, LONG, NUMBER, LONG, NUMBER, STRUCTURE, TEXT),
    _COLUMN: (
        *(NUMBER, LIST, LIST, NUMBER, LONG, LONG, LONG, LIST),
        *(LONG, LONG, LONG, STRUCTURE, LIST, LONG, NUMBER, STRUCTURE, STRUCTURE),
    ),
    _STATISTICS: STATISTICS,
    _LEVELS: (LONG, LIST, LIST),
}
"""The kind of each field of a structure, from field 1 on."""
_ITEMS: Final[dict[Fields, int]] = {
    **dict.fromkeys((_ELEMENT, _GROUP, _CHUNK, (5,), (7,), (4, 4), (*_COLUMN, 8), (*_COLUMN, 13)), STRUCTURE),
    **dict.fromkeys(((*_COLUMN, 2), (*_COLUMN, 17, 2)), NUMBER),
    (*_COLUMN, 3): TEXT,
    **dict.fromkeys(((*_LEVELS, 2), (*_LEVELS, 3)), LONG),
}
"""The kinds of the items in the lists of these structures."""
_TYPE, _LENGTH, _REPETITION, _CHILDREN = 1, 2, 3, 5
_BOUNDS: Final = (1, 2, 5, 6)
_COUNTS: Final = {(): (3,), _ELEMENT: (2, 5), _GROUP: (2, 3), _COLUMN: (5, 6, 7, 9, 11)}
"""Fields that must not be negative: numbers of rows and values, sizes, and positions."""
_WIDTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""The bytes of a value, by the number of its type. Texts have no fixed size, and `_FIXED` names it itself."""
_FIXED: Final = 7


class _Leaf(NamedTuple):
    """A column of the schema.

    `width` is the number of bytes of each value, None if they differ. `levels` has the highest level for each field in
    `_LEVELS`.
    """

    type: int
    width: int | None
    levels: dict[int, int]

    def fits(self, place: Fields, numbers: Mapping[int, int]) -> bool:
        """Return True if a structure at a place in a group of rows fits this column."""
        if place == _COLUMN:
            return numbers.get(_TYPE) == self.type
        if place == _STATISTICS:
            # PyArrow crashes if a bound is shorter than a value.
            return self.width is None or all(numbers.get(field, self.width) == self.width for field in _BOUNDS)
        return all(numbers.get(field, 0) in (0, most + 1) for field, most in self.levels.items())


def footer_bytes(end: bytes) -> int:
    """Return the size of the footer, from the last `END_BYTES` of the file. Raises ValueError."""
    size_bytes = int.from_bytes(end[:4], "little")
    if end[4:] != _END or size_bytes > _MOST_BYTES:
        raise ValueError(f"it has no footer of at most {_MOST_BYTES:,} bytes")
    return size_bytes


def check_footer(data: bytes) -> None:
    """Raise ValueError for a footer with which PyArrow would crash.

    In such a footer the groups of rows have other columns than the schema, or there are too many columns.
    """
    footer = Thrift(data, _FIELDS, _ITEMS)
    try:
        footer.read()
    except IndexError:
        raise ValueError(UNREADABLE) from None
    leaves = _leaves([each.numbers for each in footer.structures if each.place == _ELEMENT])
    column = 0
    for place, numbers in footer.structures:
        if any(numbers.get(field, 0) < 0 for field in _COUNTS.get(place, ())):
            raise ValueError("it has a negative number of rows or values, or a negative size or place")
        if place == _GROUP:
            if column != len(leaves):
                raise ValueError("a group of its rows has other columns than its schema")
            column = 0
        elif place == _CHUNK:
            column += 1
        elif place in (_COLUMN, _STATISTICS, _LEVELS):
            if column >= len(leaves):
                raise ValueError("a group of its rows has other columns than its schema")
            if not leaves[column].fits(place, numbers):
                raise ValueError(f"column {column} of a group of its rows is another one than in its schema")


def _leaves(elements: list[dict[int, int]]) -> list[_Leaf]:
    """Return the columns of a schema. In the list, an element comes before its children."""
    leaves = list[_Leaf]()
    # For each enclosing element: the number of its children that are still to come, and its highest levels.
    around = [(1, 0, 0)]
    for number, element in enumerate(elements):
        while around and not around[-1][0]:
            around.pop()
        if not around or len(around) > _MOST_DEPTH:
            raise ValueError("it has a schema that cannot be read")
        left, repetition, definition = around[-1]
        around[-1] = (left - 1, repetition, definition)
        if number:
            repetition += element.get(_REPETITION) == _REPEATED
            definition += element.get(_REPETITION) in (_OPTIONAL, _REPEATED)
        if children := element.get(_CHILDREN, 0):
            around.append((children, repetition, definition))
        else:
            kind = element.get(_TYPE, -1)
            width = element.get(_LENGTH, 0) if kind == _FIXED else _WIDTHS.get(kind)
            leaves.append(_Leaf(kind, width, {2: repetition, 3: definition}))
    return leaves
