"""Runs: neighbouring offsets that share a state, and operations that cut and join them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from klamm_broker.share.record_state import FINAL_STATES, RecordState

_first: Final = attrgetter("first")
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring offsets, both ends included, that share a state.

    `delivery_count`  how often they were acquired.
    `member_id`       who holds them while they are ACQUIRED; `deadline_ns` ends that.
    `before`          the run's state before a transition that is not durable yet, in the write of number `write`.
    """

    first: int
    last: int
    state: RecordState
    delivery_count: int = 0
    member_id: str = ""
    deadline_ns: int = 0
    before: Run | None = None
    write: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether its state is durable."""
        return self.before is None

    def continues(self, other: Run) -> bool:
        """Whether the other run, which it follows, differs in nothing but its offsets."""
        return (
            self.before is other.before is None
            and self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.deadline_ns == other.deadline_ns
        )

    @property
    def count(self) -> int:
        """How many offsets it has."""
        return self.last - self.first + 1


class Runs:
    """Runs in order of their offsets, without holes. The caller holds their lock."""

    __slots__ = ("_available", "_items")

    def __init__(self) -> None:
        self._items: list[Run] = []
        self._available: int | None = _UNKNOWN

    def __iter__(self) -> Iterator[Run]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def end(self) -> int | None:
        """The last offset; None if there is none."""
        return self._items[-1].last if self._items else None

    def first_available(self) -> int | None:
        """The first offset that is AVAILABLE and durable; None if there is none.

        Kept until a run changes: each member that waits asks for it at each append to the log.
        """
        if self._available == _UNKNOWN:
            found = (run.first for run in self._items if run.state is RecordState.AVAILABLE and run.is_settled)
            self._available = next(found, None)
        return self._available

    def append(self, run: Run) -> None:
        """Add a run behind the last one."""
        if self._items and run.first != self._items[-1].last + 1:
            raise RuntimeError(f"offset {run.first} does not follow {self._items[-1].last}")
        self._items.append(run)
        self._available = _UNKNOWN

    def drop_before(self, offset: int) -> None:
        """Forget the offsets before this one."""
        self._split(offset)
        self._items = [run for run in self._items if run.first >= offset]
        self._available = _UNKNOWN

    def drop_done(self) -> int | None:
        """Forget what is done and durable at the start; its last offset. Joins neighbours that do not differ."""
        done, end = 0, None
        for run in self._items:
            if run.state not in FINAL_STATES or not run.is_settled:
                break
            done, end = done + 1, run.last
        joined: list[Run] = []
        for run in self._items[done:]:
            if joined and run.continues(joined[-1]):
                joined[-1] = replace(joined[-1], last=run.last)
            else:
                joined.append(run)
        self._items = joined
        return end

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """The runs that have some of these offsets."""
        for index in range(max(0, self._index(first)), len(self._items)):
            run = self._items[index]
            if run.first > last:
                return
            if run.last >= first:
                yield run

    def between(self, first: int, last: int) -> list[Run]:
        """The runs of exactly these offsets: those at the ends are cut."""
        if last < first:
            return []
        self._split(first)
        self._split(last + 1)
        return list(self.overlapping(first, last))

    def cut(self, run: Run, first: int, last: int) -> Run:
        """The part of a run that has these offsets, as a run of its own."""
        self._split(first)
        self._split(last + 1)
        return replace(run, first=first, last=last)

    def put(self, changed: Run) -> None:
        """Replace the run of the same offsets. Raises RuntimeError if there is none."""
        index = self._index(changed.first)
        if self._items[index].first != changed.first or self._items[index].last != changed.last:
            raise RuntimeError(f"offsets {changed.first} to {changed.last} are not one run")
        self._items[index] = changed
        self._available = _UNKNOWN

    def settle(self, number: int) -> None:
        """The transitions of this write are durable."""
        self._items = [
            replace(run, before=None, write=0) if run.before is not None and run.write == number else run
            for run in self._items
        ]
        self._available = _UNKNOWN

    def _index(self, offset: int) -> int:
        return bisect_right(self._items, offset, key=_first) - 1

    def _split(self, offset: int) -> None:
        """Let a run begin at an offset, if it is in flight."""
        index = self._index(offset)
        if index < 0:
            return
        run = self._items[index]
        if run.first < offset <= run.last:
            self._items[index : index + 1] = [replace(run, last=offset - 1), replace(run, first=offset)]
