"""The rows of members and targets in the store, and the writes of groups that have both.

A row for the group, one for each member, one for the target of each member. What a heartbeat changes is written in one
transaction before it is answered, in the order of the changes: after a crash no member has what another still owns.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from klamm_broker.groups.targeted_members import Changes, MemberT, TargetedMembers, TargetT

if TYPE_CHECKING:
    from klamm_broker.storage.store import Statement, Store, StoreError

log = logging.getLogger("klamm.broker.groups")


class TargetedRows(Generic[MemberT, TargetT]):
    """The tables `<kind>_groups`, `<kind>_group_members` and `<kind>_group_targets`, and the JSON in the latter two."""

    def __init__(
        self,
        kind: str,
        member_json: Callable[[MemberT], dict[str, Any]],
        member: Callable[[str, dict[str, Any]], MemberT],
        target_json: Callable[[TargetT], Any],
        target: Callable[[Any], TargetT],
    ) -> None:
        self._groups, self._members, self._targets = f"{kind}_groups", f"{kind}_group_members", f"{kind}_group_targets"
        self._member_json, self._member = member_json, member
        self._target_json, self._target = target_json, target

    def delete(self, group_id: str) -> list[Statement]:
        """Delete a group, but not its offsets."""
        tables = self._groups, self._members, self._targets
        return [(f"DELETE FROM {table} WHERE group_id = ?", (group_id,)) for table in tables]

    def put(self, group: TargetedMembers[MemberT, TargetT], changes: Changes) -> list[Statement]:
        """Write the rows of members and targets that have changed."""
        statements: list[Statement] = []
        for table, column, ids, rows, as_json in (
            (self._members, "member", changes.members, group.members, self._member_json),
            (self._targets, "target", changes.targets, group.target, self._target_json),
        ):
            put = f"INSERT OR REPLACE INTO {table} (group_id, member_id, {column}) VALUES (?, ?, ?)"
            delete = f"DELETE FROM {table} WHERE group_id = ? AND member_id = ?"
            statements += _changed(put, delete, group.group_id, ids, rows, as_json)
        return statements

    def load(self, store: Store, groups: Mapping[str, TargetedMembers[MemberT, TargetT]]) -> None:
        """Give groups the members and targets that the store has of them. Raises StoreError."""
        for group_id, member_id, text in store.read(f"SELECT group_id, member_id, member FROM {self._members}"):
            if group_id in groups:
                groups[group_id].put(self._member(member_id, json.loads(text)))
        for group_id, member_id, text in store.read(f"SELECT group_id, member_id, target FROM {self._targets}"):
            if group_id in groups:
                groups[group_id].set_target(member_id, self._target(json.loads(text)))
        for group in groups.values():
            group.changes = Changes()
            group.refresh_state()


def _changed(
    put: str,
    delete: str,
    group_id: str,
    ids: Iterable[str],
    rows: Mapping[str, Any],
    as_json: Callable[[Any], Any],
) -> Iterable[Statement]:
    for member_id in sorted(ids):
        row = rows.get(member_id)
        if row is None:
            yield delete, (group_id, member_id)
        else:
            yield put, (group_id, member_id, json.dumps(as_json(row)))


def write(
    store: Store,
    group: TargetedMembers[MemberT, TargetT],
    put: Callable[[Changes], Sequence[Statement]],
    then: Callable[[bool], None] | None = None,
) -> None:
    """Write a group's changes, with the statements of `put`.

    `then` is called with whether they were written, after the group's lock is released.
    """
    changes, group.changes = group.changes, Changes()
    if not changes and not group.is_dead:
        if then is not None:
            group.answer(then, True)
        return

    def on_durable(error: StoreError | None) -> None:
        with group:
            if error is not None:
                log.error("group %s: a change could not be written: %s", group.log_name, error)
                group.changes.add(changes)
            if then is not None:
                group.answer(then, error is None)

    # What replaces a dead group is written already, and the answer waits for that.
    store.submit(() if group.is_dead else put(changes), on_durable)
