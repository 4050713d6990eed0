"""Settings of consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071).

Kafka's broker keys, meanings and defaults. Only `BrokerSettings` has instances, so the classes here get no `__init__`,
`__repr__` and `__eq__`: generating these methods would slow down each start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from klamm import setting
from klamm.config import CLUSTER_WIDE
from klamm_broker.numbers import INT32_MAX

GROUP_PROTOCOLS: Final = ("classic", "consumer", "streams")
ASSIGNOR_NAMES: Final = ("uniform", "range")
STREAMS_ASSIGNORS: Final = ("sticky",)


def _number(default: int, doc: str, *, minimum: int = 1, maximum: int = INT32_MAX) -> int:
    """Return a setting of all groups of a type."""
    made: int = setting(default, minimum=minimum, maximum=maximum, doc=doc)
    return made


def _bound(default: int, what: str, whose: str, *, minimum: int = 1, maximum: int = INT32_MAX) -> int:
    """Return a setting that bounds the configs of single groups."""
    return _number(default, f"{what} that a {whose}'s own config may set.", minimum=minimum, maximum=maximum)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ConsumerGroupSettings:
    """The keys `group.consumer.*` of `[broker]`, and `group.coordinator.rebalance.protocols`."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ("classic", "consumer", "streams"),
        doc="Group protocols to serve: classic, which is required, consumer and streams.",
    )
    group_consumer_session_timeout_ms: int = _number(
        45_000, "Longest time for which a member of a consumer group may be silent."
    )
    group_consumer_min_session_timeout_ms: int = _bound(45_000, "Shortest session timeout", "group")
    group_consumer_max_session_timeout_ms: int = _bound(60_000, "Longest session timeout", "group")
    group_consumer_heartbeat_interval_ms: int = _number(
        5_000, "Time between two heartbeats of a member of a consumer group."
    )
    group_consumer_min_heartbeat_interval_ms: int = _bound(5_000, "Shortest heartbeat interval", "group")
    group_consumer_max_heartbeat_interval_ms: int = _bound(15_000, "Longest heartbeat interval", "group")
    group_consumer_max_size: int = setting(INT32_MAX, minimum=1, doc="Maximum number of members of a consumer group.")
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"),
        doc="Assignors of the server: uniform, range or both. The first is the default, for groups whose members "
        "name none.",
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Directions in which groups with members may change between the classic and the consumer protocol.",
    )
    group_consumer_regex_refresh_interval_ms: int = _number(
        600_000,
        "Age at which the topics of a regular expression are looked up again, for changed permissions.",
        minimum=10_000,
    )

    def consumer_group_problems(self) -> Iterator[tuple[str, str]]:
        """Yield values that contradict each other."""
        if "classic" not in self.group_coordinator_rebalance_protocols:
            yield "group.coordinator.rebalance.protocols", "must include classic"
        for name, value, known in (
            (
                "group.coordinator.rebalance.protocols",
                self.group_coordinator_rebalance_protocols,
                GROUP_PROTOCOLS,
            ),
            ("group.consumer.assignors", self.group_consumer_assignors, ASSIGNOR_NAMES),
        ):
            if not value or not set(value) <= set(known):
                yield name, f"must be among {', '.join(known)}, not {', '.join(value) or 'nothing'}"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ShareGroupSettings:
    """The keys `group.share.*` of `[broker]`."""

    group_share_session_timeout_ms: int = _number(
        45_000, "Longest time for which a member of a share group may be silent."
    )
    group_share_min_session_timeout_ms: int = _bound(45_000, "Shortest session timeout", "share group")
    group_share_max_session_timeout_ms: int = _bound(60_000, "Longest session timeout", "share group")
    group_share_heartbeat_interval_ms: int = _number(5_000, "Time between two heartbeats of a member of a share group.")
    group_share_min_heartbeat_interval_ms: int = _bound(5_000, "Shortest heartbeat interval", "share group")
    group_share_max_heartbeat_interval_ms: int = _bound(15_000, "Longest heartbeat interval", "share group")
    group_share_record_lock_duration_ms: int = _number(
        30_000,
        "Time for which a member of a share group holds a record that it has acquired and not acknowledged.",
        minimum=1000,
        maximum=3_600_000,
    )
    group_share_min_record_lock_duration_ms: int = _bound(
        15_000, "Shortest lock", "share group", minimum=1000, maximum=30_000
    )
    group_share_max_record_lock_duration_ms: int = _bound(
        60_000, "Longest lock", "share group", minimum=30_000, maximum=3_600_000
    )
    group_share_delivery_count_limit: int = _number(
        5,
        "Number of deliveries to members of a share group after which a record is archived.",
        minimum=2,
        maximum=10,
    )
    group_share_min_delivery_count_limit: int = _bound(
        2, "Lowest delivery count limit", "share group", minimum=2, maximum=5
    )
    group_share_max_delivery_count_limit: int = _bound(
        10, "Highest delivery count limit", "share group", minimum=5, maximum=25
    )
    group_share_partition_max_record_locks: int = _number(
        2000,
        "Maximum number of records in flight in a partition of a share group; a batch that begins below it is "
        "acquired whole.",
        minimum=100,
        maximum=10_000,
    )
    group_share_min_partition_max_record_locks: int = _bound(
        100, "Lowest limit of records in flight", "share group", minimum=100, maximum=2000
    )
    group_share_max_partition_max_record_locks: int = _bound(
        4000, "Highest limit of records in flight", "share group", minimum=2000, maximum=10_000
    )
    group_share_max_size: int = setting(200, minimum=1, maximum=1000, doc="Maximum number of members of a share group.")
    group_share_max_share_sessions: int = setting(
        2000, minimum=1, doc="Maximum number of share sessions of this broker."
    )

    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        False,
        doc="Create the dead-letter topic that a share group names if it does not exist.",
        dynamic=CLUSTER_WIDE,
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        "dlq.",
        doc="Prefix of the names of dead-letter topics; other topics get no dead letters.",
        dynamic=CLUSTER_WIDE,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StreamsGroupSettings:
    """The keys `group.streams.*` of `[broker]`."""

    group_streams_session_timeout_ms: int = _number(
        45_000, "Longest time for which a member of a streams group may be silent."
    )
    group_streams_min_session_timeout_ms: int = _bound(45_000, "Shortest session timeout", "streams group")
    group_streams_max_session_timeout_ms: int = _bound(60_000, "Longest session timeout", "streams group")
    group_streams_heartbeat_interval_ms: int = _number(
        5_000, "Time between two heartbeats of a member of a streams group."
    )
    group_streams_min_heartbeat_interval_ms: int = _bound(5_000, "Shortest heartbeat interval", "streams group")
    group_streams_max_heartbeat_interval_ms: int = _bound(15_000, "Longest heartbeat interval", "streams group")
    group_streams_max_size: int = _number(INT32_MAX, "Maximum number of members of a streams group.")
    group_streams_num_standby_replicas: int = _number(0, "Standby copies of the state of each task.", minimum=0)
    group_streams_max_standby_replicas: int = _bound(2, "Largest number of standby copies", "streams group", minimum=0)
    group_streams_initial_rebalance_delay_ms: int = _number(
        3_000, "Time that a new streams group waits for more members before its first assignment.", minimum=0
    )
    group_streams_assignment_interval_ms: int = _number(
        1_000, "Shortest time between two assignments of a streams group.", minimum=0
    )
    group_streams_min_assignment_interval_ms: int = _bound(
        0, "Shortest assignment interval", "streams group", minimum=0
    )
    group_streams_max_assignment_interval_ms: int = _bound(
        15_000, "Longest assignment interval", "streams group", minimum=0
    )
    group_streams_assignors: tuple[str, ...] = setting(STREAMS_ASSIGNORS, doc="Assignors of streams groups: sticky.")
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = setting(
        (),
        doc="Keys of client tags over whose values the standby copies of a task are distributed.",
    )

    def streams_group_problems(self) -> Iterator[tuple[str, str]]:
        """Yield values that contradict each other."""
        if self.group_streams_num_standby_replicas > self.group_streams_max_standby_replicas:
            yield (
                "group.streams.num.standby.replicas",
                f"{self.group_streams_num_standby_replicas} is greater than group.streams.max.standby.replicas"
                f" ({self.group_streams_max_standby_replicas})",
            )
        if not self.group_streams_assignors or not set(self.group_streams_assignors) <= set(STREAMS_ASSIGNORS):
            given = ", ".join(self.group_streams_assignors) or "nothing"
            yield "group.streams.assignors", f"must be among {', '.join(STREAMS_ASSIGNORS)}, not {given}"
        tags = self.group_streams_rack_aware_assignment_tags
        if len(set(tags)) != len(tags):
            yield "group.streams.rack.aware.assignment.tags", "must not contain duplicate tag keys"


