"""The number of tasks of a topology with the existing topics, and the topics that the server must create for it.

Follows Kafka's `InternalTopicManager`, `RepartitionTopics`, `CopartitionedTopicsEnforcer` and `ChangelogTopics`.
`StreamsAssignment` calls `configure` with the group's lock held; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from klamm_broker.groups.consumer.subscriptions import Topics
from klamm_broker.groups.streams.requests import Status, StatusCode
from klamm_broker.groups.streams.topology import (
    InternalTopic,
    Subtopology,
    Topology,
    count_repartition_topics,
)

MAX_TASKS: Final = 100_000
"""Maximum number of tasks of a group; Kafka has no limit."""
_NAMED_TOPICS: Final = 3
_NO_TASKS: Final[Mapping[str, int]] = MappingProxyType({})
_NO_TOPICS: Final[Mapping[str, InternalTopic]] = MappingProxyType({})


class Configuration(NamedTuple):
    """A topology together with the topics that exist at one moment.

    `tasks` has the number of tasks of each subtopology; it is empty while a source topic is missing or does not fit.
    `internal_topics` has the required internal topics with their numbers of partitions; `missing` lists those that do
    not exist. `problem` is the reason why the tasks cannot run.
    """

    tasks: Mapping[str, int] = _NO_TASKS
    internal_topics: Mapping[str, InternalTopic] = _NO_TOPICS
    missing: Mapping[str, InternalTopic] = _NO_TOPICS
    problem: Status | None = None

    @property
    def is_known(self) -> bool:
        """Return True if the number of tasks is known: all source topics exist and fit."""
        return self.problem is None or self.problem.code is StatusCode.MISSING_INTERNAL_TOPICS

    @property
    def is_ready(self) -> bool:
        """Return True if tasks can run."""
        return self.problem is None


class _DoesNotFitError(Exception):
    """Raised for a topic whose number of partitions is not the one the topology needs."""


def configure(topology: Topology, topics: Topics) -> Configuration:
    """Return the configuration of a checked topology: look up its topics, and count its tasks."""
    sources = sorted({name for each in topology.subtopologies for name in each.source_topics})
    missing_sources = [name for name in sources if topics.get(name) is None]
    if missing_sources:
        detail = f"Source topics {summarized(missing_sources)} are missing."
        return Configuration(problem=Status(StatusCode.MISSING_SOURCE_TOPICS, detail))
    counts = {name: len(topic.partitions) for name in sources if (topic := topics.get(name)) is not None}
    try:
        count_repartition_topics(topology, counts)
        _equalize(topology, counts)
        tasks = {
            each.subtopology_id: max((counts[name] for name in each.input_topics), default=0)
            for each in topology.subtopologies
        }
        if sum(tasks.values()) > MAX_TASKS:
            raise _DoesNotFitError(f"The topology has {sum(tasks.values())} tasks; {MAX_TASKS} are possible.")
        internal = {
            topic.name: topic for each in topology.subtopologies for topic in _internal_topics(each, tasks, counts)
        }
        missing = _missing(internal, topics)
    except _DoesNotFitError as error:
        return Configuration(problem=Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, str(error)))
    problem = None
    if missing:
        detail = f"Internal topics are missing: {summarized(missing)}"
        problem = Status(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return Configuration(tasks, internal, missing, problem)


def summarized(names: Collection[str]) -> str:
    """Return the first few names, and the number of the others."""
    named = ", ".join(list(names)[:_NAMED_TOPICS])
    more = len(names) - _NAMED_TOPICS
    return f"{named} and {more} additional topics" if more > 0 else named


def _equalize(topology: Topology, counts: dict[str, int]) -> None:
    """Give repartition topics as many partitions as the topics they are joined with."""
    fixed = {
        topic.name for each in topology.subtopologies for topic in each.repartition_source_topics if topic.partitions
    }
    repartitioned = {topic.name for each in topology.subtopologies for topic in each.repartition_source_topics}
    for group in (names for each in topology.subtopologies for names in each.copartitioned()):
        sources = {name: counts[name] for name in sorted(group - repartitioned)}
        internal = group & repartitioned
        if sources:
            count = _same(sources)
            for name in sorted(internal & fixed):
                if counts[name] != count:
                    raise _DoesNotFitError(
                        f"Number of partitions [{counts[name]}] of repartition topic [{name}] doesn't match number of"
                        f" partitions [{count}] of the source topic."
                    )
        elif internal & fixed:
            count = _same({name: counts[name] for name in sorted(internal & fixed)})
        else:
            count = max((counts[name] for name in internal), default=0)
        counts.update(dict.fromkeys(internal - fixed, count))


def _same(counts: Mapping[str, int]) -> int:
    """Return the number of partitions of these topics. Raises _DoesNotFitError if the numbers differ."""
    first, *others = set(counts.values())
    if others:
        named = ", ".join(f"{name}={count}" for name, count in counts.items())
        raise _DoesNotFitError(f"Following topics do not have the same number of partitions: [{{{named}}}]")
    return first


def _internal_topics(
    subtopology: Subtopology, tasks: Mapping[str, int], counts: Mapping[str, int]
) -> Iterable[InternalTopic]:
    for topic in subtopology.repartition_source_topics:
        yield topic._replace(partitions=counts[topic.name])
    for topic in subtopology.changelog_topics:
        yield topic._replace(partitions=tasks[subtopology.subtopology_id])


def _missing(internal: Mapping[str, InternalTopic], topics: Topics) -> dict[str, InternalTopic]:
    missing = {}
    for name, wanted in sorted(internal.items()):
        topic = topics.get(name)
        if topic is None:
            missing[name] = wanted
        elif len(topic.partitions) != wanted.partitions:
            raise _DoesNotFitError(
                f"Existing topic {name} has different number of partitions: expected {wanted.partitions}, found"
                f" {len(topic.partitions)}"
            )
    return missing
