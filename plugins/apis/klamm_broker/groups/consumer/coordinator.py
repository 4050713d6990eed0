"""Heartbeats and departures of members that speak the consumer protocol.

Follows the consumer part of Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from klamm import ErrorCode, KafkaError, clipped
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.group_config_keys import CONSUMER_HEARTBEAT_INTERVAL
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer.assignment import TargetAssignment
from klamm_broker.groups.consumer.fencing import Fencing
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from klamm_broker.groups.consumer.migration import Migration
from klamm_broker.groups.consumer.subscriptions import (
    UNCHECKED,
    RegexRefresh,
    check_regex,
    refresh_metadata,
    require_topic_names,
    resolve_regexes,
)
from klamm_broker.groups.epoch_coordinator import DescribedEpochGroup, EpochCoordinator, described, invalid
from klamm_broker.groups.epoch_group import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from klamm_broker.groups.group import Group
from klamm_broker.groups.group_registry import GroupRegistry
from klamm_broker.groups.requests import ConsumerHeartbeat, EpochHeartbeatResult
from klamm_broker.groups.targeted_members import in_place_of

log = logging.getLogger("klamm.broker.groups")

T = TypeVar("T")


class ConsumerCoordinator(EpochCoordinator[ConsumerGroup, ConsumerHeartbeat, EpochHeartbeatResult]):
    """The coordinator of consumer groups. Threads and locks are those of `EpochCoordinator`."""

    group_class = ConsumerGroup

    def __init__(
        self,
        settings: BrokerSettings,
        random_bytes: Callable[[int], bytes],
        registry: GroupRegistry,
        assignment: TargetAssignment,
        fencing: Fencing,
        migration: Migration,
    ) -> None:
        super().__init__(settings, registry, fencing)
        self._random_bytes = random_bytes
        self._assignment = assignment
        self._fencing = fencing
        self._migration = migration

    @property
    def rebalances(self) -> int:
        """Return the number of group epochs that were started in all groups together."""
        return self._assignment.rebalances

    def start(self, group: ConsumerGroup) -> None:
        with group:
            topics = self._assignment.topics
            resolve_regexes(group, topics, lambda _name: True, lambda: 0, RegexRefresh(1))
            group.regexes = {key: known._replace(generation=UNCHECKED) for key, known in group.regexes.items()}
            # The stored hash stays, so that the first heartbeat notices topics that changed while the server was down.
            known = group.metadata_hash
            refresh_metadata(group, topics)
            group.metadata_hash, group.metadata_generation = known, -1
            for member in group.members.values():
                self._fencing.keep_alive(group, member)
                self._fencing.follow_state(group, member)

    # Heartbeat

    def _failed(self, code: ErrorCode, message: str | None) -> EpochHeartbeatResult:
        return EpochHeartbeatResult(code, message)

    def _checked(self, request: ConsumerHeartbeat) -> ConsumerHeartbeat:
        self._validate(request)
        return request if request.member_id else request._replace(member_id=_uuid(self._random_bytes(16)))

    def _validate(self, request: ConsumerHeartbeat) -> None:
        for name, value in (
            ("GroupId", request.group_id),
            ("InstanceId", request.instance_id),
            ("RackId", request.rack_id),
        ):
            if value is not None and not value.strip():
                raise invalid(f"{name} can't be empty.")
        if request.epoch < STATIC_LEAVE_EPOCH:
            raise invalid("MemberEpoch is invalid.")
        if (request.epoch != JOIN_EPOCH or not request.generates_member_id) and not request.member_id.strip():
            raise invalid("MemberId can't be empty.")
        if request.epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
            raise invalid("InstanceId can't be null.")
        if request.epoch == JOIN_EPOCH:
            if request.rebalance_timeout_ms == -1:
                raise invalid("RebalanceTimeoutMs must be provided in first request.")
            if request.owned is None or request.owned:
                raise invalid("TopicPartitions must be empty when (re-)joining.")
            if request.topics is None and request.regex is None:
                raise invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
        if request.assignor is not None and request.assignor not in self._settings.group_consumer_assignors:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {clipped(request.assignor)} is not supported."
                f" Supported assignors: {', '.join(self._settings.group_consumer_assignors)}.",
            )
        require_topic_names(request.topics)
        if request.regex and request.epoch == JOIN_EPOCH:
            # Checked before a group is created.
            check_regex(request.regex)

    def _admit(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> None:
        first = _updated(ConsumerMember(member_id=request.member_id, owner=request.owner), request)
        group.put_within(first, self._settings.group_max_bytes, keep=False)

    def _taken_over(self, group: Group, request: ConsumerHeartbeat) -> ConsumerGroup:
        if not isinstance(group, ClassicGroup) or request.epoch != JOIN_EPOCH:
            raise self._other_type(request.group_id)
        upgraded = self._migration.upgrade(group)
        for member in upgraded.members.values():
            self._fencing.keep_alive(upgraded, member)
        return upgraded

    def _beat(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> EpochHeartbeatResult:
        group.check_size(request.member_id, self._settings.group_consumer_max_size)
        size = len(group.members)
        before, replaced = self._member(group, request)
        if request.regex:
            check_regex(request.regex)
        updated = _updated(before, request)
        group.put_within(updated, self._settings.group_max_bytes, replaced=replaced)
        if replaced is not None:
            self._fencing.cancel_all(group, replaced.member_id)
        # The member has left the classic protocol: cancel its classic timers.
        if before.classic is not None:
            self._fencing.cancel_all(group, updated.member_id)
        self._fencing.keep_alive(group, updated)
        # A member of the group that takes a static member's place gives up its former partitions, and the group has one
        # member less.
        has_moved = replaced is not None and len(group.members) != size
        changed = has_moved or (updated.topics, updated.regex) != (before.topics, before.regex)
        try:
            self._assignment.update(group, request.may_describe, subscription_changed=changed)
            reconciled = self._assignment.reconcile(group, updated, request.owned)
        finally:
            if group.changes:
                group.refresh_state()
        if reconciled != updated:
            self._fencing.follow_state(group, reconciled)
        updated = reconciled
        return EpochHeartbeatResult(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self._fencing.configs.number(group.group_id, CONSUMER_HEARTBEAT_INTERVAL),
            assignment=updated.assigned if request.is_full or updated.assigned != before.assigned else None,
        )

    def _member(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Return the member that sends the heartbeat, created if it joins, and the member that it replaces. Raises
        KafkaError.
        """
        member_id = request.member_id
        if request.epoch != JOIN_EPOCH:
            member = group.member(member_id, request.instance_id)
            group.check_epoch(member, request.epoch, has_only_assigned=_is_within(request.owned, member.assigned))
            return member, None
        if request.instance_id is not None and request.instance_id in group.static_members:
            old = group.members[group.static_members[request.instance_id]]
            if not old.is_away and old.classic is None:
                raise group.unreleased(old, member_id)
            log.info("group %s: %s replaces %s", group.log_name, clipped(member_id), clipped(old.member_id))
            return in_place_of(old, member_id), old
        known = group.members.get(member_id)
        if known is not None:
            # The member joins again without partitions, so its former epoch does not matter.
            return known, None
        log.info("group %s: member %s joins with the consumer protocol", group.log_name, clipped(member_id))
        return ConsumerMember(member_id=member_id, owner=request.owner), None

    # Leave

    def _leave(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> EpochHeartbeatResult:
        member = group.member(request.member_id, request.instance_id)
        if request.epoch == STATIC_LEAVE_EPOCH:
            log.info("group %s: static member %s leaves temporarily", group.log_name, clipped(member.member_id))
            # Its session timer keeps running: if the member is not back in time, its partitions are assigned to others.
            group.put(replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation=NO_PARTITIONS))
            group.refresh_state()
        else:
            log.info("group %s: member %s leaves", group.log_name, clipped(member.member_id))
            self._fencing.remove(group, (member.member_id,))
        return EpochHeartbeatResult(member_id=request.member_id, epoch=request.epoch)

    # Describe

    def describe(self, group_id: str) -> DescribedEpochGroup[ConsumerMember, Partitions]:
        """Return the description of a group. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        group = self.get(group_id)
        with group:
            assignor = group.preferred_assignor or self._settings.group_consumer_assignors[0]
            return described(group, assignor, group.target)


def _is_within(owned: Partitions | None, assigned: Partitions) -> bool:
    none: frozenset[int] = frozenset()
    return owned is not None and all(indexes <= assigned.get(topic, none) for topic, indexes in owned.items())


def _updated(before: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """Return the member with the changes from its heartbeat."""
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


def _uuid(random: bytes) -> str:
    """Return 16 random bytes in Kafka's notation of a `Uuid`."""
    import base64

    return base64.urlsafe_b64encode(random).decode().rstrip("=")
