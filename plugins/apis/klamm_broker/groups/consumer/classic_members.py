"""Members of a consumer group that still speak the classic protocol: their joins, syncs, heartbeats and departures.

Follows `classicGroup…ToConsumerGroup` of Kafka's `GroupMetadataManager`. The server assigns partitions to these members
too. There is no leader. A member's generation is its member epoch, and the member rejoins for each step of its
reconciliation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError, clipped
from klamm_broker.groups import consumer_protocol
from klamm_broker.groups.consumer.fencing import JOIN, SYNC
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.consumer.member import ClassicProtocol, ConsumerMember
from klamm_broker.groups.epoch_coordinator import NOT_WRITTEN
from klamm_broker.groups.requests import (
    JoinReply,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from klamm_broker.groups.targeted_members import MemberState, in_place_of

if TYPE_CHECKING:
    from klamm.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
    from klamm_broker.broker_settings import BrokerSettings
    from klamm_broker.groups.consumer.assignment import TargetAssignment
    from klamm_broker.groups.consumer.fencing import Fencing
    from klamm_broker.groups.consumer.migration import Migration

log = logging.getLogger("klamm.broker.groups")


class ClassicMembers:
    """The service for classic members of consumer groups. `join` runs on a thread for long work, because it may compute
    an assignment; see `GroupCoordinator` for the other methods.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        random_bytes: Callable[[int], bytes],
        assignment: TargetAssignment,
        fencing: Fencing,
        migration: Migration,
    ) -> None:
        self._settings = settings
        self._random_bytes = random_bytes
        self._assignment = assignment
        self._fencing = fencing
        self._migration = migration

    # Join

    def join(self, group: ConsumerGroup, request: JoinRequest, reply: JoinReply) -> None:
        """Join a consumer group that has members. `reply` is called when the member is durable."""
        with group:
            try:
                result = self._join_held(group, request)
            except KafkaError as error:
                group.answer(reply, JoinResult(ErrorCode(error.error_code)))
                return
            failed = JoinResult(NOT_WRITTEN, request.member_id)
            self._fencing.write(group, lambda is_written: reply(result if is_written else failed))

    def _join_held(self, group: ConsumerGroup, request: JoinRequest) -> JoinResult:
        if group.is_dead:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if len(group.members) >= self._settings.group_consumer_max_size and request.member_id not in group.members:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        names = [name for name, _ in request.protocols]
        if not group.supports_classic_protocols(request.protocol_type, names):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member_id = request.member_id or self._new_member_id(request)
        if not request.member_id and request.group_instance_id is None and request.requires_known_member_id:
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        try:
            subscription = consumer_protocol.read_subscription(request.protocols[0][1])
        except ValueError as error:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
        replaced, member = self._member(group, request, member_id)
        updated = self._updated(group, replaced, member, request, subscription)
        result = JoinResult(
            member_id=updated.member_id,
            generation_id=updated.epoch,
            protocol_type=consumer_protocol.PROTOCOL_TYPE,
            protocol_name=names[0],
        )
        if replaced is not None and replaced.classic is None and self._migration.is_downgrade(group):
            classic = self._migration.downgrade(group)
            return result._replace(generation_id=classic.generation_id)
        self._fencing.cancel(group, JOIN, updated.member_id)
        self._fencing.keep_alive(group, updated)
        self._fencing.await_sync(group, updated)
        return result

    def _new_member_id(self, request: JoinRequest) -> str:
        prefix = request.client_id if request.group_instance_id is None else request.group_instance_id
        return f"{prefix}-{self._random_bytes(16).hex()}"

    def _member(
        self, group: ConsumerGroup, request: JoinRequest, member_id: str
    ) -> tuple[ConsumerMember | None, ConsumerMember]:
        """Return the static member to be replaced (or None), and the joining member."""
        instance_id = request.group_instance_id
        if instance_id is None:
            return None, group.members.get(member_id) or ConsumerMember(member_id=member_id, owner=request.owner)
        if request.member_id:
            return None, group.member(member_id, instance_id)
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            return None, ConsumerMember(member_id=member_id, instance_id=instance_id, owner=request.owner)
        old = group.members[old_id]
        log.info("group %s: %s replaces %s", group.log_name, clipped(member_id), clipped(old_id))
        return old, in_place_of(old, member_id)

    def _updated(
        self,
        group: ConsumerGroup,
        replaced: ConsumerMember | None,
        member: ConsumerMember,
        request: JoinRequest,
        subscription: ConsumerProtocolSubscription,
    ) -> ConsumerMember:
        updated = replace(
            member,
            rack_id=subscription.rack_id if subscription.rack_id is not None else member.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            regex="",
            assignor=None if member.classic is not None else member.assignor,
            client_id=request.client_id,
            client_host=request.client_host,
            classic=ClassicProtocol(request.session_timeout_ms, request.protocols),
        )
        group.put_within(updated, self._settings.group_max_bytes, replaced=replaced)
        if replaced is not None:
            self._fencing.cancel_all(group, replaced.member_id)
        changed = (updated.topics, updated.regex) != (member.topics, member.regex)
        owned = self._migration.by_id(subscription.owned_partitions)
        try:
            self._assignment.update(group, lambda _name: True, subscription_changed=changed)
            updated = self._assignment.reconcile(group, updated, owned)
        finally:
            group.refresh_state()
        self._fencing.follow_state(group, updated)
        return updated

    # Sync, heartbeat, leave

    def sync(self, group: ConsumerGroup, request: SyncRequest, reply: SyncReply) -> None:
        """Send a member its assignment."""
        with group:
            try:
                member = self._member_of(group, request.member_id, request.group_instance_id, request.generation_id)
                name, metadata = _protocol_of(member)
                known_type = request.protocol_type in (None, consumer_protocol.PROTOCOL_TYPE)
                if not known_type or request.protocol_name not in (None, name):
                    raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
                if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
                    self._fencing.await_join(group, member)
                    raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
                self._fencing.cancel(group, SYNC, member.member_id)
                self._fencing.keep_alive(group, member)
                assignment = self._migration.assignment_bytes(consumer_protocol.version_of(metadata), member.assigned)
                result = SyncResult(ErrorCode.NONE, consumer_protocol.PROTOCOL_TYPE, name, assignment)
            except KafkaError as error:
                result = SyncResult(ErrorCode(error.error_code))
            group.answer(reply, result)

    def heartbeat(
        self, group: ConsumerGroup, member_id: str, generation_id: int, group_instance_id: str | None
    ) -> ErrorCode:
        """Keep a member's session alive. REBALANCE_IN_PROGRESS makes the member rejoin for its next step."""
        with group:
            try:
                member = self._member_of(group, member_id, group_instance_id, generation_id)
            except KafkaError as error:
                return ErrorCode(error.error_code)
            self._fencing.keep_alive(group, member)
            if (
                member.epoch < group.epoch
                or member.state is MemberState.UNREVOKED
                or (member.state is MemberState.UNRELEASED and not group.awaits_release(member))
            ):
                self._fencing.await_join(group, member)
                return ErrorCode.REBALANCE_IN_PROGRESS
            return ErrorCode.NONE

    def _member_of(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> ConsumerMember:
        if group.is_dead:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.member(member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation_id != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def leave(
        self, group: ConsumerGroup, leaving: Sequence[LeavingMember], reply: Callable[[LeaveResult], None]
    ) -> None:
        """Remove members. `reply` is called when the removal is durable."""
        with group:
            if group.is_dead:
                group.answer(reply, LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return
            gone: set[str] = set()
            outcomes = [self._leaving(group, each, gone) for each in leaving]
            if gone:
                self._fencing.remove(group, gone)
            result = LeaveResult(ErrorCode.NONE, outcomes)
            self._fencing.write(group, lambda ok: reply(result if ok else LeaveResult(NOT_WRITTEN)))

    def _leaving(self, group: ConsumerGroup, leaving: LeavingMember, gone: set[str]) -> ErrorCode:
        """Add a leaving member to `gone`. An administrator may name any member, so it may use either protocol."""
        member_id = leaving.member_id
        if leaving.group_instance_id is not None and not member_id:
            member_id = group.static_members.get(leaving.group_instance_id, "")
        try:
            group.member(member_id, leaving.group_instance_id)
        except KafkaError as error:
            return ErrorCode(error.error_code)
        if member_id in gone:
            return ErrorCode.UNKNOWN_MEMBER_ID
        log.info(
            "group %s: member %s leaves; client reason: %s", group.log_name, clipped(member_id), clipped(leaving.reason)
        )
        gone.add(member_id)
        return ErrorCode.NONE


def _protocol_of(member: ConsumerMember) -> tuple[str, bytes]:
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member.classic.protocols[0]
