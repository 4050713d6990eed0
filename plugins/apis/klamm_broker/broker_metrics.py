"""What the broker tells of its topics: Kafka's `ReplicaManager` and `Log` metrics, read off when somebody asks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from klamm import MetricsRegistry

if TYPE_CHECKING:
    from klamm_broker.topics import Partition, TopicRegistry

PARTITIONS_TOLD: Final = 1000
_LOG: Final = "kafka.log:type=Log,name="
_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="


def register(topics: TopicRegistry, registry: MetricsRegistry) -> None:
    """Register them all. Of more than 1,000 partitions, the logs of the first are told."""

    def of_logs(read: Callable[[Partition], int]) -> Callable[[], Iterator[tuple[dict[str, str], float]]]:
        def samples() -> Iterator[tuple[dict[str, str], float]]:
            partitions = (partition for topic in topics.all() for partition in topic.partitions)
            for partition in itertools.islice(partitions, PARTITIONS_TOLD):
                yield {"topic": partition.topic.name, "partition": str(partition.index)}, read(partition)

        return samples

    registry.gauge(_REPLICAS + "PartitionCount", "Partitions.", lambda: topics.partition_count)
    registry.gauge(_REPLICAS + "LeaderCount", "Partitions that are led here: all.", lambda: topics.partition_count)
    logs: dict[str, tuple[str, Callable[[Partition], int]]] = {
        "Size": ("Bytes of a partition's segments.", lambda partition: partition.log.size_bytes),
        "LogEndOffset": ("The offset that the next record gets.", lambda partition: partition.log.end_offset),
        "LogStartOffset": ("The first offset that is there.", lambda partition: partition.log.log_start_offset),
    }
    for name, (doc, read) in logs.items():
        registry.register(_LOG + name, "gauge", doc, of_logs(read))
