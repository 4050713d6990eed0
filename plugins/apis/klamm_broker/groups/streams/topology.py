"""The topology of a Kafka Streams application, as far as the server knows it: subtopologies and their topics. A
topology never changes, so any thread may read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from klamm import ErrorCode, KafkaError
from klamm_broker.topics.names import INTERNAL_TOPICS, is_topic_name


class InternalTopic(NamedTuple):
    """A topic that the server creates for the application. 0 partitions or replicas mean that the number is not
    given.
    """

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics that must have the same number of partitions, by their positions in the lists of their subtopology."""

    source_topics: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    """A part of an application that shares only repartition topics with the other parts."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    changelog_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def input_topics(self) -> tuple[str, ...]:
        """All topics that the subtopology's tasks read."""
        return *self.source_topics, *(topic.name for topic in self.repartition_source_topics)

    @property
    def topic_names(self) -> Iterator[str]:
        """All topics that the subtopology names."""
        yield from self.input_topics
        yield from self.repartition_sink_topics
        yield from (topic.name for topic in self.changelog_topics)

    def copartitioned(self) -> Iterator[frozenset[str]]:
        """Yield the names in each group of topics that must have the same number of partitions."""
        for group in self.copartition_groups:
            sources = (self.source_topics[position] for position in group.source_topics)
            repartitioned = (
                self.repartition_source_topics[position].name for position in group.repartition_source_topics
            )
            yield frozenset((*sources, *repartitioned))


class Topology(NamedTuple):
    """All subtopologies of an application. `epoch` is the application's own number for this version."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @property
    def required_topics(self) -> frozenset[str]:
        """Return the topics without which no task can run."""
        return frozenset(
            name
            for each in self.subtopologies
            for name in (*each.input_topics, *(topic.name for topic in each.changelog_topics))
        )

    @property
    def input_topics(self) -> frozenset[str]:
        """Return the topics that are read, including repartition topics."""
        return frozenset(name for each in self.subtopologies for name in each.input_topics)

    @property
    def topic_names(self) -> list[str]:
        """Return all topic names of the topology in order, each once."""
        return list(dict.fromkeys(name for each in self.subtopologies for name in each.topic_names))

    @property
    def size_bytes(self) -> int:
        """Estimate the size in characters of the names and configs."""
        size = 0
        for each in self.subtopologies:
            size += len(each.subtopology_id) + sum(map(len, each.topic_names)) + 64 * len(each.copartition_groups)
            for topic in (*each.repartition_source_topics, *each.changelog_topics):
                size += sum(len(key) + len(value) for key, value in topic.configs)
        return size

    @property
    def names(self) -> int:
        """Return the number of names in the topology."""
        return sum(1 + sum(1 for _ in each.topic_names) for each in self.subtopologies)


def check_names(topology: Topology) -> None:
    """Raise KafkaError(STREAMS_INVALID_TOPOLOGY) for a topic name that applications may not use."""
    names = topology.topic_names
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise invalid(f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.")
    wrong = [name for name in names if not is_topic_name(name)]
    if wrong:
        raise invalid(f"Topic names {','.join(wrong)} are not valid topic names.")


def check_topology(topology: Topology) -> None:
    """Raise KafkaError(STREAMS_INVALID_TOPOLOGY) for a topology that is invalid, no matter which topics exist."""
    for each in topology.subtopologies:
        for topic in each.changelog_topics:
            if topic.partitions:
                raise invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to"
                    f" {topic.partitions}."
                )
        _check_positions(each)
    for what, given in (
        ("Subtopology", [each.subtopology_id for each in topology.subtopologies]),
        ("Source topic", [name for each in topology.subtopologies for name in dict.fromkeys(each.input_topics)]),
    ):
        twice = next((name for name, times in Counter(given).items() if times > 1), None)
        if twice is not None:
            raise invalid(f"{what} {twice} is named twice.")
    count_repartition_topics(topology, {name: 1 for each in topology.subtopologies for name in each.source_topics})


def _check_positions(subtopology: Subtopology) -> None:
    counts = len(subtopology.source_topics), len(subtopology.repartition_source_topics)
    for group in subtopology.copartition_groups:
        for positions, count in zip(group, counts, strict=True):
            if not all(0 <= position < count for position in positions):
                raise invalid(f"A copartition group of subtopology {subtopology.subtopology_id} names no topic.")


def count_repartition_topics(topology: Topology, counts: dict[str, int]) -> None:
    """Add to `counts` the number of partitions of each repartition topic: its own, or the largest number upstream of
    it.

    `counts` has the numbers of the source topics. Raises KafkaError(STREAMS_INVALID_TOPOLOGY) if a number cannot be
    determined.
    """
    wanted = [topic for each in topology.subtopologies for topic in each.repartition_source_topics]
    counts.update((topic.name, topic.partitions) for topic in wanted if topic.partitions)
    sinks = {name for each in topology.subtopologies for name in each.repartition_sink_topics}
    unknown = dict.fromkeys(topic.name for topic in wanted if topic.name not in counts)
    if not unknown.keys() <= sinks:
        raise invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is"
            " never used as a sink topic."
        )
    while unknown:
        known = len(counts)
        for each in topology.subtopologies:
            for name in each.repartition_sink_topics:
                # An unknown number upstream may depend on this topic itself, as in a join by a foreign key.
                if name in unknown and (count := max((counts.get(read, 0) for read in each.input_topics), default=0)):
                    counts[name] = count
                    del unknown[name]
        if len(counts) == known:
            raise invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology"
                " that cannot be resolved."
            )


def invalid(message: str) -> KafkaError:
    """Return the error for an invalid topology."""
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
