"""Tests of transactional requests: producers' epochs, partitions, ends, and what readers see."""

import pytest

from klamm import ErrorCode
from klamm.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.wire.messages.delete_topics import DeleteTopicsRequest
from klamm.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.list_transactions import ListTransactionsRequest
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from klamm.wire.records import TRANSACTIONAL
from klamm_broker.transactions.offsets_partition import offsets_partition
from klamm_broker.transactions.transaction import MAX_EPOCH
from tests.unit.broker.broker_harness import Reply, records
from tests.unit.transactions.transactions_harness import BEFORE_V2, GROUP, ID, V2, Producer

E = ErrorCode


@pytest.fixture
def producer(harness):
    producer = Producer(harness)
    assert producer.init() == 0
    return producer


@pytest.mark.parametrize("damage", [lambda batch: batch[:-1], lambda batch: batch + batch])
def test_a_partition_is_not_added_if_its_records_are_not_one_batch(harness, producer, damage):
    batch = records(
        b"v", producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=0, attributes=TRANSACTIONAL
    )
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, damage(batch))])]
    (answered,) = harness.ask(ProduceRequest(ID, -1, 1000, data), V2).responses[0].partition_responses
    assert answered.error_code == E.INVALID_RECORD
    assert harness.state() == "Empty"


@pytest.mark.parametrize(("version", "error"), [(BEFORE_V2, E.NONE), (V2, E.OUT_OF_ORDER_SEQUENCE_NUMBER)])
def test_a_producer_that_a_partition_does_not_know_begins_at_sequence_0(harness, producer, version, error):
    if version == BEFORE_V2:
        assert producer.add(("t", 0)) == [0]
    batch = records(
        b"v", producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=3, attributes=TRANSACTIONAL
    )
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])]
    (answered,) = harness.ask(ProduceRequest(ID, -1, 1000, data), version).responses[0].partition_responses
    assert (answered.error_code, answered.log_start_offset) == (error, 0)


@pytest.mark.parametrize("version", [BEFORE_V2, V2])
def test_batches_of_several_producers_refuse_the_whole_request(harness, producer, version):
    batches = [
        records(b"v", producer_id=producer_id, producer_epoch=producer.epoch, base_sequence=0, attributes=TRANSACTIONAL)
        for producer_id in (producer.id, producer.id + 1)
    ]
    topics = ("t", "u")
    data = [
        TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])
        for topic, batch in zip(topics, batches, strict=True)
    ]
    responses = harness.ask(ProduceRequest(ID, -1, 1000, data), version).responses
    assert [each.partition_responses[0].error_code for each in responses] == [E.INVALID_PRODUCER_ID_MAPPING] * 2
    assert harness.state() == "Empty"
    assert [harness.latest(topic, committed=False) for topic in topics] == [0, 0]


# InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_each_start_of_a_producer_raises_its_epoch(harness, version):
    producer = Producer(harness)
    assert producer.init(version) == 0
    first = producer.id
    assert producer.epoch == 0
    producer.init(version)
    assert (producer.id, producer.epoch) == (first, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_the_timeout_of_a_transaction_has_bounds(harness, timeout_ms):
    assert Producer(harness, timeout_ms=timeout_ms).init() == E.INVALID_TRANSACTION_TIMEOUT


def test_a_producer_continues_after_an_error(producer):
    assert producer.go_on() == 0
    assert producer.epoch == 1
    # The answer was lost. The same request gets the same epoch.
    producer.epoch = 0
    assert producer.go_on() == 0
    assert producer.epoch == 1


@pytest.mark.parametrize(("version", "error"), [(3, E.INVALID_PRODUCER_EPOCH), (5, E.PRODUCER_FENCED)])
def test_a_fenced_producer_cannot_continue(harness, producer, version, error):
    Producer(harness).init()
    Producer(harness).init()
    assert producer.go_on(version) == error
    producer.id += 1
    assert producer.go_on(version) == error


def test_init_producer_id_aborts_an_open_transaction_first(harness, producer):
    producer.produce("t", b"a")
    new = Producer(harness)
    assert new.init() == E.CONCURRENT_TRANSACTIONS
    assert harness.state() == "CompleteAbort"
    assert new.init() == 0
    # One increment is for the end, and one for the new producer.
    assert (new.id, new.epoch) == (producer.id, 2)
    assert producer.produce("t", b"b").error_code == E.INVALID_PRODUCER_EPOCH
    assert producer.end(committed=True) == E.PRODUCER_FENCED
    assert harness.values("t") == []


def test_after_the_last_epoch_a_producer_gets_another_id(harness, producer):
    transaction = harness.broker.transactions.registry.get(ID)
    transaction.record = transaction.record._replace(producer_epoch=MAX_EPOCH - 1)
    before = producer.id
    assert producer.init() == 0
    assert producer.id != before
    assert producer.epoch == 0
    # An end does the same.
    transaction.record = transaction.record._replace(producer_epoch=MAX_EPOCH - 1)
    producer.epoch = MAX_EPOCH - 1
    before = producer.id
    assert producer.produce("t", b"a").error_code == 0
    request = producer.end_request(committed=True)
    assert producer.end(committed=True) == 0
    assert producer.id != before
    assert producer.epoch == 0
    retried = harness.ask(request, 5)
    assert (retried.error_code, retried.producer_id, retried.producer_epoch) == (0, producer.id, 0)
    assert harness.values("t") == [b"a"]


def test_only_one_request_at_a_time_is_accepted(harness, producer):
    producer.produce("t", b"a")
    harness.stick_markers()
    ending = harness.send(producer.end_request(committed=True), 5)
    harness.wait_for_state("PrepareCommit")
    assert harness.ask(InitProducerIdRequest(ID, 1000), 5).error_code == E.CONCURRENT_TRANSACTIONS
    assert producer.end(committed=True) == E.CONCURRENT_TRANSACTIONS or ending.pending
    harness.release_markers()
    assert harness.answer(ending).error_code == 0
    assert harness.state() == "CompleteCommit"


# Commits, aborts and readers


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("committed", [False, True])
def test_a_transaction_commits_or_aborts(harness, producer, version, committed):
    produce_version = V2 if version >= 5 else BEFORE_V2
    if version < 5:
        assert producer.add(("t", 0), ("u", 0)) == [0, 0]
    assert producer.produce("t", b"a", b"b", version=produce_version).base_offset == 0
    assert producer.produce("u", b"c", version=produce_version).base_offset == 0
    assert harness.state() == "Ongoing"
    assert (harness.latest("t"), harness.latest("t", committed=False)) == (0, 2)
    assert harness.values("t") == []
    epoch = producer.epoch
    assert producer.end(committed=committed, version=version) == 0
    assert harness.state() == ("CompleteCommit" if committed else "CompleteAbort")
    assert producer.epoch == (epoch + 1 if version >= 5 else epoch)
    assert (harness.latest("t"), harness.latest("u")) == (3, 2)
    assert harness.values("t") == ([b"a", b"b"] if committed else [])
    aborted = harness.partition_data("t").aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in aborted] == ([] if committed else [(producer.id, 0)])
    assert harness.partition_data("t", committed=False).aborted_transactions is None


def test_a_batch_that_adds_its_partition_is_always_answered(harness, producer, monkeypatch):
    harness.create_topic("packed", compression_type="zstd")
    monkeypatch.setattr(Reply, "inline", True, raising=False)
    assert producer.produce("packed", b"v", version=V2).error_code == 0


def test_transactions_follow_each_other(harness, producer):
    for number in range(6):
        assert producer.produce("t", b"%d" % number).error_code == 0
        assert producer.end(committed=number % 2 == 0) == 0
    assert harness.values("t") == [b"0", b"2", b"4"]


def test_a_reader_waits_for_the_marker(harness, producer):
    producer.produce("t", b"a")
    waiting = harness.send(harness.fetch_request("t", wait_ms=60_000), 12)
    assert waiting.pending
    producer.produce("t", b"b")
    assert waiting.pending
    producer.end(committed=True)
    data = harness.answer(waiting).responses[0].partitions[0]
    assert data.last_stable_offset == 3
    assert len(bytes(data.records)) > 0


