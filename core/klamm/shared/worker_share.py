"""`WorkerShare`: identifies one of several worker processes, and computes its share of a limit of the whole server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.shared.shared_counts import SharedCounts


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """Worker `number` of `count`, from 1 on. A server in one process is worker 1 of 1, and its share is the whole.

    `counts` are shared by all workers, for limits that must be exact; None in one process. Their names begin with the
    kind of object that is counted.
    """

    number: int = 1
    count: int = 1
    counts: SharedCounts | None = field(default=None, compare=False)

    def of(self, limit: int) -> int:
        """This worker's part of a limit; the parts of all workers add up to it. 0 if the limit is below `number`."""
        return limit // self.count + (self.number <= limit % self.count)

    def at_least_one(self, limit: int) -> int:
        """Return the share rounded up: the shares of all workers add up to at most `limit + count - 1`.

        For limits of which a share of 0 would lock clients out. 0 stays 0.
        """
        return -(-limit // self.count)

    def of_rate(self, limit: float) -> float:
        """This worker's part of a rate."""
        return limit / self.count

    def named(self, name: str) -> str:
        """Return a name of the server that no other worker has: `NAME-worker-2`; in one process the name itself."""
        return name if self.count == 1 else f"{name}-worker-{self.number}"
