"""Share groups in the store, and back: a row for the group and one for each member."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.groups.share.group import ShareGroup, ShareMember

if TYPE_CHECKING:
    from klamm_broker.groups.assignors import Partitions
    from klamm_broker.storage.store import Statement, Store

_PUT_GROUP: Final = (
    "INSERT OR REPLACE INTO share_groups (group_id, epoch, assignment_epoch, metadata_hash) VALUES (?, ?, ?, ?)"
)
_PUT_MEMBER: Final = "INSERT OR REPLACE INTO share_group_members (group_id, member_id, member) VALUES (?, ?, ?)"
_DELETE_MEMBER: Final = "DELETE FROM share_group_members WHERE group_id = ? AND member_id = ?"
_DELETE: Final = (
    "DELETE FROM share_groups WHERE group_id = ?",
    "DELETE FROM share_group_members WHERE group_id = ?",
    "DELETE FROM share_partitions WHERE group_id = ?",
)


def delete(group_id: str) -> list[Statement]:
    """Delete a share group and what it has read."""
    return [(statement, (group_id,)) for statement in _DELETE]


def put(group: ShareGroup, changed: Collection[str]) -> list[Statement]:
    """Write the group, and its members of these ids."""
    group_id = group.group_id
    statements: list[Statement] = [(_PUT_GROUP, (group_id, group.epoch, group.assignment_epoch, group.metadata_hash))]
    for member_id in sorted(changed):
        member = group.members.get(member_id)
        if member is None:
            statements.append((_DELETE_MEMBER, (group_id, member_id)))
        else:
            statements.append((_PUT_MEMBER, (group_id, member_id, _member_text(member))))
    return statements


def load(store: Store) -> Iterable[ShareGroup]:
    """All share groups as the store has them. Raises StoreError."""
    groups: dict[str, ShareGroup] = {}
    for group_id, epoch, assignment_epoch, metadata_hash in store.read(
        "SELECT group_id, epoch, assignment_epoch, metadata_hash FROM share_groups"
    ):
        group = groups[group_id] = ShareGroup(group_id)
        group.epoch, group.assignment_epoch, group.metadata_hash = epoch, assignment_epoch, metadata_hash
    for group_id, member_id, text in store.read("SELECT group_id, member_id, member FROM share_group_members"):
        if group_id in groups:
            groups[group_id].put(_member(member_id, json.loads(text)))
    for group in groups.values():
        group.changed.clear()
        group.is_stored = True
        group.refresh_state()
    return groups.values()


def _member_text(member: ShareMember) -> str:
    return json.dumps(
        {
            "rack_id": member.rack_id,
            "owner": member.owner,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "topics": sorted(member.topics),
            "epoch": member.epoch,
            "previous_epoch": member.previous_epoch,
            "assigned": _as_json(member.assigned),
            "target": _as_json(member.target),
        }
    )


def _member(member_id: str, row: dict[str, Any]) -> ShareMember:
    row["topics"] = frozenset(row["topics"])
    for name in ("assigned", "target"):
        row[name] = {bytes.fromhex(topic): frozenset(indexes) for topic, indexes in row[name].items()}
    return ShareMember(member_id=member_id, **row)


def _as_json(partitions: Partitions) -> dict[str, list[int]]:
    return {topic.hex(): sorted(indexes) for topic, indexes in partitions.items()}
