"""Tests of handlers under a quota: Fetch without records, and topics that are not created or deleted."""

import pytest

from klamm import ErrorCode, Throttle
from klamm.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.delete_topics import DeleteTopicsRequest
from klamm.wire.messages.fetch import FetchRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.broker.broker_harness import fetch_request


class Quota(Throttle):
    """A quota that allows a number of bytes of records, and a number of partitions."""

    def __init__(self):
        super().__init__()
        self.record_bytes = self.most_bytes = 1 << 30
        self.partitions = 1000
        self.strict = []

    def charge(self, context, size_bytes, seconds):
        return 0

    def max_record_bytes(self, context):
        return self.most_bytes

    def charge_records(self, context, size_bytes):
        self.record_bytes -= size_bytes
        return 100 if self.record_bytes < 0 else 0

    def charge_mutations(self, context, count, strict):
        self.strict.append(strict)
        self.partitions -= count
        return 200 if self.partitions < 0 else 0


@pytest.fixture
def quota(harness):
    quota = Quota()
    harness.listener.throttles = (quota,)
    return quota


def test_a_throttled_fetch_gets_no_records_and_no_session(harness, quota):
    harness.create_topic("t")
    harness.produce("t", b"x" * 1000)
    quota.record_bytes = 0
    response = harness.call(fetch_request("t", (0, 0), session_epoch=0), 12)
    assert (response.error_code, response.session_id, response.responses) == (0, 0, [])
    assert len(harness.broker.services_of(0).fetch_sessions) == 0


def test_a_throttled_fetch_does_not_change_its_session(harness, quota):
    harness.create_topic("t")
    first = harness.call(fetch_request("t", (0, 0), session_epoch=0), 12)
    harness.produce("t", b"x" * 1000)
    quota.record_bytes = 0
    again = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=1)
    throttled = harness.call(again, 12)
    assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, first.session_id, [])
    quota.record_bytes = 1 << 20
    again.session_epoch = 2
    data = harness.call(again, 12).responses[0].partitions[0]
    assert len(data.records) > 1000


def test_a_fetch_that_waits_is_charged_when_it_ends(harness, quota):
    harness.create_topic("t")
    reply = harness.send(fetch_request("t", (0, 0), max_wait_ms=1000), 12)
    quota.record_bytes = 0
    harness.produce("t", b"x")
    assert reply.response.responses == []


def test_the_size_of_a_fetch_is_limited_by_the_quota(harness, quota):
    harness.create_topic("t")
    for _ in range(5):
        harness.produce("t", b"x" * 1000)
    quota.most_bytes = 2500
    # The fetch also waits for at most this many bytes.
    response = harness.call(fetch_request("t", (0, 0), min_bytes=10_000, max_wait_ms=1000), 12)
    assert 2000 < len(response.responses[0].partitions[0].records) <= 2500


@pytest.mark.parametrize(("version", "strict"), [(5, False), (6, True)])
def test_the_quota_counts_partitions_of_created_topics(harness, quota, version, strict):
    quota.partitions = 3
    topics = [CreatableTopic("a", 3, 1), CreatableTopic("bad name", 5, 1), CreatableTopic("b", 1, 1)]
    response = harness.call(CreateTopicsRequest(topics), version)
    assert [ErrorCode(topic.error_code) for topic in response.topics] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED if strict else ErrorCode.NONE,
    ]
    assert quota.strict == [strict, strict]
    assert (harness.broker.topics.get("b") is None) == strict


@pytest.mark.parametrize(("version", "strict"), [(2, False), (3, True)])
def test_the_quota_counts_added_partitions(harness, quota, version, strict):
    harness.create_topic("t", 2)
    quota.partitions = 1
    quota.strict.clear()
    response = harness.call(CreatePartitionsRequest([CreatePartitionsTopic("t", 4, None)], timeout_ms=1000), version)
    assert (response.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED) == strict
    assert len(harness.broker.topics.get("t").partitions) == (2 if strict else 4)
    assert quota.strict == [strict]
    assert quota.partitions == -1


@pytest.mark.parametrize(("version", "strict"), [(4, False), (5, True)])
def test_the_quota_counts_deleted_partitions(harness, quota, version, strict):
    harness.create_topic("t", 2)
    quota.partitions = 1
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    response = harness.call(request, version)
    assert (response.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED) == strict
    assert (harness.broker.topics.get("t") is not None) == strict


def test_the_quota_counts_automatic_creation_and_clients_try_again(harness, quota):
    quota.partitions = 0
    request = MetadataRequest([MetadataRequestTopic(name="auto")])
    assert harness.call(request, 9).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness.broker.auto_creation.wait()
    assert harness.broker.topics.get("auto") is None
    quota.partitions = 10
    harness.call(request, 9)
    harness.broker.auto_creation.wait()
    assert harness.call(request, 9).topics[0].error_code == 0
