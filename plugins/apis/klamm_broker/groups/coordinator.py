"""The group coordinator: passes each request to the part that coordinates its group.

Follows Kafka's `GroupCoordinatorService`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from klamm import ErrorCode
from klamm.runtime import Clock, Scheduler
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.groups import persistence
from klamm_broker.groups.administration import GroupAdministration
from klamm_broker.groups.classic_coordinator import ClassicCoordinator
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer.assignment import TargetAssignment
from klamm_broker.groups.consumer.classic_members import ClassicMembers
from klamm_broker.groups.consumer.coordinator import ConsumerCoordinator
from klamm_broker.groups.consumer.fencing import Fencing
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.consumer.migration import Migration
from klamm_broker.groups.consumer.subscriptions import Topics
from klamm_broker.groups.epoch_coordinator import EpochCoordinator
from klamm_broker.groups.expiration import ExpirationScheduler
from klamm_broker.groups.group import UNCOUNTED, Group, GroupLedgers
from klamm_broker.groups.group_registry import GroupRegistry
from klamm_broker.groups.offsets import OffsetManager
from klamm_broker.groups.rebalance import Rebalancer
from klamm_broker.groups.requests import (
    JoinReply,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from klamm_broker.groups.share.coordinator import ShareCoordinator, ShareWorld
from klamm_broker.groups.streams.assignment import StreamsAssignment
from klamm_broker.groups.streams.coordinator import StreamsCoordinator
from klamm_broker.groups.streams.fencing import StreamsFencing
from klamm_broker.groups.streams.group import StreamsGroup
from klamm_broker.groups.transactional_offsets import TransactionalOffsets
from klamm_broker.storage.store import Store


class ShareListener(Protocol):
    """The owner of the delivery states of share groups. Its methods do not wait."""

    def member_gone(self, group_id: str, member_id: str, /) -> None: ...
    def group_deleted(self, group_id: str, /) -> None: ...


class GroupWorld(NamedTuple):
    """The parts of the broker that groups use: its topics, the configs of groups, and a thread for long work.

    `shares` is notified of members of share groups that leave, and of deleted groups.
    """

    topics: Topics
    configs: GroupConfigs
    run_later: Callable[[Callable[[], object]], None]
    shares: ShareListener


class GroupCoordinator:
    """Coordinates all groups of this broker.

    It does no I/O, has no threads, and never waits for the disk. It answers through the `reply` arguments, at once or
    later, on the caller's thread, the scheduler's or the store's. It never answers while it holds a group's lock.

    Life cycle: `load()` → requests and timers → `close()`.
    """

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        store: Store,
        settings: BrokerSettings,
        random_bytes: Callable[[int], bytes],
        world: GroupWorld,
        served_until_ns: Callable[[], int] | None = None,
        ledgers: GroupLedgers = UNCOUNTED,
    ) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._store = store
        self._clock = clock
        self.registry = GroupRegistry(clock, store, ledgers)
        timers = ExpirationScheduler(clock, scheduler, served_until_ns or clock.monotonic_ns)
        self._rebalancer = rebalancer = Rebalancer(clock, timers, store, settings)
        self._classic = ClassicCoordinator(store, settings, random_bytes, self.registry, rebalancer)
        assignment = TargetAssignment(clock, settings, world.topics)
        migration = Migration(clock, store, settings, world.topics, self.registry, rebalancer)
        self._migration = migration
        fencing = Fencing(clock, timers, store, world.configs, assignment, migration)
        self._run_later = world.run_later
        self._classic_members = ClassicMembers(settings, random_bytes, assignment, fencing, migration)
        self.consumers = ConsumerCoordinator(settings, random_bytes, self.registry, assignment, fencing, migration)
        self.shares = ShareCoordinator(
            clock,
            timers,
            store,
            settings,
            self.registry,
            ShareWorld(world.topics, world.configs, world.shares.member_gone),
        )
        streams = StreamsAssignment(clock, world.topics, world.configs)
        self.streams = StreamsCoordinator(
            settings,
            self.registry,
            streams,
            StreamsFencing(clock, timers, store, world.configs, streams),
            migration.to_streams,
        )
        self.offsets = OffsetManager(clock, store, settings, self.registry, rebalancer)
        self.transactional_offsets = TransactionalOffsets(clock, store, settings, self.registry)
        self.administration = GroupAdministration(store, self.registry, world.shares.group_deleted)

    @property
    def completed_rebalances(self) -> int:
        """Return the number of rebalances of classic groups that have ended with assignments."""
        return self._rebalancer.completed

    def load(self) -> int:
        """Read the stored groups, and start their members' sessions and the expiry of offsets. Return the number of
        groups.

        Raises StoreError.
        """
        self.registry.restore(persistence.load(self._store, self._clock))
        self.transactional_offsets.load()
        groups = self.registry.all()
        for group in groups:
            if isinstance(group, ClassicGroup):
                self._classic.start(group)
            else:
                self._coordinator_of(group).start(group)
        self._scheduler.every(self._settings.offsets_retention_check_interval_ms, self.offsets.expire)
        return len(groups)

    def close(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR."""
        for group in self.registry.all():
            if isinstance(group, ClassicGroup):
                self._classic.stop(group)
            else:
                self._coordinator_of(group).stop(group)

    def _coordinator_of(self, group: Group) -> EpochCoordinator[Any, Any, Any]:
        return next(each for each in (self.consumers, self.shares, self.streams) if isinstance(group, each.group_class))

    def coordinator_moved(self, is_moved: Callable[[str], bool]) -> None:
        """Answer with NOT_COORDINATOR the requests that wait for groups for which `is_moved` is True. The groups stay
        unchanged.
        """
        for group in self.registry.all():
            if isinstance(group, ClassicGroup) and is_moved(group.group_id):
                self._classic.answer_waiting(group)

    # Requests of members that use the classic protocol, for groups of any kind

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """Join a group, and create it if the member is new. `reply` is called at once or when the join phase ends."""
        known = self.registry.get(request.group_id)
        if isinstance(known, StreamsGroup):
            self._migration.downgrade_if_empty(known)
        group = self._consumer_group(request.group_id)
        if group is not None and self._migration.downgrade_if_empty(group):
            group = None
        if group is None:
            self._classic.join(request, reply)
        elif (error := self._classic.check_join(request)) is not ErrorCode.NONE:
            reply(JoinResult(error, request.member_id))
        else:
            # The join may compute an assignment.
            self._run_later(lambda: self._classic_members.join(group, request, reply))

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        """Pass a member's assignment to `reply`, once the leader has sent the assignments and they are durable."""
        group = self._consumer_group(request.group_id)
        if group is None:
            self._classic.sync(request, reply)
        else:
            self._classic_members.sync(group, request, reply)

    def heartbeat(
        self, group_id: str, member_id: str, generation_id: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Keep a member's session alive. REBALANCE_IN_PROGRESS makes the member rejoin."""
        group = self._consumer_group(group_id)
        if group is None:
            return self._classic.heartbeat(group_id, member_id, generation_id, group_instance_id)
        return self._classic_members.heartbeat(group, member_id, generation_id, group_instance_id)

    def leave(self, group_id: str, leaving: Sequence[LeavingMember], reply: Callable[[LeaveResult], None]) -> None:
        """Remove members. `reply` is called when the removal is durable."""
        group = self._consumer_group(group_id)
        if group is None:
            self._classic.leave(group_id, leaving, reply)
        else:
            self._classic_members.leave(group, leaving, reply)

    def _consumer_group(self, group_id: str) -> ConsumerGroup | None:
        group = self.registry.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None
