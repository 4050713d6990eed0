"""Tests of the resources that the audit finds in the messages of each request."""

import pytest

from klamm import (
    Address,
    ConnectionContext,
    ListenerContext,
    RequestContext,
    RequestEvent,
    RequestOutcome,
    StageTimes,
)
from klamm.wire.messages import (
    describe_configs,
    fetch,
    find_coordinator,
    metadata,
    offset_fetch,
    produce,
)
from klamm.wire.records import Record, encode_batch
from klamm_spark.requests.resources import TopicNames, add_produced_and_fetched, summarize

LISTENER = ListenerContext("l", Address("", 0), Address("", 0))
CONNECTION = ConnectionContext("c", LISTENER, Address("", 0), Address("", 0))


class Region:
    """Records in a file, as the broker answers Fetch."""

    def __init__(self, size_bytes):
        self.size_bytes = size_bytes

    def fileno(self):
        raise AssertionError("the file must not be read")


def request_of(message, response=None):
    context = RequestContext(CONNECTION, None, message.API_KEY, 0, 1, None)
    return RequestEvent(context, RequestOutcome.ANSWERED, 0, message, response, 0, StageTimes(0, 0, 0, 0, 0, 0))


def summary_of(message, response=None, topics=None):
    return summarize(request_of(message, response), topics or TopicNames(), 100)


def batch(count):
    return encode_batch([Record(offset, 0, None, b"value", ()) for offset in range(count)])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            offset_fetch.OffsetFetchRequest(
                groups=[
                    offset_fetch.OffsetFetchRequestGroup(
                        "g", topics=[offset_fetch.OffsetFetchRequestTopics("t", partition_indexes=[0, 1])]
                    )
                ]
            ),
            [("GROUP", "g", None), ("TOPIC", "t", 2)],
        ),
        (find_coordinator.FindCoordinatorRequest("g"), [("GROUP", "g", None)]),
        (
            find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"]),
            [("TRANSACTIONAL_ID", "x", None), ("TRANSACTIONAL_ID", "y", None)],
        ),
        (
            describe_configs.DescribeConfigsRequest(
                [describe_configs.DescribeConfigsResource(2, "t"), describe_configs.DescribeConfigsResource(4, "1")]
            ),
            [("TOPIC", "t", None), ("BROKER", "1", None)],
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_requests_name_their_resources(message, expected):
    found = summary_of(message).resources
    assert [(resource.type, resource.name, resource.partitions) for resource in found] == expected


def test_produced_records_are_counted_by_the_headers_of_their_batches():
    data = [produce.PartitionProduceData(0, batch(3) + batch(4)), produce.PartitionProduceData(1, None)]
    message = produce.ProduceRequest(topic_data=[produce.TopicProduceData("t", partition_data=data)])
    (resource,) = summary_of(message).resources
    assert (resource.records, resource.bytes, resource.partitions) == (7, len(batch(3)) + len(batch(4)), 2)


@pytest.mark.parametrize("records", [b"", b"short", b"\0" * 80, batch(5)[:-3]])
def test_garbage_instead_of_records_raises_no_error(records):
    data = [produce.PartitionProduceData(0, records)]
    message = produce.ProduceRequest(topic_data=[produce.TopicProduceData("t", partition_data=data)])
    (resource,) = summary_of(message).resources
    assert resource.bytes == len(records)


def fetched(*records, topic="t", asked=()):
    partitions = [fetch.PartitionData(number, records=one) for number, one in enumerate(records)]
    response = fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic, partitions=partitions)])
    topics = [fetch.FetchTopic(name, partitions=[fetch.FetchPartition(0)]) for name in asked]
    return fetch.FetchRequest(topics=topics), response


def test_fetched_records_are_counted_in_memory_but_in_files_only_their_bytes():
    (resource,) = summary_of(*fetched(batch(2), batch(3))).resources
    assert resource.records == 5
    (resource,) = summary_of(*fetched(batch(2), Region(1000))).resources
    assert (resource.records, resource.bytes) == (None, len(batch(2)) + 1000)


def test_a_fetch_session_returns_new_records_and_newly_added_partitions():
    found = summary_of(*fetched(b"x", topic="known", asked=["new"])).resources
    assert [(resource.name, resource.bytes) for resource in found] == [("known", 1), ("new", None)]


def test_a_topic_id_that_changes_its_name_is_recorded_as_an_id(caplog):
    topics, topic_id = TopicNames(), bytes(range(16))
    for name in ("orders", "orders", "public", "orders"):
        topics.learn([metadata.MetadataResponseTopic(0, name, topic_id)])
        expected = "orders" if not caplog.records else TopicNames.id_text(topic_id)
        assert topics.name(topic_id) == expected
    (line,) = caplog.messages
    assert "orders" in line
    assert "public" in line


def test_sums_of_messages_equal_sums_of_their_summaries():
    topics = TopicNames()
    data = [produce.PartitionProduceData(0, batch(3))]
    message = produce.ProduceRequest(topic_data=[produce.TopicProduceData("t", partition_data=data)])
    from_messages: dict[str, list[int]] = {}
    from_summaries: dict[str, list[int]] = {}
    for _ in range(2):
        request = request_of(message)
        add_produced_and_fetched(request, from_messages, topics)
        summarized = request._replace(request=summarize(request, topics, 10))
        add_produced_and_fetched(summarized, from_summaries, topics)
    assert from_messages == from_summaries == {"t": [1, 6, 2 * len(batch(3))]}
