"""Heartbeats, departures and assignments of share groups.

Follows the share part of Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from klamm import ErrorCode, KafkaError, clipped
from klamm_broker.groups.assignors import MemberSpec
from klamm_broker.groups.assignors.simple import assign_shared
from klamm_broker.groups.consumer.subscriptions import Topics, existing_ids, require_topic_names, topics_hash
from klamm_broker.groups.member_timers import MemberTimers
from klamm_broker.groups.share import persistence
from klamm_broker.groups.share.group import JOIN_EPOCH, LEAVE_EPOCH, ShareGroup, ShareMember
from klamm_broker.groups.share.requests import (
    MAX_MEMBER_ID_CHARS,
    DescribedShareGroup,
    DescribedShareMember,
    ShareHeartbeat,
    ShareHeartbeatReply,
    ShareHeartbeatResult,
)

if TYPE_CHECKING:
    from klamm.runtime import Clock
    from klamm_broker.groups.expiration import ExpirationScheduler
    from klamm_broker.groups.group_registry import GroupRegistry
    from klamm_broker.groups.group_settings import GroupSettings
    from klamm_broker.storage.store import Statement, Store, StoreError

log = logging.getLogger("klamm.broker.groups")

ASSIGNOR: Final = "simple"
_NOT_WRITTEN: Final = ErrorCode.NOT_COORDINATOR


class ShareTimeouts(Protocol):
    """Timeouts of share groups, by group id."""

    def share_session_timeout_ms(self, group_id: str, /) -> int: ...
    def share_heartbeat_interval_ms(self, group_id: str, /) -> int: ...


class ShareWorld(NamedTuple):
    """The parts of the broker that share groups use. `member_gone(group_id, member_id)` is called when its records can
    be released.
    """

    topics: Topics
    timeouts: ShareTimeouts
    member_gone: Callable[[str, str], None]


class ShareCoordinator:
    """Coordinates the share groups. Its heartbeats may compute an assignment: not for a processor's thread."""

    def __init__(
        self,
        clock: Clock,
        scheduler: ExpirationScheduler,
        store: Store,
        settings: GroupSettings,
        registry: GroupRegistry,
        world: ShareWorld,
    ) -> None:
        self._timers: MemberTimers[ShareGroup] = MemberTimers(clock, scheduler, self._fence)
        self._store = store
        self._settings = settings
        self._registry = registry
        self._world = world
        self.rebalances = 0
        """Group epochs that were started, over all groups."""

    def start(self, group: ShareGroup) -> None:
        """Start the timers of a loaded group's members."""
        with group:
            for member_id in group.members:
                self._keep_alive(group, member_id)

    def stop(self, group: ShareGroup) -> None:
        """End the timers."""
        with group:
            group.die()

    # Heartbeat

    def heartbeat(self, request: ShareHeartbeat, reply: ShareHeartbeatReply) -> None:
        """Join, stay in, or leave a group. `reply` is called at once, or when the change is durable."""
        try:
            _validate(request)
            kind = "Group" if request.epoch == LEAVE_EPOCH else "Share group"
            missing = f"{kind} {request.group_id} not found."
            new_owner = request.owner if request.epoch == JOIN_EPOCH else None
            first = _updated(ShareMember(member_id=request.member_id, owner=request.owner), request)
            group = self._group(request.group_id, missing, new_owner, lambda new: _put(new, first, keep=False))
            with group:
                if group.is_dead:
                    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                serve = self._leave if request.epoch == LEAVE_EPOCH else self._beat
                result = serve(group, request)

                def answer(is_written: bool) -> None:
                    reply(result if is_written else ShareHeartbeatResult(_NOT_WRITTEN))

                self._write(group, answer)
        except KafkaError as error:
            reply(ShareHeartbeatResult(ErrorCode(error.error_code), error.message))

    def _group(
        self,
        group_id: str,
        missing: str,
        new_owner: str | None = None,
        admit: Callable[[ShareGroup], None] = lambda _: None,
    ) -> ShareGroup:
        if new_owner is None:
            group = self._registry.get(group_id)
        else:
            group = self._registry.get_or_create_share(group_id, new_owner, admit)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, missing)
        if not isinstance(group, ShareGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return group

    def _beat(self, group: ShareGroup, request: ShareHeartbeat) -> ShareHeartbeatResult:
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
        return ShareHeartbeatResult(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self._world.timeouts.share_heartbeat_interval_ms(group.group_id),
            assignment=updated.assigned if is_full or updated.assigned != before.assigned else None,
        )

    def _member(self, group: ShareGroup, request: ShareHeartbeat) -> ShareMember:
        """The member that sends the heartbeat, new if it joins. Raises KafkaError."""
        known = group.members.get(request.member_id)
        limit = self._settings.group_share_max_size
        if known is None and len(group.members) >= limit:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {limit} members.",
            )
        if request.epoch != JOIN_EPOCH:
            member = group.member(request.member_id)
            _check_epoch(member, request.epoch)
            return member
        if known is not None:
            return known
        log.info("group %s: member %s joins the share group", group.log_name, clipped(request.member_id))
        return ShareMember(member_id=request.member_id, owner=request.owner)

    def _leave(self, group: ShareGroup, request: ShareHeartbeat) -> ShareHeartbeatResult:
        group.member(request.member_id)
        log.info("group %s: member %s leaves", group.log_name, clipped(request.member_id))
        self._remove(group, request.member_id)
        return ShareHeartbeatResult(member_id=request.member_id, epoch=request.epoch)

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
        ids = {each.topics: frozenset(existing_ids(each.topics, topics)) for each in group.members.values()}
        specs = {
            member_id: MemberSpec(None, ids[member.topics], member.target)
            for member_id, member in group.members.items()
        }
        for member_id, target in assign_shared(specs, existing_ids(names, topics)).items():
            group.put(replace(group.members[member_id], target=target))
        group.assignment_epoch = group.epoch

    # Sessions

    def _keep_alive(self, group: ShareGroup, member_id: str) -> None:
        """Restart a member's session."""
        self._timers.keep_alive(group, member_id, self._world.timeouts.share_session_timeout_ms(group.group_id))

    def _fence(self, group: ShareGroup, member_id: str) -> None:
        self._remove(group, member_id)
        self._write(group)

    def _remove(self, group: ShareGroup, member_id: str) -> None:
        self._timers.forget(group, member_id)
        group.remove(member_id)
        self._update(group, is_changed=True)
        group.refresh_state()
        group.answer(lambda gone: self._world.member_gone(group.group_id, gone), member_id)

    # Writes

    def _write(self, group: ShareGroup, then: Callable[[bool], None] | None = None) -> None:
        """Write the changes. `then` is called with whether they were written, after the group's lock is released."""
        changed, group.changed = group.changed, set()
        if not changed and not group.group_changed:
            if then is not None:
                group.answer(then, True)
            return
        group.group_changed = group.is_deleting = False

        def on_durable(error: StoreError | None) -> None:
            with group:
                if error is not None:
                    log.error("group %s: a change could not be written: %s", group.log_name, error)
                    group.changed |= changed
                    group.group_changed = True
                else:
                    group.is_stored = True
                if then is not None:
                    group.answer(then, error is None)

        self._store.submit(persistence.put(group, changed), on_durable)

    # Describe

    def describe(self, group_id: str) -> DescribedShareGroup:
        """The group for an administrator. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        group = self.get(group_id)
        with group:
            members = [
                DescribedShareMember(
                    member.member_id,
                    member.rack_id,
                    member.epoch,
                    member.client_id,
                    member.client_host,
                    sorted(member.topics),
                    member.assigned,
                )
                for member in group.members.values()
            ]
            return DescribedShareGroup(
                group_id, group.state_name, group.epoch, group.assignment_epoch, ASSIGNOR, members
            )

    def exists(self, group_id: str) -> bool:
        """Return True if there is a share group of this id."""
        return isinstance(self._registry.get(group_id), ShareGroup)

    def get(self, group_id: str, *, new_owner: str | None = None) -> ShareGroup:
        """The group; a new one, which counts for an owner, if one is given.

        Raises KafkaError: GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED where there is no room for a new one.
        """
        return self._group(group_id, f"Group {group_id} not found.", new_owner)

    def write_and_wait(self, group: ShareGroup, statements: Sequence[Statement]) -> None:
        """Write the group and these statements, and all that was submitted before. Raises StoreError."""
        with group:
            group.is_deleting = False
            put = persistence.put(group, ())
        self._store.write_and_wait([*put, *statements])
        group.is_stored = True

    def unwritten(self, group_id: str) -> Sequence[Statement]:
        """The row of a group that the store may not have: a start forgets what groups have read that have none."""
        group = self._registry.get(group_id)
        if not isinstance(group, ShareGroup) or group.is_stored or group.is_deleting or group.is_dead:
            return ()
        return persistence.put(group, ())


def _validate(request: ShareHeartbeat) -> None:
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if not request.member_id.strip() or len(request.member_id) > MAX_MEMBER_ID_CHARS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    require_topic_names(request.topics)
    if request.epoch == JOIN_EPOCH and not request.topics:
        raise _invalid("SubscribedTopicNames must be set in first request.")


def _updated(before: ShareMember, request: ShareHeartbeat) -> ShareMember:
    """Return the member with what its heartbeat says."""
    return replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        topics=before.topics if request.topics is None else frozenset(request.topics),
        client_id=request.client_id,
        client_host=request.client_host,
    )


def _put(group: ShareGroup, member: ShareMember, *, keep: bool = True) -> None:
    """Add or replace a member, or only see if there is room.

    Raises KafkaError(GROUP_MAX_SIZE_REACHED) if it is to take more than it does, and more than is left.
    """
    known = group.members.get(member.member_id)
    more_bytes = member.charge_bytes - (0 if known is None else known.charge_bytes)
    with group.room_for(member.owner, more_bytes, in_use=known is not None) as has_room:
        if not has_room:
            raise group.book.ledgers.members.refusal()
        if keep:
            group.put(member)


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Raise KafkaError(FENCED_MEMBER_EPOCH) for an epoch that is neither the member's nor its previous one."""
    if epoch in (member.epoch, member.previous_epoch):
        return
    size, unless = "greater", ""
    if epoch < member.epoch:
        size, unless = "smaller", f", and it does not match the previous member epoch ({member.previous_epoch})"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {size} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({member.epoch}){unless}. The member must abandon all its partitions and rejoin.",
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
