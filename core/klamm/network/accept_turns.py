"""`AcceptTurns`: which of several worker processes takes the next connection of a listening socket that they share."""

from __future__ import annotations

from collections.abc import Callable


class AcceptTurns:
    """A worker with more connections than another one lets that one go first, for a millisecond.

    Every worker is woken by a new connection, and without this the first to run takes it: of clients that connect to
    an idle server, one worker would get most. `table` is memory that all workers share: at its position each writes
    its connections plus 1, and reads those of the others; 0 is a worker without a process. Counts may be a connection
    late, so this is a balance and no limit. `connections` gives those of this worker, of all listeners.
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
