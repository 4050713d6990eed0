"""The members of a classic group, the protocols that they share, and their waiting requests."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

from klamm import ErrorCode, KafkaError, clipped
from klamm_broker.groups.expiration import ExpirationTimer
from klamm_broker.groups.group import Group, cancel_timer
from klamm_broker.groups.member import Member, charge_bytes
from klamm_broker.groups.requests import JoinReply, JoinResult, Protocol, SyncReply, SyncResult

log = logging.getLogger("klamm.broker.groups")


class ClassicMembership(Group):
    """The members of a classic group, in any state. The caller holds the group's lock.

    `pending_joins`  member ids issued with MEMBER_ID_REQUIRED that have not joined yet.
    `pending_syncs`  members of this generation that have not requested their assignment yet.
    `members_bytes`  approximate bytes of the members without their assignments.
    """

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: dict[str, ExpirationTimer] = {}
        self._pending_owners: dict[str, str] = {}
        self.pending_syncs: set[str] = set()
        self.awaiting_join_count = 0
        self.members_bytes = 0
        self._protocol_type: str | None = None
        self._supported_protocols: Counter[str] = Counter()

    @property
    def protocol_type(self) -> str | None:
        return self._protocol_type

    @property
    def is_expected(self) -> bool:
        return bool(self.pending_joins)

    def forget_expected(self) -> None:
        for member_id in list(self.pending_joins):
            self.forget_pending_join(member_id)

    @property
    def all_members_joined(self) -> bool:
        """Return True if every member's JoinGroup request waits, and every issued member id has joined."""
        return len(self.members) == self.awaiting_join_count and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Members

    def add(self, member: Member, protocol_type: str, reply: JoinReply | None = None) -> None:
        """Add a member. The first one sets the protocol type and leads. `reply` is called at the end of the join
        phase.
        """
        if member.group_instance_id is not None:
            if member.group_instance_id in self.static_members:
                raise RuntimeError(f"group {self.group_id!r} already has a member {member.group_instance_id!r}")
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self._protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        self.forget_pending_join(member.member_id)
        self.park_join(member, reply)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member. Its waiting requests are answered with UNKNOWN_MEMBER_ID."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            self.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID))
            self.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
            cancel_timer(member.timer)
            member.timer = None
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.forget_pending_join(member_id)
        self.pending_syncs.discard(member_id)

    def forget_pending_join(self, member_id: str) -> None:
        """Forget an issued member id, because its member has joined, or did not join in time."""
        timer = self.pending_joins.pop(member_id, None)
        if timer is not None:
            timer.cancel()
            self.count_members(self._pending_owners.pop(member_id), -charge_bytes(len(member_id), 0))

    def expect(self, member_id: str, timer: ExpirationTimer, owner: str) -> None:
        """Note that a member has got its id and may join until the timer ends."""
        self.pending_joins[member_id] = timer
        self._pending_owners[member_id] = owner
        self.count_members(owner, charge_bytes(len(member_id), 0))

    def assign(self, member: Member, assignment: bytes) -> None:
        """Give a member its assignment."""
        before = member.charge_bytes
        member.assignment = assignment
        self.count_members(member.owner, member.charge_bytes - before)

    def update(self, member: Member, protocols: tuple[Protocol, ...], rebalance_ms: int, session_ms: int) -> None:
        """Update a member that rejoins: its protocols, rebalance timeout and session timeout."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def replace_static_member(self, group_instance_id: str, new_member_id: str) -> Member:
        """Give a static member a new id. Requests that wait under the old id are answered with FENCED_INSTANCE_ID."""
        old_member_id = self.static_members[group_instance_id]
        old = self.members.pop(old_member_id)
        self.answer_join(old, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
        self.answer_sync(old, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        cancel_timer(old.timer)
        new = replace(old, member_id=new_member_id, is_new=False, timer=None, deadline_ns=0)
        self.members[new_member_id] = new
        self.static_members[group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_syncs:
            self.pending_syncs.remove(old_member_id)
            self.pending_syncs.add(new_member_id)
        return new

    def elect_joined_leader(self) -> bool:
        """If the leader has not rejoined, make a member that has rejoined the leader. Return False if none has
        rejoined.
        """
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaits_join:
            return True
        for member in self.members.values():
            if member.awaits_join:
                log.info(
                    "group %s: %s takes over from %s as leader",
                    self.log_name,
                    clipped(member.member_id),
                    clipped(self.leader_id),
                )
                self.leader_id = member.member_id
                return True
        return False

    def validate_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """Return the member. Raises KafkaError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the
        instance id.
        """
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # Protocols

    def select_protocol(self) -> str:
        """Return the protocol that all members support and most of them prefer. Raises LookupError if there is none."""
        everyone = len(self.members)
        candidates = {name for name, count in self._supported_protocols.items() if count == everyone}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _count(self, member: Member, step: int) -> None:
        self.members_bytes += step * member.size_bytes
        self.count_members(member.owner, step * member.charge_bytes)
        counts = self._supported_protocols
        for name in {name for name, _ in member.protocols}:
            counts[name] += step
            if not counts[name]:
                del counts[name]

    # Requests that wait

    def park_join(self, member: Member, reply: JoinReply | None) -> None:
        """Park a join. An earlier join of the member is answered with REBALANCE_IN_PROGRESS, because the client has
        sent a newer one.
        """
        self.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        if reply is not None:
            member.join_reply = reply
            self.awaiting_join_count += 1

    def answer_join(self, member: Member, result: JoinResult) -> bool:
        """Answer the member's waiting join. Return True if there was one."""
        if member.join_reply is None:
            return False
        self.answer(member.join_reply, result)
        member.join_reply = None
        self.awaiting_join_count -= 1
        return True

    def park_sync(self, member: Member, reply: SyncReply) -> None:
        """Park a sync, as `park_join` parks a join."""
        self.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = reply

    def answer_sync(self, member: Member, result: SyncResult) -> bool:
        """Answer the member's waiting sync. Return True if there was one."""
        if member.sync_reply is None:
            return False
        self.answer(member.sync_reply, result)
        member.sync_reply = None
        return True
