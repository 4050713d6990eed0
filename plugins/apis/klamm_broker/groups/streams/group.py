"""A streams group: its members, epochs, topology, target assignment and state."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm_broker.groups.group import Group
from klamm_broker.groups.member import charge_bytes
from klamm_broker.groups.streams.configuration import Configuration
from klamm_broker.groups.streams.member import StreamsMember
from klamm_broker.groups.streams.reconciliation import FreeRoles
from klamm_broker.groups.streams.tasks import NONE, Task, Tasks
from klamm_broker.groups.streams.topology import Topology
from klamm_broker.groups.targeted_members import TargetedMembers
from klamm_broker.limits.ledger import UNKNOWN_OWNER


class StreamsGroupState(enum.Enum):
    """State of a streams group; the value is the name that clients see."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY, _NOT_READY, _ASSIGNING, _RECONCILING, _STABLE, _DEAD = StreamsGroupState


class TaskOffsets(NamedTuple):
    """The changelog offsets of a member's tasks, and the end offsets of these changelogs, as the member reports
    them.
    """

    offsets: Mapping[Task, int]
    end_offsets: Mapping[Task, int]


NO_OFFSETS: Final = TaskOffsets({}, {})


class StreamsGroup(TargetedMembers[StreamsMember, Tasks]):
    """State of one streams group, as Kafka's `StreamsGroup`. The caller holds the group's lock.

        EMPTY ──► NOT_READY ◄──► ASSIGNING ──► RECONCILING ──► STABLE
        A state with members may change to any other such state, to EMPTY when the last member leaves, and to DEAD.

    NOT_READY while topics are missing or do not fit; ASSIGNING while the group's epoch is higher than that of the
    target; RECONCILING while a member has not reached its target.

    `assigned_at_ns`    the monotonic time at which `target` was computed.
    `topology`          the topology of the first member; it counts towards the share of `topology_owner`.
                        `configuration` is the topology applied to the topics that exist now.
    `input_topics`      topics that the tasks read; `source_of` maps a topic id to the subtopology that reads the topic.
    `validated_epoch`   the topology's epoch once all its topics exist, else -1.
    `has_new_topics`    True if topics have changed since `metadata_hash` was computed.
    `configs`           the group configs with which the last epoch was started.
    `shutdown_member`   the member that requested a shutdown of the application.
    `endpoint_epoch`    increases whenever `endpoints` change. `offsets_of` has the changelog offsets that members
                        report.
    """

    group_type = protocol = "streams"
    empty, dead = _EMPTY, _DEAD
    counted_names = "names"
    no_target = NONE

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.offsets_of: dict[str, TaskOffsets] = {}
        # The members that have each task, by role: active task, standby copy, warm-up copy.
        self._holders: tuple[dict[Task, set[str]], dict[Task, set[str]], dict[Task, set[str]]] = ({}, {}, {})
        self.assignment_epoch = 1
        self.assigned_at_ns: int | None = None
        self.topology: Topology | None = None
        self.topology_owner = UNKNOWN_OWNER
        self.configuration = Configuration()
        self.validated_epoch = -1
        self.has_new_topics = False
        self.configs: Mapping[str, str] | None = None
        self.shutdown_member: str | None = None
        self.endpoint_epoch = 0
        self.input_topics: frozenset[str] = frozenset()
        self.source_of: Mapping[bytes, str] = {}

    def initialize(self, topology: Topology, owner: str) -> None:
        """Store the topology of the first member. It counts towards the share of `owner`."""
        self.topology, self.topology_owner = topology, owner
        self.input_topics = topology.input_topics
        self.count_members(owner, charge_bytes(topology.size_bytes, topology.names))
        self.changes.group = self.changes.topology = True

    def initialize_within(self, topology: Topology, owner: str, max_bytes: int, *, keep: bool = True) -> None:
        """Store the first topology, or only check that there is room.

        Raises KafkaError(GROUP_MAX_SIZE_REACHED) if the topology is larger than the remaining room.
        """
        if topology.size_bytes > max_bytes:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The group's topology may have at most {max_bytes} bytes (group.max.bytes).",
            )
        charge = charge_bytes(topology.size_bytes, topology.names)
        with self.room_for(owner, charge, in_use=False) as has_room:
            if not has_room:
                raise self.book.ledgers.members.refusal()
            if keep:
                self.initialize(topology, owner)

    # Members and their tasks

    def index(self, member: StreamsMember) -> None:
        super().index(member)
        for holders, tasks in zip(self._holders, member.held, strict=True):
            for task in tasks:
                holders.setdefault(task, set()).add(member.member_id)

    def remove(self, member_id: str) -> None:
        super().remove(member_id)
        self.offsets_of.pop(member_id, None)

    def unindex(self, member: StreamsMember) -> None:
        super().unindex(member)
        for holders, tasks in zip(self._holders, member.held, strict=True):
            for task in tasks:
                holders[task].discard(member.member_id)
                if not holders[task]:
                    del holders[task]

    def grows_by_bytes(self, member: StreamsMember, known: StreamsMember) -> int:
        """Return the number of bytes by which the member's names grow."""
        return member.size_bytes - known.size_bytes

    def free_for(self, member: StreamsMember) -> FreeRoles:
        """Return three functions, one for each role, that return True if the member may take a task in this role.

        A task is active on one member only. A process has one directory for the state of a task, so no two of its
        members can have the same task, not even in different roles.
        """

        def is_elsewhere(holders: Mapping[Task, set[str]], task: Task, *, in_process: bool) -> bool:
            return any(
                other != member.member_id and (not in_process or self.members[other].process_id == member.process_id)
                for other in holders.get(task, ())
            )

        active, *copies = self._holders

        def as_active(task: Task) -> bool:
            has_copy = any(is_elsewhere(holders, task, in_process=True) for holders in copies)
            return not has_copy and not is_elsewhere(active, task, in_process=False)

        def as_copy(task: Task) -> bool:
            return not any(is_elsewhere(holders, task, in_process=True) for holders in self._holders)

        return as_active, as_copy, as_copy

    def report_offsets(
        self, member: StreamsMember, offsets: Mapping[Task, int] | None, end_offsets: Mapping[Task, int] | None
    ) -> None:
        """Store the changelog offsets that a member reports for its tasks; None means unchanged."""
        known = self.offsets_of.get(member.member_id, NO_OFFSETS)
        mine = frozenset().union(*member.held)

        def of_its_tasks(reported: Mapping[Task, int] | None, known: Mapping[Task, int]) -> Mapping[Task, int]:
            return known if reported is None else {task: reported[task] for task in mine & reported.keys()}

        self.offsets_of[member.member_id] = TaskOffsets(
            of_its_tasks(offsets, known.offsets), of_its_tasks(end_offsets, known.end_offsets)
        )

    # State

    def present_state(self) -> StreamsGroupState:
        if not self.members:
            return _EMPTY
        if self.topology is None or self.validated_epoch != self.topology.epoch:
            return _NOT_READY
        if self.epoch > self.assignment_epoch:
            return _ASSIGNING
        return _STABLE if self.is_reconciled else _RECONCILING

    def refresh_state(self) -> None:
        super().refresh_state()
        if not self.members:
            self.shutdown_member = None

    # Common to all types of groups

    def require_classic_protocol(self, member_id: str) -> None:
        """Raise KafkaError(UNSUPPORTED_VERSION) for a member, because members need OffsetCommit v9."""
        if member_id in self.members:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def assigned_since(self, member: StreamsMember, topic_id: bytes, partition: int) -> int | None:
        subtopology_id = self.source_of.get(topic_id)
        if subtopology_id is None or (subtopology_id, partition) not in member.held.active:
            return None
        return member.assignment_epochs.get((subtopology_id, partition), member.epoch)

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and topic in self.input_topics
