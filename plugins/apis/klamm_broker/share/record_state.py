"""The states of a record in a share group and their transitions; Kafka's `RecordState`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class RecordState(enum.IntEnum):
    """State of a record of a share group; the number is Kafka's, and is stored.

        AVAILABLE ◄──► ACQUIRED ──► ACKNOWLEDGED
            │              ├──► ARCHIVING ─┐
            └──────────────┴───────────────┴──► ARCHIVED

    A member may acquire an AVAILABLE record, and holds it while it is ACQUIRED. An ARCHIVING record waits for its dead
    letter, if the group has a dead-letter topic. ACKNOWLEDGED and ARCHIVED (rejected, delivered too often, or missing
    from the log) are final.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


AVAILABLE: Final = RecordState.AVAILABLE
ACQUIRED: Final = RecordState.ACQUIRED
ACKNOWLEDGED: Final = RecordState.ACKNOWLEDGED
ARCHIVING: Final = RecordState.ARCHIVING
ARCHIVED: Final = RecordState.ARCHIVED

NEXT_STATES: Final[Mapping[RecordState, frozenset[RecordState]]] = {
    AVAILABLE: frozenset({ACQUIRED, ARCHIVED}),
    ACQUIRED: frozenset({AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED}),
    ACKNOWLEDGED: frozenset(),
    ARCHIVING: frozenset({ARCHIVED}),
    ARCHIVED: frozenset(),
}
"""The states that may follow each state."""

FINAL_STATES: Final = frozenset({ACKNOWLEDGED, ARCHIVED})


class IllegalRecordTransitionError(RuntimeError):
    """Raised for a transition that the state of a record does not allow, which is a bug in the caller."""

    def __init__(self, source: RecordState, target: RecordState) -> None:
        super().__init__(f"a record cannot go from {source.name} to {target.name}")


class AcknowledgeType(enum.IntEnum):
    """A member's answer for a record that it has acquired: Kafka's `AcknowledgeType`. GAP: the offset has no record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


STATE_AFTER: Final[Mapping[int, RecordState]] = {
    AcknowledgeType.GAP: ARCHIVED,
    AcknowledgeType.ACCEPT: ACKNOWLEDGED,
    AcknowledgeType.RELEASE: AVAILABLE,
    AcknowledgeType.REJECT: ARCHIVED,
}
"""The state of a record after each acknowledgement except RENEW, which changes only the deadline."""
