"""Turns a classic group into a consumer group and back, with live members.

Follows Kafka's `convertToConsumerGroup` and `convertToClassicGroup`. The new group shares the lock and the offsets of
the old one, which is DEAD from then on. The coordinators of groups call it, on any thread, with the group's lock held.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from klamm import ErrorCode, KafkaError
from klamm.runtime import Clock
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.groups import consumer_protocol, persistence
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.consumer.member import ClassicProtocol, ConsumerMember
from klamm_broker.groups.consumer.persistence import ROWS
from klamm_broker.groups.consumer.subscriptions import Topics, refresh_metadata
from klamm_broker.groups.group import cancel_timer
from klamm_broker.groups.group_registry import GroupRegistry
from klamm_broker.groups.member import Member
from klamm_broker.groups.rebalance import Rebalancer, names_for_log
from klamm_broker.groups.requests import JoinResult, SyncResult
from klamm_broker.groups.state import STABLE
from klamm_broker.groups.streams.group import StreamsGroup
from klamm_broker.storage.store import Store

log = logging.getLogger("klamm.broker.groups")


class NamedPartitions(Protocol):
    """Partitions of one topic, in the messages of the consumers' embedded protocol."""

    topic: str
    partitions: list[int]


class Migration:
    """The replacement of groups by groups of the other type, if `group.consumer.migration.policy` allows it."""

    def __init__(
        self,
        clock: Clock,
        store: Store,
        settings: BrokerSettings,
        topics: Topics,
        registry: GroupRegistry,
        rebalancer: Rebalancer,
    ) -> None:
        self._clock = clock
        self._store = store
        self._settings = settings
        self._topics = topics
        self._registry = registry
        self._rebalancer = rebalancer

    # To a consumer group

    def upgrade(self, group: ClassicGroup) -> ConsumerGroup:
        """Replace a classic group by a consumer group. This is always possible for an empty group. The offsets stay.

        Raises KafkaError(GROUP_ID_NOT_FOUND) for a group whose members cannot be in a consumer group.
        """
        if group.is_empty:
            new = ConsumerGroup(group.group_id, replaced=group)
        else:
            self._check_upgrade(group)
            try:
                new = self._upgraded(group)
            except (ValueError, LookupError) as error:
                raise _no_consumer_group(group, f"a member's metadata cannot be read: {error}") from error
            log.info("group %s: becomes a consumer group in epoch %d", group.log_name, new.epoch)
        new.changes.before = [*persistence.delete_classic(group.group_id), *ROWS.delete(group.group_id)]
        self._retire(group)
        self._registry.replace(group, new)
        return new

    def _check_upgrade(self, group: ClassicGroup) -> None:
        if self._settings.group_consumer_migration_policy not in ("bidirectional", "upgrade"):
            raise _no_consumer_group(group, "group.consumer.migration.policy does not allow the upgrade")
        if not group.uses_consumer_protocol:
            raise _no_consumer_group(group, "its members are not consumers")
        if len(group.members) > self._settings.group_consumer_max_size:
            raise _no_consumer_group(group, "it has more members than group.consumer.max.size")

    def _upgraded(self, group: ClassicGroup) -> ConsumerGroup:
        new = ConsumerGroup(group.group_id, replaced=group)
        new.epoch = new.assignment_epoch = group.generation_id
        protocol_name = group.protocol_name or group.select_protocol()
        for member in group.members.values():
            subscription = consumer_protocol.read_subscription(member.metadata(protocol_name))
            assignment = consumer_protocol.read_assignment(member.assignment)
            assigned = self.by_id(assignment.assigned_partitions)
            new.put(
                ConsumerMember(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    rack_id=subscription.rack_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    topics=frozenset(subscription.topics),
                    epoch=group.generation_id,
                    previous_epoch=group.generation_id,
                    assigned=assigned,
                    assignment_epochs={
                        topic: dict.fromkeys(indexes, group.generation_id) for topic, indexes in assigned.items()
                    },
                    classic=ClassicProtocol(member.session_timeout_ms, member.protocols),
                    owner=member.owner,
                )
            )
            new.set_target(member.member_id, assigned)
        refresh_metadata(new, self._topics)
        new.refresh_state()
        return new

    def to_streams(self, group: ClassicGroup) -> StreamsGroup:
        """Replace an empty classic group by a streams group. Its offsets stay."""
        new = StreamsGroup(group.group_id, replaced=group)
        new.changes.before = persistence.delete_classic(group.group_id)
        self._retire(group)
        self._registry.replace(group, new)
        return new

    def by_id(self, partitions: Iterable[NamedPartitions]) -> Partitions:
        """Return the partitions of the existing topics, by topic id."""
        found: dict[bytes, frozenset[int]] = {}
        for each in partitions:
            topic = self._topics.get(each.topic)
            if topic is not None and each.partitions:
                found[topic.id] = frozenset(each.partitions) | found.get(topic.id, frozenset())
        return found

    def _retire(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            group.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            group.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            cancel_timer(member.timer)
            member.timer = None
        group.forget_expected()
        cancel_timer(group.join_timer)
        cancel_timer(group.sync_timer)
        group.join_timer = group.sync_timer = None
        group.die()

    # To a classic group

    def is_downgrade(self, group: ConsumerGroup, without: Collection[str] = ()) -> bool:
        """Return True if the group must become a classic group after the members `without` have left."""
        staying = [member for member_id, member in group.members.items() if member_id not in without]
        if not staying or not _common_protocols(staying):
            return False
        if without and all(group.members[member_id].classic is not None for member_id in without):
            return False
        if self._settings.group_consumer_migration_policy not in ("bidirectional", "downgrade"):
            log.info("group %s: stays a consumer group by group.consumer.migration.policy", group.log_name)
            return False
        if len(staying) > self._settings.group_max_size:
            log.info("group %s: stays a consumer group, has more members than group.max.size", group.log_name)
            return False
        return True

    def downgrade_if_empty(self, group: ConsumerGroup | StreamsGroup) -> bool:
        """Replace a consumer or streams group without members by a classic group. Return True if the group is dead."""
        with group:
            if not group.is_empty:
                return group.is_dead
            new = ClassicGroup(group.group_id, self._clock, replaced=group)
            group.die()
            self._registry.replace(group, new)
            self._store.submit(persistence.put_group(new, {}))
            return True

    def downgrade(self, group: ConsumerGroup, without: Collection[str] = ()) -> ClassicGroup:
        """Replace a consumer group by a classic one. `without` are its last members with the consumer protocol: they
        leave, or classic members have replaced them.

        A departure starts a rebalance. The generation is the group's epoch; members with an earlier epoch rejoin.
        """
        new = ClassicGroup(group.group_id, self._clock, replaced=group)
        new.restore(consumer_protocol.PROTOCOL_TYPE, None, group.epoch)
        targets = {member_id: group.target_of(member_id) for member_id in group.members}
        members = [member for member_id, member in group.members.items() if member_id not in without]
        for member in members:
            new.add(_classic_member(member), consumer_protocol.PROTOCOL_TYPE)
        new.protocol_name = new.select_protocol()
        new.refresh_subscribed_topics()
        new.state = STABLE
        for member in members:
            classic = new.members[member.member_id]
            version = _version_of(classic.metadata(new.protocol_name))
            new.assign(classic, self.assignment_bytes(version, targets[member.member_id]))
        group.die()
        self._registry.replace(group, new)
        log.info("group %s: becomes a classic group in generation %d", group.log_name, new.generation_id)
        assignments = {each.member_id: each.assignment for each in new.members.values()}
        # These statements also delete the rows of the consumer group with this id.
        self._store.submit(persistence.put_group(new, assignments))
        for each in new.members.values():
            self._rebalancer.keep_alive(new, each)
        if without:
            self._rebalancer.prepare(new, f"{names_for_log(sorted(without))}, the last of the consumer protocol, left")
        return new

    def assignment_bytes(self, version: int, partitions: Partitions) -> bytes:
        """Return an assignment in the form that classic members read. Deleted topics are left out."""
        named = (
            (topic.name, indexes)
            for topic_id, indexes in partitions.items()
            if (topic := self._topics.by_id(topic_id)) is not None
        )
        return consumer_protocol.assignment_bytes(version, sorted(named))


def _common_protocols(members: Sequence[ConsumerMember]) -> set[str]:
    """Return the classic protocols that all members support; none if a member uses the consumer protocol."""
    supported = [
        {name for name, _ in each.classic.protocols} if each.classic is not None else set() for each in members
    ]
    return set.intersection(*supported)


def _version_of(subscription: bytes) -> int:
    """Return the version of a subscription; 0 if it cannot be read.

    A member may have several subscriptions; only the first one was parsed when it joined.
    """
    try:
        return consumer_protocol.version_of(subscription)
    except ValueError:
        return 0


def _classic_member(member: ConsumerMember) -> Member:
    classic = member.classic
    if classic is None:
        raise RuntimeError(f"member {member.member_id!r} does not speak the classic protocol")
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        classic.protocols,
        owner=member.owner,
    )


def _no_consumer_group(group: ClassicGroup, why: str) -> KafkaError:
    log.info("group %s: stays a classic group: %s", group.log_name, why)
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")
