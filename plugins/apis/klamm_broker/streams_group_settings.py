"""Settings of streams groups (KIP-1071): Kafka's broker keys, meanings and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from klamm import setting
from klamm_broker.numbers import INT32_MAX

STREAMS_ASSIGNORS = ("sticky",)


@dataclass(frozen=True, kw_only=True)
class StreamsGroupSettings:
    """The keys `group.streams.*` of `[broker]`."""

    group_streams_session_timeout_ms: int = setting(
        45_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Longest time for which a member of a streams group may be silent.",
    )
    group_streams_min_session_timeout_ms: int = setting(
        45_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Shortest session timeout that a streams group's own config may set.",
    )
    group_streams_max_session_timeout_ms: int = setting(
        60_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Longest session timeout that a streams group's own config may set.",
    )
    group_streams_heartbeat_interval_ms: int = setting(
        5_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Time between two heartbeats of a member of a streams group.",
    )
    group_streams_min_heartbeat_interval_ms: int = setting(
        5_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Shortest heartbeat interval that a streams group's own config may set.",
    )
    group_streams_max_heartbeat_interval_ms: int = setting(
        15_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Longest heartbeat interval that a streams group's own config may set.",
    )
    group_streams_max_size: int = setting(
        INT32_MAX,
        minimum=1,
        maximum=INT32_MAX,
        doc="Most members of a streams group.",
    )
    group_streams_num_standby_replicas: int = setting(
        0,
        minimum=0,
        maximum=INT32_MAX,
        doc="Standby copies of the state of each task.",
    )
    group_streams_max_standby_replicas: int = setting(
        2,
        minimum=0,
        maximum=INT32_MAX,
        doc="Most standby copies that a streams group's own config may set.",
    )
    group_streams_initial_rebalance_delay_ms: int = setting(
        3_000,
        minimum=0,
        maximum=INT32_MAX,
        doc="Time that a new streams group waits for more members before its first assignment.",
    )
    group_streams_assignment_interval_ms: int = setting(
        1_000,
        minimum=0,
        maximum=INT32_MAX,
        doc="Shortest time between two assignments of a streams group.",
    )
    group_streams_min_assignment_interval_ms: int = setting(
        0,
        minimum=0,
        maximum=INT32_MAX,
        doc="Shortest assignment interval that a streams group's own config may set.",
    )
    group_streams_max_assignment_interval_ms: int = setting(
        15_000,
        minimum=0,
        maximum=INT32_MAX,
        doc="Longest assignment interval that a streams group's own config may set.",
    )
    group_streams_assignors: tuple[str, ...] = setting(STREAMS_ASSIGNORS, doc="Assignors of streams groups: sticky.")
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = setting(
        (),
        doc="Keys of client tags over whose values the standby copies of a task are distributed.",
    )

    def streams_group_problems(self) -> Iterator[tuple[str, str]]:
        """Values that contradict each other."""
        if self.group_streams_num_standby_replicas > self.group_streams_max_standby_replicas:
            yield (
                "group.streams.num.standby.replicas",
                f"{self.group_streams_num_standby_replicas} is more than group.streams.max.standby.replicas"
                f" ({self.group_streams_max_standby_replicas})",
            )
        if not self.group_streams_assignors or not set(self.group_streams_assignors) <= set(STREAMS_ASSIGNORS):
            given = ", ".join(self.group_streams_assignors) or "nothing"
            yield "group.streams.assignors", f"must be some of {', '.join(STREAMS_ASSIGNORS)}, not {given}"
        tags = self.group_streams_rack_aware_assignment_tags
        if len(set(tags)) != len(tags):
            yield "group.streams.rack.aware.assignment.tags", "must not contain duplicate tag keys"
