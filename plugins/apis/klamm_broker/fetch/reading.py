"""Reading for Fetch: limits, errors per partition, and the wait for more records.

The Fetch handler makes a `PendingFetch` and reads. If there is too little, a `DelayedFetch` waits. One of three threads
completes it: the thread that changes one of its partitions, the scheduler's, or a thread for long work. Reads take no
lock.

Follows Kafka's `ReplicaManager.readFromLog` and `DelayedFetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from klamm import ErrorCode, KafkaError
from klamm.acl import AclOperation
from klamm.runtime import DelayedOperation
from klamm.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from klamm_broker.security.authorization import may_topic

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm.wire.messages.fetch import FetchPartition, FetchRequest
    from klamm_broker.fetch.sessions import Answered, FetchContext, TopicKey, Wanted
    from klamm_broker.log.reader import LogRead
    from klamm_broker.services import BrokerServices
    from klamm_broker.topics.leadership import Leadership
    from klamm_broker.topics.topic import Partition, Topic

READ_AT_ONCE: Final = 250
"""Maximum number of partitions of one Fetch that are read on a network thread, on the thread of a Produce request or on
the scheduler's, because other work waits for these threads.
"""
FIRST_VERSION_WITH_TOPIC_IDS = 13
_FIRST_VERSION_FROM_REPLICAS = 11
_FIRST_VERSION_WITH_LEADERS = 16
_READ_COMMITTED = 1
_LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
# Errors that Kafka does not count in FailedFetchRequestsPerSec.
_NOT_COUNTED = frozenset(
    (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


End: TypeAlias = "tuple[Partition, int, Leadership, Wanted, int]"
"""A partition that was read, its end offset and leadership at that time, the client's entry for it, and the bytes of
its records.
"""


class Reading:
    """The result of one pass over the wanted partitions.

    `sizes` are the bytes of records per partition. `failed` is True if a partition has an error; an error ends any
    wait. `ends` are the partitions that were read.
    """

    __slots__ = ("answered", "ends", "failed", "size_bytes", "sizes")

    def __init__(self) -> None:
        self.answered: list[Answered] = []
        self.sizes: list[int] = []
        self.size_bytes = 0
        self.failed = False
        self.ends: list[End] = []

    def add(self, topic: TopicKey, data: PartitionData, size_bytes: int = 0) -> None:
        """Add a partition's part of the response."""
        self.answered.append((topic, data))
        self.sizes.append(size_bytes)
        self.size_bytes += size_bytes

    def fail(self, topic: TopicKey, index: int, error_code: int) -> PartitionData:
        """Add a partition's error, which ends the wait."""
        self.failed = True
        data = PartitionData(index, error_code, -1, aborted_transactions=None)
        self.add(topic, data)
        return data

    def close(self) -> None:
        """Close the files of the records, because they will not be sent."""
        for _topic, data in self.answered:
            close_records(data.records)


