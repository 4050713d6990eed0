"""The metrics of share groups: Kafka's `ShareGroupMetrics`, `SharePartitionMetrics` and `ShareSessionCache`.

`open_shares` registers them. The thread that collects metrics reads their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from klamm.metrics import Histogram, HistogramValue, MetricsRegistry
from klamm_broker.share.live_partition import LiveSharePartition
from klamm_broker.share.meters import GroupMeters
from klamm_broker.share.partitions import SharePartitions
from klamm_broker.share.record_state import AcknowledgeType

Samples: TypeAlias = "Iterator[tuple[Mapping[str, str], float | HistogramValue]]"

_MS_PER_US: Final = 0.001
_TIME_BITS: Final = range(6, 27)
_COUNT_BITS: Final = range(1, 15)
_PERCENT_BITS: Final = range(1, 8)
_SESSIONS: Final = "kafka.server:type=ShareSessionCache,name="
_PARTITION: Final = "kafka.server:type=SharePartitionMetrics,name="
_GROUPS: Final = "kafka.server:type=ShareGroupMetrics,name="


def register(shares: SharePartitions, registry: MetricsRegistry) -> None:
    """Register the metrics of share groups."""

    def of_each(value: Callable[[LiveSharePartition], float]) -> Callable[[], Samples]:
        return lambda: ((_labels(live), value(live)) for live in shares.all())

    def acknowledgements() -> Iterator[tuple[Mapping[str, str], float]]:
        for kind in (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW):
            yield {"ackType": kind.name.capitalize()}, shares.acknowledged[kind]

    registry.gauge(_SESSIONS + "ShareSessionsCount", "Share sessions.", lambda: len(shares.sessions))
    registry.gauge(
        _SESSIONS + "SharePartitionsCount", "Partitions of all share sessions.", lambda: shares.sessions.partition_count
    )
    registry.gauge(
        "klamm:type=ShareSessions,name=MostOfOneOwner",
        "Share sessions of the principal that has the most.",
        lambda: shares.sessions.slots.largest_share,
    )
    registry.register(
        _SESSIONS + "ShareSessionEvictionsPerSec",
        "counter",
        "Share sessions that ended because their member started another.",
        lambda: [({}, shares.sessions.evictions)],
    )
    registry.register(
        _PARTITION + "InFlightMessageCount",
        "gauge",
        "Records in flight in a partition of a share group.",
        of_each(lambda live: live.counts()[0]),
    )
    registry.register(
        _PARTITION + "InFlightBatchCount",
        "gauge",
        "Runs of records in flight that share a state, in a partition of a share group.",
        of_each(lambda live: live.counts()[1]),
    )
    registry.register(
        _PARTITION + "AcquisitionLockTimeoutPerSec",
        "counter",
        "Records that their member did not acknowledge before its lock ended.",
        of_each(lambda live: live.lock_timeouts),
    )
    registry.register(
        _GROUPS + "RecordAcknowledgementsPerSec",
        "counter",
        "Records that members of share groups have acknowledged, by type.",
        acknowledgements,
    )
    _register_letters(shares, registry)
    _register_histograms(shares, registry)


def _register_letters(shares: SharePartitions, registry: MetricsRegistry) -> None:
    def add(name: str, doc: str, count: Callable[[GroupMeters], int]) -> None:
        def of_groups() -> Samples:
            return (({"group": group_id}, count(meters)) for group_id, meters in shares.meters.of_groups())

        registry.register(_GROUPS + name, "counter", doc, of_groups)

    add("DeadLetterQueueRecordCount", "Dead letters that were written.", lambda meters: meters.letters)
    add(
        "DeadLetterQueueTotalProduceRequestsPerSec",
        "Batches of dead letters whose write was attempted.",
        lambda meters: meters.letter_writes,
    )
    add(
        "DeadLetterQueueFailedProduceRequestsPerSec",
        "Batches of dead letters that could not be written.",
        lambda meters: meters.failed_letter_writes,
    )


def _labels(live: LiveSharePartition) -> Mapping[str, str]:
    return {
        "group": live.key.group_id,
        "topic": live.partition.topic.name,
        "partition": str(live.key.partition),
    }


def _register_histograms(shares: SharePartitions, registry: MetricsRegistry) -> None:
    def add(name: str, doc: str, read: Callable[[], Samples]) -> None:
        registry.register(name, "histogram", doc, read)

    def of_partitions(histogram: Callable[[LiveSharePartition], Histogram], scale: float, bits: range) -> Samples:
        return ((_labels(live), histogram(live).snapshot(scale, bits)) for live in shares.all())

    def of_groups(histogram: Callable[[GroupMeters], Histogram], scale: float, bits: range) -> Samples:
        groups = shares.meters.of_groups()
        return (({"group": group_id}, histogram(meters).snapshot(scale, bits)) for group_id, meters in groups)

    add(
        _PARTITION + "InFlightBatchMessageCount",
        "Records in each run that a fetch has acquired.",
        lambda: of_partitions(lambda live: live.meters.batch_messages, 1, _COUNT_BITS),
    )
    add(
        _PARTITION + "FetchLockTimeMs",
        "Milliseconds for which a fetch holds a partition of a share group.",
        lambda: of_partitions(lambda live: live.meters.lock_us, _MS_PER_US, _TIME_BITS),
    )
    add(
        _PARTITION + "FetchLockRatio",
        "Percentage of the time since the previous fetch for which a fetch holds a partition.",
        lambda: of_partitions(lambda live: live.meters.lock_ratio, 1, _PERCENT_BITS),
    )
    add(
        _GROUPS + "PartitionLoadTimeMs",
        "Milliseconds to load a partition of a share group.",
        lambda: iter([({}, shares.meters.load_us.snapshot(_MS_PER_US, _TIME_BITS))]),
    )
    add(
        _GROUPS + "RequestTopicPartitionsFetchRatio",
        "Percentage of the partitions that a ShareFetch reads from which it acquires records.",
        lambda: of_groups(lambda meters: meters.fetch_ratio, 1, _PERCENT_BITS),
    )
    add(
        _GROUPS + "TopicPartitionsAcquireTimeMs",
        "Milliseconds from a ShareFetch to the records that it acquires.",
        lambda: of_groups(lambda meters: meters.acquire_us, _MS_PER_US, _TIME_BITS),
    )
