"""Tests with a clock that a test moves: transactions, and the broker's periodic work."""

import pytest

from klamm.testing import EmbeddedServer, MovingClock, RawClient
from klamm.wire.batch_headers import TRANSACTIONAL
from klamm.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm.wire.messages.end_txn import EndTxnRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import Record, encode_batch

DAY_MS = 24 * 3_600_000
_NAME = "payments"


class Transaction:
    """A transaction on one partition, with one method for each request."""

    def __init__(self, client, topic, timeout_ms=60_000):
        self._client = client
        self._topic = topic
        started = client.call(InitProducerIdRequest(_NAME, timeout_ms), 4)
        self._producer = started.producer_id, started.producer_epoch
        topics = [AddPartitionsToTxnTopic(topic, [0])]
        client.call(AddPartitionsToTxnRequest([], _NAME, *self._producer, topics), 3)

    def produce(self, value):
        producer_id, epoch = self._producer
        batch = encode_batch(
            [Record(value=value)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            attributes=TRANSACTIONAL,
        )
        data = TopicProduceData(self._topic, partition_data=[PartitionProduceData(0, bytes(batch))])
        response = self._client.call(ProduceRequest(_NAME, -1, 30_000, [data]), 8)
        assert response.responses[0].partition_responses[0].error_code == 0

    def end(self, committed):
        assert self._client.call(EndTxnRequest(_NAME, *self._producer, committed), 3).error_code == 0


def values(server, topic, **options):
    return [one.value for one in server.consume(topic, **options)]


@pytest.mark.parametrize("nodes", [1, 3])
def test_records_of_open_and_aborted_transactions_are_not_consumed(nodes):
    with EmbeddedServer(nodes=nodes) as server, RawClient(server.address()) as client:
        topic = server.create_topic()
        if nodes > 1:
            server.nodes.move_leader(topic, 0, 1)
            server.nodes.move_coordinator(_NAME, 1)
        for value, committed in [(b"aborted", False), (b"committed", True), (b"aborted again", False)]:
            transaction = Transaction(client, topic)
            transaction.produce(value)
            server.produce(topic, b"beside " + value)
            transaction.end(committed)
        open_one = Transaction(client, topic)
        open_one.produce(b"open")
        server.produce(topic, "behind it")
        committed = [b"beside aborted", b"committed", b"beside committed", b"beside aborted again"]
        assert values(server, topic) == committed
        everything = [b"aborted", *committed[:3], b"aborted again", committed[3], b"open", b"behind it"]
        assert values(server, topic, isolation="read_uncommitted") == everything
        assert values(server, topic, offset=2) == committed[1:]
        open_one.end(True)
        assert values(server, topic, count=6) == [*committed, b"open", b"behind it"]


def test_an_unknown_isolation_is_an_error():
    with EmbeddedServer() as server, pytest.raises(ValueError, match='did you mean "read_committed"'):
        server.consume(server.create_topic(), isolation="read_comitted")


def test_the_brokers_periodic_work_follows_the_tests_clock():
    with EmbeddedServer(clock=MovingClock()) as server, RawClient(server.address()) as client:
        topic = server.create_topic(configs={"retention.ms": DAY_MS})
        transaction = Transaction(client, topic, 60_000)
        transaction.produce(b"forgotten")
        server.advance_ms(61_000)
        server.wait_until(lambda: server.admin.offset(topic, isolation="read_committed") == 2, "abort")
        assert producers(client, topic) == 1

        server.advance_ms(DAY_MS + 1)
        server.wait_until(lambda: producers(client, topic) == 0, "expiry of producer ids")
        server.advance_ms(6 * DAY_MS)
        server.wait_until(lambda: server.admin.offset(topic, timestamp_ms=-2) == 2, "retention")


def producers(client, topic):
    (found,) = client.call(DescribeProducersRequest([TopicRequest(topic, [0])]), 0).topics[0].partitions
    return len(found.active_producers)


def test_an_old_value_of_a_key_is_compacted_when_the_clock_moves():
    settings = ["log.cleaner.min.cleanable.ratio=0.01", "log.segment.delete.delay.ms=0"]
    with EmbeddedServer(settings, clock=MovingClock()) as server:
        configs = {"cleanup.policy": "compact", "segment.ms": 60_000}
        topic = server.create_topic(configs=configs)
        for value in ("old", "new"):
            server.produce(topic, value, key="k")
        server.advance_ms(2 * 60_000)
        server.produce(topic, "other", key="another")
        server.advance_ms(60_000)
        server.wait_until(lambda: values(server, topic) == [b"new", b"other"], "compaction")
