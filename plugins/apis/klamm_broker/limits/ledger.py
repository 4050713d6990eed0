"""`Ledger`: how much of one table is in use, in all and by each owner."""

from __future__ import annotations

import threading
from typing import Final

from klamm import ErrorCode, KafkaError

UNLIMITED: Final = 1 << 62
UNKNOWN_OWNER: Final = ""
"""The owner of what was made by an unknown owner, e.g. before owners were kept: it counts for the total alone."""
FREE_FOR_NEW: Final = 0.8
"""The part of a total, and of a share, that new entries may fill. The rest is for those that are in use and grow."""


class Ledger:
    """A total and a share for each owner. Any thread may call it; it costs a lock and an addition.

    What is new is checked with `reserve` or `fits`. What is in use is counted with `add`, which refuses nothing.
    """

    def __init__(
        self, name: str, total: int = UNLIMITED, share: float = 1.0, error: ErrorCode = ErrorCode.NONE
    ) -> None:
        self.name = name
        self.total = total
        self.share = total if share >= 1 else max(1, int(total * share))
        self.error = error
        self.used = 0
        self.refused = 0
        self._new_total = total if total <= 1 else int(total * FREE_FOR_NEW)
        self._new_share = self.share if self.share <= 1 else int(self.share * FREE_FOR_NEW)
        # Protects the counts.
        self._lock = threading.Lock()
        self._by_owner: dict[str, int] = {}

    def add(self, owner: str, amount: int) -> None:
        """Count `amount` more, or less, whatever the limits."""
        with self._lock:
            self._add(owner, amount)

    def _add(self, owner: str, amount: int) -> None:
        self.used += amount
        if owner:
            left = self._by_owner.get(owner, 0) + amount
            if left:
                self._by_owner[owner] = left
            else:
                self._by_owner.pop(owner, None)

    def fits(self, owner: str, amount: int, *, in_use: bool = False) -> bool:
        """Return whether there is room for `amount`; for an entry that is in use and grows, up to the last byte."""
        with self._lock:
            return self._fits(owner, amount, in_use)

    def _fits(self, owner: str, amount: int, in_use: bool) -> bool:
        total, share = (self.total, self.share) if in_use else (self._new_total, self._new_share)
        has_room = self.used + amount <= total and (not owner or self._by_owner.get(owner, 0) + amount <= share)
        if not has_room:
            self.refused += 1
        return has_room

    def reserve(self, owner: str, amount: int, *, in_use: bool = False) -> bool:
        """Count `amount` if there is room for it, and return whether there is."""
        with self._lock:
            has_room = self._fits(owner, amount, in_use)
            if has_room:
                self._add(owner, amount)
            return has_room

    def require(self, owner: str, amount: int) -> None:
        """Count `amount` of something new. Raises KafkaError where there is no room."""
        if not self.reserve(owner, amount):
            raise self.refusal()

    def refusal(self) -> KafkaError:
        """The error for what has no room."""
        return KafkaError(self.error, f"The limit for {self.name} is reached.")

    def used_by(self, owner: str) -> int:
        """Return how much an owner has."""
        return self._by_owner.get(owner, 0)

    @property
    def largest_share(self) -> int:
        """Return how much the owner has that has most."""
        with self._lock:
            return max(self._by_owner.values(), default=0)


def text_bytes(text: str) -> int:
    """About what a text takes in memory: other characters than ASCII take up to four bytes, twice."""
    return len(text) if text.isascii() else 8 * len(text)