def test_an_open_transaction_hides_the_records_after_it(harness, producer):
    producer.produce("t", b"a")
    harness.produce("t", b"outside")
    assert harness.partition_data("t").last_stable_offset == 0
    assert harness.partition_data("t", committed=False).high_watermark == 2
    producer.end(committed=False)
    assert harness.values("t") == [b"outside"]


def test_a_transaction_without_records_can_be_aborted(harness, producer):
    """By KIP-890, the end raises the epoch although the transaction has no records."""
    assert producer.end(committed=False) == 0
    assert (producer.epoch, harness.state()) == (1, "CompleteAbort")
    assert producer.end(committed=True) == E.INVALID_TXN_STATE
    assert producer.end(committed=False, version=4) == 0
    assert producer.end(committed=True, version=4) == E.INVALID_TXN_STATE


def test_a_repeated_end_gets_the_same_answer(harness, producer):
    producer.produce("t", b"a")
    request = producer.end_request(committed=True)
    first, second = harness.ask(request, 5), harness.ask(request, 5)
    assert (first.error_code, first.producer_id, first.producer_epoch) == (0, producer.id, 1)
    assert (second.error_code, second.producer_id, second.producer_epoch) == (0, producer.id, 1)
    request.committed = False
    assert harness.ask(request, 5).error_code == E.INVALID_TXN_STATE


@pytest.mark.parametrize(("version", "error"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)])
def test_a_producer_cannot_end_transactions_of_others(harness, producer, version, error):
    producer.produce("t", b"a")
    producer.epoch += 1
    assert producer.end(committed=True, version=version) == error
    producer.id += 1
    assert producer.end(committed=True, version=version) == E.INVALID_PRODUCER_ID_MAPPING
    unknown = Producer(harness, "unknown")
    assert unknown.end(committed=True) == E.INVALID_PRODUCER_ID_MAPPING


# AddPartitionsToTxn


def test_all_partitions_are_added_or_none(harness, producer):
    assert producer.add(("t", 0), ("t", 9), ("nope", 0)) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert harness.state() == "Empty"
    assert producer.add(("t", 0)) == [0]
    assert producer.add(("t", 0)) == [0]


@pytest.mark.parametrize(("version", "error"), [(1, E.INVALID_PRODUCER_EPOCH), (3, E.PRODUCER_FENCED)])
def test_a_producer_cannot_add_partitions_to_transactions_of_others(producer, version, error):
    producer.epoch += 1
    assert producer.add(("t", 0), version=version) == [error]
    producer.id += 1
    assert producer.add(("t", 0), version=version) == [E.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_and_verify_for_many(harness, producer, version):
    def ask(*partitions, verify_only, epoch=0, transactional_id=ID):
        topics = [AddPartitionsToTxnTopic("t", list(partitions))]
        wanted = [AddPartitionsToTxnTransaction(transactional_id, producer.id, epoch, verify_only, topics)] * 2
        results = harness.ask(AddPartitionsToTxnRequest(wanted), version).results_by_transaction
        assert [each.transactional_id for each in results] == [transactional_id] * 2
        return [each.partition_error_code for each in results[0].topic_results[0].results_by_partition]

    assert ask(0, verify_only=True) == [E.TRANSACTION_ABORTABLE]
    assert ask(0, verify_only=False) == [0]
    harness.settle()
    assert ask(0, 1, verify_only=True) == [0, E.TRANSACTION_ABORTABLE]
    assert ask(0, verify_only=True, epoch=9) == [E.PRODUCER_FENCED]
    assert ask(0, verify_only=True, transactional_id="y") == [E.INVALID_PRODUCER_ID_MAPPING]


# Produce


@pytest.mark.parametrize(
    ("version", "error"), [(3, E.INVALID_TXN_STATE), (10, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE)]
)
def test_records_for_a_partition_that_was_not_added_are_refused(harness, producer, version, error):
    producer.add(("t", 0))
    assert producer.produce("t", b"a", partition=1, version=version).error_code == error
    assert harness.partition_data("t").high_watermark == 0


@pytest.mark.parametrize("version", [BEFORE_V2, V2])
def test_records_of_unknown_producers_are_refused(harness, producer, version):
    producer.epoch += 1
    assert producer.produce("t", b"a", version=version).error_code == E.INVALID_PRODUCER_EPOCH
    producer.id += 1
    assert producer.produce("t", b"a", version=version).error_code == E.INVALID_PRODUCER_ID_MAPPING
    unknown = Producer(harness, "unknown")
    unknown.id, unknown.epoch = producer.id, 0
    assert unknown.produce("t", b"a", version=version).error_code == E.INVALID_PRODUCER_ID_MAPPING
    assert unknown.produce("nope", b"a", version=version).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("version", "error"), [(BEFORE_V2, E.NOT_ENOUGH_REPLICAS), (V2, E.CONCURRENT_TRANSACTIONS)])
