"""`Restarts`: how long a worker that failed waits until it is started again."""

from __future__ import annotations

from typing import Final

FIRST_DELAY_MS: Final = 500
LONGEST_DELAY_MS: Final = 30_000
STABLE_AFTER_MS: Final = 60_000
GIVE_UP_AFTER: Final = 5


class Restarts:
    """Restarts of one worker. The first failure costs no delay, each further one twice as long as the one before.

    A worker that has run for a minute has recovered: its earlier failures do not count. `in_a_row` is the number of
    failures that count.
    """

    def __init__(self) -> None:
        self.in_a_row = 0

    def failed(self, ran_ms: float) -> int:
        """A failure after so many milliseconds; returns the delay of the restart in milliseconds."""
        if ran_ms >= STABLE_AFTER_MS:
            self.in_a_row = 0
        self.in_a_row += 1
        if self.in_a_row == 1:
            return 0
        doublings = min(self.in_a_row - 2, 16)
        return int(min(FIRST_DELAY_MS << doublings, LONGEST_DELAY_MS))

    @property
    def hopeless(self) -> bool:
        """Return True if it has failed so often in a row that the server gives up if no other worker serves."""
        return self.in_a_row >= GIVE_UP_AFTER
