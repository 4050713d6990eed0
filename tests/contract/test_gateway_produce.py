"""Produce requests that a gateway reads: the node gets the client's own frame, or only what klamm has decoded."""

import random

import pytest

from klamm.testing import RawClient
from klamm.wire.headers import decode_request_header, encode_request_header
from klamm.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from klamm_gateway import gateway as gateway_module
from klamm_gateway.as_it_came import body_bytes
from tests.contract.gateway_nodes import FakeNode, gateway, response

VERSIONS = range(3, 14)
ALLOWED, DENIED = bytes([1]) * 16, bytes([2]) * 16
GUARDS = ["listeners.default.authorizer=static", 'listeners.default.static.rules=["allow User:* WRITE TOPIC:allowed"]']


def produce_request(choose, version, *, names=("allowed",)):
    """Return a Produce request for a few partitions."""

    def topic(name):
        sizes = [choose.choice([None, 0, 5, 200, 20_000, 300_000]) for _ in range(choose.randrange(4))]
        data = [PartitionProduceData(index, None if size is None else bytes(size)) for index, size in enumerate(sizes)]
        if version >= 13:
            return TopicProduceData(topic_id=ALLOWED if name == "allowed" else DENIED, partition_data=data)
        return TopicProduceData(name, partition_data=data)

    topics = [topic(name) for name in names]
    transactional_id = choose.choice([None, "", "t" * 200, "été"])
    return ProduceRequest(transactional_id, 1, 1000, topics)


@pytest.fixture
def echoing(monkeypatch):
    """Return `echoing(settings)`, which returns a node that answers every Produce, and a gateway before it.

    `encoded` counts how often a request was encoded.
    """
    encoded = []
    encode = gateway_module.encode_request_header
    monkeypatch.setattr(gateway_module, "encode_request_header", lambda *parts: (encoded.append(1), encode(*parts))[1])

    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        topic = {"topic_id": ALLOWED} if version >= 13 else {"name": "allowed"}
        body = ProduceResponse([TopicProduceResponse(**topic, partition_responses=[PartitionProduceResponse(0)])])
        sock.sendall(response(correlation_id, key, version, body.encode(version)))

    def make(*settings):
        node = FakeNode(serve)
        front = gateway(node.bootstrap, settings, recording=not settings)
        return node, front

    make.encoded = encoded
    return make


def exchange(client, version, body, client_id="c", header_tags=b""):
    header = encode_request_header(0, version, 5, client_id)
    frame = (header[:-1] + header_tags if header_tags else header) + body
    client.send_frame(frame)
    client.receive_frame()
    return frame


@pytest.mark.parametrize("version", VERSIONS)
def test_body_bytes_returns_the_size_of_the_encoded_request(version, seed):
    choose = random.Random(seed)
    for _ in range(50):
        request = produce_request(choose, version, names=["allowed"] * choose.randrange(4))
        assert body_bytes(request, version) == len(request.encode(version))


@pytest.mark.parametrize("settings", [(), GUARDS], ids=["observed", "authorized"])
def test_a_node_gets_the_frame_that_the_client_sent(echoing, settings, seed):
    choose = random.Random(seed)
    allow_transactions = [GUARDS[0], GUARDS[1][:-1] + ', "allow User:* WRITE TRANSACTIONAL_ID:*"]']
    node, front = echoing(*(allow_transactions if settings else ()))
    with node, front, RawClient(front.address()) as client:
        front.api_set().cluster.note_topic(ALLOWED, "allowed")
        for version in VERSIONS:
            for client_id in ("c", None, "tür"):
                request = produce_request(choose, version)
                sent = exchange(client, version, request.encode(version), client_id)
                assert node.frames.pop() == sent
    assert not echoing.encoded, "no request was encoded"


@pytest.mark.parametrize("where", ["header", "body", "after"])
def test_bytes_that_klamm_cannot_decode_do_not_reach_a_node(echoing, where):
    """The bytes are unknown tagged fields, or follow the body. An authorizer could not check them."""
    data = [TopicProduceData("allowed", partition_data=[PartitionProduceData(0, bytes(100))])]
    body = ProduceRequest(acks=1, timeout_ms=1000, topic_data=data).encode(9)
    unknown = b"\1\x63\3abc"
    node, front = echoing(*GUARDS)
    with node, front, RawClient(front.address()) as client:
        if where == "header":
            exchange(client, 9, body, header_tags=unknown)
        else:
            exchange(client, 9, body[:-1] + unknown if where == "body" else body + b"abc")
        assert node.frames == [encode_request_header(0, 9, 5, "c") + body]
    assert echoing.encoded


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_gets_the_allowed_part_of_a_partly_denied_request(echoing, version):
    def topic(topic_id, name):
        data = [PartitionProduceData(0, bytes(100_000))]
        return TopicProduceData(*(("", topic_id) if version >= 13 else (name,)), partition_data=data)

    allowed, denied = topic(ALLOWED, "allowed"), topic(DENIED, "denied")
    node, front = echoing(*GUARDS)
    with node, front, RawClient(front.address()) as client:
        for topic_id, name in ((ALLOWED, "allowed"), (DENIED, "denied")):
            front.api_set().cluster.note_topic(topic_id, name)
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[denied, allowed])
        answer = client.call(request, version)
        (frame,) = node.frames
    offset = decode_request_header(frame)[4]
    assert frame[offset:] == ProduceRequest(acks=1, timeout_ms=1000, topic_data=[allowed]).encode(version)
    assert [one.partition_responses[0].error_code for one in answer.responses] == [0, 29]
