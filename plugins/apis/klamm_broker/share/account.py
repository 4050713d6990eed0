"""`ShareAccount`: counts one share partition's bytes towards the limit for all share partitions."""

from __future__ import annotations

from typing import Final

from klamm_broker.limits.ledger import Ledger, text_bytes

PARTITION_BYTES: Final = 3072
"""Approximate size of a share partition with up to `FREE_RUNS` runs, in memory and on disk. A run is a range of offsets
in the same state."""
FREE_RUNS: Final = 4
RUN_BYTES: Final = 256


class ShareAccount:
    """The account of one share partition, whose bytes count for its creator. The caller holds the partition's lock."""

    __slots__ = ("_base_bytes", "_charged", "_ledger", "_owner")

    def __init__(self, ledger: Ledger, owner: str, group_id: str) -> None:
        self._ledger = ledger
        self._owner = owner
        self._base_bytes = PARTITION_BYTES + text_bytes(group_id)
        # None once the account is closed.
        self._charged: int | None = 0

    def open(self) -> None:
        """Count a new partition. Raises KafkaError(GROUP_MAX_SIZE_REACHED) if there is no room."""
        self._ledger.require(self._owner, self._base_bytes)
        self._charged = self._base_bytes

    def count(self, runs: int) -> None:
        """Count the partition with this number of runs of records in flight, without a check of the limit."""
        if self._charged is None:
            return
        charge = self._base_bytes + RUN_BYTES * max(0, runs - FREE_RUNS)
        if charge != self._charged:
            self._ledger.add(self._owner, charge - self._charged)
            self._charged = charge

    def has_room(self) -> bool:
        """Return True if the partition may have one more run."""
        return self._ledger.fits(self._owner, RUN_BYTES, in_use=True)

    def close(self) -> None:
        """Stop counting the partition."""
        if self._charged is not None:
            self._ledger.add(self._owner, -self._charged)
            self._charged = None
