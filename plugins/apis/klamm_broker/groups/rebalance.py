"""The rebalance of a classic group from one generation to the next, and its timers.

Follows the classic part of Kafka's `GroupMetadataManager`. The caller of a method that takes a group holds its lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from klamm import ErrorCode, clipped
from klamm.runtime import Clock
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.groups import persistence
from klamm_broker.groups.classic_group import ClassicGroup, join_result
from klamm_broker.groups.expiration import ExpirationScheduler
from klamm_broker.groups.group import cancel_timer
from klamm_broker.groups.group_settings import MAX_PENDING_JOINS, NEW_MEMBER_JOIN_TIMEOUT_MS
from klamm_broker.groups.member import FREE_BYTES, Member
from klamm_broker.groups.requests import JoinReply, JoinRequest, JoinResult, SyncResult
from klamm_broker.groups.state import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    can_rebalance,
)
from klamm_broker.numbers import NS_PER_MS
from klamm_broker.storage.store import Store, StoreError

log = logging.getLogger("klamm.broker.groups")

_NAMED_MEMBERS = 10


class Rebalancer:
    """The rebalances of classic groups: join phase, sync phase, and the members' sessions."""

    def __init__(self, clock: Clock, timers: ExpirationScheduler, store: Store, settings: BrokerSettings) -> None:
        self._clock = clock
        self._timers = timers
        self._store = store
        self._settings = settings
        self.completed = 0
        """Number of rebalances of all groups that have ended with assignments. Changed by the store's thread."""

    # Joining

    def add_member(self, group: ClassicGroup, request: JoinRequest, member_id: str, reply: JoinReply) -> None:
        """Add a new member, whose join waits for the end of the join phase."""
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
            owner=request.owner,
        )
        if group.state is PREPARING_REBALANCE and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type, reply)
        self.keep_alive(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.prepare_or_complete(group, f"{clipped(member_id)} joins; client reason: {clipped(request.reason)}")

    def update_member(self, group: ClassicGroup, request: JoinRequest, member: Member, reply: JoinReply) -> None:
        """Let a member rejoin."""
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        group.park_join(member, reply)
        self.prepare_or_complete(
            group, f"{clipped(member.member_id)} rejoins; client reason: {clipped(request.reason)}"
        )

    def replace_static_member(
        self, group: ClassicGroup, request: JoinRequest, instance_id: str, new_member_id: str, reply: JoinReply
    ) -> None:
        """Replace the member id of a restarted static member, without a rebalance if possible (KIP-345)."""
        old_leader_id = group.leader_id or ""
        old = group.members[group.static_members[instance_id]]
        member = group.replace_static_member(instance_id, new_member_id)
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        group.park_join(member, reply)
        self.keep_alive(group, member)
        log.info("group %s: %s takes over from %s", group.log_name, clipped(new_member_id), clipped(old.member_id))
        if group.state is COMPLETING_REBALANCE:
            # The leader may know only the old id, and would assign partitions to that id.
            self.prepare(group, f"static member {clipped(instance_id)} was replaced")
            return
        if group.state is PREPARING_REBALANCE:
            self.maybe_complete_join(group)
            return
        if group.select_protocol() != group.protocol_name:
            self.prepare(group, f"static member {clipped(instance_id)} changes the protocol")
            return

        def on_durable(error: StoreError | None) -> None:
            with group:
                if group.members.get(new_member_id) is not member:
                    return
                if error is not None:
                    group.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR))
                    reverted = group.replace_static_member(instance_id, old.member_id)
                    group.update(reverted, old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
                    self.keep_alive(group, reverted)
                elif request.supports_skipping_assignment:
                    is_leader = group.leader_id == new_member_id
                    group.answer_join(member, join_result(group, new_member_id, skip_assignment=is_leader))
                else:
                    # A replaced leader must not assign again, so the response names its old id as the leader.
                    result = join_result(group, new_member_id)
                    group.answer_join(member, result._replace(leader_id=old_leader_id, members=()))

        assignments = {each.member_id: each.assignment for each in group.members.values()}
        self._store.submit(persistence.put_group(group, assignments), on_durable)

    def await_pending_member(self, group: ClassicGroup, request: JoinRequest, member_id: str) -> None:
        """Wait for a member to join with the id that was issued to it.

        If there are too many such members, the one with the oldest id is forgotten. Its client will request another id.
        """

        def give_up() -> None:
            with group:
                if group.pending_joins.get(member_id) is timer:
                    group.remove(member_id)
                    self._complete_if_all_joined(group)

        if len(group.pending_joins) >= MAX_PENDING_JOINS:
            group.forget_pending_join(next(iter(group.pending_joins)))
        timer = self._timers.schedule(request.session_timeout_ms, give_up)
        group.expect(member_id, timer, request.owner)

    def remove_member(self, group: ClassicGroup, member_id: str, reason: str) -> None:
        """Remove a member, and start or continue the resulting rebalance."""
        group.remove(member_id)
        self.after_removal(group, reason)

    def after_removal(self, group: ClassicGroup, reason: str) -> None:
        """Start or continue the rebalance that results from removed members."""
        if group.state in (STABLE, COMPLETING_REBALANCE):
            self.prepare_or_complete(group, reason)
        else:
            self._complete_if_all_joined(group)

    def _complete_if_all_joined(self, group: ClassicGroup) -> None:
        if group.state is PREPARING_REBALANCE and group.all_members_joined:
            self._complete_join(group)

    def prepare_or_complete(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance, or end the join phase of the present one if all members have joined."""
        if can_rebalance(group.state):
            self.prepare(group, reason)
        else:
            self.maybe_complete_join(group)

    def maybe_complete_join(self, group: ClassicGroup) -> None:
        """End the join phase if all members have joined. An initial rebalance ends only by its timer."""
        if group.previous_state is not EMPTY:
            self._complete_if_all_joined(group)

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance."""
        if group.state is COMPLETING_REBALANCE:
            self._reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        cancel_timer(group.sync_timer)
        initial = group.state is EMPTY
        group.transition_to(PREPARING_REBALANCE)
        log.info("group %s: preparing to rebalance generation %d: %s", group.log_name, group.generation_id, reason)
        if initial:
            delay_ms = self._settings.group_initial_rebalance_delay_ms
            self._schedule_initial_completion(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.all_members_joined:
            self._complete_join(group)
        else:
            self._schedule_completion(group)

    def _schedule_initial_completion(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        def complete_or_extend(group: ClassicGroup) -> None:
            if group.new_member_added and remaining_ms:
                group.new_member_added = False
                next_ms = min(self._settings.group_initial_rebalance_delay_ms, remaining_ms)
                self._schedule_initial_completion(group, next_ms, max(remaining_ms - delay_ms, 0))
            else:
                self._complete_join(group)

        self._arm_join_timer(group, delay_ms, complete_or_extend)

    def _schedule_completion(self, group: ClassicGroup) -> None:
        self._arm_join_timer(group, group.rebalance_timeout_ms, self._complete_join)

    def _arm_join_timer(self, group: ClassicGroup, delay_ms: int, then: Callable[[ClassicGroup], None]) -> None:
        def fire() -> None:
            with group:
                # The timer may have been cancelled while this thread waited for the group.
                if group.join_timer is timer:
                    group.join_timer = None
                    then(group)

        cancel_timer(group.join_timer)
        timer = group.join_timer = self._timers.schedule(delay_ms, fire)

    def _complete_join(self, group: ClassicGroup) -> None:
        """End the join phase: remove dynamic members that have not rejoined, start a generation, answer all joins.

        If no member has rejoined but static ones remain, the join phase continues instead.
        """
        cancel_timer(group.join_timer)
        group.join_timer = None
        group.new_member_added = False
        missing = [
            member.member_id for member in group.members.values() if not member.awaits_join and not member.is_static
        ]
        for member_id in missing:
            group.remove(member_id)
        if missing:
            log.info("group %s: removed members that have not rejoined: %s", group.log_name, names_for_log(missing))
        if group.members and not group.elect_joined_leader():
            log.error("group %s: no member has rejoined, waiting for their sessions to end", group.log_name)
            self._schedule_completion(group)
            return
        group.init_next_generation()
        if not group.members:
            log.info("group %s: empty in generation %d", group.log_name, group.generation_id)
            self._store.submit(persistence.put_group(group, {}))
            return
        log.info("group %s: generation %d with %d members", group.log_name, group.generation_id, len(group.members))
        for member in group.members.values():
            group.answer_join(member, join_result(group, member.member_id))
            self.keep_alive(group, member)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        self._schedule_pending_sync(group)

    # Syncing

    def store_assignments(self, group: ClassicGroup, leader: Member, assignments: Mapping[str, bytes]) -> None:
        """Store the leader's assignment, then send it to the members and become STABLE. This happens once per
        generation.

        The leader gets GROUP_MAX_SIZE_REACHED if there is no room for the assignment.
        """
        generation_id = group.generation_id
        if group.storing_generation_id == generation_id:
            return
        ledger, owner = group.book.ledgers.members, leader.owner
        reserved_bytes = max(0, sum(map(len, assignments.values())) - FREE_BYTES * len(group.members))
        if reserved_bytes and not ledger.reserve(owner, reserved_bytes, in_use=True):
            group.answer_sync(leader, SyncResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
            return
        group.storing_generation_id = generation_id

        def on_durable(error: StoreError | None) -> None:
            with group:
                # The reservation ends: `group.assign` counts the assignment, or the assignment is dropped.
                ledger.add(owner, -reserved_bytes)
                group.storing_generation_id = -1
                # Another rebalance may have started. If so, every sync has been answered.
                if group.state is not COMPLETING_REBALANCE or group.generation_id != generation_id:
                    return
                if error is not None:
                    self._reset_assignments(group, ErrorCode.NOT_COORDINATOR)
                    self.prepare_or_complete(group, f"the assignment could not be stored: {error}")
                    return
                for member in group.members.values():
                    group.assign(member, assignments.get(member.member_id, b""))
                self._hand_out_assignments(group)
                group.transition_to(STABLE)
                self.completed += 1

        self._store.submit(persistence.put_group(group, assignments), on_durable)

    def note_sync(self, group: ClassicGroup, member_id: str) -> None:
        """Note that a member has requested its assignment."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            cancel_timer(group.sync_timer)

    def _schedule_pending_sync(self, group: ClassicGroup) -> None:
        def fire() -> None:
            with group:
                if group.sync_timer is timer and group.pending_syncs and can_rebalance(group.state):
                    late = sorted(group.pending_syncs)
                    for member_id in late:
                        group.remove(member_id)
                    self.prepare(group, f"removed members that have not synced: {names_for_log(late)}")

        cancel_timer(group.sync_timer)
        timer = group.sync_timer = self._timers.schedule(group.rebalance_timeout_ms, fire)

    def _reset_assignments(self, group: ClassicGroup, error_code: ErrorCode) -> None:
        for member in group.members.values():
            group.assign(member, b"")
            if group.answer_sync(member, SyncResult(error_code)):
                self.keep_alive(group, member)

    def _hand_out_assignments(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            result = SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
            if group.answer_sync(member, result):
                # While the sync waited, the session could not end.
                self.keep_alive(group, member)

    # Sessions

    def keep_alive(self, group: ClassicGroup, member: Member, timeout_ms: int | None = None) -> None:
        """Restart the member's session with this timeout, or with the member's session timeout if none is given.

        A running timer checks the new deadline when it fires. It is replaced only if it would fire after the deadline.
        """
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        member.deadline_ns = self._clock.monotonic_ns() + timeout_ms * NS_PER_MS
        if member.timer is None or member.timer.deadline_ns > member.deadline_ns:
            self._arm_session(group, member)

    def _arm_session(self, group: ClassicGroup, member: Member) -> None:
        def fire() -> None:
            with group:
                if member.timer is timer:
                    member.timer = None
                    self._check_session(group, member)

        cancel_timer(member.timer)
        remaining_ns = member.deadline_ns - self._clock.monotonic_ns()
        timer = member.timer = self._timers.schedule(remaining_ns / NS_PER_MS, fire)

    def _check_session(self, group: ClassicGroup, member: Member) -> None:
        if group.state is DEAD or group.members.get(member.member_id) is not member:
            return
        if self._clock.monotonic_ns() < member.deadline_ns:
            self._arm_session(group, member)
        elif not member.has_satisfied_heartbeat:
            log.info("group %s: member %s has failed", group.log_name, clipped(member.member_id))
            self.remove_member(group, member.member_id, f"the session of {clipped(member.member_id)} has ended")


def names_for_log(member_ids: Sequence[str]) -> str:
    """Return the first ten member ids, and the number of further ones."""
    names = ", ".join(map(clipped, member_ids[:_NAMED_MEMBERS]))
    more = len(member_ids) - _NAMED_MEMBERS
    return f"{names} and {more} more" if more > 0 else names
