"""The metrics of groups: Kafka's `GroupCoordinatorMetrics`. `Broker.open` registers them. The thread that collects
metrics reads their values.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from klamm.metrics import MetricsRegistry
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from klamm_broker.groups.coordinator import GroupCoordinator
from klamm_broker.groups.share.group import ShareGroupState
from klamm_broker.groups.state import GroupState
from klamm_broker.groups.streams.group import StreamsGroupState

_MANAGER: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="
_COORDINATOR: Final = "kafka.server:type=group-coordinator-metrics,name="


def register(groups: GroupCoordinator, registry: MetricsRegistry) -> None:
    """Register the metrics of groups."""
    counts = groups.administration.counts

    def of_type(group_type: str) -> int:
        return sum(count for (each, _), count in counts().items() if each == group_type)

    def in_state(state: GroupState) -> Callable[[], int]:
        return lambda: counts()["classic", state.value]

    def by_protocol() -> Iterator[tuple[Mapping[str, str], float]]:
        totals: Counter[str] = Counter()
        for (group_type, _), count in counts().items():
            totals[group_type] += count
        for protocol in ("classic", "consumer", "share", "streams"):
            yield {"protocol": protocol}, totals[protocol]

    def register_states(kind: str, states: type[enum.Enum], label: Callable[[enum.Enum], str]) -> None:
        def by_state() -> Iterator[tuple[Mapping[str, str], float]]:
            found = counts()
            for state in states:
                yield {"state": label(state)}, found[kind, state.value]

        doc = f"{kind.capitalize()} groups, by state."
        registry.register(f"{_COORDINATOR}{kind}-group-count", "gauge", doc, by_state)

    registry.gauge(_MANAGER + "NumGroups", "Classic groups.", lambda: of_type("classic"))
    registry.gauge(_MANAGER + "NumOffsets", "Committed offsets.", groups.administration.offset_count)
    _register_members_bytes(groups, registry, "ClassicGroups", ClassicGroup)
    _register_members_bytes(groups, registry, "ConsumerGroups", ConsumerGroup)
    for state in GroupState:
        name = f"{_MANAGER}NumGroups{state.value}"
        registry.gauge(name, f"Classic groups in the state {state.value}.", in_state(state))
    registry.register(
        _COORDINATOR + "group-count", "gauge", "Groups, by the protocol that coordinates them.", by_protocol
    )
    register_states("classic", GroupState, lambda state: str(state.value))
    for kind, states in (
        ("consumer", ConsumerGroupState),
        ("share", ShareGroupState),
        ("streams", StreamsGroupState),
    ):
        register_states(kind, states, lambda state: state.name.lower())
    _register_counts(groups, registry)


def _register_members_bytes(
    groups: GroupCoordinator, registry: MetricsRegistry, name: str, group_class: type[ClassicGroup | ConsumerGroup]
) -> None:
    def members_bytes() -> list[int]:
        return groups.administration.members_bytes(group_class)

    kind = group_class.group_type
    registry.gauge(
        f"klamm:type={name},name=MembersBytes",
        f"Approximate size of the members of all {kind} groups, without their assignments.",
        lambda: sum(members_bytes()),
    )
    registry.gauge(
        f"klamm:type={name},name=LargestMembersBytes",
        f"Approximate size of the members of the largest {kind} group.",
        lambda: max(members_bytes(), default=0),
    )


def _register_counts(groups: GroupCoordinator, registry: MetricsRegistry) -> None:
    def register_count(name: str, doc: str, count: Callable[[], int]) -> None:
        registry.register(_COORDINATOR + name, "counter", doc, lambda: [({}, count())])

    offsets = groups.offsets
    for kind, count in (
        ("consumer", lambda: groups.consumers.rebalances),
        ("share", lambda: groups.shares.rebalances),
        ("streams", lambda: groups.streams.rebalances),
    ):
        doc = f"Group epochs that {kind} groups have started: one for each rebalance."
        register_count(f"{kind}-group-rebalance-count", doc, count)
    register_count(
        "group-completed-rebalance-count",
        "Rebalances of classic groups that have ended with assignments.",
        lambda: groups.completed_rebalances,
    )
    register_count(
        "offset-commit-count",
        "Offsets that were committed, including those of transactions.",
        lambda: offsets.committed + groups.transactional_offsets.committed,
    )
    register_count("offset-deletion-count", "Offsets that clients have deleted.", lambda: offsets.deleted)
    register_count(
        "offset-expiration-count", "Offsets that were deleted because of their age.", lambda: offsets.expired
    )