_BOUNDED: Final = {
    "consumer": ("session.timeout.ms", "heartbeat.interval.ms"),
    "share": (
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "record.lock.duration.ms",
        "delivery.count.limit",
        "partition.max.record.locks",
    ),
    "streams": ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"),
}
"""The configs that a group may set for itself within the bounds `min` and `max`, by type of group."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class GroupTypeSettings(ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings):
    """The keys `group.consumer.*`, `group.share.*` and `group.streams.*` of `[broker]`."""

    def group_type_problems(self) -> Iterator[tuple[str, str]]:
        """Yield values that contradict each other."""
        yield from self.consumer_group_problems()
        yield from self.streams_group_problems()
        for kind, keys in _BOUNDED.items():
            for key in keys:
                yield from self._bounds_problems(f"group.{kind}.", key)
            interval, timeout = (f"group.{kind}.{key}" for key in ("heartbeat.interval.ms", "session.timeout.ms"))
            if self._value(interval) >= self._value(timeout):
                yield interval, f"{self._value(interval)} is not less than {timeout} ({self._value(timeout)})"

    def _bounds_problems(self, prefix: str, key: str) -> Iterator[tuple[str, str]]:
        value, minimum, maximum = (self._value(f"{prefix}{bound}{key}") for bound in ("", "min.", "max."))
        if minimum > maximum:
            yield f"{prefix}min.{key}", f"{minimum} is greater than {prefix}max.{key} ({maximum})"
        elif not minimum <= value <= maximum:
            yield f"{prefix}{key}", f"{value} is not between {minimum} and {maximum}"

    def _value(self, name: str) -> int:
        value: int = getattr(self, name.replace(".", "_"))
        return value
