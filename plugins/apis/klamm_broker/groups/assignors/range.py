"""The assignor `range`; follows Kafka's `RangeAssignor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from klamm_broker.groups.assignors.spec import MemberSpec, Partitions


def assign_ranges(members: Mapping[str, MemberSpec], counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Give each subscriber of a topic a range of its partitions. If the partitions do not divide evenly, the first
    subscribers get one more.

    Members with an instance id come first, ordered by instance id; the others follow, ordered by member id. So topics
    with equal numbers of partitions and equal subscribers are assigned alike, and their records can be joined.
    """
    order = sorted(members, key=lambda name: (members[name].instance_id is None, members[name].instance_id or name))
    subscribers = Counter(topic for member in members.values() for topic in member.topics)
    next_start: dict[bytes, int] = {}
    place: Counter[bytes] = Counter()
    assigned: dict[str, Partitions] = {}
    for name in order:
        mine: dict[bytes, frozenset[int]] = {}
        for topic in sorted(members[name].topics):
            quota, extra = divmod(counts[topic], subscribers[topic])
            start = next_start.get(topic, 0)
            end = start + quota + (place[topic] < extra)
            next_start[topic] = end
            place[topic] += 1
            if start < end:
                mine[topic] = frozenset(range(start, end))
        assigned[name] = mine
    return assigned