class PendingFetch:
    """One Fetch request in progress, with its limits."""

    __slots__ = (
        "_by_id",
        "_cluster",
        "_committed_only",
        "_denied",
        "_find_topic",
        "_max_bytes",
        "_topics",
        "_wanted",
        "context",
        "min_bytes",
        "session",
    )

    def __init__(
        self, broker: BrokerServices, request: FetchRequest, context: RequestContext, session: FetchContext
    ) -> None:
        self.context = context
        self.session = session
        self._by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        self._topics = broker.topics
        self._cluster = broker.cluster
        self._find_topic: Any = broker.topics.by_id if self._by_id else broker.topics.get
        self._committed_only = request.isolation_level == _READ_COMMITTED
        self._max_bytes = min(request.max_bytes, broker.settings.fetch_max_bytes)
        if context.listener.throttles:
            # A response with more bytes than the quota allows at once would be throttled each time.
            limit = context.max_record_bytes
            if limit is not None:
                self._max_bytes = min(self._max_bytes, limit)
        self.min_bytes = min(request.min_bytes, self._max_bytes)
        self._wanted: Sequence[Wanted] = session.wanted()
        self._denied = self._denied_topics() if context.listener.authorizer is not None else None

    def _denied_topics(self) -> frozenset[TopicKey]:
        found = {key: self._find_topic(key) if self._by_id else None for key, _ in self._wanted}
        return frozenset(
            key
            for key, topic in found.items()
            if isinstance(name := topic.name if topic is not None else key, str)
            and not may_topic(self.context, AclOperation.READ, name)
        )

    def read(self, wanted: Sequence[Wanted] | None = None, *, again: bool = False) -> Reading:
        """Read these partitions, or all that the client wants, in order, until a limit is reached.

        The first partition with data returns at least one complete batch, however small the limits are (KIP-74).
        `again` is True for a read after a wait. Such a read is not counted as another request.
        """
        reading = Reading()
        remaining = self._max_bytes
        at_least_one = True
        find_topic = self._find_topic
        committed_only = self._committed_only
        denied = self._denied
        node_id = self._cluster.node_id
        for each in self._wanted if wanted is None else wanted:
            key, asked = each
            index = asked.partition
            topic = find_topic(key)
            partition = topic.partition(index) if topic is not None else None
            if partition is None or (denied is not None and key in denied):
                self._refuse(reading, key, index, topic)
                continue
            traffic = partition.topic.traffic
            if not again:
                traffic.fetch_requests += 1
            limit = asked.partition_max_bytes
            leadership = partition.leadership
            try:
                if leadership.leader_id != node_id:
                    self._check_replica(leadership, asked)
                got = partition.read(
                    asked.fetch_offset,
                    limit if limit < remaining else remaining,
                    asked.current_leader_epoch,
                    min_one_message=at_least_one,
                    committed_only=committed_only,
                )
            except KafkaError as error:
                if error.error_code not in _NOT_COUNTED:
                    traffic.failed_fetch_requests += 1
                failed = reading.fail(key, index, error.error_code)
                if error.error_code in _LED_ELSEWHERE and self.context.api_version >= _FIRST_VERSION_WITH_LEADERS:
                    failed.current_leader = LeaderIdAndEpoch(leadership.leader_id, leadership.epoch)
                continue
            except Exception:
                traffic.failed_fetch_requests += 1
                reading.close()
                raise
            size_bytes = got.records.size_bytes if got.records else 0
            if size_bytes:
                at_least_one = False
                remaining = max(0, remaining - size_bytes)
            end = got.last_stable_offset if committed_only else got.high_watermark
            reading.ends.append((partition, end, leadership, each, size_bytes))
            reading.add(key, _partition_data(index, got, committed_only), size_bytes)
        return reading

    def _check_replica(self, leadership: Leadership, asked: FetchPartition) -> None:
        """Raise KafkaError unless this node may serve a partition that it does not lead (KIP-392)."""
        if self._cluster.node_id not in leadership.replicas:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        fenced = 0 <= asked.current_leader_epoch != leadership.epoch
        if self.context.api_version < _FIRST_VERSION_FROM_REPLICAS and not fenced:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _refuse(self, reading: Reading, key: TopicKey, index: int, topic: Topic | None) -> None:
        """Add the error of a partition that the client may not read or that does not exist."""
        if self._denied is not None and key in self._denied:
            reading.add(key, PartitionData(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1))
            return
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None and isinstance(key, bytes):
            error = self._missing(key, index)
        if error is ErrorCode.INCONSISTENT_TOPIC_ID:
            reading.fail(key, index, error)
        else:
            reading.add(key, PartitionData(index, error, -1))

    def _missing(self, topic_id: bytes, index: int) -> ErrorCode:
        """Return the error for an id without a topic: unknown, or deleted since the session learned the id."""
        name = self._topics.name_of_deleted(topic_id, self.session.topics_generation(topic_id, index))
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        recreated = self._topics.get(name) is not None
        return ErrorCode.INCONSISTENT_TOPIC_ID if recreated else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def is_of_one(self) -> bool:
        """Return True if the request reads a single partition."""
        return len(self._wanted) == 1

    def has_changed(self, end: End) -> bool:
        """Return True if a partition was deleted, or has another end offset or leader than when it was read."""
        partition = end[0]
        now = partition.last_stable_offset if self._committed_only else partition.high_watermark
        return now != end[1] or partition.leadership is not end[2] or partition.topic.deleted

    def response(self, reading: Reading) -> FetchResponse:
        """Return the response: all partitions, or only the session's changes, or no partition if a quota is
        exceeded.
        """
        try:
            if self.context.listener.throttles and not self.context.may_send_records(reading.size_bytes):
                session_id = self.session.throttled()
                reading.close()
                return FetchResponse(session_id=session_id)
            session_id, answered = self.session.finish(reading.answered, reading.sizes)
        except KafkaError as error:
            reading.close()
            return FetchResponse(error_code=error.error_code)
        topics: list[FetchableTopicResponse] = []
        current: TopicKey | None = None
        for key, data in answered:
            if key != current:
                current = key
                topics.append(
                    FetchableTopicResponse(topic_id=key) if isinstance(key, bytes) else FetchableTopicResponse(key)
                )
            topics[-1].partitions.append(data)
            if data.records:
                topic = self._find_topic(key)
                if topic is not None:
                    topic.traffic.bytes_out += data.records.size_bytes
        response = FetchResponse(session_id=session_id, responses=topics)
        if reading.failed:
            self._name_leaders(response)
        return response

    def _name_leaders(self, response: FetchResponse) -> None:
        """Add the addresses of the leaders that partitions name (KIP-951)."""
        leaders = [data.current_leader for topic in response.responses for data in topic.partitions]
        node_ids = {each.leader_id for each in leaders if each is not None}
        nodes = self._cluster.endpoints_of(node_ids, self.context.listener)
        response.node_endpoints = [NodeEndpoint(*node) for node in nodes]


