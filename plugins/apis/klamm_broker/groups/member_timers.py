"""`MemberTimers`: the sessions and other timers of members that send heartbeats, and the writes of their groups.

Follows the timers of Kafka's `GroupMetadataManager`. The caller holds the group's lock. A timer takes the lock itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from klamm import clipped
from klamm.runtime import Clock
from klamm_broker.groups.epoch_group import Changes, EpochGroup
from klamm_broker.groups.expiration import ExpirationScheduler
from klamm_broker.groups.targeted_members import MemberState, TargetedMember
from klamm_broker.numbers import NS_PER_MS
from klamm_broker.storage.store import Statement, Store, StoreError

log = logging.getLogger("klamm.broker.groups")

SESSION: Final = "session"
REBALANCE: Final = "rebalance"


GroupT = TypeVar("GroupT", bound=EpochGroup[Any])


class MemberTimers(Generic[GroupT]):
    """The timers of the groups of one type, and the writes of their changes.

    `remove(group, member_id)` removes a silent member, and starts the next epoch. `put(group, changes)` returns the
    statements that write changes.
    """

    def __init__(
        self,
        clock: Clock,
        scheduler: ExpirationScheduler,
        store: Store,
        remove: Callable[[GroupT, str], None],
        put: Callable[[GroupT, Changes], Sequence[Statement]],
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._store = store
        self._remove = remove
        self._put = put

    def restart_session(self, group: GroupT, member_id: str, timeout_ms: int) -> None:
        """Restart a member's session.

        A running timer checks the new deadline when it fires. It is replaced only if it would fire after the deadline.
        """
        deadline_ns = group.deadlines[member_id] = self._clock.monotonic_ns() + timeout_ms * NS_PER_MS
        timer = group.timers.get((SESSION, member_id))
        if timer is None or timer.deadline_ns > deadline_ns:
            self._arm_session(group, member_id)

    def _arm_session(self, group: GroupT, member_id: str) -> None:
        def check() -> None:
            if self._clock.monotonic_ns() < group.deadlines[member_id]:
                self._arm_session(group, member_id)
            else:
                self.expire(group, member_id, "its session has expired")

        left_ns = group.deadlines[member_id] - self._clock.monotonic_ns()
        self.arm(group, SESSION, member_id, left_ns / NS_PER_MS, check)

    def follow_state(self, group: GroupT, member: TargetedMember) -> None:
        """Start the rebalance timeout of a member that must revoke partitions or tasks; cancel it for any other
        member.
        """
        if member.state is not MemberState.UNREVOKED:
            self.cancel(group, REBALANCE, member.member_id)
            return
        epoch = member.epoch

        def expire() -> None:
            if group.epoch_of(member.member_id) == epoch:
                reason = f"it did not leave epoch {epoch} within {member.rebalance_timeout_ms} ms"
                self.expire(group, member.member_id, reason)

        self.arm(group, REBALANCE, member.member_id, member.rebalance_timeout_ms, expire)

    def arm(self, group: GroupT, what: str, member_id: str, delay_ms: float, then: Callable[[], None]) -> None:
        """Call `then` with the group's lock in `delay_ms` milliseconds, and replace an earlier timer of the same
        purpose.
        """
        key = what, member_id

        def fire() -> None:
            with group:
                # The timer may have been cancelled while this thread waited for the lock.
                if group.timers.get(key) is timer:
                    del group.timers[key]
                    then()

        self.cancel(group, what, member_id)
        timer = group.timers[key] = self._scheduler.schedule(delay_ms, fire)

    def expire(self, group: GroupT, member_id: str, reason: str) -> None:
        """Remove a member, if it still exists, and write the change."""
        if group.epoch_of(member_id) is not None:
            log.info("group %s: member %s is fenced: %s", group.log_name, clipped(member_id), reason)
            self._remove(group, member_id)
            self.write(group)

    def cancel(self, group: GroupT, what: str, member_id: str) -> None:
        """End a timer, if it runs."""
        timer = group.timers.pop((what, member_id), None)
        if timer is not None:
            timer.cancel()

    def forget(self, group: GroupT, member_id: str, *more: str) -> None:
        """End a member's session and its timers."""
        for what in (SESSION, REBALANCE, *more):
            self.cancel(group, what, member_id)
        group.deadlines.pop(member_id, None)

    def write(self, group: GroupT, then: Callable[[bool], None] | None = None) -> None:
        """Write the group's changes, in one transaction.

        Then call `then`, after the group's lock is released: with True if the changes were written, else with False.
        """
        changes = group.take_changes()
        if not changes and not group.is_dead:
            if then is not None:
                group.answer(then, True)
            return

        def on_durable(error: StoreError | None) -> None:
            with group:
                if error is None:
                    group.changes_written()
                else:
                    log.error("group %s: a change could not be written: %s", group.log_name, error)
                    group.changes.add(changes)
                if then is not None:
                    group.answer(then, error is None)

        # The changes of a replaced group are already queued in the store, and the answer waits for them.
        self._store.submit(() if group.is_dead else self._put(group, changes), on_durable)
