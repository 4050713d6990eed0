"""Functions that change the committed offsets of a group, as the logged-in user, over Kafka's protocol.

Each raises KafkaError if the server refuses the change, and ValueError for a wrong argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm import ErrorCode, KafkaError
from klamm.testing import Admin
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from klamm_console.arguments import MOST_PARTITION, number, text
from klamm_console.cluster import EARLIEST, LATEST, check, metadata_of, offsets_of
from klamm_console.routes import Action, Argument

_COMMIT_VERSION: Final = 8
_DELETE_VERSION: Final = 0
_MOST_PARTITIONS: Final = 5_000


def reset_offsets(admin: Admin, body: Mapping[str, Any]) -> None:
    """Commit other offsets for a group without members, as Kafka's tool `kafka-consumer-groups --reset-offsets` does:
    an offset that a partition does not have becomes its first one or its end.
    """
    name, topic, to = text(body, "name"), text(body, "topic"), text(body, "to")
    metadata = metadata_of(admin, topic)
    there = sorted(each.partition_index for each in metadata.topics[0].partitions)
    partitions = [number(body, "partition", MOST_PARTITION)] if "partition" in body else there
    if len(partitions) > _MOST_PARTITIONS:
        raise ValueError(f"the topic has more than {_MOST_PARTITIONS} partitions: name one of them")
    if not set(partitions) <= set(there):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partitions[0]}")
    wanted = {(topic, each) for each in partitions}
    firsts, ends = (offsets_of(admin, metadata, wanted, when) for when in (EARLIEST, LATEST))
    if to == "offset":
        offset = number(body, "offset")
        found = {each: min(max(offset, firsts.get(each, 0)), ends.get(each, 0)) for each in wanted}
    elif to == "time":
        at = offsets_of(admin, metadata, wanted, number(body, "timestamp_ms"))
        # A partition without a record of that time or later has the offset -1.
        found = {each: offset if offset >= 0 else ends.get(each, 0) for each, offset in at.items()}
    elif to in ("earliest", "latest"):
        found = firsts if to == "earliest" else ends
    else:
        raise ValueError("to must be one of earliest, latest, offset, time")
    missing = [each for each in partitions if not all((topic, each) in known for known in (firsts, ends, found))]
    if missing:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{missing[0]}")
    _commit(admin, name, topic, {each: found[topic, each] for each in partitions})


def _commit(admin: Admin, name: str, topic: str, found: Mapping[int, int]) -> None:
    chosen = [OffsetCommitRequestPartition(index, offset) for index, offset in found.items()]
    request = OffsetCommitRequest(name, -1, "", topics=[OffsetCommitRequestTopic(topic, partitions=chosen)])
    for answered in admin.call_group(name, request, _COMMIT_VERSION).topics:
        for each in answered.partitions:
            # Members commit under their ids, so that this request's lacks one.
            has_members = each.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            check(each.error_code, "the group has members: stop them first" if has_members else name)


def delete_offsets(admin: Admin, body: Mapping[str, Any]) -> None:
    """Delete the offsets of a group for a topic's partition, or for all partitions that have one."""
    name, topic = text(body, "name"), text(body, "topic")
    if "partition" in body:
        partitions = [number(body, "partition", MOST_PARTITION)]
    else:
        partitions = [index for known, index in admin.group(name).committed() if known == topic]
    chosen = [OffsetDeleteRequestPartition(each) for each in partitions]
    request = OffsetDeleteRequest(name, [OffsetDeleteRequestTopic(topic, chosen)])
    answer = admin.call_group(name, request, _DELETE_VERSION)
    check(answer.error_code, name)
    for answered in answer.topics:
        for each in answered.partitions:
            is_read = each.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            check(each.error_code, f"members of the group read {topic}: stop them first" if is_read else topic)


_GROUP: Final = Argument("name", "The group's name.")
_TOPIC: Final = Argument("topic", "The topic's name.")
_PARTITION: Final = Argument("partition", "Its number; without one, all partitions.", "integer", required=False)
ACTIONS: Final[tuple[Action, ...]] = (
    (
        "reset_offsets",
        "Commit other offsets for a group without members.",
        reset_offsets,
        (
            _GROUP,
            _TOPIC,
            _PARTITION,
            Argument("to", "One of `earliest`, `latest`, `offset`, `time`."),
            Argument("offset", "The offset, if `to` is `offset`.", "integer", required=False),
            Argument("timestamp_ms", "The time of the next record, if `to` is `time`.", "integer", required=False),
        ),
    ),
    ("delete_offsets", "Delete the offsets of a group for a topic.", delete_offsets, (_GROUP, _TOPIC, _PARTITION)),
)
