"""Tests of the requirements of a topology: numbers of tasks and partitions, and topics to create."""

from __future__ import annotations

import pytest
from groups_playbook import Topics

from klamm import ErrorCode, KafkaError
from klamm_broker.groups.streams.configuration import MAX_TASKS, configure, summarized
from klamm_broker.groups.streams.requests import StatusCode
from klamm_broker.groups.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
    check_names,
    check_topology,
)


def topics(**counts: int) -> Topics:
    found = Topics()
    for name, count in counts.items():
        found.set(name, count)
    return found


def topology(*subtopologies: Subtopology) -> Topology:
    made = Topology(0, subtopologies)
    check_names(made)
    check_topology(made)
    return made


def repartition(name: str, partitions: int = 0) -> InternalTopic:
    return InternalTopic(name, partitions)


# Subtopology 0 reads a and b and writes r. 1 reads r and has state. 2 reads s, which 1 writes.
CHAIN = topology(
    Subtopology("0", ("a", "b"), ("r",)),
    Subtopology("1", (), ("s",), (repartition("r"),), (InternalTopic("state", 0, 2, (("k", "v"),)),)),
    Subtopology("2", (), (), (repartition("s"),)),
)


def test_numbers_of_partitions_follow_the_upstream_topics() -> None:
    found = configure(CHAIN, topics(a=2, b=5))
    assert found.tasks == {"0": 5, "1": 5, "2": 5}
    assert found.missing == found.internal_topics
    assert {name: topic.partitions for name, topic in found.missing.items()} == {"r": 5, "s": 5, "state": 5}
    assert found.missing["state"] == InternalTopic("state", 5, 2, (("k", "v"),))
    assert (found.is_ready, found.is_known) == (False, True)
    assert found.problem == (StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: r, s, state")
    ready = configure(CHAIN, topics(a=2, b=5, r=5, s=5, state=5))
    assert (ready.is_ready, ready.missing) == (True, {})
    wrong = configure(CHAIN, topics(a=2, b=5, r=4))
    detail = "Existing topic r has different number of partitions: expected 5, found 4"
    assert wrong.problem == (StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    assert not wrong.is_known


def test_subtopologies_may_write_for_each_other() -> None:
    """In a join by a foreign key, two subtopologies write for each other. The known number of partitions counts, as in
    Kafka's `RepartitionTopics`.
    """
    joined = topology(
        Subtopology("0", ("a",), ("asked",), (repartition("answered"),)),
        Subtopology("1", ("b",), ("answered",), (repartition("asked"),)),
    )
    found = configure(joined, topics(a=3, b=5))
    assert {name: topic.partitions for name, topic in found.missing.items()} == {"asked": 3, "answered": 5}


def test_missing_source_topics_are_named() -> None:
    found = configure(CHAIN, topics(a=2))
    assert found.problem == (StatusCode.MISSING_SOURCE_TOPICS, "Source topics b are missing.")
    assert summarized(["a", "b", "c", "d", "e"]) == "a, b, c and 2 additional topics"


TOGETHER = CopartitionGroup((0,), (0,))
ALONE = CopartitionGroup((), (0, 1))


@pytest.mark.parametrize(
    ("reader", "partitions"),
    [
        # With a source topic: as many as that topic.
        (Subtopology("1", ("c",), (), (repartition("r"),), (), (TOGETHER,)), {"r": 7}),
        (Subtopology("1", ("c",), (), (repartition("r", 7),), (), (TOGETHER,)), {"r": 7}),
        # Without a source topic: as many as the only one that states a number, or the largest.
        (Subtopology("1", (), (), (repartition("r"), repartition("q", 9)), (), (ALONE,)), {"r": 9, "q": 9}),
        (Subtopology("1", (), (), (repartition("r"), repartition("q")), (), (ALONE,)), {"r": 4, "q": 4}),
    ],
)
def test_repartition_topics_are_as_large_as_what_they_are_joined_with(
    reader: Subtopology, partitions: dict[str, int]
) -> None:
    joined = topology(Subtopology("0", ("a",), ("r", "q")), reader)
    found = configure(joined, topics(a=4, c=7))
    assert {name: topic.partitions for name, topic in found.missing.items()} == partitions


def test_repartition_topics_of_another_size_do_not_fit() -> None:
    reader = Subtopology("1", ("c",), (), (repartition("r", 3),), (), (TOGETHER,))
    found = configure(topology(Subtopology("0", ("a",), ("r",)), reader), topics(a=4, c=7))
    detail = (
        "Number of partitions [3] of repartition topic [r] doesn't match number of partitions [7] of the source topic."
    )
    assert found.problem == (StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_the_number_of_tasks_is_limited() -> None:
    many = topology(Subtopology("0", ("a",), ("r",)), Subtopology("1", (), (), (repartition("r", MAX_TASKS),)))
    found = configure(many, topics(a=1))
    assert found.problem is not None
    assert found.problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((Subtopology("0", ("a b",)),), "Topic names a b are not valid topic names."),
        (
            (Subtopology("0", ("a",), (), (), (InternalTopic("c", 3),)),),
            "Changelog topic c must have an undefined partition count, but it is set to 3.",
        ),
        ((Subtopology("0", ("a",)), Subtopology("0", ("b",))), "Subtopology 0 is named twice."),
        ((Subtopology("0", ("a",)), Subtopology("1", ("a",))), "Source topic a is named twice."),
        (
            (Subtopology("0", ("a",), (), (), (), (CopartitionGroup((1,)),)),),
            "A copartition group of subtopology 0 names no topic.",
        ),
        (
            (Subtopology("0", ("a",), (), (repartition("r"),)),),
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is"
            " never used as a sink topic.",
        ),
        (
            (Subtopology("0", (), ("s",), (repartition("r"),)), Subtopology("1", (), ("r",), (repartition("s"),))),
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology"
            " that cannot be resolved.",
        ),
    ],
)
def test_a_topology_that_no_topics_can_fit_is_invalid(wrong: tuple[Subtopology, ...], message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        topology(*wrong)
    assert (caught.value.error_code, caught.value.message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
