"""Tests of the server's assignors: assignments are complete and balanced, and move as few partitions as necessary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.groups.assignors import ASSIGNORS, MemberSpec, Partitions
from klamm_broker.groups.assignors.uniform import _even_out

TOPICS = [b"t%d" % number for number in range(4)]
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 6) for topic in TOPICS})
SUBSCRIPTION = st.frozensets(st.sampled_from(TOPICS), max_size=4)
SUBSCRIPTIONS = st.dictionaries(st.sampled_from("abcdef"), SUBSCRIPTION, min_size=1)


def specs(subscriptions: Mapping[str, frozenset[bytes]], held: Mapping[str, Partitions]) -> dict[str, MemberSpec]:
    return {name: MemberSpec(None, topics, held.get(name, {})) for name, topics in subscriptions.items()}


def flat(partitions: Partitions) -> set[tuple[bytes, int]]:
    return {(topic, index) for topic, indexes in partitions.items() for index in indexes}


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(counts=COUNTS, first=SUBSCRIPTIONS, second=SUBSCRIPTIONS)
def test_each_subscribed_partition_has_one_reader(
    assignor: str,
    counts: dict[bytes, int],
    first: dict[str, frozenset[bytes]],
    second: dict[str, frozenset[bytes]],
) -> None:
    held: dict[str, Partitions] = {}
    for subscriptions in (first, second):
        held = ASSIGNORS[assignor](specs(subscriptions, held), counts)
        assert held.keys() == subscriptions.keys()
        for name, mine in held.items():
            assert mine.keys() <= subscriptions[name]
            assert all(mine.values())
        everything = [each for mine in held.values() for each in flat(mine)]
        wanted = {
            (topic, index) for topics in subscriptions.values() for topic in topics for index in range(counts[topic])
        }
        assert sorted(everything) == sorted(wanted)


@given(counts=COUNTS, subscriptions=SUBSCRIPTIONS, before=SUBSCRIPTIONS)
def test_no_further_move_would_improve_the_balance(
    counts: dict[bytes, int], subscriptions: dict[str, frozenset[bytes]], before: dict[str, frozenset[bytes]]
) -> None:
    held = ASSIGNORS["uniform"](specs(before, {}), counts)
    found = {name: flat(mine) for name, mine in ASSIGNORS["uniform"](specs(subscriptions, held), counts).items()}
    for mine in found.values():
        for topic, _ in mine:
            for name, topics in subscriptions.items():
                assert topic not in topics or len(mine) - len(found[name]) <= 1


@given(counts=COUNTS, topics=SUBSCRIPTION, before=st.integers(1, 6), after=st.integers(1, 6))
def test_with_equal_subscriptions_the_fewest_partitions_move(
    counts: dict[bytes, int], topics: frozenset[bytes], before: int, after: int
) -> None:
    held = ASSIGNORS["uniform"](specs(dict.fromkeys("abcdef"[:before], topics), {}), counts)
    found = ASSIGNORS["uniform"](specs(dict.fromkeys("abcdef"[:after], topics), held), counts)
    total = sum(counts[topic] for topic in topics)
    sizes = sorted((len(flat(held.get(name, {}))) for name in found), reverse=True)
    quotas = [total // after + (place < total % after) for place in range(after)]
    kept = sum(len(flat(mine) & flat(held.get(name, {}))) for name, mine in found.items())
    assert kept == sum(min(size, quota) for size, quota in zip(sizes, quotas, strict=True))


def test_ranges_follow_the_order_of_members() -> None:
    both = frozenset(TOPICS[:2])
    members = {
        "b": MemberSpec(None, both, {}),
        "a": MemberSpec(None, both, {}),
        "z": MemberSpec("instance", both, {}),
    }
    found = ASSIGNORS["range"](members, {TOPICS[0]: 4, TOPICS[1]: 2})
    assert found == {
        "z": {TOPICS[0]: frozenset({0, 1}), TOPICS[1]: frozenset({0})},
        "a": {TOPICS[0]: frozenset({2}), TOPICS[1]: frozenset({1})},
        "b": {TOPICS[0]: frozenset({3})},
    }


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_without_members_nothing_is_assigned(assignor: str) -> None:
    assert ASSIGNORS[assignor]({}, {}) == {}


class CountedSizes(dict[str, int]):
    """Sizes that count how often one is looked up."""

    looked_up = 0

    def __getitem__(self, name: str) -> int:
        self.looked_up += 1
        return super().__getitem__(name)


def test_the_cost_of_a_move_does_not_depend_on_the_number_of_members() -> None:
    """The group is locked meanwhile, and its members determine the number of partitions."""
    count = 300
    names = [f"m{number:03}" for number in range(count)]
    held: dict[str, dict[bytes, list[int]]] = {name: defaultdict(list) for name in names}
    held[names[0]][b"t"] = list(range(2 * count))
    sizes = CountedSizes({name: sum(map(len, held[name].values())) for name in names})
    assert _even_out(b"t", names, held, sizes)
    assert sizes.looked_up < 30 * count
    assert {len(held[name][b"t"]) for name in names} == {2}
    assert all(sizes[name] == 2 for name in names)
    assert sorted(index for name in names for index in held[name][b"t"]) == list(range(2 * count))
    assert not _even_out(b"t", names, held, sizes)
