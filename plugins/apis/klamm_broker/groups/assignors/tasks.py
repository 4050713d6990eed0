"""The assignor `sticky` of streams groups: it moves few tasks, and gives each member about the same number.

Works like Kafka's `StickyTaskAssignor`. Each member keeps active tasks up to its share. The other active tasks go to
members that have a standby copy, then to the members with the fewest tasks; Kafka looks for the least loaded process
first. A standby copy of a task with state goes to a process without the task, if possible to a process that had the
task before. With client tags, it goes to a process whose tags no other copy of the task has.

`StreamsAssignment` calls `assign_sticky` with the group's lock held. The function keeps no state.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from klamm_broker.groups.streams.tasks import Task, Tasks

NAME = "sticky"


class StreamsMemberSpec(NamedTuple):
    """A member: its process, its client tags, and its tasks in the assignment so far."""

    process_id: str
    tags: Mapping[str, str]
    assigned: Tasks


class StreamsSpec(NamedTuple):
    """The tasks to assign: the number of tasks of each subtopology, the stateful subtopologies, and the number of
    standby copies.

    `tags` are the keys of client tags: the copies of a task go to processes with different values of these tags.
    """

    members: Mapping[str, StreamsMemberSpec]
    tasks: Mapping[str, int]
    stateful: frozenset[str]
    num_standby_replicas: int = 0
    tags: Sequence[str] = ()


def assign_sticky(spec: StreamsSpec) -> dict[str, Tasks]:
    """Return the tasks of each member."""
    return _Assignment(spec).run() if spec.members else {}


class _Assignment:
    def __init__(self, spec: StreamsSpec) -> None:
        self._spec = spec
        self._active: dict[str, set[Task]] = {member_id: set() for member_id in sorted(spec.members)}
        self._standby: dict[str, set[Task]] = {member_id: set() for member_id in self._active}
        self._processes: dict[str, list[str]] = {}
        for member_id in self._active:
            self._processes.setdefault(spec.members[member_id].process_id, []).append(member_id)
        self._active_in = Counter[str]()
        # The processes that have each task; the process with the active task comes first.
        self._places: dict[Task, list[str]] = {}
        # The number of members that may still get one task more than the others.
        self._more = 0

    def run(self) -> dict[str, Tasks]:
        # Sorted by partition, so that a member that must give up tasks keeps some of every subtopology.
        spec = self._spec
        by_partition = sorted((index, name) for name, count in spec.tasks.items() for index in range(count))
        tasks = [(name, index) for index, name in by_partition]
        self._assign_active(tasks)
        if spec.num_standby_replicas:
            self._assign_standby([task for task in reversed(tasks) if task[0] in spec.stateful])
        return {
            member_id: Tasks(frozenset(active), frozenset(self._standby[member_id]))
            for member_id, active in self._active.items()
        }

    # Active tasks

    def _assign_active(self, tasks: Sequence[Task]) -> None:
        share, self._more = divmod(len(tasks), len(self._active))
        left: Sequence[Task] = tasks
        for roles in ((0,), (1, 2)):
            had = self._had(roles)
            left = [task for task in left if not self._keep(task, had.get(task, ()), share)]
        self._give_to_least_loaded(left)

    def _give_to_least_loaded(self, tasks: Iterable[Task]) -> None:
        """Give each task to the member with the fewest tasks. Among several such members, choose one whose process has
        the fewest tasks per member.
        """
        queues = self._queues()

        def least(process: str) -> tuple[int, float, str, str]:
            members = queues[process]
            return members[0][0], self._active_in[process] / len(members), members[0][1], process

        loads = [least(process) for process in queues]
        heapq.heapify(loads)
        # Sorted by subtopology, so that the tasks of each subtopology go to several members.
        for task in sorted(tasks):
            size, _, member_id, process = loads[0]
            self._activate(task, member_id)
            heapq.heapreplace(queues[process], (size + 1, member_id))
            heapq.heapreplace(loads, least(process))

    def _queues(self) -> dict[str, list[tuple[int, str]]]:
        """Return the members of each process in a heap, by their numbers of active tasks."""
        queues = {name: [(len(self._active[each]), each) for each in ids] for name, ids in self._processes.items()}
        for queue in queues.values():
            heapq.heapify(queue)
        return queues

    def _had(self, roles: Sequence[int]) -> Mapping[Task, Sequence[str]]:
        """Return for each task the members that had it in one of these roles."""
        had: dict[Task, list[str]] = {}
        for member_id in self._active:
            for role in roles:
                for task in self._spec.members[member_id].assigned[role]:
                    had.setdefault(task, []).append(member_id)
        return had

    def _keep(self, task: Task, member_ids: Sequence[str], share: int) -> bool:
        """Give a task to one of these members that has less than its share. Return True if there is such a member."""
        for member_id in member_ids:
            size = len(self._active[member_id])
            if size < share or (size == share and self._more):
                self._more -= size == share
                self._activate(task, member_id)
                return True
        return False

    def _activate(self, task: Task, member_id: str) -> None:
        process = self._spec.members[member_id].process_id
        self._active[member_id].add(task)
        self._active_in[process] += 1
        self._places[task] = [process]

    # Standby tasks

    def _assign_standby(self, tasks: Sequence[Task]) -> None:
        had: dict[Task, set[str]] = {}
        for member in self._spec.members.values():
            for task in (*member.assigned.active, *member.assigned.standby):
                had.setdefault(task, set()).add(member.process_id)
        copies = min(self._spec.num_standby_replicas, len(self._processes) - 1)
        total = len(tasks) * (copies + 1) + sum(self._spec.tasks.values()) - len(tasks)
        share = -(-total // len(self._active))
        queues, standby_in = self._queues(), Counter[str]()
        loads = {name: self._active_in[name] / len(ids) for name, ids in self._processes.items()}
        by_tags: dict[tuple[str | None, ...], list[tuple[float, str]]] = {}
        for load, process in sorted((load, process) for process, load in loads.items()):
            by_tags.setdefault(self._tags(process), []).append((load, process))
        for task in tasks:
            for _ in range(copies):
                process = self._process_for(task, had.get(task, set()), loads, share, by_tags.values())
                size, member_id = queues[process][0]
                heapq.heapreplace(queues[process], (size + 1, member_id))
                self._standby[member_id].add(task)
                self._places[task].append(process)
                standby_in[process] += 1
                loads[process] = (self._active_in[process] + standby_in[process]) / len(queues[process])
                heapq.heappush(by_tags[self._tags(process)], (loads[process], process))

    def _process_for(
        self,
        task: Task,
        had: Collection[str],
        loads: Mapping[str, float],
        share: int,
        queues: Iterable[list[tuple[float, str]]],
    ) -> str:
        places = self._places[task]
        least = (_least_loaded(queue, loads, places) for queue in queues)
        candidates = [process for process in (*had, *least) if process is not None and process not in places]

        def rank(process: str) -> tuple[int, bool, float, str]:
            load = loads[process]
            return self._shared_tags(process, places), process not in had or load >= share, load, process

        return min(candidates, key=rank)

    def _shared_tags(self, process: str, places: Sequence[str]) -> int:
        """Return the number of the process's tags that a process with a copy of the task has too. `places` are the
        processes with a copy.
        """
        taken = [self._tags(each) for each in places]
        return sum(any(tag == tags[index] for tags in taken) for index, tag in enumerate(self._tags(process)))

    def _tags(self, process: str) -> tuple[str | None, ...]:
        tags = self._spec.members[self._processes[process][0]].tags
        return tuple(tags.get(key) for key in self._spec.tags)


def _least_loaded(queue: list[tuple[float, str]], loads: Mapping[str, float], places: Sequence[str]) -> str | None:
    """Return the process with the lowest load that is not among the places. Drop queue entries with an outdated
    load.
    """
    passed = []
    found = None
    while queue and found is None:
        load, process = entry = heapq.heappop(queue)
        if loads[process] == load:
            passed.append(entry)
            found = None if process in places else process
    for entry in passed:
        heapq.heappush(queue, entry)
    return found
