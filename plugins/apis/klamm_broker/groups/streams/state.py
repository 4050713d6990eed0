"""The states of a streams group: Kafka's `StreamsGroupState`. Its members have the same states as members of consumer
groups.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class StreamsGroupState(enum.Enum):
    """State of a streams group; the value is the name that clients see."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY, _NOT_READY, _ASSIGNING, _RECONCILING, _STABLE, _DEAD = StreamsGroupState
_WITH_MEMBERS: Final = frozenset({_NOT_READY, _ASSIGNING, _RECONCILING, _STABLE})

NEXT_STATES: Final[Mapping[StreamsGroupState, frozenset[StreamsGroupState]]] = {
    **dict.fromkeys((_EMPTY, *_WITH_MEMBERS), _WITH_MEMBERS | {_EMPTY, _DEAD}),
    _DEAD: frozenset({_DEAD}),
}
"""The states that may follow each state: the members determine the next one, and a dead group stays dead."""