def test_no_batch_is_written_after_the_decision(harness, producer, version, error):
    producer.add(("t", 0))
    producer.produce("t", b"a", version=version)
    harness.stick_markers()
    ending = harness.send(producer.end_request(committed=True), 3)
    harness.wait_for_state("PrepareCommit")
    assert producer.produce("t", b"late", version=version).error_code == error
    harness.release_markers()
    assert harness.answer(ending).error_code == 0
    assert harness.values("t") == [b"a"]


# Offsets


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("committed", [False, True])
def test_offsets_are_part_of_the_transaction(harness, producer, version, committed):
    if version < 5:
        assert producer.add_offsets() == 0
    assert producer.commit_offset("u", 5, version) == 0
    assert harness.committed_offset("u") == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert harness.committed_offset("u", stable=False) == (0, -1)
    assert producer.end(committed=committed) == 0
    assert harness.committed_offset("u") == (0, 5 if committed else -1)


@pytest.mark.parametrize(("version", "error"), [(3, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE)])
def test_offsets_of_a_group_that_was_not_added_are_refused(producer, version, error):
    producer.add(("t", 0))
    assert producer.commit_offset("u", 5, version) == error


@pytest.mark.parametrize("is_transactional", [False, True])
def test_no_offset_remains_if_its_topic_is_deleted_while_the_commit_waits(
    harness, producer, is_transactional, monkeypatch
):
    groups = harness.broker.groups
    offsets = groups.transactional_offsets if is_transactional else groups.offsets
    commit = offsets.commit

    def delete_and_commit(*arguments):
        harness.ask(DeleteTopicsRequest(topic_names=["u"], timeout_ms=10_000), 5)
        harness.create_topic("u")
        commit(*arguments)

    monkeypatch.setattr(offsets, "commit", delete_and_commit)
    if is_transactional:
        assert producer.add_offsets() == 0
        error = producer.commit_offset("u", 5, 4)
        assert producer.end(committed=True) == 0
    else:
        topics = [OffsetCommitRequestTopic("u", partitions=[OffsetCommitRequestPartition(0, 5)])]
        error = harness.ask(OffsetCommitRequest("g", topics=topics), 8).topics[0].partitions[0].error_code
    assert error == E.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.committed_offset("u") == (0, -1)
    harness.reopen()
    assert harness.committed_offset("u") == (0, -1)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_offsets_of_other_topics_groups_and_epochs_are_refused(producer, version):
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION if version < 6 else E.UNKNOWN_TOPIC_ID
    assert producer.commit_offset("nope", 5, version) == unknown
    assert producer.commit_offset("u", 5, version, group="") == E.INVALID_GROUP_ID
    producer.epoch += 1
    assert producer.commit_offset("u", 5, version) == E.INVALID_PRODUCER_EPOCH
    producer.id += 1
    assert producer.commit_offset("u", 5, version) == E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(("version", "error"), [(5, E.ILLEGAL_GENERATION), (6, E.GROUP_ID_NOT_FOUND)])
def test_offsets_of_a_member_of_a_missing_group_are_refused(producer, version, error):
    producer.member = (3, "m")
    assert producer.commit_offset("u", 5, version) == error


