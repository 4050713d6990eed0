"""A broker, and short methods for transactional requests. Answers come from other threads, so the methods wait."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from klamm.wire.messages import fetch, list_offsets
from klamm.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm.wire.messages.end_txn import EndTxnRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from klamm.wire.records import TRANSACTIONAL, decode_records, read_header
from tests.unit.broker.broker_harness import BrokerHarness, Reply, records
from tests.waiting import wait_until

ID = "x"
GROUP = "g"
BEFORE_V2, V2 = 11, 12
"""Versions of Produce. The second one adds partitions itself."""


class Producer:
    """A transactional producer with its identity, and its sequence numbers by partition."""

    def __init__(self, harness: TransactionsHarness, transactional_id: str = ID, timeout_ms: int = 60_000) -> None:
        self._harness = harness
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.id = self.epoch = -1
        self.member = (-1, "")
        self._sequences: dict[tuple[str, int], int] = {}

    def init(self, version: int = 5) -> int:
        """Send InitProducerId. Return the error code."""
        request = InitProducerIdRequest(self.transactional_id, self.timeout_ms)
        response = self._harness.ask(request, version)
        if response.error_code == 0:
            self._is_now(response.producer_id, response.producer_epoch)
        return int(response.error_code)

    def go_on(self, version: int = 5) -> int:
        """Send InitProducerId with the present identity (KIP-360). Return the error code."""
        request = InitProducerIdRequest(self.transactional_id, self.timeout_ms, self.id, self.epoch)
        response = self._harness.ask(request, version)
        if response.error_code == 0:
            self._is_now(response.producer_id, response.producer_epoch)
        return int(response.error_code)

    def _is_now(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.id, self.epoch):
            self.id, self.epoch = producer_id, epoch
            self._sequences = {}

    def add(self, *partitions: tuple[str, int], version: int = 3) -> list[int]:
        """Send AddPartitionsToTxn. Return the error codes."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [index]) for topic, index in partitions],
        )
        topics = self._harness.ask(request, version).results_by_topic_v3_and_below
        return [each.partition_error_code for topic in topics for each in topic.results_by_partition]

    def produce(self, topic: str, *values: bytes, partition: int = 0, version: int = V2) -> Any:
        """Produce one batch. Return the partition's response."""
        key = topic, partition
        sequence = self._sequences.get(key, 0)
        batch = records(
            *values,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        data = [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])]
        request = ProduceRequest(self.transactional_id, -1, 1000, data)
        response = self._harness.ask(request, version).responses[0].partition_responses[0]
        if response.error_code == 0:
            self._sequences[key] = sequence + len(values)
        return response

    def add_offsets(self, group: str = GROUP) -> int:
        """Send AddOffsetsToTxn. Return the error code."""
        request = AddOffsetsToTxnRequest(self.transactional_id, self.id, self.epoch, group)
        return int(self._harness.ask(request, 3).error_code)

    def commit_offset(self, topic: str, offset: int, version: int = 5, group: str = GROUP) -> int:
        """Send TxnOffsetCommit. Return the error code. From version 6 on the request names the topic by its id."""
        # Only a broker in this process returns the id without a request.
        found = self._harness.broker.topics.get(topic) if version >= 6 else None
        topic_id = found.id if found is not None else b"unknown".ljust(16, b".")
        partitions = [TxnOffsetCommitRequestPartition(0, offset)]
        topics = [TxnOffsetCommitRequestTopic("" if version >= 6 else topic, topic_id, partitions)]
        request = TxnOffsetCommitRequest(self.transactional_id, group, self.id, self.epoch, *self.member, topics=topics)
        return int(self._harness.ask(request, version).topics[0].partitions[0].error_code)

    def end_request(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(self.transactional_id, self.id, self.epoch, committed)

    def end(self, *, committed: bool, version: int = 5) -> int:
        """Send EndTxn. Return the error code."""
        response = self._harness.ask(self.end_request(committed=committed), version)
        if response.error_code == 0 and version >= 5:
            self._is_now(response.producer_id, response.producer_epoch)
        return int(response.error_code)


class TransactionsHarness(BrokerHarness):
    """A broker on one data directory. `ask` waits for the answer."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._stuck: threading.Event | None = None

    def ask(self, request: Any, version: int) -> Any:
        """Return the response to a request."""
        return self.answer(self.send(request, version))

    def answer(self, reply: Reply) -> Any:
        """Return the response that has not yet arrived."""
        wait_until(lambda: not reply.pending)
        return reply.response

    def stick_markers(self) -> None:
        """Write no marker from now on, until `release_markers`."""
        self._stuck = threading.Event()
        self.broker.transaction_markers._worker.submit(self._stuck.wait)

    def release_markers(self) -> None:
        assert self._stuck is not None
        self._stuck.set()

    def settle(self) -> None:
        """Wait until all data that was written by now is durable."""
        self.broker.store.write_and_wait([])

    def state(self, transactional_id: str = ID) -> str:
        """Return the state that DescribeTransactions shows, or the number of an error."""
        (state,) = self.ask(DescribeTransactionsRequest([transactional_id]), 0).transaction_states
        return str(state.transaction_state) if state.error_code == 0 else str(state.error_code)

    def wait_for_state(self, state: str) -> None:
        """Wait for a state that other threads cause."""
        wait_until(lambda: self.state() == state)

    def partition_data(self, topic: str, offset: int = 0, *, committed: bool = True) -> Any:
        """Return the partition's data of a Fetch."""
        response = self.ask(self.fetch_request(topic, offset, committed=committed), 12)
        return response.responses[0].partitions[0]

    def fetch_request(self, topic: str, offset: int = 0, *, committed: bool = True, wait_ms: int = 0) -> Any:
        topics = [
            fetch.FetchTopic(
                topic, partitions=[fetch.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)]
            )
        ]
        return fetch.FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, isolation_level=int(committed), topics=topics, session_epoch=-1
        )

    def values(self, topic: str) -> list[bytes | None]:
        """Return the values that a consumer with `read_committed` sees."""
        data = self.partition_data(topic)
        aborted = {(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()}
        skipping: set[int] = set()
        found: list[bytes | None] = []
        rest = memoryview(bytes(data.records))
        while rest:
            header = read_header(rest)
            batch, rest = rest[: header.size_bytes], rest[header.size_bytes :]
            if (header.producer_id, header.base_offset) in aborted:
                skipping.add(header.producer_id)
            if header.is_control:
                skipping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipping):
                found += [record.value for record in decode_records(batch)]
        return found

    def latest(self, topic: str, *, committed: bool = True) -> int:
        """Return the latest offset by ListOffsets."""
        wanted = list_offsets.ListOffsetsPartition(0, timestamp=-1)
        request = list_offsets.ListOffsetsRequest(
            isolation_level=int(committed), topics=[list_offsets.ListOffsetsTopic(topic, [wanted])]
        )
        return int(self.ask(request, 7).topics[0].partitions[0].offset)

    def committed_offset(self, topic: str, *, stable: bool = True) -> tuple[int, int]:
        """Return error code and offset by OffsetFetch."""
        wanted = [OffsetFetchRequestTopics(topic, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=wanted)], require_stable=stable)
        (partition,) = self.ask(request, 8).groups[0].topics[0].partitions
        return partition.error_code, partition.committed_offset
