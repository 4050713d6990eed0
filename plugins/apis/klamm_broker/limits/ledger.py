"""`Ledger`: the amount of one table in use, in total and by owner."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from klamm import ErrorCode, KafkaError

UNLIMITED: Final = 1 << 62
UNKNOWN_OWNER: Final = ""
"""The owner of entries whose creator is unknown, e.g. entries from a klamm that did not record owners. These entries
count only towards the total.
"""
SESSION_SHARE: Final = 0.9
LEAST_SHARED: Final = 20
FREE_FOR_NEW: Final = 0.8
"""The part of an owner's share that new entries may fill. The rest is kept for the growth of existing entries."""


class Ledger:
    """The amount in use and its limits, in total and by owner. Any thread may call it; a call takes a lock and adds.

    An owner's share falls with the square of the free part of the total, so that early owners do not shut out later
    ones. A single owner can use up to its nominal share. If ten owners use all they may, a twentieth of the total is
    still free, and the eleventh owner may have two hundredths.

    New entries are checked with `reserve` or `fits`. Existing ones are counted with `add`, which refuses nothing.
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
        self._weight = share / (1 - share) ** 2 if share < 1 else None
        # Protects the counts.
        self._lock = threading.Lock()
        self._by_owner: dict[str, int] = {}

    def add(self, owner: str, amount: int) -> None:
        """Count `amount` without a check of the limits. It may be negative."""
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
        """Return True if there is room for `amount`. Only an existing entry that grows may use the last byte."""
        with self._lock:
            return self._fits(owner, amount, in_use)

    def _fits(self, owner: str, amount: int, in_use: bool) -> bool:
        part = 1.0 if in_use or self.total <= 1 else FREE_FOR_NEW
        used = self.used + amount
        has_room = used <= self.total * part
        if owner and self._weight is not None:
            has_room = self._by_owner.get(owner, 0) + amount <= self._allowance(self.total - used) * part
        if not has_room:
            self.refused += 1
        return has_room

    def _allowance(self, free: int) -> float:
        weight = self._weight
        return self.total if weight is None else weight * max(0, free) ** 2 / self.total

    def reserve(self, owner: str, amount: int, *, in_use: bool = False) -> bool:
        """Count `amount` if there is room for it; return True if there is."""
        with self._lock:
            has_room = self._fits(owner, amount, in_use)
            if has_room:
                self._add(owner, amount)
            return has_room

    def reserve_each(self, owner: str, amounts: Sequence[int], *, in_use: bool = False) -> list[bool]:
        """Count each amount for which there is room. Return a flag for each amount: True if it was counted."""
        with self._lock:
            admitted = []
            for amount in amounts:
                has_room = self._fits(owner, amount, in_use)
                if has_room:
                    self._add(owner, amount)
                admitted.append(has_room)
            return admitted

    def require(self, owner: str, amount: int) -> None:
        """Count `amount` for a new entry. Raises KafkaError if there is no room."""
        if not self.reserve(owner, amount):
            raise self.refusal()

    def refusal(self) -> KafkaError:
        """Return the error for an entry without room."""
        return KafkaError(self.error, f"The limit for {self.name} is reached.")

    def used_by(self, owner: str) -> int:
        """Return the amount that an owner uses."""
        return self._by_owner.get(owner, 0)

    @property
    def largest_share(self) -> int:
        """Return the amount that the largest owner uses."""
        with self._lock:
            return max(self._by_owner.values(), default=0)

    @property
    def present_share(self) -> int:
        """The amount that an owner may have now."""
        return int(self._allowance(self.total - self.used))


def session_ledger(name: str, total: int) -> Ledger:
    """Return a ledger of sessions, which clients can do without: one owner may have nine tenths of the total, or all if
    the total is small.
    """
    return Ledger(name, total, SESSION_SHARE if total >= LEAST_SHARED else 1.0)


def text_bytes(text: str) -> int:
    """Return the approximate size of a text in memory. A non-ASCII text may be stored twice, with up to four bytes for
    each character.
    """
    return len(text) if text.isascii() else 8 * len(text)