@pytest.mark.parametrize(("version", "error"), [(5, E.ILLEGAL_GENERATION), (6, E.STALE_MEMBER_EPOCH)])
def test_offsets_of_a_member_with_another_epoch_are_refused(harness, producer, version, error):
    joining = ConsumerGroupHeartbeatRequest(
        GROUP, "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["u"], topic_partitions=[]
    )
    joined = harness.ask(joining, 1)
    assert joined.error_code == 0
    producer.member = (joined.member_epoch + 1, "m")
    assert producer.commit_offset("u", 5, version) == error
    producer.member = (joined.member_epoch, "m")
    assert producer.commit_offset("u", 5, version) == 0


@pytest.mark.parametrize(("group", "index"), [("", 0), ("g", 3), ("Aa", 12), ("BB", 12), ("polygenelubricants", 0)])
def test_the_partition_of_a_group_is_the_same_as_in_java(group, index):
    """Kafka uses Java's `String.hashCode`.

    The last case is the lowest integer, for whose absolute value Kafka uses 0.
    """
    assert offsets_partition(group) == ("__consumer_offsets", index)


# Time limits


def test_a_transaction_times_out(harness):
    producer = Producer(harness, timeout_ms=5000)
    producer.init()
    producer.produce("t", b"a")
    harness.advance_ms(5000)
    assert harness.state() == "Ongoing"
    harness.advance_ms(10_000)
    harness.wait_for_state("CompleteAbort")
    assert producer.produce("t", b"b").error_code == E.INVALID_PRODUCER_EPOCH
    # As in Kafka, the epoch before the abort is that of a retry.
    assert producer.end(committed=True) == E.INVALID_TXN_STATE
    assert producer.end(committed=True, version=4) == E.PRODUCER_FENCED
    assert harness.latest("t") == 2
    assert producer.init() == 0
    assert producer.produce("t", b"c").error_code == 0


def test_transactional_ids_expire(harness, producer):
    # The open transaction would time out within these days.
    never_ms = 2**31 - 1
    harness.reopen(transaction_abort_timed_out_transaction_cleanup_interval_ms=never_ms)
    open_ = Producer(harness, "open", timeout_ms=900_000)
    open_.init()
    open_.produce("t", b"a")
    harness.clock.advance_ms(604_800_000 - 1)
    harness.broker.transactions.expire(harness.clock.wall_ms())
    harness.settle()
    assert harness.state() == "Empty"
    harness.clock.advance_ms(1)
    harness.broker.transactions.expire(harness.clock.wall_ms())
    harness.settle()
    assert (harness.state(), harness.state("open")) == (str(int(E.TRANSACTIONAL_ID_NOT_FOUND)), "Ongoing")
    assert producer.end(committed=False) == E.INVALID_PRODUCER_ID_MAPPING
    before = producer.id
    assert producer.init() == 0
    assert producer.id != before
    harness.reopen()
    assert harness.state("open") == "Ongoing"


# Describe and list


def test_transactions_are_described(harness, producer):
    harness.clock.advance_ms(100)
    producer.produce("t", b"a", partition=1)
    producer.produce("u", b"a")
    producer.commit_offset("u", 1)
    known, unknown, empty = harness.ask(DescribeTransactionsRequest([ID, "nope", ""]), 0).transaction_states
    assert (known.error_code, known.transactional_id, known.transaction_state) == (0, ID, "Ongoing")
    assert (known.producer_id, known.producer_epoch) == (producer.id, producer.epoch)
    assert (known.transaction_timeout_ms, known.transaction_start_time_ms) == (60_000, harness.clock.wall_ms())
    partitions = {topic.topic: topic.partitions for topic in known.topics}
    assert partitions == {"t": [1], "u": [0], "__consumer_offsets": [offsets_partition("g")[1]]}
    assert (unknown.error_code, empty.error_code) == (E.TRANSACTIONAL_ID_NOT_FOUND, E.INVALID_REQUEST)


