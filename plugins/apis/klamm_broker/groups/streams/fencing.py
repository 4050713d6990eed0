"""Timers of members of streams groups, the removal of members, and writes. The caller holds the group's lock."""

from __future__ import annotations

from klamm.runtime import Clock
from klamm_broker.configs.group_config_keys import STREAMS_INITIAL_REBALANCE_DELAY, STREAMS_SESSION_TIMEOUT
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.groups.expiration import ExpirationScheduler
from klamm_broker.groups.member_timers import MemberTimers
from klamm_broker.groups.streams.assignment import INITIAL_REBALANCE, StreamsAssignment
from klamm_broker.groups.streams.group import StreamsGroup
from klamm_broker.groups.streams.persistence import ROWS
from klamm_broker.storage.store import Store


class StreamsFencing(MemberTimers[StreamsGroup]):
    """The timers, removals and writes of streams groups."""

    def __init__(
        self,
        clock: Clock,
        scheduler: ExpirationScheduler,
        store: Store,
        configs: GroupConfigs,
        assignment: StreamsAssignment,
    ) -> None:
        super().__init__(clock, scheduler, store, self.remove, ROWS.put)
        self._assignment = assignment
        self.configs = configs

    # Timers

    def await_members(self, group: StreamsGroup) -> None:
        """Delay the first assignment of a group when its first member joins, so that more members can join."""
        delay_ms = self.configs.number(group.group_id, STREAMS_INITIAL_REBALANCE_DELAY)
        if delay_ms > 0 and INITIAL_REBALANCE not in group.timers:
            self.arm(group, *INITIAL_REBALANCE, delay_ms, lambda: self._first_assignment(group))

    def _first_assignment(self, group: StreamsGroup) -> None:
        if group.members:
            self._assignment.compute(group)
            group.refresh_state()
            self.write(group)

    def keep_alive(self, group: StreamsGroup, member_id: str) -> None:
        """Restart a member's session."""
        self.restart_session(group, member_id, self.configs.number(group.group_id, STREAMS_SESSION_TIMEOUT))

    # Departures

    def remove(self, group: StreamsGroup, member_id: str) -> None:
        """Remove a member and start the next epoch.

        If no member is left, there is nothing to assign: the new epoch counts as assigned, and the first assignment's
        delay is cancelled.
        """
        self.forget(group, member_id)
        if group.members[member_id].endpoint is not None:
            group.endpoint_epoch += 1
        group.remove(member_id)
        self._assignment.begin_epoch(group)
        if not group.members:
            group.assignment_epoch, group.assigned_at_ns = group.epoch, None
            self.cancel(group, *INITIAL_REBALANCE)
        group.refresh_state()
