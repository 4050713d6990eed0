"""Tests of transactions through each registered filter, alone and stacked, before a broker and before a gateway.

Consumers with `read_committed` get only committed records, and the markers as the broker wrote them. Other consumers
get all records.
"""

import time

import pytest

from klamm.testing import RawClient
from klamm.wire.compression import Codec
from klamm.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.wire.messages.end_txn import EndTxnRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import (
    TRANSACTIONAL,
    ControlRecordType,
    Record,
    decode_end_transaction_marker,
    decode_records,
    encode_batch,
    iterate_batches,
)
from tests.contract.filter_settings import alone_and_stacked, settings_of
from tests.contract.filtered import API_SETS, served
from tests.waiting import wait_until

ID, TOPIC = "txn", "t"
COMMITTED = 1


class Producer:
    """A producer with a transactional id."""

    def __init__(self, client):
        self._client = client
        wait_until(lambda: not self._init().error_code)
        self._sequence = 0

    def _init(self):
        answer = self._client.call(InitProducerIdRequest(ID, 60_000), 4)
        self._identity = (answer.producer_id, answer.producer_epoch)
        return answer

    def send(self, *values, codec):
        topics = [AddPartitionsToTxnTopic(TOPIC, [0])]
        added = self._client.call(AddPartitionsToTxnRequest([], ID, *self._identity, topics), 3)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        producer_id, epoch = self._identity
        identity = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": self._sequence}
        # The records have the present time. After a batch of old records a marker would begin another segment, and a
        # fetch ends there.
        records = [Record(timestamp_ms=time.time_ns() // 1_000_000, key=b"k", value=value) for value in values]
        made = bytes(encode_batch(records, codec=codec, attributes=TRANSACTIONAL, **identity))
        data = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, made)])]
        (answer,) = self._client.call(ProduceRequest(ID, -1, 10_000, data), 9).responses
        assert answer.partition_responses[0].error_code == 0
        self._sequence += len(values)

    def end(self, *, commits):
        request = EndTxnRequest(ID, *self._identity, commits)
        assert self._client.call(request, 3).error_code == 0


def fetched(client, isolation_level):
    """Fetch the partition from its beginning."""
    topics = [FetchTopic(TOPIC, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])]
    request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, isolation_level=isolation_level, topics=topics)
    return client.call(request, 11).responses[0].partitions[0]


def read(partition):
    """Return values and markers of a fetched partition as a consumer does: without values of aborted transactions."""
    aborted = sorted((one.first_offset, one.producer_id) for one in partition.aborted_transactions or ())
    values, markers, producers = [], [], set()
    for header, each in iterate_batches(partition.records or b""):
        while aborted and aborted[0][0] <= header.last_offset:
            producers.add(aborted.pop(0)[1])
        if header.is_control:
            markers.append(bytes(each))
            if decode_end_transaction_marker(each).type is ControlRecordType.ABORT:
                producers.discard(header.producer_id)
        elif header.producer_id not in producers:
            values += [record.value for record in decode_records(each)]
    return values, markers


@pytest.mark.parametrize("api_set", API_SETS)
@pytest.mark.parametrize("names", alone_and_stacked(), ids="-".join)
def test_consumers_of_committed_records_get_no_aborted_records(api_set, names, tmp_path):
    settings = settings_of(names, tmp_path)
    door = ["listeners.door.bind=127.0.0.1:0"] if api_set == "broker" else []
    with served(api_set, [*settings, *door]) as (broker, front), RawClient(front.address(), timeout_s=20) as client:
        front.admin.create_topic(TOPIC)
        producer = Producer(client)
        for codec, values, commits in (
            (Codec.NONE, (b"lost", b"lost too"), False),
            (Codec.ZSTD, (b"kept", b"kept too"), True),
            (Codec.GZIP, (b"lost again",), False),
            (Codec.LZ4, (b"open",), None),
        ):
            producer.send(*values, codec=codec)
            if commits is not None:
                producer.end(commits=commits)
        wait_until(lambda: len(read(fetched(client, COMMITTED))[1]) == 3)
        values, markers = read(fetched(client, COMMITTED))
        assert values == [b"kept", b"kept too"]
        everything, all_markers = read(fetched(client, 0))
        assert everything == [b"lost", b"lost too", b"kept", b"kept too", b"lost again", b"open"]
        assert all_markers == markers
        stored = "a.t" if "topic_prefix" in names else TOPIC
        assert markers == stored_markers(broker, stored, "door" if door else None)


def stored_markers(broker, topic, listener):
    """Return the markers of a topic, read at a listener without filters."""
    with RawClient(broker.address(listener)) as client:
        topics = [FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])]
        answer = client.call(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=topics), 11)
    return [
        bytes(each) for header, each in iterate_batches(answer.responses[0].partitions[0].records) if header.is_control
    ]
