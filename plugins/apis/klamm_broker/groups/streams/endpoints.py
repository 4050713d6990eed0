"""Endpoints of a streams group's members and their partitions, for interactive queries (KIP-67)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from klamm_broker.groups.streams.requests import EndpointPartitions
from klamm_broker.groups.streams.tasks import Task

if TYPE_CHECKING:
    from klamm_broker.groups.consumer.subscriptions import Topics
    from klamm_broker.groups.streams.group import StreamsGroup


def endpoints_of(group: StreamsGroup, topics: Topics) -> list[EndpointPartitions]:
    """Return what each member with an endpoint has."""
    if group.topology is None:
        return []
    inputs = {
        each.subtopology_id: {name: len(topic.partitions) for name in each.input_topics if (topic := topics.get(name))}
        for each in group.topology.subtopologies
    }
    return [
        EndpointPartitions(
            member.endpoint,
            _partitions(member.assigned.active, inputs),
            _partitions(member.assigned.standby | member.assigned.warmup, inputs),
        )
        for member in group.members.values()
        if member.endpoint is not None
    ]


def _partitions(tasks: Iterable[Task], inputs: Mapping[str, Mapping[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        for name, count in inputs.get(subtopology_id, {}).items():
            if partition < count:
                found.setdefault(name, []).append(partition)
    return dict(sorted(found.items()))
