"""Tests of the metrics of all groups: Kafka's `group-coordinator-metrics`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from groups_playbook import GROUP, Call, Playbook, subscription

from klamm import ErrorCode
from klamm.metrics import HistogramValue, MetricsRegistry
from klamm_broker.groups import metrics as group_metrics
from klamm_broker.groups.offsets import CommitRequest, PartitionCommit

PREFIX = "kafka.server:type=group-coordinator-metrics,name="


@pytest.fixture
def registry(play: Playbook) -> MetricsRegistry:
    registry = MetricsRegistry()
    group_metrics.register(play.coordinator, registry)
    return registry


def count(registry: MetricsRegistry, name: str) -> float:
    (family,) = registry.collect(lambda each: each == PREFIX + name)
    (sample,) = family.samples
    assert not isinstance(sample.value, HistogramValue)
    return sample.value


def at(offset: int, partition: int = 0, metadata: str | None = None) -> PartitionCommit:
    return PartitionCommit("t", partition, offset, metadata=metadata)


def members_bytes(registry: MetricsRegistry, groups: str) -> list[object]:
    families = registry.collect(lambda each: each.startswith(f"klamm:type={groups},"))
    return [sample.value for family in families for sample in family.samples]


def test_bytes_of_members_of_consumer_groups_are_counted(play: Playbook, registry: MetricsRegistry) -> None:
    assert members_bytes(registry, "ConsumerGroups") == [0, 0]
    play.beat("member", 0, client_id="client", instance_id="i", rack_id="r", topics=["a", "bb"], regex="x*")
    assert members_bytes(registry, "ConsumerGroups") == [len("memberclientirabbx*")] * 2
    play.beat("other", 0, group_id="second", client_id="", topics=["t"])
    assert members_bytes(registry, "ConsumerGroups") == [19, 25]
    assert members_bytes(registry, "ClassicGroups") == [0, 0]
    play.beat("member", -1)
    assert members_bytes(registry, "ConsumerGroups") == [6, 6]


def test_bytes_of_members_are_counted(play: Playbook, registry: MetricsRegistry) -> None:
    def measured() -> list[object]:
        return members_bytes(registry, "ClassicGroups")

    assert measured() == [0, 0]
    (member_id,) = play.stable_group(1)
    sizes = [len("client") * 2 + len("range") + len(subscription("t"))]
    assert measured() == sizes * 2
    play.ask_join(play.promised_id(group_id="other"), group_id="other", protocols=(("a", b"b"),))
    sizes.append(len("client") * 2 + len("ab"))
    assert measured() == [max(sizes), sum(sizes)]
    play.leave(member_id)
    assert measured() == [sizes[1]] * 2


def test_committed_offsets_are_counted(play: Playbook, registry: MetricsRegistry) -> None:
    assert play.commit(at(1), at(2, 1), at(3, 2, "x" * 5000))[2] == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert count(registry, "offset-commit-count") == 2
    call: Call[object] = Call()
    play.coordinator.transactional_offsets.commit(7, CommitRequest(GROUP, [at(4, 3)]), call)
    play.settle()
    assert count(registry, "offset-commit-count") == 3


def test_deleted_and_expired_offsets_are_counted(play: Playbook, registry: MetricsRegistry) -> None:
    play.commit(at(1), at(2, 1), at(3, 2))
    call: Call[Mapping[str, ErrorCode]] = Call()
    play.coordinator.offsets.delete(GROUP, {"t": [0]}, call)
    play.settle()
    assert (count(registry, "offset-deletion-count"), count(registry, "offset-expiration-count")) == (1, 0)
    play.clock.advance_ms(8 * 86_400_000)
    play.settle()
    assert (count(registry, "offset-deletion-count"), count(registry, "offset-expiration-count")) == (1, 2)


def test_rebalances_that_end_with_assignments_are_counted(play: Playbook, registry: MetricsRegistry) -> None:
    assert count(registry, "group-completed-rebalance-count") == 0
    play.stable_group(2)
    assert count(registry, "group-completed-rebalance-count") == 1
