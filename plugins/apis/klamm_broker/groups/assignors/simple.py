"""The assignor `simple` of share groups (KIP-932): a partition may be given to several members.

Members with the same topics share their partitions evenly. If there are more members than partitions, a partition goes
to several members, so that each member has one. No member has more than its share. Members keep their partitions, up to
their share. `ShareCoordinator` calls the function with the group's lock held.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from klamm_broker.groups.assignors.spec import MemberSpec, Partitions

_Partition: TypeAlias = tuple[bytes, int]


def assign_shared(members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Return the partitions of each member."""
    readers: dict[bytes, list[str]] = {}
    for member_id in sorted(members):
        for topic in members[member_id].topics:
            readers.setdefault(topic, []).append(member_id)
    topics_by_readers: dict[tuple[str, ...], list[bytes]] = {}
    for topic in sorted(readers):
        topics_by_readers.setdefault(tuple(readers[topic]), []).append(topic)
    assigned: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    for member_ids, topics in topics_by_readers.items():
        partitions = [(topic, index) for topic in topics for index in range(partition_counts[topic])]
        for (topic, index), member_id in _share(members, member_ids, partitions):
            assigned[member_id].setdefault(topic, set()).add(index)
    return {
        member_id: {topic: frozenset(indexes) for topic, indexes in by_topic.items()}
        for member_id, by_topic in assigned.items()
    }


def _share(
    members: Mapping[str, MemberSpec], member_ids: Sequence[str], partitions: Sequence[_Partition]
) -> list[tuple[_Partition, str]]:
    """Return pairs of a partition and a member, for members with the same topics."""
    if not partitions:
        return []
    sharing = -(-len(member_ids) // len(partitions))
    most = -(-len(partitions) * sharing // len(member_ids))
    pairs: list[tuple[_Partition, str]] = []
    held: Counter[str] = Counter()
    holders: dict[_Partition, set[str]] = {partition: set() for partition in partitions}
    for partition in partitions:
        topic, index = partition
        for member_id in member_ids:
            keeps = index in members[member_id].assigned.get(topic, ())
            if keeps and held[member_id] < most and len(holders[partition]) < sharing:
                held[member_id] += 1
                holders[partition].add(member_id)
                pairs.append((partition, member_id))
    free = [(held[member_id], member_id) for member_id in member_ids]
    heapq.heapify(free)
    for partition in partitions:
        passed = []
        while len(holders[partition]) < sharing:
            count, member_id = heapq.heappop(free)
            if member_id in holders[partition]:
                passed.append((count, member_id))
                continue
            holders[partition].add(member_id)
            pairs.append((partition, member_id))
            passed.append((count + 1, member_id))
        for each in passed:
            heapq.heappush(free, each)
    return pairs
