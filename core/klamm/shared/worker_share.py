"""`WorkerShare`: which of several worker processes this is, and its part of a limit that holds for all of them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from klamm.dataclasses import dataclass

if TYPE_CHECKING:
    from klamm.shared.shared_counts import SharedCounts


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """Worker `number` of `count`, from 1 on. A server in one process is worker 1 of 1, and every part is the whole.

    `counts` are shared by all workers, for limits that have to be exact; None in one process. Names begin with what
    is counted.
    """

    number: int = 1
    count: int = 1
    counts: SharedCounts | None = field(default=None, compare=False)

    def of(self, limit: int) -> int:
        """This worker's part of a limit; the parts of all workers add up to it. 0 if the limit is below `number`."""
        return limit // self.count + (self.number <= limit % self.count)

    def at_least_one(self, limit: int) -> int:
        """The part rounded up: the parts of all workers add up to at most `limit + count - 1`.

        For limits where a part of 0 would lock a client out. 0 stays 0.
        """
        return -(-limit // self.count)

    def of_rate(self, limit: float) -> float:
        """This worker's part of a rate."""
        return limit / self.count

    def named(self, name: str) -> str:
        """A name of the server that no other worker has: `NAME-worker-2`; in one process the name itself."""
        return name if self.count == 1 else f"{name}-worker-{self.number}"
