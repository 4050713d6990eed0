"""All groups of a broker, by id."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.group import Group
from klamm_broker.groups.share.group import ShareGroup

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
        # Protects the map of groups.
        self._lock = threading.Lock()

    def restore(self, groups: Iterable[Group]) -> None:
        """Take over loaded groups."""
        self._groups.update((group.group_id, group) for group in groups)

    def get(self, group_id: str) -> Group | None:
        """The group, if there is one."""
        return self._groups.get(group_id)

    def classic(self, group_id: str) -> ClassicGroup | None:
        """The group, if there is one and it is classic."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def get_or_create_classic(self, group_id: str) -> tuple[ClassicGroup | None, bool]:
        """As `get_or_create`, None for a group of another kind."""
        group, created = self.get_or_create(group_id)
        return (group, created) if isinstance(group, ClassicGroup) else (None, False)

    def get_or_create_consumer(self, group_id: str) -> Group:
        """The group, of whatever kind; a new one is a consumer group, EMPTY."""
        return self._get_or_make(group_id, ConsumerGroup)

    def get_or_create_share(self, group_id: str) -> Group:
        """The group, of whatever kind; a new one is a share group, EMPTY."""
        return self._get_or_make(group_id, ShareGroup)

    def _get_or_make(self, group_id: str, make: Callable[[str], Group]) -> Group:
        with self._lock:
            group = self._groups.get(group_id)
            if group is None:
                group = self._groups[group_id] = make(group_id)
            return group

    def replace(self, old: Group, new: Group) -> None:
        """Put a held group in the place of the one that it replaces."""
        with self._lock:
            if self._groups.get(old.group_id) is not old:
                raise RuntimeError(f"group {old.group_id!r} is not in the registry")
            self._groups[old.group_id] = new

    def get_or_create(self, group_id: str) -> tuple[Group, bool]:
        """The group, and whether it is new: a classic one, EMPTY, generation 0."""
        group = self._groups.get(group_id)
        if group is not None:
            return group, False
        with self._lock:
            group = self._groups.get(group_id)
            if group is not None:
                return group, False
            group = self._groups[group_id] = ClassicGroup(group_id, self._clock)
            return group, True

    def remove_if_unused(self, group: Group) -> bool:
        """Remove a held group that nothing needs; it becomes DEAD. On the store's thread only."""
        if not group.is_empty or group.is_expected or group.book.pending_writes:
            return False
        if group.offsets or group.book.pending:
            return False
        group.die()
        with self._lock:
            self._groups.pop(group.group_id, None)
        return True

    def all(self) -> list[Group]:
        """The groups at this moment."""
        with self._lock:
            return list(self._groups.values())
