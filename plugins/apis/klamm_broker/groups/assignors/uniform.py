"""The assignor `uniform`: equally many partitions for each member, with as few moves as possible.

It has the aims of Kafka's `UniformAssignor`, but another algorithm. The function keeps no state. `TargetAssignment`
calls it with the group's lock held.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from klamm_broker.groups.assignors.spec import MemberSpec, Partitions

_Partition: TypeAlias = tuple[bytes, int]


def assign_uniformly(members: Mapping[str, MemberSpec], counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Spread partitions evenly.

    With equal subscriptions, the numbers of partitions of any two members differ by at most one. With different
    subscriptions, no single move of a partition would make them more even.
    """
    if not members:
        return {}
    kept, free = _keep(members, counts)
    first = next(iter(members.values())).topics
    if all(member.topics == first for member in members.values()):
        _spread_equally(kept, free, sum(counts[topic] for topic in first))
    else:
        _spread_by_subscription(members, kept, free)
    return {name: _by_topic(partitions) for name, partitions in kept.items()}


def _keep(
    members: Mapping[str, MemberSpec], counts: Mapping[bytes, int]
) -> tuple[dict[str, list[_Partition]], list[_Partition]]:
    """Return the partitions that each member may keep and the remaining partitions, both sorted."""
    kept: dict[str, list[_Partition]] = {}
    taken: set[_Partition] = set()
    for name in sorted(members):
        member = members[name]
        mine = [
            (topic, index)
            for topic in sorted(member.topics & member.assigned.keys())
            for index in sorted(member.assigned[topic])
            if index < counts[topic] and (topic, index) not in taken
        ]
        taken.update(mine)
        kept[name] = mine
    topics = frozenset().union(*(member.topics for member in members.values()))
    free = [(topic, index) for topic in sorted(topics) for index in range(counts[topic]) if (topic, index) not in taken]
    return kept, free


def _spread_equally(kept: dict[str, list[_Partition]], free: list[_Partition], total: int) -> None:
    quota, extra = divmod(total, len(kept))
    # The members with the most partitions keep one more, so that as few as possible are moved.
    by_size = sorted(kept, key=lambda name: -len(kept[name]))
    quotas = {name: quota + (place < extra) for place, name in enumerate(by_size)}
    for name, mine in kept.items():
        free.extend(mine[quotas[name] :])
        del mine[quotas[name] :]
    left = iter(free)
    for name, mine in kept.items():
        while len(mine) < quotas[name]:
            mine.append(next(left))


def _spread_by_subscription(
    members: Mapping[str, MemberSpec], kept: dict[str, list[_Partition]], free: Iterable[_Partition]
) -> None:
    subscribers: dict[bytes, list[str]] = defaultdict(list)
    for name in kept:
        for topic in members[name].topics:
            subscribers[topic].append(name)
    held = {name: _lists_by_topic(mine) for name, mine in kept.items()}
    sizes = {name: len(mine) for name, mine in kept.items()}
    # Partitions that few members can have are assigned first.
    for topic, indexes in sorted(_lists_by_topic(free).items(), key=lambda each: (len(subscribers[each[0]]), each[0])):
        heap = [(sizes[name], name) for name in subscribers[topic]]
        heapq.heapify(heap)
        for index in indexes:
            name = heap[0][1]
            held[name][topic].append(index)
            sizes[name] += 1
            heapq.heapreplace(heap, (sizes[name], name))
    while any(_even_out(topic, names, held, sizes) for topic, names in sorted(subscribers.items())):
        pass
    for name, by_topic in held.items():
        kept[name][:] = [(topic, index) for topic, indexes in by_topic.items() for index in indexes]


def _even_out(
    topic: bytes, names: Sequence[str], held: Mapping[str, dict[bytes, list[int]]], sizes: dict[str, int]
) -> bool:
    """Move partitions of one topic from members that have at least two partitions more than another. Return True if any
    was moved.

    Each move makes the sum of the squares of all sizes smaller, so this ends. Of members with equal sizes the first one
    gives or takes. A heap entry whose size differs from the member's is outdated.
    """
    owners = [name for name in names if held[name].get(topic)]
    if not owners or max(map(sizes.__getitem__, owners)) - min(map(sizes.__getitem__, names)) < 2:
        return False
    poor = [(sizes[name], place) for place, name in enumerate(names)]
    rich = [(-sizes[name], place) for place, name in enumerate(names) if held[name].get(topic)]
    heapq.heapify(poor)
    heapq.heapify(rich)
    while rich:
        most, richest = rich[0]
        least, poorest = poor[0]
        giver, taker = names[richest], names[poorest]
        if sizes[giver] != -most or not held[giver][topic]:
            heapq.heappop(rich)
        elif sizes[taker] != least:
            heapq.heappop(poor)
        elif -most - least < 2:
            break
        else:
            held[taker][topic].append(held[giver][topic].pop())
            for name, place, change in ((giver, richest, -1), (taker, poorest, 1)):
                sizes[name] += change
                heapq.heappush(poor, (sizes[name], place))
                heapq.heappush(rich, (-sizes[name], place))
    return True


def _lists_by_topic(partitions: Iterable[_Partition]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for topic, index in partitions:
        found[topic].append(index)
    return found


def _by_topic(partitions: Iterable[_Partition]) -> dict[bytes, frozenset[int]]:
    found: dict[bytes, set[int]] = defaultdict(set)
    for topic, index in partitions:
        found[topic].add(index)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}
