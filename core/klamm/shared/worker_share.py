"""`WorkerShare`: the number of a worker process, and its share of the limits of the whole server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.shared.shared_counts import SharedCounts


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """Worker `number` of `count`, from 1 on. A server in one process is worker 1 of 1, and has the whole limit.

    `counts` are shared by all workers, for limits that must be exact; None if there is only one process. The name of a
    count begins with the kind of the counted objects.
    """

    number: int = 1
    count: int = 1
    counts: SharedCounts | None = field(default=None, compare=False)

    def of(self, limit: int) -> int:
        """Return this worker's share of a limit; the shares of all workers add up to the limit.

        The share is 0 if the limit is below `number`.
        """
        return limit // self.count + (self.number <= limit % self.count)

    def at_least_one(self, limit: int) -> int:
        """Return the share rounded up; the shares of all workers add up to at most `limit + count - 1`.

        Use it for limits if a share of 0 would lock clients out. A limit of 0 stays 0.
        """
        return -(-limit // self.count)

    def of_rate(self, limit: float) -> float:
        """Return this worker's share of a rate."""
        return limit / self.count

    def named(self, name: str) -> str:
        """Return a name that no other worker uses: `NAME-worker-2`, or `NAME` if there is only one process."""
        return name if self.count == 1 else f"{name}-worker-{self.number}"
