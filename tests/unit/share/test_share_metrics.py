"""Tests of the metrics of share groups and their partitions."""

from __future__ import annotations

import pytest

from klamm.metrics import HistogramValue
from klamm_broker.share.meters import PartitionMeters
from tests.unit.broker.test_configs import TOPIC, alter
from tests.unit.share.test_dead_letters import ENABLED, configure, wait_for_letters
from tests.unit.share.test_share_fetch import REJECT, Shares, acquired
from tests.waiting import wait_until


def histograms(shares: Shares, name: str) -> dict[tuple[str, ...], HistogramValue]:
    """Return the values of one metric by its labels."""
    wanted = f"kafka.server:type={name}"
    (family,) = shares.harness.listener.services.metrics.collect(lambda each: each == wanted)
    found = {}
    for sample in family.samples:
        assert isinstance(sample.value, HistogramValue)
        found[tuple(sample.labels.values())] = sample.value
    return found


def test_fetches_are_measured(shares: Shares) -> None:
    reply = shares.send_fetch("a", 0, wait_ms=5_000)
    shares.harness.advance_ms(40)
    shares.produce(b"0", b"1", b"2")
    shares.settle()
    assert acquired(reply.response) == [(0, 2, 1)]
    assert shares.acquired("b", 0) == []
    group, place = ("g",), ("g", "t", "0")
    ratio = histograms(shares, "ShareGroupMetrics,name=RequestTopicPartitionsFetchRatio")[group]
    assert (ratio.count, ratio.total) == (2, 100)
    waited = histograms(shares, "ShareGroupMetrics,name=TopicPartitionsAcquireTimeMs")[group]
    assert (waited.count, waited.total) == (1, pytest.approx(40))
    loaded = histograms(shares, "ShareGroupMetrics,name=PartitionLoadTimeMs")[()]
    assert (loaded.count, loaded.total) == (1, 0)
    batches = histograms(shares, "SharePartitionMetrics,name=InFlightBatchMessageCount")[place]
    assert (batches.count, batches.total) == (1, 3)
    for name in ("FetchLockTimeMs", "FetchLockRatio"):
        assert place in histograms(shares, f"SharePartitionMetrics,name={name}")


def test_the_metrics_of_a_partition_divide_the_time_between_fetches() -> None:
    meters = PartitionMeters()
    meters.fetched(0, 10_000_000, ())
    meters.fetched(40_000_000, 50_000_000, ())
    assert (sum(meters.lock_us.counts), meters.lock_us.total) == (2, 20_000)
    assert (sum(meters.lock_ratio.counts), meters.lock_ratio.total) == (1, 25)


def test_a_deleted_group_has_no_metrics(shares: Shares) -> None:
    shares.produce(b"0")
    assert shares.acquired("a", 0) == [(0, 0, 1)]
    shares.harness.broker.shares.group_deleted("g")
    assert histograms(shares, "ShareGroupMetrics,name=TopicPartitionsAcquireTimeMs") == {}


def letters(shares: Shares) -> list[float]:
    """Return the counts of the group's dead letters: written ones, their batches, and failed ones."""
    counts = []
    for part in ("RecordCount", "TotalProduceRequestsPerSec", "FailedProduceRequestsPerSec"):
        wanted = f"kafka.server:type=ShareGroupMetrics,name=DeadLetterQueue{part}"
        (family,) = shares.harness.listener.services.metrics.collect(lambda each, wanted=wanted: each == wanted)
        counts += [sample.value for sample in family.samples if dict(sample.labels) == {"group": "g"}]
    return counts


def test_dead_letters_are_counted(shares: Shares) -> None:
    configure(shares)
    shares.harness.create_topic("dlq.t", **ENABLED)
    shares.produce(b"0", b"1", b"2")
    assert shares.acquired("a", 0) == [(0, 2, 1)]
    shares.acknowledge("a", 1, (0, 1, [REJECT]))
    wait_for_letters(shares, 2)
    wait_until(lambda: letters(shares) == [2, 1, 0])
    assert alter(shares.harness, TOPIC, "dlq.t", ("max.message.bytes", 0, "1")) == 0
    shares.acknowledge("a", 2, (2, 2, [REJECT]))
    wait_until(lambda: letters(shares) == [2, 2, 1])
