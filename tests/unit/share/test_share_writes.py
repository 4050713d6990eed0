"""Each write of a share partition has only its changes. A start restores the same state as from full writes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from klamm_broker.share.partition import Acknowledgement, FetchedBatch, Limits, SharePartition
from klamm_broker.share.record_state import ACQUIRED
from tests.unit.share.saved import Saved
from tests.unit.share.test_share_partition import durable

LIMITS = Limits(delivery_count=4, record_locks=400)
STEPS = 1500
KINDS = range(4)


class Walk:
    """Random members of one partition. Writes succeed or fail."""

    def __init__(self, seed: int, saved: Saved) -> None:
        self._draw = random.Random(seed)
        self._saved = saved
        self._now = 0
        self.partition = SharePartition(0)
        self.seen: Counter[str] = Counter()

    def step(self) -> None:
        self._now += 1
        work = self._draw.choices(
            (self.fetch, self.acknowledge, self.write, self.release, self.expire, self.cut, self.restart),
            (8, 20, 8, 1, 1, 0.3, 0.8),
        )[0]
        self.seen[work.__name__] += 1
        work()

    def fetch(self) -> None:
        partition, draw = self.partition, self._draw
        offset = partition.next_fetch_offset()
        first = max(0, offset - draw.randrange(3)) + draw.choice((0, 0, 0, 2))
        batches = [
            FetchedBatch(first + 5 * at, first + 5 * at + draw.choice((4, 4, 3)), draw.random() < 0.05)
            for at in range(6)
        ]
        partition.acquire(
            draw.choice("abc"),
            offset,
            batches,
            max_records=draw.randrange(1, 40),
            is_strict=draw.random() < 0.5,
            deadline_ns=self._now + 100,
            limits=LIMITS,
        )

    def acknowledge(self) -> None:
        held = [run for run in self.partition.runs if run.state is ACQUIRED]
        if not held:
            return
        run = self._draw.choice(held)
        first = self._draw.randint(run.first, run.last)
        last = min(run.last, first + self._draw.randrange(4))
        kinds = self._draw.choices(KINDS, (1, 4, 4, 1), k=last - first + 1)
        kinds = kinds[:1] if self._draw.random() < 0.5 else kinds
        self.partition.acknowledge(run.member_id, [Acknowledgement(first, last, kinds)], 0, LIMITS)

    def write(self) -> None:
        """Sometimes fail, and let more happen meanwhile."""
        update = self.partition.begin_write()
        wanted = durable(self.partition)
        for work in self._draw.choices((self.fetch, self.acknowledge, self.expire), k=self._draw.randrange(4)):
            work()
        if self._draw.random() < 0.2:
            self.partition.failed(update.number)
            self.seen["failed"] += 1
            return
        self._saved.commit(update)
        assert self._saved.states() == wanted
        self.partition.written(update.number)
        self.seen["parts"] += not update.is_whole and len(update.replaced) > 1

    def release(self) -> None:
        self.partition.release(self._draw.choice("abc"), LIMITS)

    def expire(self) -> None:
        self.partition.expire(self._now, LIMITS)

    def cut(self) -> None:
        self.partition.move_start(self.partition.start_offset + self._draw.randrange(60))

    def restart(self) -> None:
        """Restart, also with a log that has lost records. Then the store has others."""
        is_lost = self._draw.random() < 0.5
        self.partition = SharePartition(self._draw.randrange(50)) if is_lost else self._saved.load()


@pytest.mark.parametrize("number", range(4))
def test_records_in_flight_are_restored_although_only_changes_are_written(number: int, seed: int) -> None:
    with Saved() as saved:
        walk = Walk(seed * 100 + number, saved)
        for _ in range(STEPS):
            walk.step()
    assert min(walk.seen[each] for each in ("failed", "parts", "cut", "restart")) > 0
