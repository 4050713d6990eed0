"""A classic group: its members, its state, and its views for members and administrators."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm import ErrorCode, KafkaError
from klamm.runtime import Clock
from klamm_broker.groups import consumer_protocol
from klamm_broker.groups.classic_membership import ClassicMembership
from klamm_broker.groups.expiration import ExpirationTimer
from klamm_broker.groups.group import CommittedOffset, CommittedPartitions, Group
from klamm_broker.groups.requests import DescribedGroup, DescribedMember, JoinedMember, JoinResult, Protocol
from klamm_broker.groups.state import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    NEXT_STATES,
    PREPARING_REBALANCE,
    STABLE,
    GroupState,
    IllegalTransitionError,
)

log = logging.getLogger("klamm.broker.groups")


class ClassicGroup(ClassicMembership):
    """State of one classic group, as Kafka's `ClassicGroup`. The caller holds the group's lock.

        EMPTY ──► PREPARING_REBALANCE ──► COMPLETING_REBALANCE ──► STABLE
          ▲        │  ▲   ▲                  │                       │
          └────────┘  │   └──────────────────┘                       │
                      └──────────────────────────────────────────────┘
        and from each of them to DEAD, which is final.

    `previous_state`        the state before the last transition; EMPTY during an initial rebalance.
    `storing_generation_id` the generation whose assignments the store has not confirmed yet; -1 if there is none.
    `subscribed_topics`     the topics of all members, or None if they are unknown.
    """

    group_type = "classic"

    def __init__(self, group_id: str, clock: Clock, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.state: GroupState = EMPTY
        self.previous_state: GroupState = DEAD
        self.state_timestamp_ms = clock.wall_ms()
        self.generation_id = 0
        self.protocol_name: str | None = None
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        self.join_timer: ExpirationTimer | None = None
        self.sync_timer: ExpirationTimer | None = None
        self.storing_generation_id = -1
        self._clock = clock

    # State

    def transition_to(self, state: GroupState) -> None:
        """Change the state. Raises IllegalTransitionError for a transition that is not in `NEXT_STATES`."""
        if state not in NEXT_STATES[self.state]:
            raise IllegalTransitionError(self.group_id, self.state, state)
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = self._clock.wall_ms()

    def init_next_generation(self) -> None:
        """End the join phase: start the next generation, choose its protocol, and go to COMPLETING_REBALANCE or
        EMPTY.
        """
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.refresh_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY)
        self.pending_syncs.clear()

    def restore(self, protocol_type: str | None, protocol_name: str | None, generation_id: int) -> None:
        """Restore the stored state."""
        self._protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.generation_id = generation_id

    @property
    def uses_consumer_protocol(self) -> bool:
        """Return True if the group's members are consumers."""
        return self.protocol_type == consumer_protocol.PROTOCOL_TYPE

    # Protocols

    def supports_protocols(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Return True if a member with these protocols could join."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        everyone = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._supported_protocols[name] == everyone for name, _ in protocols
        )

    def refresh_subscribed_topics(self) -> None:
        """Recompute the topics to which the members subscribe."""
        self.subscribed_topics = self._subscribed_topics()

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return frozenset().union(
                *(
                    consumer_protocol.subscribed_topics(member.metadata(self.protocol_name))
                    for member in self.members.values()
                )
            )
        except ValueError as error:
            log.warning("group %s: cannot read a member's subscription: %s", self.log_name, error)
            return None

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if a member may read the topic. If the subscriptions are unknown, return True for consumers."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    # The interface of all kinds of groups

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_dead(self) -> bool:
        return self.state is DEAD

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    def die(self) -> None:
        self.transition_to(DEAD)
        self.close_members_account()

    def validate_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, partitions: CommittedPartitions
    ) -> None:
        if self.state is DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and self.state is EMPTY:
            return
        if generation_id < 0 and not member_id and group_instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.validate_member(member_id, group_instance_id)
        if generation_id != self.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if self.state is COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def validate_transactional_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, partitions: CommittedPartitions
    ) -> None:
        """Check the member in any state, as Kafka does. Before TxnOffsetCommit v3, clients name no member and no
        generation.
        """
        if self.state is DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and (self.state is EMPTY or (not member_id and group_instance_id is None)):
            return
        self.validate_member(member_id, group_instance_id)
        if generation_id != self.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Allow any member to fetch, as in Kafka."""

    def validate_offset_delete(self) -> None:
        if self.state is not EMPTY and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def retained_since_ms(self, committed: CommittedOffset) -> int | None:
        if self.protocol_type is None:
            return committed.commit_timestamp_ms
        if self.state is EMPTY:
            return self.state_timestamp_ms
        if self.uses_consumer_protocol and self.state is STABLE and self.subscribed_topics is not None:
            return committed.commit_timestamp_ms
        return None


def join_result(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinResult:
    """Return the answer to a join in the current generation. Only the leader gets the list of members."""
    members: Sequence[JoinedMember] = ()
    if member_id == group.leader_id:
        members = joined_members(group)
    return JoinResult(
        member_id=member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id or "",
        skip_assignment=skip_assignment,
        members=members,
    )


def joined_members(group: ClassicGroup) -> list[JoinedMember]:
    """Return all members with their metadata for the chosen protocol. Raises RuntimeError while there is no
    protocol.
    """
    if group.protocol_name is None or group.state in (PREPARING_REBALANCE, DEAD):
        raise RuntimeError(f"group {group.group_id!r} has no agreed protocol while it is {group.state.value}")
    return [
        JoinedMember(member.member_id, member.group_instance_id, member.metadata(group.protocol_name))
        for member in group.members.values()
    ]


def describe(group: ClassicGroup) -> DescribedGroup:
    """Return the description of the group for an administrator."""
    protocol_name = group.protocol_name if group.state is STABLE and group.protocol_name is not None else None
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=protocol_name or "",
        members=[
            DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol_name) if protocol_name is not None else b"",
                member.assignment,
            )
            for member in group.members.values()
        ],
    )
