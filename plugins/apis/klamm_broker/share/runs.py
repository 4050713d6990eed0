"""`Runs`: the runs of a share partition, and operations that cut and join them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from klamm_broker.share.record_state import ACQUIRED, ARCHIVING, AVAILABLE, FINAL_STATES
from klamm_broker.share.run import Run
from klamm_broker.share.run_blocks import RunBlocks, RunHeap

_Key = TypeVar("_Key")


class Runs:
    """Runs in order of their offsets, without gaps. The caller holds the share partition's lock.

    There are indexes by member, by write, by available offset and by deadline, so that the cost of a change does not
    depend on the number of runs.
    """

    __slots__ = (
        "_archiving",
        "_available",
        "_blocks",
        "_changed",
        "_deadlines",
        "_held",
        "_unwritten",
        "acquired",
        "completed",
    )

    def __init__(self) -> None:
        self._blocks = RunBlocks()
        self._available = RunHeap(self._blocks, _if_available)
        self._deadlines = RunHeap(self._blocks, _if_acquired)
        self._held: dict[str, set[int]] = {}
        self._unwritten: dict[int, set[int]] = {}
        self._archiving: set[int] = set()
        self._changed: set[int] = set()
        """Start offsets of runs that may be joined with their neighbours."""
        self.acquired = 0
        """Number of offsets that members hold."""
        self.completed = 0
        """Number of offsets that are done."""

    def __iter__(self) -> Iterator[Run]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def end(self) -> int | None:
        """Return the last offset; None if there is none."""
        last = self._blocks.last
        return None if last is None else last.last

    def first_available(self) -> int | None:
        """Return the first offset that is AVAILABLE and durable; None if there is none."""
        run = self._available.least()
        return None if run is None else run.first

    def next_deadline_ns(self) -> int | None:
        """The monotonic time at which the first lock ends; None if members hold nothing."""
        run = self._deadlines.least()
        return None if run is None else run.deadline_ns

    def first_due(self, now_ns: int) -> Run | None:
        """Return a run whose lock has ended; None if there is none."""
        run = self._deadlines.least()
        return run if run is not None and run.deadline_ns <= now_ns else None

    def held_by(self, member_id: str) -> list[Run]:
        """Return the runs that a member holds."""
        return self._at(self._held.get(member_id, ()))

    def unwritten(self, number: int) -> list[Run]:
        """Return the runs whose transition becomes durable with a write."""
        return self._at(self._unwritten.get(number, ()))

    def take_given_up(self) -> list[Run]:
        """Return the runs whose state ARCHIVING has become durable and which need dead letters. Each run is returned
        once.
        """
        found = [run for run in self._at(self._archiving) if run.is_settled and not run.is_sent]
        for run in found:
            self._replace(run, replace(run, is_sent=True))
        return found

    def _at(self, firsts: set[int] | tuple[()]) -> list[Run]:
        return [run for first in sorted(firsts) if (run := self._blocks.find(first)) is not None]

    def append(self, run: Run) -> None:
        """Append a run after the last one."""
        end = self.end
        if end is not None and run.first != end + 1:
            raise RuntimeError(f"offset {run.first} does not follow {end}")
        self._blocks.append(run)
        self._enter(run)

    def drop_before(self, offset: int) -> None:
        """Forget the offsets before this one."""
        self._split(offset)
        while (run := self._blocks.first) is not None and run.first < offset:
            self._replace(run)

    def drop_done(self) -> int | None:
        """Drop the runs at the start that are done and durable, and join equal neighbours. Return the last dropped
        offset.
        """
        end = None
        while (run := self._blocks.first) is not None and run.state in FINAL_STATES and run.is_settled:
            self._replace(run)
            end = run.last
        changed, self._changed = self._changed, set()
        for offset in changed:
            self._join(offset)
            self._join(offset, with_next=True)
        self._changed.clear()
        return end

    def _join(self, offset: int, *, with_next: bool = False) -> None:
        """Join the run at an offset with the one before or after it, if they are in the same state."""
        run = self._blocks.find(offset)
        if run is None:
            return
        other = self._blocks.find(run.last + 1 if with_next else run.first - 1)
        left, right = (run, other) if with_next else (other, run)
        if left is not None and right is not None and right.continues(left):
            self._replace(right)
            self._replace(left, replace(left, last=right.last))

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """Yield the runs that contain any of these offsets."""
        for run in self._blocks.since(first):
            if run.first > last:
                return
            yield run

    def between(self, first: int, last: int) -> list[Run]:
        """Return the runs of exactly these offsets. The runs at the ends are cut if necessary."""
        if last < first:
            return []
        self._split(first)
        self._split(last + 1)
        return list(self.overlapping(first, last))

    def cut(self, run: Run, first: int, last: int) -> Run:
        """Return the part of a run with these offsets, as a separate run."""
        self._split(first)
        self._split(last + 1)
        return replace(run, first=first, last=last)

    def put(self, changed: Run) -> None:
        """Replace the run with the same offsets. Raises RuntimeError if there is none."""
        run = self._blocks.find(changed.first)
        if run is None or run.first != changed.first or run.last != changed.last:
            raise RuntimeError(f"offsets {changed.first} to {changed.last} are not one run")
        self._replace(run, changed)

    def settle(self, number: int) -> None:
        """Make the transitions of this write final, because it is durable."""
        for run in self.unwritten(number):
            self._replace(run, replace(run, before=None, write=0))

    def _split(self, offset: int) -> None:
        """Split the run at an offset, if the offset is in flight."""
        run = self._blocks.find(offset)
        if run is not None and run.first < offset:
            self._replace(run, replace(run, last=offset - 1), replace(run, first=offset))

    def _replace(self, old: Run, *new: Run) -> None:
        self._leave(old)
        self._blocks.replace(old, new)
        for run in new:
            self._enter(run)

    def _enter(self, run: Run) -> None:
        if run.state is ACQUIRED:
            self.acquired += run.count
            self._held.setdefault(run.member_id, set()).add(run.first)
            self._deadlines.push(run)
        elif run.state in FINAL_STATES:
            self.completed += run.count
        elif run.state is ARCHIVING:
            self._archiving.add(run.first)
        else:
            self._available.push(run)
        if not run.is_settled:
            self._unwritten.setdefault(run.write, set()).add(run.first)
        self._changed.add(run.first)

    def _leave(self, run: Run) -> None:
        if run.state is ACQUIRED:
            self.acquired -= run.count
            _discard(self._held, run.member_id, run.first)
        elif run.state in FINAL_STATES:
            self.completed -= run.count
        elif run.state is ARCHIVING:
            self._archiving.discard(run.first)
        if not run.is_settled:
            _discard(self._unwritten, run.write, run.first)


def _if_available(run: Run) -> int | None:
    return run.first if run.state is AVAILABLE and run.is_settled else None


def _if_acquired(run: Run) -> int | None:
    return run.deadline_ns if run.state is ACQUIRED else None


def _discard(firsts_by_key: dict[_Key, set[int]], key: _Key, first: int) -> None:
    firsts = firsts_by_key[key]
    firsts.discard(first)
    if not firsts:
        del firsts_by_key[key]
