"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups.

Follows Kafka's `GroupCoordinatorService` and the classic part of its `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from klamm import ErrorCode, KafkaError, clipped
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.groups import persistence
from klamm_broker.groups.classic_group import ClassicGroup, join_result
from klamm_broker.groups.group import cancel_timer
from klamm_broker.groups.group_registry import GroupRegistry
from klamm_broker.groups.member import Member, charge_bytes, size_bytes
from klamm_broker.groups.rebalance import Rebalancer, names_for_log
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
from klamm_broker.groups.state import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from klamm_broker.storage.store import Store, StoreError

log = logging.getLogger("klamm.broker.groups")


class ClassicCoordinator:
    """Coordinates the classic groups. See `GroupCoordinator` for threads and replies. The caller of a method `…_held`
    holds the group's lock.
    """

    def __init__(
        self,
        store: Store,
        settings: BrokerSettings,
        random_bytes: Callable[[int], bytes],
        registry: GroupRegistry,
        rebalancer: Rebalancer,
    ) -> None:
        self._store = store
        self._settings = settings
        self._random_bytes = random_bytes
        self._registry = registry
        self._rebalancer = rebalancer

    def start(self, group: ClassicGroup) -> None:
        """Start the sessions of a loaded group's members."""
        with group:
            for member in group.members.values():
                self._rebalancer.keep_alive(group, member)
            if len(group.members) > self._settings.group_max_size:
                self._rebalancer.prepare(group, f"the {len(group.members)} members exceed group.max.size")

    def stop(self, group: ClassicGroup) -> None:
        """Answer every waiting request with NOT_COORDINATOR."""
        self.answer_waiting(group)
        with group:
            cancel_timer(group.join_timer)
            group.join_timer = None
            group.die()

    def answer_waiting(self, group: ClassicGroup) -> None:
        """Answer every waiting request with NOT_COORDINATOR; members may send it again to another node."""
        with group:
            for member in group.members.values():
                group.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
                group.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))

    # Join

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """Join a group, and create it if the member is new. `reply` is called at once or when the join phase ends."""
        error = self.check_join(request)
        if error is not ErrorCode.NONE:
            reply(JoinResult(error, request.member_id))
            return
        created = False
        if request.member_id:
            found = self._registry.get(request.group_id)
            if found is None:
                reply(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return
            group = found if isinstance(found, ClassicGroup) else None
        else:

            def admit(new: ClassicGroup) -> None:
                if not new.supports_protocols(request.protocol_type, request.protocols):
                    raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
                with self._room_for(new, request) as has_room:
                    if not has_room:
                        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)

            try:
                group, created = self._registry.get_or_create_classic(request.group_id, request.owner, admit)
            except KafkaError as refusal:
                reply(JoinResult(ErrorCode(refusal.error_code)))
                return
        if group is None:
            reply(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        with group:
            if created:
                self._store.submit(persistence.put_group(group, {}))
            self._join_held(group, request, reply)

    def check_join(self, request: JoinRequest) -> ErrorCode:
        """Return INVALID_GROUP_ID or INVALID_SESSION_TIMEOUT for a join that is invalid for every group, else NONE."""
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        settings = self._settings
        shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE

    def _join_held(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> None:
        member_id = request.member_id
        if not self._accepts_joining(group, member_id):
            group.remove(member_id)
            group.answer(reply, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif group.state is DEAD:
            group.answer(reply, JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))
        elif not group.supports_protocols(request.protocol_type, request.protocols):
            group.answer(reply, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        else:
            with self._room_for(group, request) as has_room:
                if has_room:
                    self._join_admitted(group, request, reply)
                    return
            # An existing member stays unchanged. A member that has only got its id is forgotten, so the join phase does
            # not wait for it.
            group.forget_pending_join(member_id)
            group.answer(reply, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
            if group.state is PREPARING_REBALANCE:
                self._rebalancer.maybe_complete_join(group)

    def _join_admitted(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> None:
        member_id = request.member_id
        if not member_id:
            self._join_new(group, request, reply)
        elif member_id not in group.pending_joins:
            self._rejoin(group, request, reply)
        elif request.group_instance_id is not None:
            # Only dynamic members get their ids before they join.
            group.answer(reply, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
        else:
            self._rebalancer.add_member(group, request, member_id, reply)

    def _accepts_joining(self, group: ClassicGroup, member_id: str) -> bool:
        """Return True if `group.max.size` leaves room for a member. In the join phase only members with a waiting join
        count.
        """
        if group.state in (EMPTY, DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is PREPARING_REBALANCE:
            waits = member is not None and member.awaits_join
            return waits or group.awaiting_join_count < self._settings.group_max_size
        return member is not None or len(group.members) < self._settings.group_max_size

    def _room_for(self, group: ClassicGroup, request: JoinRequest) -> AbstractContextManager[bool]:
        """Reserve room while a member joins. Yield True if `group.max.bytes` and `group.members.max.bytes` allow the
        join.
        """
        member_id, instance_id = request.member_id, request.group_instance_id
        if not member_id and instance_id is not None:
            member_id = group.static_members.get(instance_id, "")
        member = group.members.get(member_id)
        had_bytes = 0 if member is None else member.size_bytes
        more_bytes = size_bytes(request.client_id, instance_id, request.protocols) - had_bytes
        if more_bytes > 0 and group.members_bytes + more_bytes > self._settings.group_max_bytes:
            return nullcontext(False)
        if member is not None:
            return group.room_for(member.owner, more_bytes, in_use=True)
        return group.room_for(request.owner, charge_bytes(more_bytes, len(request.protocols)), in_use=False)

    def _join_new(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> None:
        instance_id = request.group_instance_id
        suffix = _uuid_text(self._random_bytes(16))
        member_id = f"{request.client_id if instance_id is None else instance_id}-{suffix}"
        if instance_id is not None:
            if instance_id in group.static_members:
                self._rebalancer.replace_static_member(group, request, instance_id, member_id, reply)
            else:
                self._rebalancer.add_member(group, request, member_id, reply)
        elif request.requires_known_member_id:
            self._rebalancer.await_pending_member(group, request, member_id)
            group.answer(reply, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._rebalancer.add_member(group, request, member_id, reply)

    def _rejoin(self, group: ClassicGroup, request: JoinRequest, reply: JoinReply) -> None:
        try:
            member = group.validate_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            group.answer(reply, JoinResult(error.error_code, request.member_id))
            return
        changed = member.protocols != request.protocols
        if (
            group.state is PREPARING_REBALANCE
            or (group.state is COMPLETING_REBALANCE and changed)
            # The leader may know of changes that the members' metadata does not show, such as new partitions.
            or (group.state is STABLE and (changed or group.leader_id == member.member_id))
        ):
            self._rebalancer.update_member(group, request, member, reply)
        else:
            # The response to the member's first join may have been lost: send the current generation again.
            group.answer(reply, join_result(group, member.member_id))

    # Sync

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        """Pass a member's assignment to `reply`, once the leader has sent the assignments and they are durable."""
        if not request.group_id:
            reply(SyncResult(ErrorCode.INVALID_GROUP_ID))
            return
        group = self._registry.classic(request.group_id)
        if group is None:
            reply(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        with group:
            try:
                member = self._validate_sync(group, request)
            except KafkaError as error:
                group.answer(reply, SyncResult(error.error_code))
                return
            self._rebalancer.note_sync(group, request.member_id)
            if group.state is STABLE:
                group.answer(
                    reply, SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
                )
                return
            group.park_sync(member, reply)
            if group.leader_id == request.member_id:
                self._rebalancer.store_assignments(group, member, request.assignments)

    def _validate_sync(self, group: ClassicGroup, request: SyncRequest) -> Member:
        if group.state is DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return member

    # Heartbeat

    def heartbeat(
        self, group_id: str, member_id: str, generation_id: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Keep a member's session alive. REBALANCE_IN_PROGRESS makes the member rejoin."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._registry.classic(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        with group:
            if group.state is DEAD:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            try:
                member = group.validate_member(member_id, group_instance_id)
            except KafkaError as error:
                return error.error_code
            if generation_id != group.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
            self._rebalancer.keep_alive(group, member)
            return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else ErrorCode.NONE

    # Leave

    def leave(
        self,
        group_id: str,
        leaving: Sequence[LeavingMember],
        reply: Callable[[LeaveResult], None],
    ) -> None:
        """Remove members. `reply` is called when the removal is durable."""
        if not group_id:
            reply(LeaveResult(ErrorCode.INVALID_GROUP_ID))
            return
        group = self._registry.classic(group_id)
        if group is None:
            reply(LeaveResult(ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)))
            return
        with group:
            if group.state is DEAD:
                group.answer(reply, LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return
            outcomes = [self._leave_held(group, each) for each in leaving]
            if ErrorCode.NONE in outcomes:
                if group.state is PREPARING_REBALANCE:
                    self._rebalancer.maybe_complete_join(group)
                elif group.state in (STABLE, COMPLETING_REBALANCE):
                    gone = [
                        each.member_id or each.group_instance_id or ""
                        for each, outcome in zip(leaving, outcomes, strict=True)
                        if outcome is ErrorCode.NONE
                    ]
                    self._rebalancer.after_removal(group, f"{names_for_log(gone)} left")
            result = LeaveResult(ErrorCode.NONE, outcomes)
            if group.state is not EMPTY:
                group.answer(reply, result)
                return

            # As in Kafka, members have left even if the empty group could not be written.
            def on_durable(_error: StoreError | None) -> None:
                with group:
                    group.answer(reply, result)

            # Queued after the write of the empty group, so that a crash does not undo an answered LeaveGroup.
            self._store.submit((), on_durable)

    def _leave_held(self, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
        member_id: str | None = leaving.member_id
        if not member_id:
            member_id = group.static_members.get(leaving.group_instance_id or "")
            if member_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id not in group.pending_joins:
            try:
                group.validate_member(member_id, leaving.group_instance_id)
            except KafkaError as error:
                return error.error_code
        log.info(
            "group %s: member %s leaves; client reason: %s", group.log_name, clipped(member_id), clipped(leaving.reason)
        )
        group.remove(member_id)
        return ErrorCode.NONE


def _differs(sent: str | None, known: str | None) -> bool:
    return sent is not None and known is not None and sent != known


def _uuid_text(random: bytes) -> str:
    """Return 16 random bytes in the form of a UUID, the suffix of Kafka's member ids."""
    text = random.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
