"""The states of a classic group and the transitions between them, following Kafka's `ClassicGroupState`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class GroupState(enum.Enum):
    """State of a classic group; the value is the name that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY: Final = GroupState.EMPTY
PREPARING_REBALANCE: Final = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD

NEXT_STATES: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({PREPARING_REBALANCE, DEAD}),
    PREPARING_REBALANCE: frozenset({COMPLETING_REBALANCE, EMPTY, DEAD}),
    COMPLETING_REBALANCE: frozenset({STABLE, PREPARING_REBALANCE, DEAD}),
    STABLE: frozenset({PREPARING_REBALANCE, DEAD}),
    DEAD: frozenset({DEAD}),
}
"""The states that may follow each state."""


class IllegalTransitionError(RuntimeError):
    """Raised for a transition that the state of a group does not allow, which is a bug in the caller."""

    def __init__(self, group_id: str, source: enum.Enum, target: enum.Enum) -> None:
        super().__init__(f"group {group_id!r} cannot go from {source.value} to {target.value}")


def can_rebalance(state: GroupState) -> bool:
    """Return True if a rebalance may start in this state."""
    return PREPARING_REBALANCE in NEXT_STATES[state]
