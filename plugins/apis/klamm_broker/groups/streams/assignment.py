"""The target assignment of a streams group, computed from its topology, topics and members."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from klamm.runtime import Clock
from klamm_broker.configs.group_config_keys import (
    STREAMS_ASSIGNMENT_INTERVAL,
    STREAMS_NUM_STANDBY_REPLICAS,
    STREAMS_RACK_AWARE_TAGS,
)
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.groups.assignors.tasks import NAME, StreamsMemberSpec, StreamsSpec, assign_sticky
from klamm_broker.groups.consumer.subscriptions import Topics, topics_hash
from klamm_broker.groups.streams.configuration import configure
from klamm_broker.groups.streams.group import StreamsGroup
from klamm_broker.groups.streams.member import StreamsMember
from klamm_broker.groups.streams.reconciliation import next_step
from klamm_broker.groups.streams.requests import Status, StatusCode
from klamm_broker.groups.streams.tasks import NONE, Tasks
from klamm_broker.numbers import NS_PER_MS

log = logging.getLogger("klamm.broker.groups")

INITIAL_REBALANCE: Final = "initial rebalance", ""
"""The key of the timer that a new group waits for."""
_STANDBYS: Final = "num.standby.replicas"
_TAGS: Final = "rack.aware.assignment.tags"


class StreamsAssignment:
    """Updates the epochs, configurations and targets of streams groups. The caller holds the group's lock."""

    def __init__(self, clock: Clock, topics: Topics, configs: GroupConfigs) -> None:
        self._clock = clock
        self._configs = configs
        self.topics = topics
        self.rebalances = 0
        """Number of group epochs that were started in all groups together."""

    def update(self, group: StreamsGroup, *, member_changed: bool) -> Status | None:
        """Start a new epoch if members, topics or configs have changed, and compute its target if it is due.

        Return the reason if the computation must wait.
        """
        self.refresh(group)
        configs = self._assignment_configs(group.group_id)
        if member_changed or group.has_new_topics or (group.configs is not None and group.configs != configs):
            group.configs, group.has_new_topics = configs, False
            self.begin_epoch(group)
        return self.compute(group)

    def refresh(self, group: StreamsGroup) -> None:
        """Look up the topics. Note if they have changed, or if all of them exist for the first time."""
        generation = self.topics.generation
        if group.topology is None or group.metadata_generation == generation:
            return
        configuration = configure(group.topology, self.topics)
        digest = topics_hash(group.topology.required_topics, self.topics)
        validated = group.topology.epoch if configuration.is_ready else -1
        group.configuration, group.metadata_generation = configuration, generation
        group.source_of = {
            topic.id: each.subtopology_id
            for each in group.topology.subtopologies
            for name in each.input_topics
            if (topic := self.topics.get(name)) is not None
        }
        if (digest, validated) != (group.metadata_hash, group.validated_epoch):
            group.metadata_hash, group.validated_epoch = digest, validated
            group.has_new_topics = group.changes.group = True

    def begin_epoch(self, group: StreamsGroup) -> None:
        """Start a new epoch. `compute` computes its target."""
        group.bump_epoch()
        self.rebalances += 1

    def compute(self, group: StreamsGroup) -> Status | None:
        """Compute the target of the group's epoch, if it has none. Return the reason if the computation must wait."""
        if INITIAL_REBALANCE in group.timers:
            detail = "Assignment delayed due to the configured initial rebalance delay."
            return Status(StatusCode.ASSIGNMENT_DELAYED, detail)
        if group.epoch <= group.assignment_epoch:
            return None
        now_ns = self._clock.monotonic_ns()
        interval_ns = self._configs.number(group.group_id, STREAMS_ASSIGNMENT_INTERVAL) * NS_PER_MS
        if group.assigned_at_ns is not None and now_ns < group.assigned_at_ns + interval_ns:
            detail = "Assignment delayed due to the configured assignment interval."
            return Status(StatusCode.ASSIGNMENT_DELAYED, detail)
        target = self._target(group)
        took_ms = (self._clock.monotonic_ns() - now_ns) / NS_PER_MS
        log.info("group %s: target of epoch %d by %s in %.1f ms", group.log_name, group.epoch, NAME, took_ms)
        for member_id in group.members:
            group.set_target(member_id, target.get(member_id, NONE))
        group.assignment_epoch, group.assigned_at_ns = group.epoch, now_ns
        group.changes.group = True
        return None

    def _target(self, group: StreamsGroup) -> Mapping[str, Tasks]:
        if group.topology is None or not group.configuration.is_ready:
            return {}
        configs = self._configs
        return assign_sticky(
            StreamsSpec(
                {
                    member_id: StreamsMemberSpec(member.process_id, member.client_tags, group.target_of(member_id))
                    for member_id, member in group.members.items()
                },
                group.configuration.tasks,
                frozenset(each.subtopology_id for each in group.topology.subtopologies if each.changelog_topics),
                configs.number(group.group_id, STREAMS_NUM_STANDBY_REPLICAS),
                tuple(configs.value(group.group_id, STREAMS_RACK_AWARE_TAGS)),
            )
        )

    def reconcile(self, group: StreamsGroup, member: StreamsMember, owned: Tasks | None) -> StreamsMember:
        """Return the member after one more step towards its target."""
        if member.is_reconciled_to(group.assignment_epoch):
            return member
        target = group.target_of(member.member_id)
        updated = next_step(member, group.assignment_epoch, target, group.free_for(member), owned)
        group.put(updated)
        return updated

    def _assignment_configs(self, group_id: str) -> Mapping[str, str]:
        tags = self._configs.value(group_id, STREAMS_RACK_AWARE_TAGS)
        standbys = {_STANDBYS: str(self._configs.number(group_id, STREAMS_NUM_STANDBY_REPLICAS))}
        return {**standbys, _TAGS: ",".join(tags)} if tags else standbys
