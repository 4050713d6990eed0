"""Administration of share groups' offsets: describe, alter and delete them. The handlers of these three APIs call the
functions, on a thread that may wait for the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from klamm import ErrorCode, KafkaError
from klamm_broker.groups.share.group import ShareGroup
from klamm_broker.services import BrokerServices
from klamm_broker.share import persistence
from klamm_broker.share.live_partition import LiveSharePartition
from klamm_broker.topics.topic import Partition, Topic

NO_OFFSET = -1


class DescribedOffset(NamedTuple):
    """The offset from which a group reads a partition, and its `lag` in records. Both are -1 if the group has not read
    the partition.
    """

    start_offset: int = NO_OFFSET
    lag: int = NO_OFFSET


def topics_of(broker: BrokerServices, group_id: str) -> dict[str, list[int]]:
    """Return the partitions that a group has read or whose topics its members subscribe to."""
    found: dict[str, set[int]] = {}
    for live in broker.shares.of_group(group_id):
        found.setdefault(live.partition.topic.name, set()).add(live.key.partition)
    try:
        group = broker.groups.shares.get(group_id)
    except KafkaError:
        return {}
    with group:
        names = {name for member in group.members.values() for name in member.topics}
    for name in names:
        topic = broker.topics.get(name)
        if topic is not None:
            found.setdefault(name, set()).update(range(len(topic.partitions)))
    return {name: sorted(indexes) for name, indexes in sorted(found.items())}


def describe(broker: BrokerServices, group_id: str, topic: Topic | None, index: int) -> DescribedOffset:
    """Return the offset from which a group reads a partition. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
    live = broker.shares.find(group_id, topic, index) if topic is not None else None
    view = live.view() if live is not None else None
    if live is None or view is None:
        return DescribedOffset()
    start_offset, _end_offset, completed = view
    behind = max(0, live.partition.high_watermark - start_offset) - completed
    return DescribedOffset(start_offset, max(0, behind))


def require_empty(broker: BrokerServices, group_id: str) -> ShareGroup:
    """Return a share group without members. Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    return _empty(broker.groups.shares.get(group_id))


def _empty(group: ShareGroup) -> ShareGroup:
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    return group


def share_group_to_alter(broker: BrokerServices, group_id: str, new_owner: str | None) -> ShareGroup | None:
    """Return a share group that has no members. If there is no group, create one for `new_owner`; without `new_owner`,
    return None.

    Raises KafkaError: NON_EMPTY_GROUP; with `new_owner` also GROUP_MAX_SIZE_REACHED, and GROUP_ID_NOT_FOUND for a group
    of another type.
    """
    try:
        shares = broker.groups.shares
        group = _empty(shares.get(group_id) if new_owner is None else shares.get_or_create(group_id, new_owner))
    except KafkaError as error:
        if error.error_code == ErrorCode.GROUP_ID_NOT_FOUND and new_owner is None:
            return None
        raise
    with group:
        # The new group has an empty assignment, which Kafka counts as that of its first epoch.
        group.assignment_epoch = group.assignment_epoch or group.epoch
    return group


def alter(
    broker: BrokerServices, group: ShareGroup, offsets: Mapping[Partition, int], owner: str
) -> dict[Partition, KafkaError]:
    """Let a group without members begin at these offsets, durably. New state counts towards the share of `owner`.

    Returns the errors of partitions that are not altered, e.g. GROUP_MAX_SIZE_REACHED if there is no room for their
    state. Raises StoreError.
    """
    starts: list[tuple[LiveSharePartition, int]] = []
    refused: dict[Partition, KafkaError] = {}
    for partition, offset in offsets.items():
        try:
            starts.append((broker.shares.get_or_create(group.group_id, partition, owner), offset))
        except KafkaError as error:
            refused[partition] = error
    statements = [statement for live, offset in starts for statement in persistence.put_start(live.key, offset)]
    broker.groups.shares.write_and_wait(group, statements)
    for live, offset in starts:
        live.set_start(offset)
    return refused
