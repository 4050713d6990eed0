"""Administration of groups: describe, list and delete them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from klamm import ErrorCode
from klamm_broker.groups import persistence
from klamm_broker.groups.classic_group import ClassicGroup, describe
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.group import Group
from klamm_broker.groups.group_registry import GroupRegistry
from klamm_broker.groups.requests import DescribedGroup, ListedGroup
from klamm_broker.storage.store import Store, StoreError


class GroupAdministration:
    """The administration of this broker's groups. Any thread may call it; it never waits for the disk."""

    def __init__(self, store: Store, registry: GroupRegistry, deleted: Callable[[str], None]) -> None:
        """`deleted(group_id)` is called when a group's deletion is durable."""
        self._store = store
        self._registry = registry
        self._deleted = deleted

    def describe(self, group_id: str) -> DescribedGroup | None:
        """Return the description of a classic group; None if there is no such group."""
        group = self._registry.get(group_id)
        if not isinstance(group, ClassicGroup):
            return None
        with group:
            return describe(group) if not group.is_dead else None

    def exists(self, group_id: str) -> bool:
        """Return True if a group with this id exists, of any kind."""
        return self._registry.get(group_id) is not None

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """Return groups in one of the states and of one of the types, ignoring case; an empty filter matches all."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {group_type.strip().lower() for group_type in types}
        return [
            ListedGroup(group.group_id, group.protocol_type or "", group.state_name, group.group_type)
            for group in self._registry.all()
            if (not wanted_types or group.group_type in wanted_types)
            and (not wanted_states or group.state_name.lower() in wanted_states)
        ]

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the number of groups by type and state."""
        return Counter((group.group_type, group.state_name) for group in self._registry.all())

    def members_bytes(self, group_class: type[ClassicGroup | ConsumerGroup]) -> list[int]:
        """Estimate the bytes that the members of each group of a type use, without their assignments."""
        return [group.members_bytes for group in self._registry.all() if isinstance(group, group_class)]

    def offset_count(self) -> int:
        """Return the number of committed offsets in all groups."""
        return sum(len(by_partition) for group in self._registry.all() for by_partition in list(group.offsets.values()))

    def delete_groups(self, group_ids: Collection[str], reply: Callable[[Mapping[str, ErrorCode]], None]) -> None:
        """Delete empty groups and their offsets. `reply` gets an error code for each group id when the deletion is
        durable.

        Error codes: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and NOT_COORDINATOR if the deletion could not be written.
        """
        outcomes: dict[str, ErrorCode] = {}
        for group_id in group_ids:
            group = self._registry.get(group_id)
            if group is None:
                outcomes[group_id] = ErrorCode.GROUP_ID_NOT_FOUND
                continue
            with group:
                if group.is_empty:
                    outcomes[group_id] = ErrorCode.NONE
                    self._delete_held(group, outcomes)
                elif group.is_dead:
                    outcomes[group_id] = ErrorCode.GROUP_ID_NOT_FOUND
                else:
                    outcomes[group_id] = ErrorCode.NON_EMPTY_GROUP
        if ErrorCode.NONE in outcomes.values():
            self._store.submit((), lambda _: reply(outcomes))
        else:
            reply(outcomes)

    def _delete_held(self, group: Group, outcomes: dict[str, ErrorCode]) -> None:
        # These member ids were issued for the group that is being deleted. Ids that are issued later stay valid.
        group.forget_expected()

        def on_durable(error: StoreError | None) -> None:
            if error is not None:
                outcomes[group.group_id] = ErrorCode.NOT_COORDINATOR
                return
            with group:
                group.book.clear()
                group.deletion_written()
                self._registry.remove_if_unused(group)
            self._deleted(group.group_id)

        self._store.submit(persistence.delete_group(group.group_id), on_durable)
