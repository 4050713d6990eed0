"""Tests of connections to a gateway that end after each byte of a message, on the client's side or the node's.

The gateway looks at the messages, because it has an authorizer, quotas and the audit. A client never gets a whole
response that its node has not sent, and never the response to another request. A node never gets a request that its
client has not sent as a whole. The audit records each request that a node has got, and records none as done that has no
response.
"""

import contextlib
import logging
from collections import Counter
from itertools import pairwise

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.headers import decode_request_header, encode_request_header
from klamm.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from klamm.wire.messages.fetch import PartitionData as FetchedPartition
from klamm.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from klamm.wire.records import Record, encode_batch
from tests.audit_spool import assert_numbered, events_of
from tests.contract.gateway_nodes import FakeNode, gateway, response, upstream_connections

GUARDS = [
    "listeners.default.authorizer=static",
    'listeners.default.static.rules=["allow User:* ALL TOPIC:*", "allow User:* ALL GROUP:*"]',
    'listeners.default.throttles=["client_quota"]',
]
BATCH = bytes(encode_batch([Record(0, 1000, None, bytes(150_000), ())]))
FETCH_VERSION, PRODUCE_VERSION = 12, 9
SEEN_S = 60


@pytest.fixture
def audited(tmp_path):
    """Return `audited(node)`, which returns a gateway with an authorizer, quotas and the audit.

    `audited.spool` is its spool.
    """

    def make(node):
        spool = [
            'listeners.default.observers=["audit"]', f"listeners.default.audit.spool={tmp_path / 'spool'}",
            "listeners.default.audit.node=node-1",
        ]  # fmt: skip
        return gateway(node.bootstrap, [*GUARDS, *spool])

    make.spool = tmp_path / "spool"
    return make


def requests_in(spool, api):
    events = events_of(spool)
    assert_numbered(events)
    return [one for one in events if one["kind"] == "request" and one["api_name"] == api]


def fetched(records, topic="topic"):
    """Return the body of a Fetch response."""
    partitions = [FetchedPartition(0, high_watermark=1, records=records), FetchedPartition(1, 3, records=b"")]
    return FetchResponse(responses=[FetchableTopicResponse(topic, partitions=partitions)]).encode(FETCH_VERSION)


def fetch_frame(correlation_id):
    topics = [FetchTopic("topic", [FetchPartition(0), FetchPartition(1)])]
    return encode_request_header(1, FETCH_VERSION, correlation_id, "c") + FetchRequest(topics=topics).encode(
        FETCH_VERSION
    )


def places(frame, records):
    """Return the places of all bytes outside the records, and of some inside."""
    begin = frame.find(records) if records else len(frame)
    end = begin + len(records)
    return [*range(begin + 20), *range(begin + 20, end - 20, 9_973), *range(max(begin + 20, end - 20), len(frame))]


def received(client):
    """Return all bytes until the server closes the connection."""
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := client.socket.recv(1 << 20):
            data += piece
    return bytes(data)


