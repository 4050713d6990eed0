"""The rows of consumer groups in the store, as `EpochRows`. It has no state, so any thread may use it."""

from __future__ import annotations

from typing import Any, Final

from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.consumer.member import ClassicProtocol, ConsumerMember
from klamm_broker.groups.epoch_rows import EpochRows, JsonRows, common_json, partitions_json, partitions_of
from klamm_broker.groups.targeted_members import MemberState


def _member_json(member: ConsumerMember) -> dict[str, Any]:
    classic = member.classic
    return {
        **common_json(member),
        "topics": sorted(member.topics),
        "regex": member.regex,
        "assignor": member.assignor,
        "assigned": partitions_json(member.assigned),
        "pending_revocation": partitions_json(member.pending_revocation),
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
        row[name] = partitions_of(row[name])
    # Rows of earlier builds do not have this field.
    epochs = row.pop("assignment_epochs", {})
    row["assignment_epochs"] = {bytes.fromhex(topic): dict(each) for topic, each in epochs.items()}
    protocol = None
    if classic is not None:
        protocols = tuple((name, bytes.fromhex(metadata)) for name, metadata in classic["protocols"])
        protocol = ClassicProtocol(classic["session_timeout_ms"], protocols)
    return ConsumerMember(member_id=member_id, classic=protocol, **row)


ROWS: Final = EpochRows(
    ConsumerGroup,
    JsonRows("consumer", "member", _member_json, _member),
    JsonRows("consumer", "target", partitions_json, lambda _, row: partitions_of(row)),
)
