"""`Topic` and `Partition`: the objects of the registry. All access to a partition's records goes through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klamm import ErrorCode, KafkaError
from klamm_broker.topics.leadership import NO_LEADER_EPOCH, Leadership
from klamm_broker.topics.names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from klamm.wire.messages.metadata import MetadataResponseTopic
    from klamm.wire.records import ControlRecordType
    from klamm_broker.log.partition_log import AppendResult, PartitionLog
    from klamm_broker.log.reader import LogRead


class Partition:
    """One partition. Appends and reads go through this object. In the purgatory, fetches wait under it as their key.

    The epoch of `leadership` is written into appended batches, and clients' epochs are compared with it.
    `wake(partition)` is called after a change that readers can see. The first use of `log` opens the log, and raises
    KafkaError if that fails: KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION once the topic is deleted.
    """

    __slots__ = ("_open_log", "_wake", "index", "leadership", "log", "topic")
    log: PartitionLog

    def __init__(
        self,
        topic: Topic,
        index: int,
        leadership: Leadership,
        open_log: Callable[[Partition], None],
        wake: Callable[[Partition], object],
    ) -> None:
        self.topic = topic
        self.index = index
        self.leadership = leadership
        self._open_log = open_log
        self._wake = wake

    def __getattr__(self, name: str) -> Any:
        # Python calls this for an empty slot.
        if name != "log":
            raise AttributeError(name)
        self._open_log(self)
        return object.__getattribute__(self, "log")

    @property
    def opened_log(self) -> PartitionLog | None:
        """The log if it is open, else None."""
        try:
            found: PartitionLog = object.__getattribute__(self, "log")
        except AttributeError:
            return None
        return found

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    @property
    def high_watermark(self) -> int:
        """Return the offset below which all readers see the records."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which all transactions are decided."""
        return self.log.last_stable_offset

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise KafkaError for another epoch: UNKNOWN_LEADER_EPOCH, FENCED_LEADER_EPOCH. -1 means that the client knows
        no epoch.
        """
        epoch = self.leadership.epoch
        if current_leader_epoch > epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if current_leader_epoch < epoch and current_leader_epoch != NO_LEADER_EPOCH:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)

    def append(self, records: Any, *, now_ms: int, max_unpacked_bytes: int) -> AppendResult:
        """Append a producer's batch, without a sync and without waking fetches; see `PartitionLog.append`.

        The caller calls `wake_fetches` when it has appended all of its batches.
        """
        return self.log.append(
            records,
            now_ms=now_ms,
            leader_epoch=self.leadership.epoch,
            defer_flush=True,
            max_unpacked_bytes=max_unpacked_bytes,
        )

    def append_marker(
        self, kind: ControlRecordType, *, producer_id: int, producer_epoch: int, coordinator_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append the marker that ends a producer's transaction; see `PartitionLog.append_end_transaction_marker`."""
        result = self.log.append_end_transaction_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            now_ms=now_ms,
            leader_epoch=self.leadership.epoch,
        )
        self._wake(self)
        return result

    def wake_fetches(self) -> None:
        """Complete the fetches that wait for this partition, if they now find enough records or find the partition
        deleted.
        """
        self._wake(self)

    def read(
        self,
        offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        *,
        min_one_message: bool,
        committed_only: bool,
    ) -> LogRead:
        """Return records from an offset on; see `LogReader.read`. Raises the errors of that method and of
        `check_leader_epoch`.
        """
        if current_leader_epoch >= 0 and current_leader_epoch != self.leadership.epoch:
            self.check_leader_epoch(current_leader_epoch)
        return self.log.read(offset, max_bytes, min_one_message=min_one_message, committed_only=committed_only)


class TopicTraffic:
    """Traffic of one topic since the start; Kafka's `BrokerTopicMetrics`.

    Several threads add without a lock, so a sum may miss an addition. The sums are only for metrics.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_produce_requests",
        "failed_share_acknowledgement_requests",
        "failed_share_fetch_requests",
        "fetch_requests",
        "messages_in",
        "produce_requests",
        "share_acknowledgement_requests",
        "share_fetch_requests",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.failed_fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_share_acknowledgement_requests = 0
        self.failed_share_fetch_requests = 0
        self.fetch_requests = 0
        self.messages_in = 0
        self.produce_requests = 0
        self.share_acknowledgement_requests = 0
        self.share_fetch_requests = 0

    def add(self, other: TopicTraffic) -> None:
        """Add the counts of another topic."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Topic:
    """One topic. `id` has 16 bytes; `overrides` are the configs set on the topic itself, by Kafka's names.

    `partitions` is replaced as a whole when it grows, so a reader has a consistent list. `deleted` becomes True for
    threads that found the topic before its deletion. `metadata` is the Metadata handler's cached response for the
    topic, with the partitions and the `ClusterView.generation` that it describes.
    """

    __slots__ = ("deleted", "id", "is_internal", "metadata", "name", "overrides", "partitions", "traffic")

    def __init__(self, name: str, topic_id: bytes, overrides: Mapping[str, str]) -> None:
        self.name = name
        self.id = topic_id
        self.overrides = overrides
        self.is_internal = name in INTERNAL_TOPICS
        self.partitions: Sequence[Partition] = ()
        self.deleted = False
        self.metadata: tuple[Sequence[Partition], int, MetadataResponseTopic] | None = None
        self.traffic = TopicTraffic()

    def partition(self, index: int) -> Partition | None:
        """Return the partition with this index, or None."""
        partitions = self.partitions
        return partitions[index] if 0 <= index < len(partitions) else None
