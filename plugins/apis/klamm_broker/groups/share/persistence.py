"""Store and load share groups: one row for the group and one for each member."""

from __future__ import annotations

from typing import Any, Final

from klamm_broker.groups.epoch_rows import EpochRows, JsonRows, common_json, partitions_json, partitions_of
from klamm_broker.groups.share.group import ShareGroup, ShareMember
from klamm_broker.storage.store import Statement


class _ShareRows(EpochRows[ShareGroup]):
    def delete(self, group_id: str) -> list[Statement]:
        """Return the statements that delete a share group and its delivery states."""
        return [*super().delete(group_id), ("DELETE FROM share_partitions WHERE group_id = ?", (group_id,))]

    def _restore(self, group: ShareGroup, *values: Any) -> None:
        super()._restore(group, *values)
        group.is_stored = True


def _member_json(member: ShareMember) -> dict[str, Any]:
    return {
        **common_json(member),
        "topics": sorted(member.topics),
        "assigned": partitions_json(member.assigned),
        "target": partitions_json(member.target),
    }


def _member(member_id: str, row: dict[str, Any]) -> ShareMember:
    row["topics"] = frozenset(row["topics"])
    for name in ("assigned", "target"):
        row[name] = partitions_of(row[name])
    return ShareMember(member_id=member_id, **row)


ROWS: Final = _ShareRows(ShareGroup, JsonRows("share", "member", _member_json, _member))
