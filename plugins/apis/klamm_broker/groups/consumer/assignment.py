"""`TargetAssignment`: starts a group's next epoch when members, subscriptions or topics change, and computes its target
assignment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm import ErrorCode, KafkaError
from klamm.runtime import Clock
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.groups.assignors import ASSIGNORS, MemberSpec, Partitions
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from klamm_broker.groups.consumer.reconciliation import next_step
from klamm_broker.groups.consumer.subscriptions import (
    RegexRefresh,
    Topics,
    partition_counts,
    refresh_metadata,
    resolve_regexes,
    topics_of,
)
from klamm_broker.numbers import NS_PER_MS

log = logging.getLogger("klamm.broker.groups")


class TargetAssignment:
    """Updates the epochs, metadata and targets of consumer groups. The caller holds the group's lock."""

    def __init__(self, clock: Clock, settings: BrokerSettings, topics: Topics) -> None:
        self._clock = clock
        self._settings = settings
        self.topics = topics
        self.rebalances = 0
        """Number of group epochs that were started in all groups together."""

    def update(
        self, group: ConsumerGroup, may_describe: Callable[[str], bool], *, subscription_changed: bool = False
    ) -> None:
        """Start a new epoch if members, subscriptions or topics have changed, and compute its target assignment.

        Raises KafkaError(UNKNOWN_SERVER_ERROR) if the assignor fails. The next heartbeat tries again.
        """
        refresh = RegexRefresh(self._settings.group_consumer_regex_refresh_interval_ms * NS_PER_MS)
        resolved = resolve_regexes(group, self.topics, may_describe, self._clock.monotonic_ns, refresh)
        changed = resolved or subscription_changed
        if (changed or group.metadata_generation != self.topics.generation) and refresh_metadata(group, self.topics):
            changed = True
        if changed:
            self.begin_epoch(group)
        if group.epoch > group.assignment_epoch and group.members:
            self._compute(group)

    def begin_epoch(self, group: ConsumerGroup) -> None:
        """Start a new epoch. `update` computes its target."""
        group.bump_epoch()
        self.rebalances += 1

    def member_gone(self, group: ConsumerGroup) -> None:
        """Start a new epoch, because a member was removed. The next heartbeat calls `update`."""
        refresh_metadata(group, self.topics)
        self.begin_epoch(group)

    def _compute(self, group: ConsumerGroup) -> None:
        name = group.preferred_assignor or self._settings.group_consumer_assignors[0]
        counts = partition_counts(group.subscribed_topics, self.topics)
        ids = {subscribed: frozenset(partition_counts(subscribed, self.topics)) for subscribed in self._sets(group)}
        specs = {
            member_id: MemberSpec(member.instance_id, ids[topics_of(group, member)], group.target_of(member_id))
            for member_id, member in group.members.items()
        }
        started_ns = self._clock.monotonic_ns()
        try:
            target = ASSIGNORS[name](specs, counts)
        except Exception as error:
            log.exception("group %s: assignor %s failed in epoch %d", group.log_name, name, group.epoch)
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Failed to compute a new target assignment for epoch {group.epoch}: {error}",
            ) from error
        took_ms = (self._clock.monotonic_ns() - started_ns) / NS_PER_MS
        log.info("group %s: target of epoch %d by %s in %.1f ms", group.log_name, group.epoch, name, took_ms)
        for member_id in group.members:
            group.set_target(member_id, target.get(member_id, NO_PARTITIONS))
        group.assignment_epoch = group.epoch
        group.changes.group = True

    def _sets(self, group: ConsumerGroup) -> set[frozenset[str]]:
        return {topics_of(group, member) for member in group.members.values()}

    def reconcile(self, group: ConsumerGroup, member: ConsumerMember, owned: Partitions | None) -> ConsumerMember:
        """Return the member after one more step towards its target."""
        if member.is_reconciled_to(group.assignment_epoch):
            return member
        target = group.target_of(member.member_id)
        updated = next_step(member, group.assignment_epoch, target, group.is_owned, owned)
        group.put(updated)
        return updated