@pytest.mark.parametrize("records", [bytes(30), BATCH], ids=["whole", "streamed"])
def test_a_client_gets_no_whole_fetch_response_from_a_node_that_stops_within_it(audited, records, caplog):
    """The client gets at most a part of the response, and then the connection ends."""
    cuts = []

    def serve(node, sock, frame):
        correlation_id = decode_request_header(frame)[2]
        sock.sendall(response(correlation_id, 1, FETCH_VERSION, fetched(records))[: cuts[-1]])
        sock.close()

    whole = response(7, 1, FETCH_VERSION, fetched(records))
    with FakeNode(serve) as node, caplog.at_level(logging.WARNING, "klamm"):
        front = audited(node).start()
        for cut in places(whole, records):
            cuts.append(cut)
            with RawClient(front.address(), timeout_s=SEEN_S) as client:
                client.send_frame(fetch_frame(7))
                got = received(client)
                assert whole[:cut].startswith(got), cut
        cuts.append(len(whole))
        with RawClient(front.address(), timeout_s=SEEN_S) as client:
            client.send_frame(fetch_frame(7))
            assert client.receive_frame() == whole[4:], "the next client is served"
        front.stop()
    events = requests_in(audited.spool, "Fetch")
    assert len(events) == len(cuts)
    (whole_one,) = [one for one in events if "reason" not in one]
    assert whole_one is events[-1]
    # A streamed response has an outcome before all its bytes have reached the client.
    seen = Counter((one["outcome"] == "unknown", one["reason"]) for one in events[:-1])
    assert {*seen} <= {(True, "failed"), (False, "lost_after")}, seen
    assert not records[1000:] or seen[False, "lost_after"] > 50
    assert "closed_by_node" in caplog.text
    assert not [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


def produce_frame(correlation_id, name="topic"):
    data = [TopicProduceData(name, partition_data=[PartitionProduceData(0, bytes(50))])]
    header = encode_request_header(0, PRODUCE_VERSION, correlation_id, "c")
    return header + ProduceRequest(acks=1, timeout_ms=1000, topic_data=data).encode(PRODUCE_VERSION)


def produced(correlation_id, base_offset=5):
    """Return a Produce response as a node sends it."""
    partitions = [PartitionProduceResponse(0, base_offset=base_offset)]
    body = ProduceResponse([TopicProduceResponse("topic", partition_responses=partitions)])
    return response(correlation_id, 0, PRODUCE_VERSION, body.encode(PRODUCE_VERSION))


def test_a_node_gets_no_produce_request_from_a_client_that_stops_within_it(audited):
    """The node does not get the request."""

    def serve(node, sock, frame):
        sock.sendall(produced(decode_request_header(frame)[2]))

    frame = produce_frame(7)
    sized = len(frame).to_bytes(4, "big") + frame
    with FakeNode(serve) as node:
        front = audited(node).start()
        for cut in range(len(sized)):
            with RawClient(front.address(), timeout_s=SEEN_S) as client:
                client.send_bytes(sized[:cut])
        with RawClient(front.address(), timeout_s=SEEN_S) as client:
            client.send_frame(frame)
            assert client.receive_frame() == produced(7)[4:]
        assert node.frames == [frame]
        front.stop()
    assert [one["outcome"] for one in requests_in(audited.spool, "Produce")] == ["ok"]


def test_a_produce_request_has_an_unknown_outcome_if_the_node_stops_within_the_response(audited):
    """The client's connection ends. The audit records an unknown outcome, because a node has got the request."""
    cuts = []

    def serve(node, sock, frame):
        sock.sendall(produced(decode_request_header(frame)[2])[: cuts[-1]])
        sock.close()

    with FakeNode(serve) as node:
        front = audited(node).start()
        for cut in range(len(produced(7))):
            cuts.append(cut)
            with RawClient(front.address(), timeout_s=SEEN_S) as client:
                client.send_frame(produce_frame(7))
                assert received(client) == b"", cut
        assert len(node.frames) == len(cuts), "nothing is repeated"
        front.stop()
    outcomes = Counter(one["outcome"] for one in requests_in(audited.spool, "Produce"))
    assert outcomes == {"unknown": len(cuts)}


@pytest.mark.parametrize("looked_at", [True, False], ids=["looked at", "opaque"])
@pytest.mark.parametrize("answer", ["swapped", "twice", "other", "unasked"])
def test_a_client_never_gets_the_answer_to_another_request(audited, answer, looked_at):
    """A node mixes up the responses to three requests of equal shape on one connection."""
    pending = []

    def serve(node, sock, frame):
        pending.append(decode_request_header(frame)[2])
        first = pending[0]
        if answer == "unasked":
            sock.sendall(b"".join(heartbeat(each) for each in (first, first + 1)))
        elif len(pending) == 3:
            order = {"swapped": (1, 0, 2), "twice": (0, 0, 1), "other": (0, 99, 2)}[answer]
            sock.sendall(b"".join(heartbeat(first + each) for each in order))

    def heartbeat(correlation_id):
        # The throttle time of a response identifies the request.
        return response(correlation_id, 12, 4, HeartbeatResponse(correlation_id, 0).encode(4))

    with FakeNode(serve) as node:
        front = (audited(node) if looked_at else gateway(node.bootstrap)).start()
        with RawClient(front.address(), timeout_s=SEEN_S) as client:
            for correlation_id in (100, 101, 102) if answer != "unasked" else (100,):
                body = HeartbeatRequest("group").encode(4)
                client.send_frame(encode_request_header(12, 4, correlation_id, "c") + body)
            if answer == "unasked":
                # This client stays, because its request has been answered.
                assert client.receive_frame()[:4] == (100).to_bytes(4, "big")
                data = b""
            else:
                data = received(client)
        frames = split(data)
        assert [frame[:4] for frame in frames] == [(100 + number).to_bytes(4, "big") for number in range(len(frames))]
        assert all(frame[:4] == frame[5:9] for frame in frames), "each is its own request's"
        assert len(frames) <= (answer != "swapped")
        EmbeddedServer.wait_until(lambda: not upstream_connections(front))
        front.stop()


def split(data):
    """Return the frames in these bytes, without their sizes. The bytes must end with a whole frame."""
    frames = []
    while data:
        size = int.from_bytes(data[:4], "big")
        assert len(data) >= 4 + size
        frames.append(data[4 : 4 + size])
        data = data[4 + size :]
    return frames


def test_places_contains_every_byte_outside_the_records():
    frame = fetched(BATCH)
    found = places(frame, BATCH)
    begin = frame.index(BATCH)
    assert {*range(begin), *range(begin + len(BATCH), len(frame))} <= {*found}
    assert all(before < after for before, after in pairwise(found))
