"""`Run`: adjacent offsets in the same state. A run never changes: `Runs` replaces it, under the partition's lock."""

from __future__ import annotations

from dataclasses import dataclass

from klamm_broker.share.record_state import RecordState


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent offsets, both ends included, in the same state.

    `delivery_count`  number of times they were acquired.
    `member_id`       the holder while they are ACQUIRED, until `deadline_ns`.
    `is_rejected`     True if they are ARCHIVING because a member has rejected them; `is_sent` is True once their dead
                      letters are handed over.
    `before`          the run before a transition that is not durable yet; `write` is the number of the write that makes
                      the transition durable.
    """

    first: int
    last: int
    state: RecordState
    delivery_count: int = 0
    member_id: str = ""
    deadline_ns: int = 0
    before: Run | None = None
    write: int = 0
    is_rejected: bool = False
    is_sent: bool = False

    @property
    def is_settled(self) -> bool:
        """Return True if the run's state is durable."""
        return self.before is None

    def continues(self, other: Run) -> bool:
        """Return True if the run follows `other` and differs from it only in its offsets."""
        return (
            self.before is other.before is None
            and self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.deadline_ns == other.deadline_ns
            and self.is_rejected is other.is_rejected
            and self.is_sent is other.is_sent
        )

    @property
    def count(self) -> int:
        """Return the number of offsets."""
        return self.last - self.first + 1
