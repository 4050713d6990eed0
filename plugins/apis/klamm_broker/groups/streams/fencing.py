"""Timers of members of streams groups, the removal of members, and writes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm import clipped
from klamm_broker.groups.consumer.state import MemberState
from klamm_broker.groups.streams import persistence
from klamm_broker.groups.streams.assignment import INITIAL_REBALANCE
from klamm_broker.groups.streams.members import Changes
from klamm_broker.numbers import NS_PER_MS

if TYPE_CHECKING:
    from klamm.runtime import Clock
    from klamm_broker.groups.expiration import ExpirationScheduler
    from klamm_broker.groups.streams.assignment import StreamsAssignment, StreamsConfigs
    from klamm_broker.groups.streams.group import StreamsGroup
    from klamm_broker.groups.streams.member import StreamsMember
    from klamm_broker.storage.store import Store, StoreError

log = logging.getLogger("klamm.broker.groups")

_SESSION: Final = "session"
_REBALANCE: Final = "rebalance"


class StreamsFencing:
    """Timers, removals and writes of streams groups."""

    def __init__(
        self,
        clock: Clock,
        scheduler: ExpirationScheduler,
        store: Store,
        configs: StreamsConfigs,
        assignment: StreamsAssignment,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._store = store
        self._assignment = assignment
        self.configs = configs

    # Timers

    def await_members(self, group: StreamsGroup) -> None:
        """Let a group whose first member joins wait for more before its first assignment."""
        delay_ms = self.configs.initial_rebalance_delay_ms(group.group_id)
        if delay_ms > 0 and INITIAL_REBALANCE not in group.timers:
            self._arm(group, INITIAL_REBALANCE, delay_ms, lambda: self._first_assignment(group))

    def _first_assignment(self, group: StreamsGroup) -> None:
        if group.members:
            self._assignment.compute(group)
            group.refresh_state()
            self.write(group)

    def keep_alive(self, group: StreamsGroup, member_id: str) -> None:
        """Restart a member's session. A timer that is running stays, and checks the new deadline when it fires."""
        timeout_ms = self.configs.session_timeout_ms(group.group_id)
        deadline_ns = group.deadlines[member_id] = self._clock.monotonic_ns() + timeout_ms * NS_PER_MS
        timer = group.timers.get((_SESSION, member_id))
        if timer is None or timer.deadline_ns > deadline_ns:
            self._arm_session(group, member_id)

    def _arm_session(self, group: StreamsGroup, member_id: str) -> None:
        def check() -> None:
            if self._clock.monotonic_ns() < group.deadlines[member_id]:
                self._arm_session(group, member_id)
            else:
                self._fence(group, member_id, "its session has expired")

        left_ns = group.deadlines[member_id] - self._clock.monotonic_ns()
        self._arm(group, (_SESSION, member_id), left_ns / NS_PER_MS, check)

    def follow_state(self, group: StreamsGroup, member: StreamsMember) -> None:
        """Start the rebalance timeout of a member that has to give tasks back; cancel that of any other."""
        key = _REBALANCE, member.member_id
        if member.state is not MemberState.UNREVOKED:
            self._cancel(group, key)
            return
        epoch = member.epoch

        def expire() -> None:
            late = group.members.get(member.member_id)
            if late is not None and late.epoch == epoch:
                reason = f"it did not leave epoch {epoch} within {member.rebalance_timeout_ms} ms"
                self._fence(group, member.member_id, reason)

        self._arm(group, key, member.rebalance_timeout_ms, expire)

    def _arm(self, group: StreamsGroup, key: tuple[str, str], delay_ms: float, then: Callable[[], None]) -> None:
        def fire() -> None:
            with group:
                # It may have been cancelled while this thread waited for the lock.
                if group.timers.get(key) is timer:
                    del group.timers[key]
                    then()

        self._cancel(group, key)
        timer = group.timers[key] = self._scheduler.schedule(delay_ms, fire)

    def _cancel(self, group: StreamsGroup, key: tuple[str, str]) -> None:
        timer = group.timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def forget(self, group: StreamsGroup, member_id: str) -> None:
        """End all timers of a member."""
        for what in (_SESSION, _REBALANCE):
            self._cancel(group, (what, member_id))
        group.deadlines.pop(member_id, None)

    # Departures

    def _fence(self, group: StreamsGroup, member_id: str, reason: str) -> None:
        if member_id in group.members:
            log.info("group %s: member %s is fenced: %s", group.log_name, clipped(member_id), reason)
            self.remove(group, member_id)
            self.write(group)

    def remove(self, group: StreamsGroup, member_id: str) -> None:
        """Remove a member and start the next epoch. An empty group has no tasks to assign."""
        self.forget(group, member_id)
        if group.members[member_id].endpoint is not None:
            group.endpoint_epoch += 1
        group.remove(member_id)
        self._assignment.begin_epoch(group)
        if not group.members:
            group.assignment_epoch, group.assigned_at_ns = group.epoch, None
            self._cancel(group, INITIAL_REBALANCE)
        group.refresh_state()

    # Writes

    def write(self, group: StreamsGroup, then: Callable[[bool], None] | None = None) -> None:
        """Write the changes. `then` is called with whether they were written, after the group's lock is released."""
        changes, group.changes = group.changes, Changes()
        if not changes:
            if then is not None:
                group.answer(then, True)
            return

        def on_durable(error: StoreError | None) -> None:
            with group:
                if error is not None:
                    log.error("group %s: a change could not be written: %s", group.log_name, error)
                    group.changes.add(changes)
                if then is not None:
                    group.answer(then, error is None)

        self._store.submit(persistence.put(group, changes), on_durable)
