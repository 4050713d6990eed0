"""`AcceptTurns`: decides which worker process accepts the next connection of a listening socket that they share."""

from __future__ import annotations

from collections.abc import Callable


class AcceptTurns:
    """A worker with more connections than another lets the other go first, for a millisecond.

    A new connection wakes every worker, and otherwise the first one to run would accept it: one worker would get most
    of the clients that connect to an idle server. `table` is memory that all workers share: each writes its number of
    connections plus 1 at its position, and reads those of the others; 0 means a worker without a process. Counts may be
    one connection late, so this balances but does not limit. `connections` returns the number of this worker, for all
    listeners.
    """

    def __init__(self, table: memoryview, position: int, connections: Callable[[], int]) -> None:
        self._table = table
        self._position = position
        self._connections = connections

    def is_over(self) -> bool:
        """Return True if another worker should take the next connection."""
        own = self._connections() + 1
        table = self._table
        table[self._position] = own
        least = min(count for count in table if count)
        return own > least + max(1, least // 8)
