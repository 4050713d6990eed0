"""Tests of the third-party example `examples/plugins/klamm-print` without installing it.

`tests/packaging` installs it.
"""

import json

import pytest

import klamm_print
from klamm import ErrorCode
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.compression import Codec
from klamm.wire.messages import init_producer_id
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.fetch import FetchRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import Record, encode_batch


@pytest.fixture
def output(tmp_path):
    return tmp_path / "printed"


@pytest.fixture
def client(output):
    settings = ["listeners.default.api_set=print", f"print.file={output}", "print.partitions=2"]
    with EmbeddedServer(settings, plugins=[klamm_print]) as server, RawClient(server.address()) as connected:
        yield connected


def produce(records, acks=1):
    data = PartitionProduceData(index=1, records=records)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def test_the_example_lists_its_apis(client):
    versions = client.call(ApiVersionsRequest("test", "1"), 3)
    assert {key.api_key: (key.min_version, key.max_version) for key in versions.api_keys} == {
        0: (0, 12),
        1: (4, 12),
        3: (0, 13),
        18: (0, 5),
        22: (0, init_producer_id.VERSIONS.stop - 1),
    }
    response = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("t", 2)]


def test_consumers_of_the_example_get_no_records(client):
    response = client.call(FetchRequest(max_wait_ms=0, min_bytes=0), 12)
    assert (response.error_code, response.responses) == (ErrorCode.INVALID_REQUEST, [])


def test_producers_get_ids_but_no_transactions(client):
    first, second = (client.call(InitProducerIdRequest(transactional_id=None), 4) for _ in range(2))
    assert (first.error_code, second.producer_id - first.producer_id) == (0, 1)
    refused = client.call(InitProducerIdRequest(transactional_id="x"), 4)
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("acks", [0, 1])
def test_records_are_printed(client, output, acks):
    batch = encode_batch([Record(0, 1, b"k", b"v"), Record(1, 1, None, b"\xff")], codec=Codec.GZIP)
    request = produce(batch, acks)
    if acks == 0:
        client.send(request, 9)
        client.call(MetadataRequest(topics=None), 12)
    else:
        (topic,) = client.call(request, 9).responses
        assert [(one.index, one.error_code) for one in topic.partition_responses] == [(1, 0)]
    assert [json.loads(line) for line in output.read_text().splitlines()] == [
        {"topic": "t", "partition": 1, "key": "k", "value": "v"},
        {"topic": "t", "partition": 1, "key": None, "value": "\\xff"},
    ]


def test_an_incomplete_batch_is_refused_and_not_printed(client, output):
    batch = bytearray(encode_batch([Record(0, 1, b"k", b"v")]))
    batch[-1] ^= 1
    (topic,) = client.call(produce(bytes(batch)), 9).responses
    assert topic.partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert output.read_text() == ""
