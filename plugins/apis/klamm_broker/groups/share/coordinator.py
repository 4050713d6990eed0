"""Heartbeats, departures and assignments of share groups.

Follows the share part of Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError, clipped
from klamm.runtime import Clock
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.group_config_keys import SHARE_HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.groups.assignors import MemberSpec, Partitions
from klamm_broker.groups.assignors.simple import assign_shared
from klamm_broker.groups.consumer.subscriptions import Topics, partition_counts, require_topic_names, topics_hash
from klamm_broker.groups.epoch_coordinator import DescribedEpochGroup, EpochCoordinator, described, invalid
from klamm_broker.groups.epoch_group import JOIN_EPOCH, LEAVE_EPOCH, Changes
from klamm_broker.groups.expiration import ExpirationScheduler
from klamm_broker.groups.group_registry import GroupRegistry
from klamm_broker.groups.member_timers import MemberTimers
from klamm_broker.groups.requests import MAX_MEMBER_ID_CHARS, EpochHeartbeatResult, ShareHeartbeat
from klamm_broker.groups.share.group import ShareGroup, ShareMember
from klamm_broker.groups.share.persistence import ROWS
from klamm_broker.storage.store import Statement, Store

log = logging.getLogger("klamm.broker.groups")

ASSIGNOR: Final = "simple"


class ShareWorld(NamedTuple):
    """The parts of the broker that share groups use. `member_gone(group_id, member_id)` is called when a member has
    left and its records can be released.
    """

    topics: Topics
    configs: GroupConfigs
    member_gone: Callable[[str, str], None]


class ShareCoordinator(EpochCoordinator[ShareGroup, ShareHeartbeat, EpochHeartbeatResult]):
    """The coordinator of share groups. Threads and locks are those of `EpochCoordinator`."""

    group_class = ShareGroup

    def __init__(
        self,
        clock: Clock,
        scheduler: ExpirationScheduler,
        store: Store,
        settings: BrokerSettings,
        registry: GroupRegistry,
        world: ShareWorld,
    ) -> None:
        super().__init__(settings, registry, MemberTimers(clock, scheduler, store, self._remove, ROWS.put))
        self._store = store
        self._world = world
        self.rebalances = 0
        """Number of group epochs that were started in all groups together."""

    def start(self, group: ShareGroup) -> None:
        with group:
            for member_id in group.members:
                self._keep_alive(group, member_id)

    # Heartbeat

    def _failed(self, code: ErrorCode, message: str | None) -> EpochHeartbeatResult:
        return EpochHeartbeatResult(code, message)

    def _checked(self, request: ShareHeartbeat) -> ShareHeartbeat:
        if not request.group_id.strip():
            raise invalid("GroupId can't be empty.")
        if not request.member_id.strip() or len(request.member_id) > MAX_MEMBER_ID_CHARS:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if request.rack_id is not None and not request.rack_id.strip():
            raise invalid("RackId can't be empty.")
        if request.epoch < LEAVE_EPOCH:
            raise invalid("MemberEpoch is invalid.")
        require_topic_names(request.topics)
        if request.epoch == JOIN_EPOCH and not request.topics:
            raise invalid("SubscribedTopicNames must be set in first request.")
        return request

    def _admit(self, group: ShareGroup, request: ShareHeartbeat) -> None:
        _put(group, _updated(ShareMember(member_id=request.member_id, owner=request.owner), request), keep=False)

    def _beat(self, group: ShareGroup, request: ShareHeartbeat) -> EpochHeartbeatResult:
        before = self._member(group, request)
        updated = _updated(before, request)
        is_new = before.member_id not in group.members
        _put(group, updated)
        self._keep_alive(group, updated.member_id)
        if is_new or updated.topics != before.topics or group.metadata_generation != self._world.topics.generation:
            self._update(group, is_changed=is_new or updated.topics != before.topics)
        updated = group.members[updated.member_id]
        if updated.epoch != group.assignment_epoch:
            updated = replace(
                updated, previous_epoch=updated.epoch, epoch=group.assignment_epoch, assigned=updated.target
            )
            group.put(updated)
        group.refresh_state()
        is_full = request.epoch == JOIN_EPOCH or request.topics is not None
        return EpochHeartbeatResult(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self._world.configs.number(group.group_id, SHARE_HEARTBEAT_INTERVAL),
            assignment=updated.assigned if is_full or updated.assigned != before.assigned else None,
        )

    def _member(self, group: ShareGroup, request: ShareHeartbeat) -> ShareMember:
        """Return the member that sends the heartbeat, created if it joins. Raises KafkaError."""
        group.check_size(request.member_id, self._settings.group_share_max_size)
        if request.epoch != JOIN_EPOCH:
            member = group.member(request.member_id)
            if request.epoch not in (member.epoch, member.previous_epoch):
                previous = f", and it does not match the previous member epoch ({member.previous_epoch})"
                raise group.fenced(member, request.epoch, previous if request.epoch < member.epoch else "")
            return member
        known = group.members.get(request.member_id)
        if known is not None:
            return known
        log.info("group %s: member %s joins the share group", group.log_name, clipped(request.member_id))
        return ShareMember(member_id=request.member_id, owner=request.owner)

    def _leave(self, group: ShareGroup, request: ShareHeartbeat) -> EpochHeartbeatResult:
        group.member(request.member_id)
        log.info("group %s: member %s leaves", group.log_name, clipped(request.member_id))
        self._remove(group, request.member_id)
        return EpochHeartbeatResult(member_id=request.member_id, epoch=request.epoch)

    # Assignment

    def _update(self, group: ShareGroup, *, is_changed: bool) -> None:
        """Start a new epoch if members, subscriptions or topics have changed, and compute its targets."""
        topics = self._world.topics
        group.metadata_generation = topics.generation
        names = frozenset().union(*(member.topics for member in group.members.values()))
        digest = topics_hash(names, topics)
        if digest == group.metadata_hash and not is_changed:
            return
        group.metadata_hash = digest
        group.bump_epoch()
        self.rebalances += 1
        if not group.members:
            return
        ids = {each.topics: frozenset(partition_counts(each.topics, topics)) for each in group.members.values()}
        specs = {
            member_id: MemberSpec(None, ids[member.topics], member.target)
            for member_id, member in group.members.items()
        }
        for member_id, target in assign_shared(specs, partition_counts(names, topics)).items():
            group.put(replace(group.members[member_id], target=target))
        group.assignment_epoch = group.epoch

    # Sessions

    def _keep_alive(self, group: ShareGroup, member_id: str) -> None:
        """Restart a member's session."""
        timeout_ms = self._world.configs.number(group.group_id, SHARE_SESSION_TIMEOUT)
        self._timers.restart_session(group, member_id, timeout_ms)

    def _remove(self, group: ShareGroup, member_id: str) -> None:
        self._timers.forget(group, member_id)
        group.remove(member_id)
        self._update(group, is_changed=True)
        group.refresh_state()
        group.answer(lambda gone: self._world.member_gone(group.group_id, gone), member_id)

    # Administration

    def describe(self, group_id: str) -> DescribedEpochGroup[ShareMember, Partitions]:
        """Return the description of a group. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        group = self.get(group_id)
        with group:
            return described(group, ASSIGNOR, {})

    def exists(self, group_id: str) -> bool:
        """Return True if a share group with this id exists."""
        return isinstance(self._registry.get(group_id), ShareGroup)

    def get_or_create(self, group_id: str, owner: str) -> ShareGroup:
        """Return the group. If there is none, create one that counts for `owner`.

        Raises KafkaError: GROUP_ID_NOT_FOUND if the group is of another type, GROUP_MAX_SIZE_REACHED if there is no
        room for a new group.
        """
        return self._of_type(self._registry.get_or_make(group_id, owner, ShareGroup))

    def write_and_wait(self, group: ShareGroup, statements: Sequence[Statement]) -> None:
        """Write the group and these statements, after all writes that were submitted before. Raises StoreError."""
        with group:
            group.is_deleting = False
            put = ROWS.put(group, Changes())
        self._store.write_and_wait([*put, *statements])
        group.is_stored = True

    def unwritten(self, group_id: str) -> Sequence[Statement]:
        """Return the statements that write a group's row if the store may lack the row. The next start deletes the
        delivery states of groups without a row.
        """
        group = self._registry.get(group_id)
        if not isinstance(group, ShareGroup) or group.is_stored or group.is_deleting or group.is_dead:
            return ()
        return ROWS.put(group, Changes())


def _updated(before: ShareMember, request: ShareHeartbeat) -> ShareMember:
    """Return the member with the changes from its heartbeat."""
    return replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        topics=before.topics if request.topics is None else frozenset(request.topics),
        client_id=request.client_id,
        client_host=request.client_host,
    )


def _put(group: ShareGroup, member: ShareMember, *, keep: bool = True) -> None:
    """Add or replace a member, or only check that there is room.

    Raises KafkaError(GROUP_MAX_SIZE_REACHED) if the member would become larger and there is not enough room.
    """
    known = group.members.get(member.member_id)
    more_bytes = member.charge_bytes - (0 if known is None else known.charge_bytes)
    with group.room_for(member.owner, more_bytes, in_use=known is not None) as has_room:
        if not has_room:
            raise group.book.ledgers.members.refusal()
        if keep:
            group.put(member)
