"""Elements are counted while a message is decoded: a message with too many is refused before the rest is read."""

import struct
import threading

import pytest

from klamm.wire.messages import api_versions, fetch, find_coordinator, metadata, offset_fetch, produce
from klamm.wire.primitives import (
    TooManyElementsError,
    WireError,
    decode_limited,
    read_array_length,
    read_compact_array_length,
)


def limited(message, version, most):
    return decode_limited(type(message).decode, version, message.encode(version), 0, most)


def many_topics(count):
    return metadata.MetadataRequest([metadata.MetadataRequestTopic(name=f"t{n}") for n in range(count)])


@pytest.mark.parametrize("version", [4, 12])
def test_the_elements_of_an_array_are_counted(version):
    request = many_topics(500)
    assert limited(request, version, 500) == request
    with pytest.raises(TooManyElementsError, match="too many elements"):
        limited(request, version, 499)


def test_elements_within_elements_are_counted():
    topics = [fetch.FetchTopic(f"t{n}", partitions=[fetch.FetchPartition(p) for p in range(5)]) for n in range(20)]
    request = fetch.FetchRequest(topics=topics)
    for version in (4, 12):
        assert limited(request, version, 120) == request
        with pytest.raises(TooManyElementsError):
            limited(request, version, 119)


@pytest.mark.parametrize(
    ("read", "two"), [(read_array_length, b"\0\0\0\2"), (read_compact_array_length, b"\3")], ids=["fixed", "compact"]
)
def test_an_array_has_at_most_one_element_for_each_byte_that_follows(read, two):
    assert read(two + b"xy", 0) == (2, len(two))
    with pytest.raises(WireError):
        read(two + b"x", 0)


@pytest.mark.parametrize("version", [4, 12])
def test_the_only_element_of_an_array_counts(version):
    topics = [fetch.FetchTopic(f"t{n}", partitions=[fetch.FetchPartition(0)]) for n in range(500)]
    request = fetch.FetchRequest(topics=topics)
    assert limited(request, version, 1000) == request
    with pytest.raises(TooManyElementsError):
        limited(request, version, 999)


def test_numbers_in_arrays_are_counted():
    topic = offset_fetch.OffsetFetchRequestTopic("t", list(range(1000)))
    request = offset_fetch.OffsetFetchRequest("g", [topic])
    assert limited(request, 5, 1001) == request
    with pytest.raises(TooManyElementsError):
        limited(request, 5, 1000)


def test_tagged_fields_are_counted():
    tagged = b"".join(struct.pack("BB", 99, 0) for _ in range(1000))
    body = api_versions.ApiVersionsRequest("a", "1").encode(3)[:-1] + b"\xe8\x07" + tagged
    decode_limited(api_versions.ApiVersionsRequest.decode, 3, body, 0, 1000)
    with pytest.raises(TooManyElementsError):
        decode_limited(api_versions.ApiVersionsRequest.decode, 3, body, 0, 999)


def test_partitions_of_a_produce_are_counted():
    data = [produce.PartitionProduceData(n, b"") for n in range(300)]
    request = produce.ProduceRequest(topic_data=[produce.TopicProduceData("t", partition_data=data)])
    for version in (8, 9):
        assert len(limited(request, version, 301).topic_data[0].partition_data) == 300
        with pytest.raises(TooManyElementsError):
            limited(request, version, 300)


def test_a_limit_ends_with_its_message_even_after_an_error():
    request = many_topics(500)
    with pytest.raises(TooManyElementsError):
        limited(request, 12, 10)
    assert metadata.MetadataRequest.decode(12, request.encode(12)) == request


def test_a_limit_applies_to_one_thread():
    request, seen = many_topics(500), []

    def decode_elsewhere(version, buffer, offset):
        thread = threading.Thread(target=lambda: seen.append(metadata.MetadataRequest.decode(version, buffer, offset)))
        thread.start()
        thread.join()

    decode_limited(decode_elsewhere, 12, request.encode(12), 0, 1)
    assert seen == [request]


def test_a_tagged_field_must_have_its_stated_length():
    """A longer field would be read again and again, once for each of its neighbours."""
    body = fetch.FetchRequest(cluster_id="cluster").encode(12)
    assert body[-10:] == b"\x01\x00\x08\x08cluster"[-10:]
    for size in (0, 7, 9):
        wrong = body[:-9] + bytes([size]) + body[-8:] + bytes(4)
        with pytest.raises(WireError, match=f"tagged field 0 does not have the {size} bytes|declared"):
            fetch.FetchRequest.decode(12, wrong)


def test_more_tagged_fields_than_bytes_are_refused_at_once():
    body = find_coordinator.FindCoordinatorRequest("g").encode(3)[:-1] + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(WireError, match="bytes declared"):
        find_coordinator.FindCoordinatorRequest.decode(3, body)
