"""Tests of the assignor of streams groups: each task is active once, few tasks move, and shares are equal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.groups.assignors.tasks import StreamsMemberSpec, StreamsSpec, assign_sticky
from klamm_broker.groups.streams.tasks import NONE, Task, Tasks

STATEFUL = "1"


def spec(
    processes: list[str], partitions: list[int], standbys: int = 0, before: dict[str, Tasks] | None = None
) -> StreamsSpec:
    """Return one member for each named process. The second subtopology has state."""
    members = {
        f"m{number}": StreamsMemberSpec(process, {}, (before or {}).get(f"m{number}", NONE))
        for number, process in enumerate(processes)
    }
    counts = {str(number): count for number, count in enumerate(partitions)}
    return StreamsSpec(members, counts, frozenset({STATEFUL}), standbys)


PROCESSES = st.lists(st.sampled_from("pqr"), min_size=1, max_size=6)
PARTITIONS = st.lists(st.integers(0, 9), min_size=2, max_size=3)


def check(given_spec: StreamsSpec, target: dict[str, Tasks]) -> None:
    assert target.keys() == given_spec.members.keys()
    active = Counter(task for tasks in target.values() for task in tasks.active)
    wanted = {(name, index) for name, count in given_spec.tasks.items() for index in range(count)}
    assert active == dict.fromkeys(wanted, 1)
    counts = sorted(len(tasks.active) for tasks in target.values())
    assert counts[-1] - counts[0] <= 1
    places: dict[Task, list[str]] = {}
    for member_id, tasks in target.items():
        assert not tasks.warmup
        for task in (*tasks.active, *tasks.standby):
            places.setdefault(task, []).append(given_spec.members[member_id].process_id)
    processes = {member.process_id for member in given_spec.members.values()}
    for task, where in places.items():
        copies = min(given_spec.num_standby_replicas, len(processes) - 1) if task[0] == STATEFUL else 0
        assert len(where) == len(set(where)) == 1 + copies


@given(PROCESSES, PARTITIONS, st.integers(0, 3))
def test_each_task_is_active_on_one_process_and_has_copies_on_others(
    processes: list[str], partitions: list[int], standbys: int
) -> None:
    first = spec(processes, partitions, standbys)
    check(first, assign_sticky(first))


@given(PROCESSES, PROCESSES, PARTITIONS, st.integers(0, 2))
def test_members_keep_as_many_tasks_as_their_share(
    processes: list[str], others: list[str], partitions: list[int], standbys: int
) -> None:
    before = assign_sticky(spec(processes, partitions, standbys))
    again = spec(processes, partitions, standbys, before)
    assert assign_sticky(again) == before or standbys
    assert {name: tasks.active for name, tasks in assign_sticky(again).items()} == {
        name: tasks.active for name, tasks in before.items()
    }
    grown = spec(processes + others, partitions, standbys, before)
    target = assign_sticky(grown)
    check(grown, target)
    share = sum(partitions) // len(grown.members)
    for name, tasks in before.items():
        assert len(target[name].active & tasks.active) >= min(share, len(tasks.active))


@given(st.integers(1, 6), PARTITIONS)
def test_the_tasks_of_a_subtopology_go_to_several_members(count: int, partitions: list[int]) -> None:
    target = assign_sticky(spec([f"p{number}" for number in range(count)], partitions))
    for number in range(len(partitions)):
        of_each = [sum(name == str(number) for name, _ in tasks.active) for tasks in target.values()]
        assert max(of_each) - min(of_each) <= 1


def test_a_copy_becomes_active_on_its_own_process() -> None:
    before = {"m0": Tasks(frozenset({(STATEFUL, 0)})), "m1": Tasks(standby=frozenset({(STATEFUL, 0)}))}
    left = {"m1": before["m1"]}
    members = {name: StreamsMemberSpec(name, {}, left.get(name, NONE)) for name in ("m1", "m2")}
    target = assign_sticky(StreamsSpec(members, {STATEFUL: 1}, frozenset({STATEFUL}), 1))
    assert target == {"m1": Tasks(frozenset({(STATEFUL, 0)})), "m2": Tasks(standby=frozenset({(STATEFUL, 0)}))}


def test_group_without_members_gets_no_tasks() -> None:
    assert assign_sticky(StreamsSpec({}, {"0": 3}, frozenset())) == {}


def test_tasks_are_divided_evenly_among_the_members_of_a_process() -> None:
    target = assign_sticky(spec(["p", "q"] * 300, [0, 12_000], 1))
    assert {(len(tasks.active), len(tasks.standby)) for tasks in target.values()} == {(20, 20)}


@pytest.mark.interpreted
@pytest.mark.parametrize("processes", [lambda count: ["p", "q"] * count, lambda count: [f"p{n}" for n in range(count)]])
def test_the_cost_grows_about_linearly_with_members_and_tasks(processes: Callable[[int], list[str]]) -> None:
    def calls(count: int) -> int:
        made = [0]

        def count_call(_frame: object, _event: str, _argument: object) -> None:
            made[0] += 1

        group = spec(processes(count), [0, 8 * count], 1)
        sys.setprofile(count_call)
        try:
            assign_sticky(group)
        finally:
            sys.setprofile(None)
        return made[0]

    assert calls(160) < 2.5 * calls(80)
