"""The states of a consumer group and of its members, as Kafka's `ConsumerGroupState` and `MemberState`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class ConsumerGroupState(enum.Enum):
    """State of a consumer group; the value is the name that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(enum.Enum):
    """Progress of a member in the reconciliation of its assignment; the value is the one in the store.

        STABLE ◄──► UNREVOKED        it owns partitions that it must revoke
          ▲           ▲
          │           ▼
          └───────► UNRELEASED       it waits for partitions that other members still own

    Each may be followed by itself: with a new target there is new work of the same kind.
    """

    STABLE = "stable"
    UNREVOKED = "unrevoked"
    UNRELEASED = "unreleased"


_EMPTY, _ASSIGNING, _RECONCILING, _STABLE, _DEAD = ConsumerGroupState

NEXT_STATES: Final[Mapping[ConsumerGroupState, frozenset[ConsumerGroupState]]] = {
    _EMPTY: frozenset({_EMPTY, _ASSIGNING, _RECONCILING, _STABLE, _DEAD}),
    _ASSIGNING: frozenset({_ASSIGNING, _RECONCILING, _STABLE, _EMPTY, _DEAD}),
    _RECONCILING: frozenset({_RECONCILING, _STABLE, _ASSIGNING, _EMPTY, _DEAD}),
    _STABLE: frozenset({_STABLE, _RECONCILING, _ASSIGNING, _EMPTY, _DEAD}),
    _DEAD: frozenset({_DEAD}),
}
"""The states that may follow each state. From EMPTY a group goes to RECONCILING or STABLE when it is loaded or
upgraded.
"""
