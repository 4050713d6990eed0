"""The timers of a consumer group's members, and the removal of members.

Follows the timers of Kafka's `GroupMetadataManager`. The caller holds the group's lock. A timer takes the lock itself.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from klamm.runtime import Clock
from klamm_broker.configs.group_config_keys import CONSUMER_SESSION_TIMEOUT
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.groups.consumer.assignment import TargetAssignment
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.consumer.member import ConsumerMember
from klamm_broker.groups.consumer.migration import Migration
from klamm_broker.groups.consumer.persistence import ROWS
from klamm_broker.groups.expiration import ExpirationScheduler
from klamm_broker.groups.member_timers import REBALANCE, MemberTimers
from klamm_broker.groups.targeted_members import TargetedMember
from klamm_broker.storage.store import Store

JOIN: Final = "join"
SYNC: Final = "sync"


class Fencing(MemberTimers[ConsumerGroup]):
    """The timers, removals and writes of consumer groups."""

    def __init__(
        self,
        clock: Clock,
        scheduler: ExpirationScheduler,
        store: Store,
        configs: GroupConfigs,
        assignment: TargetAssignment,
        migration: Migration,
    ) -> None:
        super().__init__(clock, scheduler, store, lambda group, gone: self.remove(group, (gone,)), ROWS.put)
        self._assignment = assignment
        self._migration = migration
        self.configs = configs

    # Timers

    def keep_alive(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Restart a member's session."""
        classic = member.classic
        own = self.configs.number(group.group_id, CONSUMER_SESSION_TIMEOUT)
        self.restart_session(group, member.member_id, classic.session_timeout_ms if classic else own)

    def follow_state(self, group: ConsumerGroup, member: TargetedMember) -> None:
        """Start or cancel the member's rebalance timeout, as its state requires. A member of the classic protocol has
        none.
        """
        if group.members[member.member_id].classic is None:
            super().follow_state(group, member)
        else:
            self.cancel(group, REBALANCE, member.member_id)

    def await_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start the rebalance timeout of a classic member that must rejoin, unless the timeout is running."""
        if (JOIN, member.member_id) not in group.timers:
            self._await_request(group, member, JOIN)

    def await_sync(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start the timeout for the sync of a classic member that has joined."""
        self._await_request(group, member, SYNC)

    def _await_request(self, group: ConsumerGroup, member: ConsumerMember, what: str) -> None:
        reason = f"it did not {what} within {member.rebalance_timeout_ms} ms"
        self.arm(
            group,
            what,
            member.member_id,
            member.rebalance_timeout_ms,
            lambda: self.expire(group, member.member_id, reason),
        )

    def cancel_all(self, group: ConsumerGroup, member_id: str) -> None:
        """End all timers of a member."""
        self.forget(group, member_id, JOIN, SYNC)

    # Departures

    def remove(self, group: ConsumerGroup, member_ids: Collection[str]) -> None:
        """Remove members and start the next epoch, or turn the group into a classic one if only classic members
        remain.
        """
        for member_id in member_ids:
            self.cancel_all(group, member_id)
        if self._migration.is_downgrade(group, member_ids):
            self._migration.downgrade(group, member_ids)
            return
        for member_id in member_ids:
            group.remove(member_id)
        self._assignment.member_gone(group)
        group.refresh_state()
