"""The rows of consumer, share and streams groups in the store.

There is one row for each group and each member, and, if targets are stored separately, for each target. The changes of
a heartbeat are written in one transaction before the answer, and transactions are in the order of the changes. So after
a crash no member has a partition that another member still owns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar

from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.epoch_group import Changes, EpochGroup, EpochMember
from klamm_broker.groups.targeted_members import MemberState, TargetedMember, TargetedMembers
from klamm_broker.storage.store import Statement, Store

T = TypeVar("T")
GroupT = TypeVar("GroupT", bound=EpochGroup[Any])


class JsonRows(Generic[T]):
    """A table `<kind>_group_<column>s` with a value in JSON for each member of a group."""

    def __init__(self, kind: str, column: str, as_json: Callable[[T], Any], from_json: Callable[[str, Any], T]) -> None:
        """`from_json(member_id, value)` returns the object from which `as_json` made the value."""
        self.table, self._column = f"{kind}_group_{column}s", column
        self._as_json, self._from_json = as_json, from_json

    def put(self, group_id: str, member_ids: Collection[str], rows: Mapping[str, T]) -> Iterable[Statement]:
        """Yield the statements that write the rows of these members, and delete those of members without a value."""
        for member_id in sorted(member_ids):
            if member_id in rows:
                put = f"INSERT OR REPLACE INTO {self.table} (group_id, member_id, {self._column}) VALUES (?, ?, ?)"
                yield put, (group_id, member_id, json.dumps(self._as_json(rows[member_id])))
            else:
                yield f"DELETE FROM {self.table} WHERE group_id = ? AND member_id = ?", (group_id, member_id)

    def load(self, store: Store) -> Iterable[tuple[str, str, T]]:
        """Yield group id, member id and value of each row. Raises StoreError."""
        for group_id, member_id, text in store.read(f"SELECT group_id, member_id, {self._column} FROM {self.table}"):
            yield group_id, member_id, self._from_json(member_id, json.loads(text))


class EpochRows(Generic[GroupT]):
    """The table `<kind>_groups`, and those of its members and targets. It has no state, so any thread may call it."""

    columns = "epoch, assignment_epoch, metadata_hash"

    def __init__(self, make: type[GroupT], members: JsonRows[Any], targets: JsonRows[Any] | None = None) -> None:
        self._make = make
        self._table = f"{make.group_type}_groups"
        self._members, self._targets = members, targets

    def delete(self, group_id: str) -> list[Statement]:
        """Return the statements that delete a group, but not its offsets."""
        tables = [self._table, self._members.table, *([self._targets.table] if self._targets else [])]
        return [(f"DELETE FROM {table} WHERE group_id = ?", (group_id,)) for table in tables]

    def put(self, group: GroupT, changes: Changes) -> list[Statement]:
        """Return the statements that write a group's changes. They always write the group's row, because the rows of
        members are read only if it exists.
        """
        statements = [*changes.before, *self._put_group(group, changes)]
        statements += self._members.put(group.group_id, changes.members, group.members)
        if self._targets is not None and isinstance(group, TargetedMembers):
            statements += self._targets.put(group.group_id, changes.targets, group.target)
        return statements

    def _put_group(self, group: GroupT, changes: Changes) -> list[Statement]:
        put = f"INSERT OR REPLACE INTO {self._table} (group_id, {self.columns}) VALUES (?, ?, ?, ?)"
        return [(put, (group.group_id, group.epoch, group.assignment_epoch, group.metadata_hash))]

    def load(self, store: Store) -> Iterable[GroupT]:
        """Return all stored groups, without their offsets. Raises StoreError."""
        groups: dict[str, GroupT] = {}
        for group_id, *values in store.read(f"SELECT group_id, {self.columns} FROM {self._table}"):
            groups[group_id] = self._make(group_id)
            self._restore(groups[group_id], *values)
        for group_id, _, member in self._members.load(store):
            if group_id in groups:
                groups[group_id].put(member)
        for group_id, member_id, target in () if self._targets is None else self._targets.load(store):
            group = groups.get(group_id)
            if isinstance(group, TargetedMembers):
                group.set_target(member_id, target)
        for group in groups.values():
            group.changes = Changes()
            group.refresh_state()
        return groups.values()

    def _restore(self, group: GroupT, *values: Any) -> None:
        group.epoch, group.assignment_epoch, group.metadata_hash = values


def common_json(member: EpochMember) -> dict[str, Any]:
    """Return the fields that all types of members have."""
    kind = TargetedMember if isinstance(member, TargetedMember) else EpochMember
    values = {each.name: getattr(member, each.name) for each in fields(kind) if each.name != "member_id"}
    return {name: value.value if isinstance(value, MemberState) else value for name, value in values.items()}


def partitions_json(partitions: Partitions) -> dict[str, list[int]]:
    """Return partitions by topic id, in the form of JSON."""
    return {topic.hex(): sorted(indexes) for topic, indexes in partitions.items()}


def partitions_of(row: Mapping[str, Iterable[int]]) -> dict[bytes, frozenset[int]]:
    """Return the partitions from which `partitions_json` made the row."""
    return {bytes.fromhex(topic): frozenset(indexes) for topic, indexes in row.items()}
