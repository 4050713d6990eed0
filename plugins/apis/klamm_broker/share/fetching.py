"""ShareFetch: reading and acquiring for a session, its limits, and the wait for records.

Follows Kafka's `DelayedShareFetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.wire.messages.share_fetch import AcquiredRecords, PartitionData, ShareFetchRequest
from klamm_broker.fetch.reading import WaitingFetch
from klamm_broker.limits.owners import owner_of
from klamm_broker.services import BrokerServices
from klamm_broker.share.acknowledging import find_partition
from klamm_broker.share.live_partition import Delivery, LiveSharePartition
from klamm_broker.share.partition import Acquired
from klamm_broker.share.sessions import ShareSession, TopicPartition
from klamm_broker.topics.topic import TopicTraffic

WantedPartition: TypeAlias = "tuple[TopicPartition, LiveSharePartition]"

_STRICT_MODE = 1
"""`share_acquire_mode` of a client that never wants more than `max_records` (KIP-1206)."""


class ShareReading:
    """The result of one pass over the partitions of a session."""

    __slots__ = ("data", "deliveries", "failed")

    def __init__(self) -> None:
        self.data: dict[TopicPartition, PartitionData] = {}
        self.deliveries: list[tuple[LiveSharePartition, Delivery]] = []
        self.failed: set[TopicTraffic] = set()

    def fail(self, place: TopicPartition, live: LiveSharePartition, error_code: int) -> None:
        """Add a partition that cannot be read."""
        self.data[place] = PartitionData(place[1], error_code)
        if error_code:
            self.failed.add(live.partition.topic.traffic)

    @property
    def size_bytes(self) -> int:
        """The size of all records in bytes."""
        return sum(delivery.read.size_bytes for _, delivery in self.deliveries)

    def give_back(self, member_id: str) -> None:
        """Release acquired records that will not be sent."""
        for live, delivery in self.deliveries:
            delivery.read.close()
            live.give_back(member_id, delivery.acquired)


class PendingShareFetch:
    """One ShareFetch request in progress, with its limits."""

    def __init__(
        self, broker: BrokerServices, request: ShareFetchRequest, context: RequestContext, session: ShareSession
    ) -> None:
        self.context = context
        self._session = session
        self._is_strict = request.share_acquire_mode == _STRICT_MODE
        self._max_records = request.max_records
        self._batch_size = request.batch_size
        self._max_bytes = min(request.max_bytes, broker.settings.fetch_max_bytes)
        if context.listener.throttles:
            limit = context.max_record_bytes
            if limit is not None:
                self._max_bytes = min(self._max_bytes, limit)
        self.refused: dict[TopicPartition, PartitionData] = {}
        self.partitions: list[WantedPartition] = []
        self._node_id = broker.cluster.node_id
        self._meters, self._clock = broker.shares.meters, broker.clock
        self._began_ns = broker.clock.monotonic_ns()
        group_id = session.key.group_id
        self._is_group = partial(broker.groups.shares.exists, group_id)
        is_group, owner = self._is_group(), owner_of(context)
        for place in session.in_turn():
            partition, error = find_partition(broker, context, *place)
            if partition is None or not is_group:
                self.refused[place] = PartitionData(place[1], error or ErrorCode.GROUP_ID_NOT_FOUND)
                continue
            try:
                self.partitions.append((place, broker.shares.get_or_create(group_id, partition, owner)))
            except KafkaError as full:
                self.refused[place] = PartitionData(place[1], full.error_code)
        for traffic in {live.partition.topic.traffic for _, live in self.partitions}:
            traffic.share_fetch_requests += 1
        if self.partitions and not self._is_group():
            # The group was deleted meanwhile, so no state of it may stay.
            broker.shares.group_deleted(group_id)
            for place, _ in self.partitions:
                self.refused[place] = PartitionData(place[1], ErrorCode.GROUP_ID_NOT_FOUND)
            self.partitions.clear()

    @property
    def _is_alive(self) -> bool:
        return self._session.is_alive

    def has_records(self) -> bool:
        """Return True if a pass over the partitions may find records or an error."""
        return any(self.may_find(live) for _, live in self.partitions)

    def may_find(self, live: LiveSharePartition) -> bool:
        """Return True if a pass may find records or an error in this partition."""
        try:
            return self._has_moved(live) or live.is_closed or live.has_records() or live.partition.topic.deleted
        except KafkaError:
            return True

    def _has_moved(self, live: LiveSharePartition) -> bool:
        return live.partition.leadership.leader_id != self._node_id

    def read(self, wanted: Sequence[WantedPartition] | None = None) -> ShareReading:
        """Acquire records of these partitions, or of all in the session, within the limits."""
        reading = ShareReading()
        remaining_bytes, remaining_records = self._max_bytes, self._max_records
        for place, live in self.partitions if wanted is None else wanted:
            if remaining_records <= 0:
                break
            if self._has_moved(live):
                reading.fail(place, live, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            if live.is_closed and not live.partition.topic.deleted:
                # If the group still exists, the next request finds its initial state.
                code = ErrorCode.NONE if self._is_group() else ErrorCode.GROUP_ID_NOT_FOUND
                reading.fail(place, live, code)
                continue
            try:
                delivery = live.fetch(
                    self._session.key.member_id,
                    remaining_bytes,
                    max_records=remaining_records,
                    is_strict=self._is_strict,
                    min_one_batch=not reading.deliveries,
                    is_alive=lambda: self._is_alive,
                )
            except KafkaError as error:
                reading.fail(place, live, error.error_code)
                continue
            if not delivery.acquired:
                continue
            reading.deliveries.append((live, delivery))
            remaining_bytes = max(0, remaining_bytes - delivery.read.size_bytes)
            remaining_records -= sum(each.last - each.first + 1 for each in delivery.acquired)
            reading.data[place] = PartitionData(
                place[1],
                records=delivery.read.records,
                acquired_records=[AcquiredRecords(*each) for each in self._in_batches(delivery)],
            )
        return reading

    def _in_batches(self, delivery: Delivery) -> Sequence[Acquired]:
        """Return the acquired records in parts of about `batch_size` records that end with a record batch."""
        if self._batch_size <= 0:
            return delivery.acquired
        parts: list[Acquired] = []
        batches = delivery.read.batches
        at = 0
        for each in delivery.acquired:
            first = each.first
            # The acquired offsets and the batches are in order, so each batch is compared once.
            while at < len(batches) and batches[at].last < each.last:
                last = batches[at].last
                if last - first + 1 >= self._batch_size:
                    parts.append(each._replace(first=first, last=last))
                    first = last + 1
                at += 1
            parts.append(each._replace(first=first))
        return parts

    def result(self, reading: ShareReading) -> dict[TopicPartition, PartitionData]:
        """Return the response. It has no records if a quota is exceeded."""
        if self.partitions:
            took_ns = self._clock.monotonic_ns() - self._began_ns
            group_id = self._session.key.group_id
            self._meters.fetched(group_id, took_ns, len(reading.deliveries), len(self.partitions))
        if self.context.listener.throttles and not self.context.may_send_records(reading.size_bytes):
            reading.give_back(self._session.key.member_id)
            return self.refused
        # The first response after a partition was added to the session names the partition, with or without records.
        found = {place: PartitionData(place[1]) for place in self._session.new if place in self._session.partitions}
        for live, delivery in reading.deliveries:
            live.partition.topic.traffic.bytes_out += delivery.read.size_bytes
        for traffic in reading.failed:
            traffic.failed_share_fetch_requests += 1
        return {**found, **self.refused, **reading.data}

    def give_back(self, reading: ShareReading) -> None:
        """Release acquired records that will not be sent."""
        reading.give_back(self._session.key.member_id)


class DelayedShareFetch(WaitingFetch):
    """A fetch that waits until a record can be acquired, a partition fails or is forgotten, or `max_wait_ms` have
    passed.

    Only a partition that has changed is read. The others had no records when the wait began. If two partitions change
    at once, the second is left to the next fetch.
    """

    __slots__ = ("_fetch", "_has_expired", "_is_leaving", "_reading", "_then", "_wanted")

    def __init__(
        self,
        fetch: PendingShareFetch,
        max_wait_ms: int,
        then: Callable[[dict[TopicPartition, PartitionData]], None],
        run_later: Callable[[Callable[[], object], str], None],
    ) -> None:
        super().__init__(max_wait_ms, fetch.context, len(fetch.partitions), run_later)
        self._fetch = fetch
        self._then = then
        self._has_expired = False
        self._is_leaving = False
        self._reading: ShareReading | None = None
        self._wanted: dict[object, WantedPartition] = {
            key: wanted for wanted in fetch.partitions for key in (wanted[1].partition, wanted[1])
        }

    @property
    def keys(self) -> list[object]:
        """Return the keys that the fetch waits for: appends to a partition, records that others release, and the end of
        its connection.
        """
        return [self._fetch.context.connection.connection_id, *self._wanted]

    def try_complete(self) -> bool:
        return self._fetch.has_records() and self._read(None)

    def try_complete_for(self, key: object) -> bool:
        wanted = self._wanted[key]
        if self._is_leaving or not self._fetch.may_find(wanted[1]):
            return False
        if self.is_large:
            self._is_leaving = True
            self.leave_thread(self._attempt_later)
            return False
        return self._read((wanted,))

    def _attempt_later(self) -> None:
        # Reset first, so that a change during the attempt causes another attempt.
        self._is_leaving = False
        self.attempt()

    def _read(self, wanted: Sequence[WantedPartition] | None) -> bool:
        reading = self._fetch.read(wanted)
        if not reading.data:
            return False
        self._reading = reading
        if self.force_complete():
            return True
        self._fetch.give_back(reading)
        return False

    def on_complete(self) -> None:
        # Only the thread that completes the fetch may use this reading. If another thread was first, the records are
        # given back.
        reading = self._fetch.read() if self._has_expired or self._reading is None else self._reading
        self._then(self._fetch.result(reading))

    def on_expiration(self) -> None:
        self._has_expired = True
