"""The metrics of share groups, read when they are collected. Kafka's `ShareGroupMetrics`, `SharePartitionMetrics` and
`ShareSessionCache`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from klamm_broker.share.record_state import AcknowledgeType

if TYPE_CHECKING:
    from klamm.metrics import MetricsRegistry
    from klamm_broker.share.live_partition import LiveSharePartition
    from klamm_broker.share.partitions import SharePartitions

Samples: TypeAlias = Iterator[tuple[Mapping[str, str], float]]

_SESSIONS: Final = "kafka.server:type=ShareSessionCache,name="
_PARTITION: Final = "kafka.server:type=SharePartitionMetrics,name="
_GROUPS: Final = "kafka.server:type=ShareGroupMetrics,name="


def register(shares: SharePartitions, registry: MetricsRegistry) -> None:
    """Register them all."""

    def of_each(value: Callable[[LiveSharePartition], float]) -> Callable[[], Samples]:
        def read() -> Samples:
            for live in shares.all():
                labels = {
                    "group": live.key.group_id,
                    "topic": live.partition.topic.name,
                    "partition": str(live.key.partition),
                }
                yield labels, value(live)

        return read

    def acknowledgements() -> Iterator[tuple[Mapping[str, str], float]]:
        for kind in (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW):
            yield {"ackType": kind.name.capitalize()}, shares.acknowledged[kind]

    registry.gauge(_SESSIONS + "ShareSessionsCount", "Share sessions.", lambda: len(shares.sessions))
    registry.gauge(
        _SESSIONS + "SharePartitionsCount", "Partitions of all share sessions.", shares.sessions.partition_count
    )
    registry.register(
        _SESSIONS + "ShareSessionEvictionsPerSec",
        "counter",
        "Share sessions that have ended because another began for their member.",
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
        "Records whose member did not acknowledge them before its lock ended.",
        of_each(lambda live: live.lock_timeouts),
    )
    registry.register(
        _GROUPS + "RecordAcknowledgementsPerSec",
        "counter",
        "Records that members of share groups have acknowledged, by type.",
        acknowledgements,
    )
