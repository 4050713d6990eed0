"""All groups of a broker, by id."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klamm_broker.groups.group import Group
from klamm_broker.groups.state import DEAD, EMPTY

if TYPE_CHECKING:
    from klamm.runtime import Clock


class GroupRegistry:
    """Finds and makes groups.

    Groups are removed on the store's thread only, so what runs there (the callbacks that confirm writes) never finds
    a group that is being removed. Other threads may: a group that is DEAD when it is held has just been deleted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, Group] = {}
        self._lock = threading.Lock()

    def restore(self, groups: Iterable[Group]) -> None:
        """Take over loaded groups."""
        self._groups.update((group.group_id, group) for group in groups)

    def get(self, group_id: str) -> Group | None:
        """The group, if there is one."""
        return self._groups.get(group_id)

    def get_or_create(self, group_id: str) -> tuple[Group, bool]:
        """The group, and whether it is new: EMPTY, generation 0."""
        group = self._groups.get(group_id)
        if group is not None:
            return group, False
        with self._lock:
            group = self._groups.get(group_id)
            if group is not None:
                return group, False
            group = self._groups[group_id] = Group(group_id, self._clock)
            return group, True

    def remove_if_unused(self, group: Group) -> bool:
        """Remove a held group that nothing needs; it becomes DEAD. On the store's thread only."""
        if group.state is not EMPTY or group.pending_joins or group.pending_writes:
            return False
        if group.offsets or group.pending_offsets:
            return False
        group.transition_to(DEAD)
        with self._lock:
            self._groups.pop(group.group_id, None)
        return True

    def all(self) -> list[Group]:
        """The groups at this moment."""
        with self._lock:
            return list(self._groups.values())
