"""Tests of error codes, of the exception with an error code, and of the error response to each request."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.wire.error_responses import error_response
from klamm.wire.errors import ErrorCode, KafkaError
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.struct_base import WireStruct

from .strategies import DESCRIBED

REQUESTS = [each for each in DESCRIBED if each.name.endswith("Request")]


@pytest.mark.parametrize("described", REQUESTS, ids=repr)
@settings(max_examples=10)
@given(st.data())
def test_every_request_has_an_error_response_that_its_version_can_carry(described, data):
    version = data.draw(st.sampled_from(described.module.VERSIONS))
    request = data.draw(described.values(version))
    response = error_response(request, version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "why", 7)
    if response is None:
        assert (described.name, request.acks) == ("ProduceRequest", 0)
        return
    read = type(response).decode(version, response.encode(version))
    assert set(error_codes(read)) <= {ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert getattr(read, "throttle_time_ms", 7) in (7, 0)


def error_codes(value):
    if isinstance(value, WireStruct):
        for name in value.__slots__:
            yield from [getattr(value, name)] if name == "error_code" else error_codes(getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            yield from error_codes(item)


def test_the_error_response_has_the_error_for_each_partition():
    partitions = [OffsetCommitRequestPartition(number, 5) for number in (0, 3)]
    request = OffsetCommitRequest("group", topics=[OffsetCommitRequestTopic("t", partitions=partitions)])
    response = error_response(request, 8, ErrorCode.NOT_COORDINATOR, None, 12)
    assert response.throttle_time_ms == 12
    assert [(p.partition_index, p.error_code) for p in response.topics[0].partitions] == [(0, 16), (3, 16)]


def test_the_error_response_has_the_error_for_each_topic():
    request = MetadataRequest([MetadataRequestTopic(name="a"), MetadataRequestTopic(name="b")])
    response = error_response(request, 12, ErrorCode.REQUEST_TIMED_OUT)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", 7), ("b", 7)]


@pytest.mark.parametrize(("acks", "answered"), [(0, False), (1, True), (-1, True)])
def test_a_produce_with_acks_0_has_no_error_response(acks, answered):
    topic = TopicProduceData("t", partition_data=[PartitionProduceData(4, b"")])
    response = error_response(ProduceRequest(acks=acks, topic_data=[topic]), 9, ErrorCode.KAFKA_STORAGE_ERROR)
    assert (response is not None) is answered
    if answered:
        (partition,) = response.responses[0].partition_responses
        assert (partition.index, partition.error_code, partition.base_offset) == (4, 56, -1)


def test_the_text_of_an_error_has_its_name_and_reason():
    assert str(KafkaError(ErrorCode.NOT_COORDINATOR)) == "NOT_COORDINATOR"
    error = KafkaError(ErrorCode.INVALID_REQUEST, "no name")
    assert (str(error), error.error_code, error.message) == ("INVALID_REQUEST: no name", 42, "no name")


def test_retriable_errors_are_marked():
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.NONE.retriable
    assert not ErrorCode.TOPIC_AUTHORIZATION_FAILED.retriable
