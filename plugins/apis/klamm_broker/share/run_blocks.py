"""`RunBlocks`: runs in order of their offsets. A run is found or replaced without a scan of all runs. Only `Runs` uses
it, under the share partition's lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from operator import attrgetter
from typing import Final

from klamm_broker.share.run import Run

_first: Final = attrgetter("first")
_BLOCK: Final = 256
_SPARE_ENTRIES: Final = 1024


class RunBlocks:
    """Runs without gaps between them, in lists of at most 512 runs. No list is empty."""

    __slots__ = ("_blocks", "_count", "_firsts")

    def __init__(self) -> None:
        self._blocks: list[list[Run]] = []
        self._firsts: list[int] = []
        self._count = 0

    def __iter__(self) -> Iterator[Run]:
        return chain.from_iterable(self._blocks)

    def __len__(self) -> int:
        return self._count

    @property
    def first(self) -> Run | None:
        """Return the first run; None if there is none."""
        return self._blocks[0][0] if self._blocks else None

    @property
    def last(self) -> Run | None:
        """Return the last run; None if there is none."""
        return self._blocks[-1][-1] if self._blocks else None

    def find(self, offset: int) -> Run | None:
        """Return the run that contains an offset; None if there is none."""
        block = bisect_right(self._firsts, offset) - 1
        if block < 0:
            return None
        runs = self._blocks[block]
        run = runs[bisect_right(runs, offset, key=_first) - 1]
        return run if offset <= run.last else None

    def since(self, offset: int) -> Iterator[Run]:
        """Yield the runs that end at an offset or after it."""
        block = max(0, bisect_right(self._firsts, offset) - 1)
        if block >= len(self._blocks):
            return
        runs = self._blocks[block]
        at = max(0, bisect_right(runs, offset, key=_first) - 1)
        rest = chain(islice(runs, at, None), chain.from_iterable(islice(self._blocks, block + 1, None)))
        yield from (run for run in rest if run.last >= offset)

    def append(self, run: Run) -> None:
        """Append a run after the last one."""
        if not self._blocks or len(self._blocks[-1]) >= _BLOCK:
            self._blocks.append([])
            self._firsts.append(run.first)
        self._blocks[-1].append(run)
        self._count += 1

    def replace(self, old: Run, new: Sequence[Run]) -> None:
        """Replace a run by `new`: the parts of the run, a changed run, or no run."""
        block = bisect_right(self._firsts, old.first) - 1
        runs = self._blocks[block]
        at = bisect_right(runs, old.first, key=_first) - 1
        runs[at : at + 1] = new
        self._count += len(new) - 1
        if not runs:
            del self._blocks[block], self._firsts[block]
            return
        self._firsts[block] = runs[0].first
        if len(runs) > 2 * _BLOCK:
            self._blocks[block : block + 1] = [runs[:_BLOCK], runs[_BLOCK:]]
            self._firsts.insert(block + 1, runs[_BLOCK].first)


class RunHeap:
    """A heap that finds the run with the least key. `key_of` returns None for a run that is to be skipped.

    A run is pushed when it is added to the blocks. Entries of removed runs are dropped when they come to the top, or
    when they outnumber the others.
    """

    __slots__ = ("_blocks", "_heap", "_key_of")

    def __init__(self, blocks: RunBlocks, key_of: Callable[[Run], int | None]) -> None:
        self._blocks = blocks
        self._key_of = key_of
        self._heap: list[tuple[int, int]] = []

    def push(self, run: Run) -> None:
        """Add a run that has been added to the blocks."""
        key = self._key_of(run)
        if key is None:
            return
        heappush(self._heap, (key, run.first))
        if len(self._heap) > 2 * len(self._blocks) + _SPARE_ENTRIES:
            self._heap = [(key, run.first) for run in self._blocks if (key := self._key_of(run)) is not None]
            heapify(self._heap)

    def least(self) -> Run | None:
        """Return the run with the least key; None if no run has a key."""
        while self._heap:
            key, first = self._heap[0]
            run = self._blocks.find(first)
            if run is not None and run.first == first and self._key_of(run) == key:
                return run
            heappop(self._heap)
        return None
