"""Consumer groups in the store, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.consumer.member import ClassicProtocol, ConsumerMember
from klamm_broker.groups.consumer.state import MemberState
from klamm_broker.groups.targeted_rows import TargetedRows

if TYPE_CHECKING:
    from klamm_broker.groups.assignors import Partitions
    from klamm_broker.groups.targeted_members import Changes
    from klamm_broker.storage.store import Statement, Store

_PUT_GROUP: Final = (
    "INSERT OR REPLACE INTO consumer_groups (group_id, epoch, assignment_epoch, metadata_hash) VALUES (?, ?, ?, ?)"
)


def put(group: ConsumerGroup, changes: Changes) -> list[Statement]:
    """Write the changes of a group; its own row always, so that no member row is without a group row."""
    group_id = group.group_id
    statements: list[Statement] = list(changes.before)
    statements.append((_PUT_GROUP, (group_id, group.epoch, group.assignment_epoch, group.metadata_hash)))
    return [*statements, *_ROWS.put(group, changes)]


def load(store: Store) -> Iterable[ConsumerGroup]:
    """All consumer groups as the store has them, without their offsets. Raises StoreError."""
    groups: dict[str, ConsumerGroup] = {}
    for group_id, epoch, assignment_epoch, metadata_hash in store.read(
        "SELECT group_id, epoch, assignment_epoch, metadata_hash FROM consumer_groups"
    ):
        group = groups[group_id] = ConsumerGroup(group_id)
        group.epoch, group.assignment_epoch, group.metadata_hash = epoch, assignment_epoch, metadata_hash
    _ROWS.load(store, groups)
    return groups.values()


def _member_json(member: ConsumerMember) -> dict[str, Any]:
    classic = member.classic
    return {
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "owner": member.owner,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "topics": sorted(member.topics),
        "regex": member.regex,
        "assignor": member.assignor,
        "epoch": member.epoch,
        "previous_epoch": member.previous_epoch,
        "state": member.state.value,
        "assigned": _as_json(member.assigned),
        "pending_revocation": _as_json(member.pending_revocation),
        "assignment_epochs": {
            topic.hex(): sorted(epochs.items()) for topic, epochs in member.assignment_epochs.items()
        },
        "classic": None
        if classic is None
        else {
            "session_timeout_ms": classic.session_timeout_ms,
            "protocols": [[name, metadata.hex()] for name, metadata in classic.protocols],
        },
    }


def _member(member_id: str, row: dict[str, Any]) -> ConsumerMember:
    classic = row.pop("classic")
    row["topics"] = frozenset(row["topics"])
    row["state"] = MemberState(row["state"])
    for name in ("assigned", "pending_revocation"):
        row[name] = _partitions(row[name])
    # Rows of earlier builds have none.
    epochs = row.pop("assignment_epochs", {})
    row["assignment_epochs"] = {bytes.fromhex(topic): dict(each) for topic, each in epochs.items()}
    protocol = None
    if classic is not None:
        protocols = tuple((name, bytes.fromhex(metadata)) for name, metadata in classic["protocols"])
        protocol = ClassicProtocol(classic["session_timeout_ms"], protocols)
    return ConsumerMember(member_id=member_id, classic=protocol, **row)


def _as_json(partitions: Partitions) -> dict[str, list[int]]:
    return {topic.hex(): sorted(indexes) for topic, indexes in partitions.items()}


def _partitions(row: dict[str, list[int]]) -> Partitions:
    return {bytes.fromhex(topic): frozenset(indexes) for topic, indexes in row.items()}


_ROWS: Final = TargetedRows("consumer", _member_json, _member, _as_json, _partitions)
delete = _ROWS.delete
