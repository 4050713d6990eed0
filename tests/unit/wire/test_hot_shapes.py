"""The fast path of a message gives the same as its general reader and writer, for any input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.wire.messages import produce
from klamm.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from klamm.wire.primitives import ReadBuffer, WireError

GENERAL_DECODE = produce._decode_produce_request
GENERAL_ENCODE = produce._encode_produce_response
thorough = settings(max_examples=300)
VERSIONS = range(14)
FLEXIBLE = range(9, 14)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.sampled_from(["", "a" * 126, "a" * 127])
ids = st.binary(min_size=16, max_size=16)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
# Around the sizes whose length takes one, two, three and four bytes.
sizes = st.sampled_from([0, 1, 61, 126, 127, 128, 1000, 2**14 - 2, 2**14 - 1, 2**14, 2**16, 2**21 - 2, 2**21 - 1])


def request(version: int, name: str, topic_id: bytes, data: list[PartitionProduceData], acks: int) -> ProduceRequest:
    topic = TopicProduceData(name if version < 13 else "", topic_id if version >= 13 else bytes(16), data)
    return ProduceRequest(None, acks, 30_000, [topic])


def outcome(decode: Any, version: int, buffer: ReadBuffer, offset: int = 0) -> Any:
    try:
        return decode(version, buffer, offset)
    except WireError as error:
        return str(error)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@thorough
@given(version=st.sampled_from(VERSIONS), name=names, topic_id=ids, index=int32, size=sizes, acks=st.integers(-1, 1))
def test_a_request_of_one_batch_is_read(
    kind: Any, version: int, name: str, topic_id: bytes, index: int, size: int, acks: int
) -> None:
    wanted = request(version, name, topic_id, [PartitionProduceData(index, bytes(size))], acks)
    encoded = kind(b"head" + wanted.encode(version))
    assert ProduceRequest.decode(version, encoded, 4) == GENERAL_DECODE(version, encoded, 4) == wanted


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize("size", [0, 80, 126, 127, 1000, 2**14 - 2, 2**14 - 1, 2**20, 2**21 - 2])
def test_the_usual_shape_takes_the_short_way(monkeypatch: pytest.MonkeyPatch, version: int, size: int) -> None:
    # A batch has bytes of 0x80 and more right behind its size too.
    wanted = request(version, "topic", b"i" * 16, [PartitionProduceData(1, b"\xff" * size)], -1)
    answer = ProduceResponse([TopicProduceResponse("topic", b"i" * 16, [PartitionProduceResponse(1, 0, 5)])])
    body, answered = bytearray(wanted.encode(version)), answer.encode(version)
    monkeypatch.delattr(produce, "_decode_produce_request")
    monkeypatch.delattr(produce, "_encode_produce_response")
    assert answer.encode(version) == answered
    found = ProduceRequest.decode(version, body)
    assert found == wanted
    if size:
        # A view of what came, to be written to.
        found.topic_data[0].partition_data[0].records[0] = 7
        assert 7 in body


def test_other_shapes_are_read_too() -> None:
    one, two = PartitionProduceData(0, b"x" * 200), PartitionProduceData(1, b"y" * 200)
    for version in FLEXIBLE:
        null = request(version, "t", bytes(16), [PartitionProduceData(0, None)], 1)
        several = request(version, "t", bytes(16), [one, two], 1)
        none = request(version, "t", bytes(16), [], 1)
        topics = ProduceRequest(None, 1, 5, [*several.topic_data, *null.topic_data])
        transactional = ProduceRequest("id", 1, 5, null.topic_data)
        for wanted in (null, several, none, topics, transactional, ProduceRequest()):
            assert ProduceRequest.decode(version, wanted.encode(version)) == wanted


@thorough
@given(st.data())
def test_damage_is_read_alike(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(FLEXIBLE))
    size = data.draw(st.sampled_from([0, 100, 127, 300, 2**14]))
    encoded = request(version, "topic", b"i" * 16, [PartitionProduceData(1, bytes(size))], 1).encode(version)
    cut = data.draw(st.integers(0, len(encoded)) | st.integers(len(encoded) - 5, len(encoded)))
    assert outcome(ProduceRequest.decode, version, encoded[:cut]) == outcome(GENERAL_DECODE, version, encoded[:cut])
    head = len(encoded) - size
    at = data.draw(st.integers(0, min(head, len(encoded))) | st.integers(len(encoded) - 4, len(encoded)))
    wrong = data.draw(st.sampled_from([b"\0", b"\x01", b"\x02\x03", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\x0f"]))
    for damaged in (
        encoded[:at] + wrong + encoded[at + len(wrong) :],
        encoded + wrong,
        encoded[:at] + encoded[at + 1 :],
    ):
        assert outcome(ProduceRequest.decode, version, damaged) == outcome(GENERAL_DECODE, version, damaged)


results = st.builds(
    PartitionProduceResponse,
    index=int32,
    error_code=st.just(0) | st.integers(-1, 100),
    base_offset=int64,
    log_append_time_ms=int64,
    log_start_offset=int64,
    record_errors=st.sampled_from([[], None])
    | st.lists(st.builds(BatchIndexAndErrorMessage, int32, st.none() | names), max_size=2),
    error_message=st.none() | names,
    current_leader=st.none() | st.builds(LeaderIdAndEpoch, int32, int32),
)
topics = st.builds(
    TopicProduceResponse, names, ids, st.lists(results, min_size=1, max_size=1) | st.lists(results, max_size=2)
)
responses = st.builds(
    ProduceResponse,
    st.lists(topics, min_size=1, max_size=1) | st.lists(topics, max_size=2),
    int32 | st.just(2**31),
    st.just([]) | st.lists(st.builds(NodeEndpoint, int32, names, int32, st.none() | names), max_size=1),
)


def written(encode: Any, response: ProduceResponse, version: int) -> Any:
    try:
        return encode(response, version)
    except WireError as error:
        return str(error)


@thorough
@given(responses, st.sampled_from(range(-1, 15)))
def test_every_response_is_written_alike(response: ProduceResponse, version: int) -> None:
    assert written(ProduceResponse.encode, response, version) == written(GENERAL_ENCODE, response, version)


def test_what_is_wrong_is_an_error() -> None:
    broken = ProduceResponse([TopicProduceResponse(None, bytes(16), [PartitionProduceResponse()])])  # type: ignore[arg-type]
    with pytest.raises(WireError):
        broken.encode(9)