def test_transactions_are_listed_by_filters(harness, producer):
    other = Producer(harness, "y-1")
    other.init()
    other.produce("t", b"a")
    harness.clock.advance_ms(1000)

    def listed(version=2, **filters):
        response = harness.ask(ListTransactionsRequest(**filters), version)
        assert response.error_code == 0
        return [each.transactional_id for each in response.transaction_states]

    assert listed() == [ID, "y-1"]
    assert listed(state_filters=["Ongoing"]) == ["y-1"]
    assert listed(producer_id_filters=[producer.id]) == [ID]
    assert listed(state_filters=["Ongoing"], duration_filter=999) == ["y-1"]
    assert listed(state_filters=["Ongoing"], duration_filter=1000) == []
    assert listed(transactional_id_pattern="y-[0-9]+") == ["y-1"]
    assert listed(transactional_id_pattern="y") == []
    assert listed(transactional_id_pattern="") == [ID, "y-1"]
    response = harness.ask(ListTransactionsRequest(["Nonsense", "Empty"]), 0)
    assert response.unknown_state_filters == ["Nonsense"]
    assert [each.transactional_id for each in response.transaction_states] == [ID]
    assert listed(state_filters=["Nonsense"]) == []
    bad = harness.ask(ListTransactionsRequest(transactional_id_pattern="(?!x)"), 2)
    assert bad.error_code == E.INVALID_REGULAR_EXPRESSION


def test_producers_are_described(harness, producer):
    producer.produce("t", b"a")
    producer.end(committed=True)
    producer.produce("t", b"b")
    topic = harness.ask(DescribeProducersRequest([TopicRequest("t", [0])]), 0).topics[0]
    (state,) = topic.partitions[0].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer.id, 1, 0)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (0, 2)


# WriteTxnMarkers


def marker(harness, producer, topic="t", index=0, *, committed=False, epoch=None, coordinator_epoch=0, version=2):
    topics = [WritableTxnMarkerTopic(topic, [index])]
    epoch = producer.epoch if epoch is None else epoch
    wanted = WritableTxnMarker(producer.id, epoch, committed, topics, coordinator_epoch)
    (result,) = harness.ask(WriteTxnMarkersRequest([wanted]), version).markers
    assert result.producer_id == producer.id
    return result.topics[0].partitions[0].error_code


@pytest.mark.parametrize("version", [1, 2])
def test_a_hanging_transaction_is_aborted(harness, producer, version):
    producer.produce("t", b"a")
    assert harness.latest("t") == 0
    assert marker(harness, producer, version=version) == 0
    assert harness.latest("t") == 2
    assert harness.values("t") == []


def test_invalid_markers_are_refused(harness, producer):
    producer.produce("t", b"a")
    assert marker(harness, producer, index=7) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert marker(harness, producer, "nope") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert marker(harness, producer, coordinator_epoch=3) == 0
    assert marker(harness, producer, coordinator_epoch=2) == E.TRANSACTION_COORDINATOR_FENCED
    assert harness.ask(WriteTxnMarkersRequest(), 2).markers == []


def test_a_marker_without_a_producer_is_not_written(harness, producer):
    producer.produce("t", b"a")
    topics = [WritableTxnMarkerTopic("t", [0, 7])]
    wanted = [WritableTxnMarker(*who, False, topics) for who in ((-1, 0), (producer.id, -1), (-1, -1))]
    results = harness.ask(WriteTxnMarkersRequest(wanted), 2).markers
    codes = [partition.error_code for result in results for partition in result.topics[0].partitions]
    assert codes == [E.UNKNOWN_SERVER_ERROR, E.UNKNOWN_TOPIC_OR_PARTITION] * 3
    assert harness.broker.topics.get("t").partition(0).log.end_offset == 1


def test_a_marker_commits_offsets(harness, producer):
    producer.commit_offset("u", 5)
    assert marker(harness, producer, *offsets_partition("g"), committed=True) == 0
    assert harness.committed_offset("u") == (0, 5)


# Deleted topics


def test_a_deleted_topic_needs_no_marker(harness, producer):
    producer.produce("t", b"a")
    producer.produce("u", b"a")
    harness.broker.topics.delete(harness.broker.topics.get("u"))
    assert producer.end(committed=True) == 0
    assert harness.values("t") == [b"a"]
