"""`EpochGroup`: a group whose members send heartbeats with epochs, and whose state follows from these."""

from __future__ import annotations

import enum
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from klamm_broker.groups.group import Group
from klamm_broker.groups.state import IllegalTransitionError

if TYPE_CHECKING:
    from klamm_broker.groups.expiration import ExpirationTimer


class EpochGroup(Group):
    """The base of consumer, share and streams groups. `protocol` is the protocol of their members.

    `epoch`             rises with each change of members, subscriptions or topics, from 1.
    `assignment_epoch`  the group epoch of the members' targets.
    `metadata_hash`     of ids and partition counts of the topics that are read; `metadata_generation` is the
                        generation of all topics at which it was computed, -1 for never.
    `timers`            by purpose and member id; `deadlines` end sessions, monotonic nanoseconds.
    """

    protocol: ClassVar[str]
    next_states: ClassVar[Mapping[Any, frozenset[Any]]]
    empty: ClassVar[enum.Enum]
    dead: ClassVar[enum.Enum]

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.state: enum.Enum = self.empty
        self.epoch = 1
        self.assignment_epoch = 0
        self.metadata_hash = ""
        self.metadata_generation = -1
        self.timers: dict[tuple[str, str], ExpirationTimer] = {}
        self.deadlines: dict[str, int] = {}

    @abstractmethod
    def epoch_of(self, member_id: str) -> int | None:
        """Return the epoch of a member, None if it is not there."""

    @abstractmethod
    def present_state(self) -> enum.Enum:
        """Return the state that follows from members and epochs."""

    def refresh_state(self) -> None:
        """Recompute the state. Raises IllegalTransitionError for a dead group."""
        self._transition_to(self.present_state())

    def _transition_to(self, state: enum.Enum) -> None:
        if state not in self.next_states[self.state]:
            raise IllegalTransitionError(self.group_id, self.state, state)
        self.state = state

    @property
    def state_name(self) -> str:
        name: str = self.state.value
        return name

    @property
    def protocol_type(self) -> str | None:
        return self.protocol

    @property
    def is_dead(self) -> bool:
        return self.state is self.dead

    @property
    def is_empty(self) -> bool:
        return self.state is self.empty

    def die(self) -> None:
        self._transition_to(self.dead)
        self.close_members_account()
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()