class WaitingFetch(DelayedOperation):
    """The base of fetches that wait for data. It passes work on many partitions to `run_later(work, client)`, so that
    neither a producer's thread nor the scheduler waits for that work.
    """

    __slots__ = ("_context", "_run_later", "is_large")

    def __init__(
        self,
        max_wait_ms: int,
        context: RequestContext,
        partitions: int,
        run_later: Callable[[Callable[[], object], str], None],
    ) -> None:
        super().__init__(max_wait_ms, context)
        self._context = context
        self._run_later = run_later
        self.is_large = partitions > READ_AT_ONCE

    def leave_thread(self, work: Callable[[], object]) -> None:
        """Run the work on a thread for long work, where clients take turns."""
        self._run_later(work, self._context.client_address.host)

    def expire(self) -> None:
        if self.is_large:
            self.leave_thread(super().expire)
        else:
            super().expire()


class DelayedFetch(WaitingFetch):
    """A fetch that waits until there are `min_bytes`, a partition fails or is deleted, or `max_wait_ms` have passed.

    A thread that changes one partition reads only this partition and updates the sum of all partitions' bytes, so that
    the cost of a change does not depend on the number of partitions. When the sum suffices, all partitions are read
    again; if they are many, `run_later(work, client)` reads them on another thread. As in Kafka the response may have
    fewer bytes than the sum, because some batches do not fit the rest of `max_bytes`.
    """

    __slots__ = ("_ends", "_fetch", "_min_bytes", "_reading", "_reads_at_end", "_size_bytes")

    def __init__(
        self,
        fetch: PendingFetch,
        first: Reading,
        max_wait_ms: int,
        min_bytes: int,
        run_later: Callable[[Callable[[], object], str], None],
    ) -> None:
        super().__init__(max_wait_ms, fetch.context, len(first.ends), run_later)
        self._fetch = fetch
        self._min_bytes = min_bytes
        self._ends = {end[0]: end for end in first.ends}
        self._size_bytes = first.size_bytes
        self._reading = first
        self._reads_at_end = False
        first.close()

    @property
    def keys(self) -> list[Hashable]:
        """Return the keys that the fetch waits for: its partitions, and its connection, whose end completes it."""
        return [self._fetch.context.connection.connection_id, *self._ends]

    def try_complete(self) -> bool:
        return any(self.try_complete_for(partition) for partition in list(self._ends))

    def try_complete_for(self, key: Any) -> bool:
        end = self._ends[key]
        if self._reads_at_end or not self._fetch.has_changed(end):
            return False
        reading = self._fetch.read((end[3],), again=True)
        if not reading.failed and reading.ends:
            self._ends[key] = reading.ends[0]
            self._size_bytes += reading.size_bytes - end[4]
            if self._size_bytes < self._min_bytes:
                reading.close()
                return False
        if not self._fetch.is_of_one:
            reading.close()
            if self.is_large:
                self._reads_at_end = True
                self.leave_thread(self.force_complete)
                return False
            reading = self._fetch.read(again=True)
        self._reading = reading
        if self.force_complete():
            return True
        reading.close()
        return False

    def on_expiration(self) -> None:
        self._reads_at_end = True

    def on_complete(self) -> None:
        # Only the thread that completes the fetch may use this reading. If another thread was first, the reading is
        # closed.
        reading = self._fetch.read(again=True) if self._reads_at_end else self._reading
        self._fetch.context.respond(self._fetch.response(reading))


def _partition_data(index: int, got: LogRead, committed_only: bool) -> PartitionData:
    aborted = got.aborted_transactions if committed_only else None
    return PartitionData(
        index,
        0,
        got.high_watermark,
        got.last_stable_offset,
        got.log_start_offset,
        aborted_transactions=None if aborted is None else [AbortedTransaction(*each) for each in aborted],
        records=got.records or b"",
    )


def close_records(records: Any) -> None:
    """Close the file of records that will not be sent."""
    if not isinstance(records, (bytes, bytearray, memoryview)):
        records.close()
