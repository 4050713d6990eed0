"""Tests of `FetchWalk`: it finds and accepts the same as decoding, however the bytes are divided."""

import random

import pytest

from klamm.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from klamm.wire.primitives import WireError
from klamm_gateway import fetch_walk
from klamm_gateway.fetch_walk import FetchWalk
from klamm_gateway.forwarded_apis import forwarded_apis
from klamm_gateway.upstream.protocol import UpstreamProtocol
from klamm_gateway.upstream.states import UpstreamError
from tests.fetch_responses import VERSIONS, fetch_response, without_records


def walked(version, *pieces):
    walk = FetchWalk(version, sum(map(len, pieces)))
    for piece in pieces:
        walk.feed(piece)
    return walk.message


def decoded(version, body):
    return without_records(FetchResponse.decode(version, body))


def small(choose):
    return lambda: choose.choice([None, b"", choose.randbytes(choose.randrange(1, 300))])


def test_the_walk_knows_all_forwarded_versions():
    (forwarded,) = (versions for spec, versions in forwarded_apis() if spec.api_key == 1)
    assert forwarded == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_divided_at_any_byte_give_the_same_result(version, seed):
    choose = random.Random(seed)
    for _ in range(4):
        body = fetch_response(choose, version, small(choose)).encode(version)
        expected = decoded(version, body)
        for cut in range(len(body) + 1):
            assert walked(version, body[:cut], body[cut:]) == expected
        assert walked(version, *(body[at : at + 1] for at in range(len(body)))) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_records_may_be_skipped(version, seed):
    choose = random.Random(seed)
    for _ in range(10):
        body = fetch_response(choose, version, small(choose)).encode(version)
        walk, position = FetchWalk(version, len(body)), 0
        while position < len(body):
            count = choose.randrange(1, walk.unread_bytes + 1) if walk.unread_bytes else 1
            if walk.unread_bytes:
                walk.passed(count)
            else:
                walk.feed(body[position : position + 1])
            position += count
        assert walk.message == decoded(version, body)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_walk_accepts_only_what_decoding_accepts(version, seed):
    choose = random.Random(seed)
    refused = 0
    for _ in range(8):
        body = fetch_response(choose, version, small(choose), topics=[1, 2], partitions=[1, 2]).encode(version)
        for at in range(min(len(body), 400)):
            broken = bytearray(body)
            broken[at] = choose.choice([0, 0x7F, 0x80, 0xFF, broken[at] ^ 1 << choose.randrange(8)])
            try:
                found = walked(version, bytes(broken))
            except WireError:
                refused += 1
                continue
            assert found == decoded(version, broken)
    assert refused > 50


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_that_is_too_short_or_too_long_is_refused(version, seed):
    choose = random.Random(seed)
    body = fetch_response(choose, version, small(choose), topics=[2], partitions=[2]).encode(version)
    for size in range(len(body)):
        with pytest.raises(WireError, match="left"):
            walked(version, body[:size])
    with pytest.raises(WireError, match="follow"):
        walked(version, body + b"\0")


@pytest.mark.parametrize("count", [1 << 24, (1 << 31) - 1, -1])
def test_a_wrong_number_takes_no_memory(count):
    with pytest.raises(WireError):
        FetchWalk(4, 1 << 20).feed(bytes(4) + count.to_bytes(4, "big", signed=True))


def test_the_number_of_fields_is_limited(monkeypatch):
    monkeypatch.setattr(fetch_walk, "MAX_FIELD_BYTES", 1000)
    topics = [FetchableTopicResponse(f"t{number}") for number in range(200)]
    with pytest.raises(WireError, match="more than 1000 bytes of fields"):
        walked(11, FetchResponse(responses=topics).encode(11))
    one = FetchableTopicResponse("t", partitions=[PartitionData(records=bytes(5000))])
    assert walked(11, FetchResponse(responses=[one]).encode(11))


# ---- on a connection to a node


class Watched:
    """A waiting Fetch. `received` has the bytes that its client gets."""

    api_key, correlation_id, streams = 1, 7, True

    def __init__(self, version):
        self.api_version = version
        self.received = []

    def walk(self, size_bytes):
        self.seen = FetchWalk(self.api_version, size_bytes)
        return self.seen

    def began(self, body, stream):
        self.received.append(body)
        stream.attach(lambda data: self.received.append(bytes(data)), self.received.append)


def frame(version, body):
    header = (7).to_bytes(4, "big") + bytes(version >= 12)
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def waiting(version):
    exchange, protocol = Watched(version), UpstreamProtocol(None, "test", lambda: None)
    protocol.secured()
    protocol.send([b"x"], exchange)
    return exchange, protocol


@pytest.mark.parametrize("version", VERSIONS)
def test_a_streamed_response_divided_at_any_byte_gives_the_same_result(version, seed):
    choose = random.Random(seed)
    records = bytes(70_000)
    body = fetch_response(choose, version, lambda: records, topics=[2], partitions=[2]).encode(version)
    data = frame(version, body)
    # Every byte outside records, and its neighbours.
    fields = [at for at in range(len(data)) if data[at - 1 : at + 2] != b"\0\0\0" or at % 20_000 == 0]
    for cut in fields:
        exchange, protocol = waiting(version)
        for begin, end in ((0, 600), (600, max(cut, 600)), (max(cut, 600), len(data))):
            protocol.receive(memoryview(bytearray(data[begin:end])))
        assert b"".join(exchange.received) == body
        assert exchange.seen.message == decoded(version, body)
        assert protocol.stream is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_size_at_the_end_of_a_streamed_response_closes_the_connection(version):
    topics = [FetchableTopicResponse("", partitions=[PartitionData(records=bytes(200_000))])] * 2
    body = bytearray(FetchResponse(responses=topics).encode(version))
    at = 200_040 if version < 12 else 200_030
    body[at : at + 60] = b"\xff" * 60
    exchange, protocol = waiting(version)
    protocol.receive(memoryview(bytearray(frame(version, body)[:100_000])))
    assert exchange.received
    with pytest.raises(UpstreamError, match="malformed response") as refused:
        protocol.receive(memoryview(bytearray(frame(version, body)[100_000:])))
    assert refused.value.reason == "invalid_response"
    assert protocol.stream is not None, "so that the client's connection is closed"
