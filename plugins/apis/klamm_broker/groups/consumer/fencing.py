"""The timers of a consumer group's members, and the removal of members.

Follows the timers of Kafka's `GroupMetadataManager`. The caller holds the group's lock; timers take it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Protocol

from klamm import clipped
from klamm_broker.groups.consumer import persistence
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.consumer.membership import Changes
from klamm_broker.groups.consumer.state import MemberState
from klamm_broker.numbers import NS_PER_MS

if TYPE_CHECKING:
    from klamm.runtime import Clock
    from klamm_broker.groups.consumer.assignment import TargetAssignment
    from klamm_broker.groups.consumer.member import ConsumerMember
    from klamm_broker.groups.consumer.migration import Migration
    from klamm_broker.groups.expiration import ExpirationScheduler
    from klamm_broker.storage.store import Store, StoreError

log = logging.getLogger("klamm.broker.groups")

SESSION: Final = "session"
REBALANCE: Final = "rebalance"
JOIN: Final = "join"
SYNC: Final = "sync"
_ALL: Final = (SESSION, REBALANCE, JOIN, SYNC)


class GroupTimeouts(Protocol):
    """Timeouts of consumer groups, by group id."""

    def session_timeout_ms(self, group_id: str, /) -> int: ...
    def heartbeat_interval_ms(self, group_id: str, /) -> int: ...


class Fencing:
    """Timers, removals and writes of consumer groups."""

    def __init__(
        self,
        clock: Clock,
        scheduler: ExpirationScheduler,
        store: Store,
        timeouts: GroupTimeouts,
        assignment: TargetAssignment,
        migration: Migration,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._store = store
        self._assignment = assignment
        self._migration = migration
        self.timeouts = timeouts

    # Timers

    def keep_alive(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Restart a member's session.

        A timer that is running stays, and checks the new deadline when it fires, unless that would be too late.
        """
        classic = member.classic
        timeout_ms = classic.session_timeout_ms if classic else self.timeouts.session_timeout_ms(group.group_id)
        deadline_ns = self._clock.monotonic_ns() + timeout_ms * NS_PER_MS
        group.deadlines[member.member_id] = deadline_ns
        timer = group.timers.get((SESSION, member.member_id))
        if timer is None or timer.deadline_ns > deadline_ns:
            self._arm_session(group, member.member_id)

    def _arm_session(self, group: ConsumerGroup, member_id: str) -> None:
        def check() -> None:
            if self._clock.monotonic_ns() < group.deadlines[member_id]:
                self._arm_session(group, member_id)
            else:
                self._fence(group, member_id, "its session has expired")

        left_ns = group.deadlines[member_id] - self._clock.monotonic_ns()
        self._arm(group, SESSION, member_id, left_ns / NS_PER_MS, check)

    def follow_state(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start the rebalance timeout of a member that has to revoke partitions; cancel that of any other."""
        if member.state is not MemberState.UNREVOKED or member.classic is not None:
            self.cancel(group, REBALANCE, member.member_id)
            return
        epoch = member.epoch

        def expire() -> None:
            late = group.members.get(member.member_id)
            if late is not None and late.epoch == epoch:
                reason = f"it did not leave epoch {epoch} within {member.rebalance_timeout_ms} ms"
                self._fence(group, member.member_id, reason)

        self._arm(group, REBALANCE, member.member_id, member.rebalance_timeout_ms, expire)

    def await_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Give a classic member that has to rejoin its rebalance timeout, unless that runs already."""
        if (JOIN, member.member_id) not in group.timers:
            self._await_request(group, member, JOIN)

    def await_sync(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Give a classic member that has joined its rebalance timeout to sync."""
        self._await_request(group, member, SYNC)

    def _await_request(self, group: ConsumerGroup, member: ConsumerMember, what: str) -> None:
        reason = f"it did not {what} within {member.rebalance_timeout_ms} ms"
        self._arm(
            group,
            what,
            member.member_id,
            member.rebalance_timeout_ms,
            lambda: self._fence(group, member.member_id, reason),
        )

    def _arm(self, group: ConsumerGroup, what: str, member_id: str, delay_ms: float, then: Callable[[], None]) -> None:
        key = what, member_id

        def fire() -> None:
            with group:
                # It may have been cancelled while this thread waited for the lock.
                if group.timers.get(key) is timer:
                    del group.timers[key]
                    then()

        self.cancel(group, what, member_id)
        timer = group.timers[key] = self._scheduler.schedule(delay_ms, fire)

    def cancel(self, group: ConsumerGroup, what: str, member_id: str) -> None:
        """End a timer, if it runs."""
        timer = group.timers.pop((what, member_id), None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self, group: ConsumerGroup, member_id: str) -> None:
        """End all timers of a member."""
        for what in _ALL:
            self.cancel(group, what, member_id)
        group.deadlines.pop(member_id, None)

    # Departures

    def _fence(self, group: ConsumerGroup, member_id: str, reason: str) -> None:
        if member_id in group.members:
            log.info("group %s: member %s is fenced: %s", group.log_name, clipped(member_id), reason)
            self.remove(group, (member_id,))
            self.write(group)

    def remove(self, group: ConsumerGroup, member_ids: Collection[str]) -> None:
        """Remove members and start the next epoch, or turn the group into a classic one if only such members stay."""
        for member_id in member_ids:
            self.cancel_all(group, member_id)
        if self._migration.is_downgrade(group, member_ids):
            self._migration.downgrade(group, member_ids)
            return
        for member_id in member_ids:
            group.remove(member_id)
        self._assignment.member_gone(group)
        group.refresh_state()

    # Writes

    def write(self, group: ConsumerGroup, then: Callable[[bool], None] | None = None) -> None:
        """Write the changes. `then` is called with whether they were written, after the group's lock is released."""
        changes, group.changes = group.changes, Changes()
        if not changes and not group.is_dead:
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

        # What replaces a dead group is written already, and the answer waits for that.
        self._store.submit(() if group.is_dead else persistence.put(group, changes), on_durable)
