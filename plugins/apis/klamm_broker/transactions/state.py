"""The states of a transactional id and the transitions between them; Kafka's `TransactionState`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class TransactionState(enum.Enum):
    """State of a transactional id; the value is the name that clients see."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT
DEAD: Final = TransactionState.DEAD
PREPARE_EPOCH_FENCE: Final = TransactionState.PREPARE_EPOCH_FENCE

NEXT_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    DEAD: frozenset(),
    PREPARE_EPOCH_FENCE: frozenset({PREPARE_ABORT}),
}
"""The states that may follow each state."""

PREPARED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""The states in which the decision is durable and markers are being written."""

AT_REST: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""The states in which no transaction is open. Ids in these states expire."""

COMPLETED: Final[Mapping[TransactionState, TransactionState]] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
"""The state that follows a prepared state once its markers are durable."""


class IllegalTransitionError(RuntimeError):
    """Raised for a transition that the state of a transactional id does not allow, which is a bug in the caller."""

    def __init__(
        self, transactional_id: str, source: TransactionState, target: TransactionState, why: str = ""
    ) -> None:
        detail = f": {why}" if why else ""
        super().__init__(f"{transactional_id!r} cannot go from {source.value} to {target.value}{detail}")
