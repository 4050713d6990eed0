"""Heartbeats and departures of members that speak the consumer protocol.

Follows the consumer part of Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from klamm import ErrorCode, KafkaError, clipped
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from klamm_broker.groups.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    ConsumerHeartbeatResult,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from klamm_broker.groups.consumer.subscriptions import (
    UNCHECKED,
    RegexRefresh,
    check_regex,
    refresh_metadata,
    require_topic_names,
    resolve_regexes,
)

if TYPE_CHECKING:
    from klamm_broker.groups.consumer.assignment import TargetAssignment
    from klamm_broker.groups.consumer.fencing import Fencing
    from klamm_broker.groups.consumer.migration import Migration
    from klamm_broker.groups.group_registry import GroupRegistry
    from klamm_broker.groups.group_settings import GroupSettings

log = logging.getLogger("klamm.broker.groups")

T = TypeVar("T")

NOT_WRITTEN = ErrorCode.NOT_COORDINATOR
"""The error when a change could not be written: the client finds the coordinator again and retries."""


class ConsumerCoordinator:
    """Coordinates the consumer groups. Its heartbeats may compute an assignment: not for a processor's thread."""

    def __init__(
        self,
        settings: GroupSettings,
        random_bytes: Callable[[int], bytes],
        registry: GroupRegistry,
        assignment: TargetAssignment,
        fencing: Fencing,
        migration: Migration,
    ) -> None:
        self._settings = settings
        self._random_bytes = random_bytes
        self._registry = registry
        self._assignment = assignment
        self._fencing = fencing
        self._migration = migration

    @property
    def rebalances(self) -> int:
        """Group epochs that were started, over all groups."""
        return self._assignment.rebalances

    def start(self, group: ConsumerGroup) -> None:
        """Start the timers of a loaded group's members."""
        with group:
            topics = self._assignment.topics
            resolve_regexes(group, topics, lambda _name: True, lambda: 0, RegexRefresh(1))
            group.regexes = {key: known._replace(generation=UNCHECKED) for key, known in group.regexes.items()}
            # The first heartbeat finds what has changed while the server was down.
            known = group.metadata_hash
            refresh_metadata(group, topics)
            group.metadata_hash, group.metadata_generation = known, -1
            for member in group.members.values():
                self._fencing.keep_alive(group, member)
                self._fencing.follow_state(group, member)

    def stop(self, group: ConsumerGroup) -> None:
        """End the timers."""
        with group:
            group.die()

    # Heartbeat

    def heartbeat(self, request: ConsumerHeartbeat, reply: ConsumerHeartbeatReply) -> None:
        """Join, stay in, or leave a group. `reply` is called at once, or when the change is durable."""
        try:
            self._validate(request)
            if not request.member_id:
                request = request._replace(member_id=_uuid(self._random_bytes(16)))
            group = self._group(request)
            with group:
                if group.is_dead:
                    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                if isinstance(group, ClassicGroup):
                    group = self._upgrade(group, request)
                assert isinstance(group, ConsumerGroup)
                if request.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                    result = self._leave(group, request)
                else:
                    result = self._beat(group, request)

                def answer(is_written: bool) -> None:
                    reply(result if is_written else ConsumerHeartbeatResult(NOT_WRITTEN))

                self._fencing.write(group, answer)
        except KafkaError as error:
            reply(ConsumerHeartbeatResult(ErrorCode(error.error_code), error.message))

    def _validate(self, request: ConsumerHeartbeat) -> None:
        for name, value in (
            ("GroupId", request.group_id),
            ("InstanceId", request.instance_id),
            ("RackId", request.rack_id),
        ):
            if value is not None and not value.strip():
                raise _invalid(f"{name} can't be empty.")
        if request.epoch < STATIC_LEAVE_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        if (request.epoch != JOIN_EPOCH or not request.generates_member_id) and not request.member_id.strip():
            raise _invalid("MemberId can't be empty.")
        if request.epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
        if request.epoch == JOIN_EPOCH:
            if request.rebalance_timeout_ms == -1:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if request.owned is None or request.owned:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if request.topics is None and request.regex is None:
                raise _invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        if request.assignor is not None and request.assignor not in self._settings.group_consumer_assignors:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {clipped(request.assignor)} is not supported."
                f" Supported assignors: {', '.join(self._settings.group_consumer_assignors)}.",
            )
        require_topic_names(request.topics)
        if request.regex and request.epoch == JOIN_EPOCH:
            # Before a group is made for it.
            check_regex(request.regex)

    def _group(self, request: ConsumerHeartbeat) -> ConsumerGroup | ClassicGroup:
        if request.epoch == JOIN_EPOCH:

            def admit(new: ConsumerGroup) -> None:
                first = _updated(ConsumerMember(member_id=request.member_id, owner=request.owner), request)
                new.put_within(first, self._settings.group_max_bytes, keep=False)

            group = self._registry.get_or_create_consumer(request.group_id, request.owner, admit)
        else:
            found = self._registry.get(request.group_id)
            if found is None:
                kind = "Group" if request.epoch < JOIN_EPOCH else "Consumer group"
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {request.group_id} not found.")
            group = found
        if not isinstance(group, ConsumerGroup | ClassicGroup):
            raise _no_consumer_group(request.group_id)
        return group

    def _upgrade(self, group: ClassicGroup, request: ConsumerHeartbeat) -> ConsumerGroup:
        if request.epoch != JOIN_EPOCH:
            raise _no_consumer_group(request.group_id)
        upgraded = self._migration.upgrade(group)
        for member in upgraded.members.values():
            self._fencing.keep_alive(upgraded, member)
        return upgraded

    def _beat(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        limit = self._settings.group_consumer_max_size
        if len(group.members) >= limit and request.member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )
        before = self._member(group, request)
        if request.regex:
            check_regex(request.regex)
        updated = _updated(before, request)
        group.put_within(updated, self._settings.group_max_bytes)
        # Its classic session and requests are over.
        if before.classic is not None:
            self._fencing.cancel_all(group, updated.member_id)
        self._fencing.keep_alive(group, updated)
        changed = (updated.topics, updated.regex) != (before.topics, before.regex)
        try:
            self._assignment.update(group, request.may_describe, subscription_changed=changed)
            reconciled = self._assignment.reconcile(group, updated, request.owned)
        finally:
            if group.changes:
                group.refresh_state()
        if reconciled != updated:
            self._fencing.follow_state(group, reconciled)
        updated = reconciled
        return ConsumerHeartbeatResult(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self._fencing.timeouts.heartbeat_interval_ms(group.group_id),
            assignment=updated.assigned if request.is_full or updated.assigned != before.assigned else None,
        )

    def _member(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
        """The member that sends the heartbeat, new if it joins. Raises KafkaError."""
        member_id = request.member_id
        if request.epoch != JOIN_EPOCH:
            member = group.member(member_id, request.instance_id)
            _check_epoch(member, request.epoch, request.owned)
            return member
        if request.instance_id is not None and request.instance_id in group.static_members:
            return self._replace_static(group, group.static_members[request.instance_id], member_id)
        known = group.members.get(member_id)
        if known is not None:
            # It joins again without partitions; its former epoch does not matter.
            return known
        log.info("group %s: member %s joins with the consumer protocol", group.log_name, clipped(member_id))
        return ConsumerMember(member_id=member_id, owner=request.owner)

    def _replace_static(self, group: ConsumerGroup, old_id: str, member_id: str) -> ConsumerMember:
        old = group.members[old_id]
        if not old.is_away and old.classic is None:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {old.instance_id} cannot join the group because the"
                f" instance id is owned by {old_id} member.",
            )
        log.info("group %s: %s replaces %s", group.log_name, clipped(member_id), clipped(old_id))
        return replace_member(group, self._fencing, old, member_id)

    # Leave

    def _leave(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        member = group.member(request.member_id, request.instance_id)
        if request.epoch == STATIC_LEAVE_EPOCH:
            log.info("group %s: static member %s leaves temporarily", group.log_name, clipped(member.member_id))
            # Its session timer keeps running: if it is not back in time, its partitions are assigned to others.
            group.put(replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation=NO_PARTITIONS))
            group.refresh_state()
        else:
            log.info("group %s: member %s leaves", group.log_name, clipped(member.member_id))
            self._fencing.remove(group, (member.member_id,))
        return ConsumerHeartbeatResult(member_id=request.member_id, epoch=request.epoch)

    # Describe

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """The group for an administrator. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        group = self._registry.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise _no_consumer_group(group_id)
        with group:
            return DescribedConsumerGroup(
                group_id,
                group.state_name,
                group.epoch,
                group.assignment_epoch,
                group.preferred_assignor or self._settings.group_consumer_assignors[0],
                _described_members(group),
            )


def replace_member(group: ConsumerGroup, fencing: Fencing, old: ConsumerMember, member_id: str) -> ConsumerMember:
    """Give a static member another member id, with its assignment and at epoch 0; it is in the group then."""
    target = group.target_of(old.member_id)
    fencing.cancel_all(group, old.member_id)
    group.remove(old.member_id)
    new = replace(old, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    group.put(new)
    group.set_target(member_id, target)
    return new


def _check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Raise KafkaError(FENCED_MEMBER_EPOCH) for an epoch that is not the member's.

    The previous epoch is accepted from a member that owns only assigned partitions: the response may have been lost.
    """
    if epoch == member.epoch:
        return
    is_subset = owned is not None and all(
        indexes <= member.assigned.get(topic, frozenset()) for topic, indexes in owned.items()
    )
    if epoch < member.epoch and epoch == member.previous_epoch and is_subset:
        return
    size = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _described_members(group: ConsumerGroup) -> Sequence[DescribedConsumer]:
    return [
        DescribedConsumer(
            member.member_id,
            member.instance_id,
            member.rack_id,
            member.epoch,
            member.client_id,
            member.client_host,
            sorted(member.topics),
            member.regex,
            _united(member.assigned, member.pending_revocation),
            group.target_of(member.member_id),
            member.classic is not None,
        )
        for member in group.members.values()
    ]


def _united(assigned: Partitions, pending_revocation: Partitions) -> Partitions:
    """Return all that a member may still read: what it is to revoke is its own until it has done so."""
    none: frozenset[int] = frozenset()
    return {
        topic: assigned.get(topic, none) | pending_revocation.get(topic, none)
        for topic in (*assigned, *(pending_revocation.keys() - assigned.keys()))
    }


def _updated(before: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """Return the member with what its heartbeat says."""
    return replace(
        before,
        instance_id=_or(request.instance_id, before.instance_id),
        rack_id=_or(request.rack_id, before.rack_id),
        rebalance_timeout_ms=before.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        assignor=_or(request.assignor, before.assignor),
        topics=before.topics if request.topics is None else frozenset(request.topics),
        regex=before.regex if request.regex is None else request.regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _or(sent: T | None, known: T) -> T:
    return known if sent is None else sent


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _no_consumer_group(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def _uuid(random: bytes) -> str:
    """16 random bytes as Kafka writes a `Uuid`."""
    import base64

    return base64.urlsafe_b64encode(random).decode().rstrip("=")
