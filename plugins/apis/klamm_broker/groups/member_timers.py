"""`MemberTimers`: the sessions and other timers of members that send heartbeats.

Follows the timers of Kafka's `GroupMetadataManager`. The caller holds the group's lock; timers take it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from klamm import clipped
from klamm_broker.groups.consumer.state import MemberState
from klamm_broker.groups.epoch_group import EpochGroup
from klamm_broker.numbers import NS_PER_MS

if TYPE_CHECKING:
    from klamm.runtime import Clock
    from klamm_broker.groups.expiration import ExpirationScheduler

log = logging.getLogger("klamm.broker.groups")

SESSION: Final = "session"
REBALANCE: Final = "rebalance"


class TimedMember(Protocol):
    """A member that may have to give back what it has."""

    @property
    def member_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def rebalance_timeout_ms(self) -> int: ...

    @property
    def state(self) -> MemberState: ...


GroupT = TypeVar("GroupT", bound=EpochGroup)


class MemberTimers(Generic[GroupT]):
    """Timers of the groups of one type. `fence(group, member_id)` removes a member that was silent, and writes that."""

    def __init__(self, clock: Clock, scheduler: ExpirationScheduler, fence: Callable[[GroupT, str], None]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._fence = fence

    def keep_alive(self, group: GroupT, member_id: str, timeout_ms: int) -> None:
        """Restart a member's session.

        A timer that is running stays, and checks the new deadline when it fires, unless that would be too late.
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

    def follow_state(self, group: GroupT, member: TimedMember) -> None:
        """Start the rebalance timeout of a member that has to give something back; cancel that of any other."""
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
        """Call `then` with the group's lock in `delay_ms` milliseconds, in place of a timer for the same."""
        key = what, member_id

        def fire() -> None:
            with group:
                # It may have been cancelled while this thread waited for the lock.
                if group.timers.get(key) is timer:
                    del group.timers[key]
                    then()

        self.cancel(group, what, member_id)
        timer = group.timers[key] = self._scheduler.schedule(delay_ms, fire)

    def expire(self, group: GroupT, member_id: str, reason: str) -> None:
        """Fence a member, if it is still there."""
        if group.epoch_of(member_id) is not None:
            log.info("group %s: member %s is fenced: %s", group.log_name, clipped(member_id), reason)
            self._fence(group, member_id)

    def cancel(self, group: GroupT, what: str, member_id: str) -> None:
        """End a timer, if it runs."""
        timer = group.timers.pop((what, member_id), None)
        if timer is not None:
            timer.cancel()

    def forget(self, group: GroupT, member_id: str, *more: str) -> None:
        """End a member's session and rebalance timeout, and more timers of it."""
        for what in (SESSION, REBALANCE, *more):
            self.cancel(group, what, member_id)
        group.deadlines.pop(member_id, None)
