"""A streams group: its members, epochs, topology, target assignment and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError
from klamm_broker.groups.group import Group
from klamm_broker.groups.member import charge_bytes
from klamm_broker.groups.streams.configuration import Configuration
from klamm_broker.groups.streams.members import StreamsMembers
from klamm_broker.groups.streams.state import NEXT_STATES, StreamsGroupState
from klamm_broker.limits.ledger import UNKNOWN_OWNER

if TYPE_CHECKING:
    from klamm_broker.groups.streams.member import StreamsMember
    from klamm_broker.groups.streams.topology import Topology


class StreamsGroup(StreamsMembers):
    """State of one streams group, as Kafka's `StreamsGroup`.

        EMPTY ──► NOT_READY ◄──► ASSIGNING ──► RECONCILING ──► STABLE
        Each state with members may also change to any other of them, to EMPTY when the last member leaves, and to DEAD.

    NOT_READY while topics are missing or do not fit; ASSIGNING while the group's epoch is beyond that of the target;
    RECONCILING while a member is not at its target.

    `assigned_at_ns`    when `target` was computed, monotonic.
    `topology`          sent by the first member; counts towards the share of `topology_owner`. `configuration` is the
                        topology applied to the topics that exist now.
    `input_topics`      topics that its tasks read; `source_of` maps a topic id to the subtopology that reads the topic.
    `validated_epoch`   the topology's epoch once all its topics exist, else -1.
    `has_new_topics`    True if topics have changed since `metadata_hash` was computed.
    `configs`           the group configs with which the last epoch was started.
    `shutdown_member`   the member that asked to shut the application down.
    `endpoint_epoch`    increases whenever `endpoints` change. `offsets_of` has the changelog offsets that members
                        report.
    """

    group_type = protocol = "streams"
    next_states, empty, dead = NEXT_STATES, StreamsGroupState.EMPTY, StreamsGroupState.DEAD

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
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
        """Store the topology of the first member; it counts towards the share of an owner."""
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

    # State

    def present_state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.validated_epoch != self.topology.epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        return StreamsGroupState.STABLE if self.is_reconciled else StreamsGroupState.RECONCILING

    def refresh_state(self) -> None:
        super().refresh_state()
        if not self.members:
            self.shutdown_member = None

    # Common to all types of groups

    def require_classic_protocol(self, member_id: str) -> None:
        """Raise KafkaError(UNSUPPORTED_VERSION) for a member: it needs OffsetCommit v9."""
        if member_id in self.members:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def assigned_since(self, member: StreamsMember, topic_id: bytes, partition: int) -> int | None:
        subtopology_id = self.source_of.get(topic_id)
        if subtopology_id is None or (subtopology_id, partition) not in member.held.active:
            return None
        return member.assignment_epochs.get((subtopology_id, partition), member.epoch)

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and topic in self.input_topics
