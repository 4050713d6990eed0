"""The footer of a Parquet file, looked at before PyArrow reads it: some end the process, and some fill the memory."""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm_spark.lake.thrift import LONG, NUMBER, STRUCTURE, TEXT, UNREADABLE, Fields, Thrift

_MOST_BYTES: Final = 16 * 1024**2
"""The most bytes of a footer. The largest that `compact` makes have a sixth of it."""
END_BYTES: Final = 8
_END: Final = b"PAR1"
_OPTIONAL, _REPEATED = 1, 2
_MOST_DEPTH: Final = 32
# Where structures of a footer are, and fields of them.
_ELEMENT: Final = (2,)
_GROUP: Final = (4,)
_CHUNK: Final = (4, 1)
_COLUMN: Final = (4, 1, 3)
_LEVELS: Final = (4, 1, 3, 16)
_ITEMS: Final[dict[Fields, int]] = {
    **dict.fromkeys((_ELEMENT, _GROUP, _CHUNK, (5,), (7,), (4, 4), (*_COLUMN, 8), (*_COLUMN, 13)), STRUCTURE),
    **dict.fromkeys(((*_COLUMN, 2), (*_COLUMN, 17, 2)), NUMBER),
    (*_COLUMN, 3): TEXT,
    **dict.fromkeys(((*_LEVELS, 2), (*_LEVELS, 3)), LONG),
}
"""The kinds of its lists' items."""
_TYPE, _REPETITION, _CHILDREN = 1, 3, 5


class _Leaf(NamedTuple):
    """A column: its type, and the highest of its levels by their fields in `_LEVELS`."""

    type: int | None
    levels: dict[int, int]


def footer_bytes(end: bytes) -> int:
    """Return the size of a footer by the last `END_BYTES` of its file. Raises ValueError."""
    size_bytes = int.from_bytes(end[:4], "little")
    if end[4:] != _END or size_bytes > _MOST_BYTES:
        raise ValueError(f"it has no footer of at most {_MOST_BYTES:,} bytes")
    return size_bytes


def check_footer(data: bytes) -> None:
    """Raise ValueError for a footer that PyArrow cannot read as an error: its columns are not those of its schema, or
    are more than any file of klamm has."""
    footer = Thrift(data, _ITEMS)
    try:
        footer.read()
    except IndexError:
        raise ValueError(UNREADABLE) from None
    leaves = _leaves([each.numbers for each in footer.structures if each.place == _ELEMENT])
    column = 0
    for place, numbers in footer.structures:
        if place == _GROUP:
            if column != len(leaves):
                raise ValueError("a group of its rows has other columns than its schema")
            column = 0
        elif place == _CHUNK:
            column += 1
        elif place in (_COLUMN, _LEVELS):
            if column >= len(leaves):
                raise ValueError("a group of its rows has other columns than its schema")
            leaf = leaves[column]
            fits = (
                numbers.get(_TYPE) == leaf.type
                if place == _COLUMN
                else all(numbers.get(field, 0) in (0, most + 1) for field, most in leaf.levels.items())
            )
            if not fits:
                raise ValueError(f"column {column} of a group of its rows is another one than in its schema")


def _leaves(elements: list[dict[int, int]]) -> list[_Leaf]:
    """Return the columns of a schema, whose elements stand in it before those that they have."""
    leaves = list[_Leaf]()
    # Of those around an element: how many they still have, and the highest of their levels.
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
            leaves.append(_Leaf(element.get(_TYPE), {2: repetition, 3: definition}))
    return leaves
