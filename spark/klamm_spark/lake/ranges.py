"""`Ranges`: sets of whole numbers with few gaps, e.g. the numbers of events, for `verify` and `forget`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Ranges:
    """An immutable set of whole numbers, stored as ranges `(first, last)`, sorted and not adjacent."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        merged: list[tuple[int, int]] = []
        for first, last in sorted(pairs):
            if first > last:
                raise ValueError(f"a range cannot go from {first} to {last}")
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        self._pairs = tuple(merged)

    @staticmethod
    def parse(text: str) -> Ranges:
        """Parse a text that `str` has written. Raises ValueError."""
        pairs = (part.partition("-") for part in text.split(", ") if part)
        return Ranges((int(first), int(last or first)) for first, _, last in pairs)

    @staticmethod
    def doubled(pairs: Iterable[tuple[int, int]]) -> Ranges:
        """Return the numbers that are in more than one of the ranges."""
        found, end = [], None
        for first, last in sorted(pairs):
            if end is not None and first <= end:
                found.append((first, min(last, end)))
            end = last if end is None else max(end, last)
        return Ranges(found)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._pairs)

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self._pairs == other._pairs

    def __hash__(self) -> int:
        return hash(self._pairs)

    def __str__(self) -> str:
        return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in self._pairs)

    def __repr__(self) -> str:
        return f"Ranges({list(self._pairs)})"

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges((*self._pairs, *other._pairs))

    def __and__(self, other: Ranges) -> Ranges:
        return self - (self - other)

    def __sub__(self, other: Ranges) -> Ranges:
        left, taken, start = [], other._pairs, 0
        for first, last in self._pairs:
            while start < len(taken) and taken[start][1] < first:
                start += 1
            index = start
            while index < len(taken) and taken[index][0] <= last:
                other_first, other_last = taken[index]
                if first < other_first:
                    left.append((first, other_first - 1))
                first = other_last + 1
                index += 1
            if first <= last:
                left.append((first, last))
        return Ranges(left)

    def count(self) -> int:
        """Return how many numbers the set has."""
        return sum(last - first + 1 for first, last in self._pairs)
