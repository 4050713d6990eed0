"""Settings of consumer groups (KIP-848): Kafka's broker keys, meanings and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from klamm import setting
from klamm_broker.numbers import INT32_MAX

GROUP_PROTOCOLS = ("classic", "consumer", "streams")
ASSIGNOR_NAMES = ("uniform", "range")


@dataclass(frozen=True, kw_only=True)
class ConsumerGroupSettings:
    """The keys `group.consumer.*` of `[broker]`, and `group.coordinator.rebalance.protocols`."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ("classic", "consumer", "streams"),
        doc="Protocols of groups that are served: classic, which must be there, consumer and streams.",
    )
    group_consumer_session_timeout_ms: int = setting(
        45_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Longest time for which a member of a consumer group may be silent.",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        45_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Shortest session timeout that a group's own config may set.",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        60_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Longest session timeout that a group's own config may set.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Time between two heartbeats of a member of a consumer group.",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        5_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Shortest heartbeat interval that a group's own config may set.",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        15_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Longest heartbeat interval that a group's own config may set.",
    )
    group_consumer_max_size: int = setting(INT32_MAX, minimum=1, doc="Most members of a consumer group.")
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"),
        doc="Assignors of the server: uniform, range or both. The first is the default, for groups whose members "
        "name none.",
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Changes that groups with members may make between the classic and the consumer protocol.",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000,
        minimum=10_000,
        maximum=INT32_MAX,
        doc="Age at which the topics of a regular expression are looked up again, for changed permissions.",
    )

    def consumer_group_problems(self) -> Iterator[tuple[str, str]]:
        """Values that contradict each other."""
        if "classic" not in self.group_coordinator_rebalance_protocols:
            yield "group.coordinator.rebalance.protocols", "classic must be in it"
        for name, value, known in (
            (
                "group.coordinator.rebalance.protocols",
                self.group_coordinator_rebalance_protocols,
                GROUP_PROTOCOLS,
            ),
            ("group.consumer.assignors", self.group_consumer_assignors, ASSIGNOR_NAMES),
        ):
            if not value or not set(value) <= set(known):
                yield name, f"must be some of {', '.join(known)}, not {', '.join(value) or 'nothing'}"
