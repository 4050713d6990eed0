"""All groups of a broker, by id."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from klamm.runtime import Clock
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.group import UNCOUNTED, Group, GroupLedgers
from klamm_broker.limits.owners import GROUPS as OWNERS
from klamm_broker.storage.store import Store

G = TypeVar("G", bound=Group)


def _admit(group: Group) -> None:
    """Admit any group: the default of `admit`."""


class GroupRegistry:
    """The groups of a broker. Any thread may look up or create a group.

    Groups are removed only on the store's thread, so code that runs there (the callbacks that confirm writes) never
    finds a group that is being removed. Other threads may find such a group. When they have taken its lock, they see
    that it is dead.
    """

    def __init__(self, clock: Clock, store: Store, ledgers: GroupLedgers = UNCOUNTED) -> None:
        self._clock = clock
        self._store = store
        self._ledgers = ledgers
        self._groups: dict[str, Group] = {}
        # Protects the map of groups.
        self._lock = threading.Lock()

    def restore(self, groups: Iterable[Group]) -> None:
        """Add loaded groups. Raises StoreError."""
        self._groups.update((group.group_id, group) for group in groups)
        owners = OWNERS.forget_all_but(self._store, set(self._groups))
        for group in self._groups.values():
            owner = owners.get(group.group_id, "")
            self._ledgers.groups.add(owner, group.book.group_bytes)
            group.open_accounts(self._ledgers, owner)

    def get(self, group_id: str) -> Group | None:
        """Return the group, or None."""
        return self._groups.get(group_id)

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Return the group if it is a classic one, else None."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def get_or_create_classic(
        self, group_id: str, owner: str, admit: Callable[[ClassicGroup], None] = _admit
    ) -> tuple[ClassicGroup | None, bool]:
        """Return the classic group with this id, created like in `get_or_make`, and True if it is new. Return None in
        place of a group of another kind.
        """
        group, created = self._get_or_make(group_id, owner, self._new_classic, admit)
        return (group, created) if isinstance(group, ClassicGroup) else (None, False)

    def get_or_make(
        self, group_id: str, owner: str, make: Callable[[str], G], admit: Callable[[G], None] = _admit
    ) -> Group:
        """Return the group with this id, of any kind. If there is none, create it with `make`.

        `admit` is called with a new group before it is stored. If `admit` raises KafkaError, the group is not stored.
        """
        return self._get_or_make(group_id, owner, make, admit)[0]

    def _new_classic(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._clock)

    def _get_or_make(
        self, group_id: str, owner: str, make: Callable[[str], G], admit: Callable[[G], None] = _admit
    ) -> tuple[Group, bool]:
        with self._lock:
            known = self._groups.get(group_id)
            if known is not None:
                return known, False
            group = make(group_id)
            group.open_accounts(self._ledgers, owner)
            admit(group)
            self._ledgers.groups.require(owner, group.book.group_bytes)
            self._put_owner(group)
            self._groups[group_id] = group
            return group, True

    def _put_owner(self, group: Group) -> None:
        if group.book.owner:
            self._store.submit([OWNERS.put(group.group_id, group.book.owner)])

    def replace(self, old: Group, new: Group) -> None:
        """Put a group in the place of an old one. The caller holds their common lock."""
        with self._lock:
            if self._groups.get(old.group_id) is not old:
                raise RuntimeError(f"group {old.group_id!r} is not in the registry")
            self._groups[old.group_id] = new

    def get_or_create(self, group_id: str, owner: str) -> Group:
        """Return the group. If there is none, create a classic group in state EMPTY and generation 0 that counts for
        `owner`.

        Raises KafkaError(GROUP_MAX_SIZE_REACHED) if there is no room for a new one.
        """
        return self._groups.get(group_id) or self.get_or_make(group_id, owner, self._new_classic)

    def remove_if_unused(self, group: Group) -> bool:
        """Remove a group that is not needed; it becomes DEAD. Return True if it was removed.

        The store's thread calls this after the group's deletion, with the group's lock held.
        """
        book = group.book
        if not group.is_empty or group.is_expected or book.pending_writes or group.offsets or book.pending:
            if not group.is_dead:
                self._put_owner(group)
            return False
        group.die()
        self._ledgers.groups.add(book.owner, -book.group_bytes)
        with self._lock:
            self._groups.pop(group.group_id, None)
        return True

    def all(self) -> list[Group]:
        """Return the groups at this moment."""
        with self._lock:
            return list(self._groups.values())
