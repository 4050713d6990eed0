"""Tests of every message and version without another implementation: round trips, and bytes that are not a message."""

import random

import pytest

from klamm.wire.api_keys import SPECS, ApiKey, find_spec, load, spec_of
from klamm.wire.headers import (
    decode_request_header,
    encode_request_header,
    request_header_version,
    response_header_size,
)
from klamm.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, RequestCursor
from klamm.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.primitives import WireError

ALL = [
    (spec, kind, version)
    for spec in SPECS
    for kind in ("Request", "Response")
    for version in load(spec.api_key).DECODABLE
]


def message_class(spec, kind):
    return vars(load(spec.api_key))[spec.name + kind]


@pytest.mark.parametrize(("spec", "kind", "version"), ALL, ids=lambda value: getattr(value, "name", str(value)))
def test_defaults_are_read_back_and_incomplete_messages_are_refused(spec, kind, version):
    made = message_class(spec, kind)()
    data = made.encode(version)
    assert message_class(spec, kind).decode(version, data).encode(version) == data
    for cut in range(len(data)):
        with pytest.raises(WireError):
            message_class(spec, kind).decode(version, data[:cut])


def test_random_bytes_are_a_message_or_raise_wire_error():
    rng = random.Random(1)
    for spec, kind, version in ALL:
        sample = message_class(spec, kind)().encode(version)
        for _ in range(6):
            data = bytearray(sample + rng.randbytes(rng.choice([0, 3, 40])))
            for _ in range(rng.choice([1, 2, 8])):
                if data:
                    data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            try:
                message_class(spec, kind).decode(version, bytes(data))
            except WireError:
                continue


@pytest.mark.parametrize("version", [0, 8, 9, 12])
def test_an_array_longer_than_the_message_is_refused_before_it_is_allocated(version):
    length = b"\x7f\xff\xff\xff" if version < 9 else b"\xff\xff\xff\xff\x0f"
    with pytest.raises(WireError, match="declared"):
        MetadataRequest.decode(version, length)


def test_an_unknown_version_is_neither_encoded_nor_decoded():
    with pytest.raises(WireError, match="has no version 99"):
        MetadataRequest().encode(99)
    with pytest.raises(WireError, match="has no version -1"):
        MetadataRequest.decode(-1, b"")


def test_a_field_that_a_version_lacks_is_refused_unless_it_is_ignorable():
    with pytest.raises(WireError, match="allow_auto_topic_creation"):
        MetadataRequest(topics=[], allow_auto_topic_creation=False).encode(1)
    MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"x" * 16, name="a")]).encode(1)


def test_null_is_refused_in_fields_that_are_not_nullable():
    with pytest.raises(WireError, match="topics is null"):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(WireError):
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]).encode(5)


def test_a_nullable_struct_is_null_if_its_mark_is_negative():
    cursor = RequestCursor("t", 9)
    head, tail = DescribeTopicPartitionsRequest(cursor=cursor).encode(0).split(b"\x01\x02t")
    for mark in (b"\x00", b"\x01", b"\x7f"):
        assert DescribeTopicPartitionsRequest.decode(0, head + mark + b"\x02t" + tail).cursor == cursor
    for mark in (b"\x80", b"\xff"):
        assert DescribeTopicPartitionsRequest.decode(0, head + mark + b"\0").cursor is None


def test_records_may_be_null_only_where_the_description_says_so():
    fetched = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(records=None)])])
    assert FetchResponse.decode(12, fetched.encode(12)).responses[0].partitions[0].records is None
    messages = load(ApiKey.FETCH_SNAPSHOT)
    partition = messages.ResponsePartitionSnapshot(unaligned_records=None)
    snapshot = messages.FetchSnapshotResponse(topics=[messages.ResponseTopicSnapshot("t", [partition])])
    with pytest.raises(WireError, match="unaligned_records is null"):
        snapshot.encode(0)


@pytest.mark.parametrize("version", [7, 9, 13])
def test_produced_records_are_a_view_of_the_frame(version):
    """The log writes base offsets into these bytes."""
    topic = TopicProduceData("topic" if version < 13 else "", bytes(16), [PartitionProduceData(1, b"records")])
    body = bytearray(ProduceRequest(None, -1, 5, [topic]).encode(version))
    ProduceRequest.decode(version, body).topic_data[0].partition_data[0].records[0] = 7
    assert b"\x07ecords" in body


def test_unknown_tagged_fields_are_skipped_and_those_that_are_too_long_refused():
    known = FetchRequest(cluster_id="c").encode(12)
    assert FetchRequest.decode(12, known).cluster_id == "c"
    assert FetchRequest.decode(12, known[:-5] + b"\x02\x00\x02\x02c\x63\x01x").cluster_id == "c"
    with pytest.raises(WireError, match="declared"):
        FetchRequest.decode(12, known[:-5] + b"\x02\x00\x02\x02c\x63\x02x")


def test_records_are_views_of_the_frame_and_writable():
    frame = bytearray(
        ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, b"abc")])]).encode(9)
    )
    records = ProduceRequest.decode(9, frame).topic_data[0].partition_data[0].records
    records[0:1] = b"X"
    assert b"Xbc" in bytes(frame)


class Region:
    size_bytes, position, closed = 5, 2, 0

    def read(self, position, size_bytes):
        return b"0123456789"[position : position + size_bytes]

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("version", range(4, 18))
def test_file_regions_stay_separate_between_the_bytes(version):
    region = Region()

    def response(records):
        return FetchResponse(responses=[FetchableTopicResponse("t", bytes(16), [PartitionData(records=records)])])

    if version >= 13:
        response(b"").responses[0].topic = ""
    chunks = response(region).encode_chunks(version)
    assert chunks[1] is region
    assert (
        b"".join([chunks[0], b"23456", *chunks[2:]])
        == response(b"23456").encode(version)
        == response(region).encode(version)
    )


def test_specs_have_versions_and_header_versions():
    assert spec_of(ApiKey.PRODUCE).name == "Produce"
    assert find_spec(9999) is None
    assert {4, 5, 6, 7} <= {spec.api_key for spec in SPECS}
    assert [request_header_version(7, 0), request_header_version(3, 8), request_header_version(3, 9)] == [0, 1, 2]
    assert [response_header_size(3, 8), response_header_size(3, 9), response_header_size(18, 3)] == [4, 5, 4]
    for spec in SPECS:
        for version in load(spec.api_key).DECODABLE:
            header = encode_request_header(spec.api_key, version, 77, "me")
            expected = None if request_header_version(spec.api_key, version) == 0 else "me"
            assert decode_request_header(header + b"\0\0")[:4] == (spec.api_key, version, 77, expected)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\3\0\1\0\0\0",
        b"\0\3\0\1\0\0\0\1",
        b"\0\3\0\1\0\0\0\1\0\5abcd",
        b"\0\3\0\1\0\0\0\1\0\2\xff\xfe",
        b"\0\3\0\x0c\0\0\0\1\xff\xff",
        b"\0\3\0\x0c\0\0\0\1\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0\3\0\x0c\0\0\0\1\xff\xff\1\1\5ab",
    ],
)
def test_invalid_headers_are_refused(frame):
    with pytest.raises(WireError):
        decode_request_header(frame)


def test_a_server_does_not_import_messages_that_it_does_not_serve():
    script = (
        "import sys, klamm.requests.pipeline; "
        "print(sorted(m for m in sys.modules if m.startswith('klamm.wire.messages.')))"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "['klamm.wire.messages.api_versions']"


def test_every_message_module_can_be_imported_alone():
    for spec in SPECS:
        assert spec.api_key == load(spec.api_key).API_KEY
