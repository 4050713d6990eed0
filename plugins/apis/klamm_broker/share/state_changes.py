"""`StateChanges`: selects the rows that a write of a share partition must replace.

The store has a row for each offset at which the state of the partition's records changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from klamm_broker.share.record_state import ACQUIRED, AVAILABLE, RecordState
from klamm_broker.share.run import Run
from klamm_broker.share.runs import Runs

_FEW_RANGES: Final = 1024


class StateBatch(NamedTuple):
    """Durable state of adjacent offsets."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


class StateRow(NamedTuple):
    """A state that holds from an offset to the next row, or to the end."""

    first: int
    state: RecordState
    delivery_count: int


class StateUpdate(NamedTuple):
    """A write of a share partition.

    `rows` are all rows that begin in the ranges `replaced`, both ends included. If `is_whole` is True, all stored rows
    are replaced; else the rows before `start_offset` are deleted, and the others stay.
    """

    number: int
    start_offset: int
    end_offset: int
    replaced: Sequence[tuple[int, int]]
    rows: Sequence[StateRow]
    is_whole: bool


class StateChanges:
    """The ranges of offsets that differ from the stored state. Only its share partition uses it.

    `is_stored` is True if the store has the partition.
    """

    def __init__(self, *, is_stored: bool) -> None:
        self._is_stored = is_stored
        self._ranges: list[tuple[int, int]] = []
        self._limit = _FEW_RANGES
        self._started: StateUpdate | None = None

    def add(self, first: int, last: int) -> None:
        """Add offsets, both ends included."""
        ranges = self._ranges
        if ranges and ranges[-1][0] <= first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last))
            return
        ranges.append((first, last))
        if len(ranges) > self._limit:
            # The list grows this long only while writes to the store fail, and the same offsets change repeatedly.
            self._ranges = _merged(ranges)
            self._limit = 2 * len(self._ranges) + _FEW_RANGES

    def begin_write(self, number: int, runs: Runs, start_offset: int, end_offset: int) -> StateUpdate:
        """Return the update for the store. The changes are forgotten unless `failed` is called."""
        # The row in which the partition begins may start at an earlier offset.
        self.add(start_offset, start_offset if self._is_stored else end_offset)
        changed = ((max(first, start_offset), min(last, end_offset)) for first, last in _merged(self._ranges))
        # Another row begins where a changed range ends.
        replaced = [(first, last + 1) for first, last in changed if first <= last]
        rows = [row for first, last in replaced for row in _rows_between(runs, first, last)]
        self._started = StateUpdate(number, start_offset, end_offset, replaced, rows, not self._is_stored)
        self._ranges, self._limit, self._is_stored = [], _FEW_RANGES, True
        return self._started

    def failed(self) -> None:
        """Note that the update was not written."""
        assert self._started is not None
        for first, last in self._started.replaced:
            self.add(first, last)
        self._is_stored = not self._started.is_whole


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges, and join those with fewer than two offsets between them."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 2:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _rows_between(runs: Runs, first: int, last: int) -> list[StateRow]:
    """Return the rows that begin between two offsets. A row begins at each offset whose durable state differs from that
    of the offset before.
    """
    rows: list[StateRow] = []
    before: tuple[RecordState, int] | None = None
    for run in runs.overlapping(first - 1, last):
        state = _durable(run)
        if state != before and run.first >= first:
            rows.append(StateRow(run.first, *state))
        before = state
    return rows


def _durable(run: Run) -> tuple[RecordState, int]:
    """Return the state to write. Held records are written as available, because no member holds records after a
    crash.
    """
    return (AVAILABLE, run.delivery_count - 1) if run.state is ACQUIRED else (run.state, run.delivery_count)
