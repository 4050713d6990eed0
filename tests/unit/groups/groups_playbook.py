"""A group coordinator that tests drive by hand: with a manual clock, and timers and a store that the test runs."""

from __future__ import annotations

import dataclasses
import itertools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from klamm import ErrorCode
from klamm.runtime import Scheduler
from klamm.testing import ManualClock
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.group_config_keys import STREAMS_ASSIGNMENT_INTERVAL, STREAMS_INITIAL_REBALANCE_DELAY
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.groups.coordinator import GroupCoordinator, GroupWorld
from klamm_broker.groups.group import GroupLedgers
from klamm_broker.groups.offsets import CommitRequest, FetchedOffsets, PartitionCommit, TopicPartitions
from klamm_broker.groups.requests import (
    ConsumerHeartbeat,
    EpochHeartbeatResult,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from klamm_broker.limits.ledger import Ledger
from klamm_broker.storage.store import Store

R = TypeVar("R")

GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_DELAY_MS = 3_000


class Topic:
    """A topic whose id is made from its name."""

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.id = topic_id(name)
        self.partitions = [None] * partitions


class Topics:
    """Topics that tests create, change and delete."""

    def __init__(self) -> None:
        self.generation = 0
        self._by_name: dict[str, Topic] = {}

    def set(self, name: str, partitions: int) -> None:
        """Create a topic or give it more partitions. 0 deletes it."""
        self.generation += 1
        if partitions:
            self._by_name[name] = Topic(name, partitions)
        else:
            self._by_name.pop(name, None)

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return next((topic for topic in self._by_name.values() if topic.id == topic_id), None)

    def all(self) -> list[Topic]:
        return list(self._by_name.values())


def topic_id(name: str) -> bytes:
    """Return the id of the topic with this name."""
    return name.encode().ljust(16, b"-")


class Shares:
    """Records the coordinator's reports for share groups: `(group_id, member_id)`, or the id of a deleted group."""

    def __init__(self) -> None:
        self.gone: list[tuple[str, str]] = []
        self.deleted: list[str] = []

    def member_gone(self, group_id: str, member_id: str) -> None:
        self.gone.append((group_id, member_id))

    def group_deleted(self, group_id: str) -> None:
        self.deleted.append(group_id)


class Configs(GroupConfigs):
    """The broker's configs, of which a playbook can replace some."""

    def __init__(self, playbook: Playbook) -> None:
        super().__init__(playbook.settings, playbook.store)
        self._playbook = playbook

    def value(self, group_id: str, name: str) -> Any:
        values = self._playbook.config_values
        return values[name] if name in values else super().value(group_id, name)


@dataclass(slots=True)
class Call(Generic[R]):
    """A request that was sent. It keeps every answer, so that a test notices a second one."""

    answers: list[R] = field(default_factory=list)

    def __call__(self, result: R) -> None:
        self.answers.append(result)

    @property
    def waits(self) -> bool:
        """Return True if there is no answer yet."""
        return not self.answers

    @property
    def result(self) -> R:
        """Return the only answer."""
        (result,) = self.answers
        return result


def subscription(*topics: str) -> bytes:
    """Return a ConsumerProtocolSubscription, version 0."""
    encoded = [topic.encode() for topic in topics]
    names = b"".join(struct.pack(">h", len(name)) + name for name in encoded)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def unlimited() -> GroupLedgers:
    """Return ledgers that count but refuse nothing."""
    return GroupLedgers(Ledger("groups"), Ledger("group members"), Ledger("offsets"))


class Playbook:
    """A coordinator with its store and its time, and short methods to send requests to it."""

    def __init__(self, path: Path, make_ledgers: Callable[[], GroupLedgers] = unlimited, **settings: Any) -> None:
        self.path = path
        self.make_ledgers = make_ledgers
        self.settings = BrokerSettings(**settings)
        self.clock = ManualClock()
        self.topics = Topics()
        self.config_values: dict[str, Any] = {STREAMS_INITIAL_REBALANCE_DELAY: 0, STREAMS_ASSIGNMENT_INTERVAL: 0}
        """Configs of all groups that differ from the broker's."""
        self.shares = Shares()
        self._ids = itertools.count(1)
        self.lag_ms = 0
        """The milliseconds by which the server is late with reading."""
        self._start()

    def _start(self) -> None:
        self.scheduler = Scheduler(self.clock)
        self.store = Store(self.path)
        self.store.open()
        self.ledgers = self.make_ledgers()
        self.coordinator = GroupCoordinator(
            self.clock,
            self.scheduler,
            self.store,
            self.settings,
            lambda size: next(self._ids).to_bytes(size, "big"),
            GroupWorld(self.topics, Configs(self), lambda work: work(), self.shares),
            lambda: self.clock.monotonic_ns() - self.lag_ms * 1_000_000,
            self.ledgers,
        )
        self.loaded = self.coordinator.load()

    def restart(self, **changed: Any) -> None:
        """Stop in order, and start again on the same file with changed settings."""
        self.settings = dataclasses.replace(self.settings, **changed)
        self.coordinator.close()
        self.store.close()
        self._start()

    def crash(self) -> None:
        """Start again on the same file. Writes that the store had not committed are lost."""
        self._start()

    def close(self) -> None:
        self.coordinator.close()
        self.store.close()

    def settle(self) -> None:
        """Commit and run everything that is due, until nothing is left."""
        self.scheduler.run_due()
        while self.store.commit_pending():
            self.scheduler.run_due()

    def advance(self, ms: int) -> None:
        """Let time pass, timer by timer."""
        end_ns = self.clock.monotonic_ns() + ms * 1_000_000
        while True:
            self.settle()
            wait_s = self.scheduler.run_due()
            left_ms = (end_ns - self.clock.monotonic_ns()) // 1_000_000
            wait_ms = left_ms + 1 if wait_s is None else math.ceil(wait_s * 1e3 - 1e-6)
            if wait_ms > left_ms:
                self.clock.advance_ms(left_ms)
                self.settle()
                return
            self.clock.advance_ms(wait_ms)

    # Requests

    def ask_join(self, member_id: str = "", **changes: Any) -> Call[JoinResult]:
        """Send a join. By default it has the protocol "range" and the topic "t"."""
        request = JoinRequest(
            group_id=GROUP,
            member_id=member_id,
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", subscription("t")),),
        )
        call: Call[JoinResult] = Call()
        self.coordinator.join(request._replace(**changes), call)
        return call

    def promised_id(self, **changes: Any) -> str:
        """Return the member id that a dynamic member gets at its first join."""
        result = self.ask_join(**changes).result
        assert result.error_code is ErrorCode.MEMBER_ID_REQUIRED
        return result.member_id

    def ask_sync(
        self, member_id: str, generation_id: int, assignments: Mapping[str, bytes] | None = None, **changes: Any
    ) -> Call[SyncResult]:
        request = SyncRequest(GROUP, generation_id, member_id, assignments=assignments or {})
        call: Call[SyncResult] = Call()
        self.coordinator.sync(request._replace(**changes), call)
        return call

    def heartbeat(self, member_id: str, generation_id: int, group_instance_id: str | None = None) -> ErrorCode:
        return self.coordinator.heartbeat(GROUP, member_id, generation_id, group_instance_id)

    def leave(self, *members: LeavingMember | str) -> LeaveResult:
        call: Call[LeaveResult] = Call()
        leaving = [LeavingMember(each) if isinstance(each, str) else each for each in members]
        self.coordinator.leave(GROUP, leaving, call)
        self.settle()
        return call.result

    def ask_commit(self, *commits: PartitionCommit, group_id: str = GROUP, **changes: Any) -> Call[Sequence[ErrorCode]]:
        call: Call[Sequence[ErrorCode]] = Call()
        self.coordinator.offsets.commit(CommitRequest(group_id, commits, **changes), call)
        return call

    def commit(self, *commits: PartitionCommit, **changes: Any) -> Sequence[ErrorCode]:
        call = self.ask_commit(*commits, **changes)
        self.settle()
        return call.result

    def fetch(self, partitions: TopicPartitions | None = None, group_id: str = GROUP) -> FetchedOffsets:
        call: Call[Sequence[FetchedOffsets]] = Call()
        self.coordinator.offsets.fetch([(group_id, partitions)], call)
        (fetched,) = call.result
        return fetched

    def state(self, group_id: str = GROUP) -> str | None:
        """Return the group's state as DescribeGroups shows it; None if there is no group."""
        described = self.coordinator.administration.describe(group_id)
        return described.state if described is not None else None

    def state_of_group(self, group_id: str = GROUP) -> str | None:
        """Return the group's state as ListGroups shows it, whatever the group's type."""
        listed = self.coordinator.administration.list_groups()
        return next((group.state for group in listed if group.group_id == group_id), None)

    # Members of the consumer protocol

    def ask_beat(self, member: str, at: int, /, **changes: Any) -> Call[EpochHeartbeatResult]:
        """Send a heartbeat. With epoch 0 it is a full one, for topic "t" by default."""
        request = ConsumerHeartbeat(GROUP, member, at, "client", "/127.0.0.1")
        if at == 0:
            request = request._replace(rebalance_timeout_ms=REBALANCE_MS, topics=["t"], owned={})
        call: Call[EpochHeartbeatResult] = Call()
        self.coordinator.consumers.heartbeat(request._replace(**changes), call)
        return call

    def beat(self, member_id: str, epoch: int, **changes: Any) -> EpochHeartbeatResult:
        """Return the answer to a heartbeat once it is durable."""
        call = self.ask_beat(member_id, epoch, **changes)
        self.settle()
        return call.result

    # Whole scenarios

    def stable_group(self, count: int, **changes: Any) -> list[str]:
        """Make a stable group of `count` dynamic members.

        Member n has the assignment b"n", and the first member leads.
        """
        ids = [self.promised_id(**changes) for _ in range(count)]
        joins = [self.ask_join(member_id, **changes) for member_id in ids]
        self.await_joins(joins)
        self.sync_all(ids, joins)
        return ids

    def await_joins(self, joins: Sequence[Call[JoinResult]]) -> None:
        """Let time pass until the join phase ends."""
        for _ in range(REBALANCE_MS // 500):
            if not any(join.waits for join in joins):
                return
            self.advance(500)
        raise AssertionError("the join phase does not end")

    def sync_all(self, ids: Sequence[str], joins: Sequence[Call[JoinResult]]) -> None:
        """Sync every member of a completed join phase."""
        generation_id = joins[0].result.generation_id
        leader_id = joins[0].result.leader_id
        assignments = {member_id: b"%d" % number for number, member_id in enumerate(ids)}
        syncs = {
            member_id: self.ask_sync(member_id, generation_id, assignments if member_id == leader_id else None)
            for member_id in ids
        }
        self.settle()
        for member_id, sync in syncs.items():
            assert sync.result.error_code is ErrorCode.NONE
            assert sync.result.assignment == assignments[member_id]
