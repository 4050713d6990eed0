"""Tests that a gateway keeps a limited amount for a client or a node that stops reading."""

import socket
import struct
import threading

from klamm.network.answer_queue import MAX_PENDING, MAX_PENDING_BYTES, AnswerQueue
from klamm.testing import MovingClock, RawClient
from klamm.wire.headers import decode_request_header, encode_request_header
from klamm.wire.messages import api_versions, fetch, heartbeat
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from klamm.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm_gateway.upstream.protocol import UpstreamProtocol
from tests.contract.gateway_nodes import FakeNode, gateway, response
from tests.waiting import wait_until

HEARTBEAT = HeartbeatResponse(0, 0).encode(4)


def turns(address, count):
    """Let the server's only network thread handle this many requests."""
    with RawClient(address) as other:
        for _ in range(count):
            other.call(ApiVersionsRequest(), 0)


def test_the_number_of_answers_that_wait_for_an_earlier_one_is_limited(monkeypatch):
    """The gateway itself answers these requests. Without a limit the waiting answers would fill the memory."""
    most = []

    class Watched(AnswerQueue):
        __slots__ = ()

        def take_next(self):
            most.append(len(self.pending))
            return super().take_next()

    monkeypatch.setattr("klamm.network.pipelined.AnswerQueue", Watched)
    go_on = threading.Event()

    def serve(node, sock, frame):
        go_on.wait(60)
        _key, version, correlation_id, _client, _offset = decode_request_header(frame)
        sock.sendall(response(correlation_id, heartbeat.API_KEY, version, HEARTBEAT))

    with FakeNode(serve) as node, gateway(node.bootstrap) as front, RawClient(front.address()) as client:
        held = client.send(HeartbeatRequest("g"), 4)
        asked = [client.send(ApiVersionsRequest(), 0) for _ in range(2000)]
        turns(front.address(), 50)
        go_on.set()
        client.receive(heartbeat.API_KEY, 4, held)
        for correlation_id in asked:
            client.receive(api_versions.API_KEY, 0, correlation_id)
    assert max(most) <= MAX_PENDING


def test_requests_without_response_wait_at_the_client_if_the_node_does_not_read(monkeypatch):
    unsent = []
    send = UpstreamProtocol.send

    def watched(protocol, frame, exchange):
        send(protocol, frame, exchange)
        unsent.append(sum(map(len, (*protocol.outgoing, *protocol._waiting))))

    monkeypatch.setattr(UpstreamProtocol, "send", watched)
    go_on = threading.Event()
    count = 64
    with (
        FakeNode(lambda *_: go_on.wait(60)) as node,
        gateway(node.bootstrap) as front,
        socket.create_connection(front.address()) as client,
    ):
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, bytes(1 << 20))])]
        request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=data)
        frame = encode_request_header(request.API_KEY, 9, 1, "c") + request.encode(9)
        left = memoryview((len(frame).to_bytes(4, "big") + frame) * count)
        client.setblocking(False)
        stuck = 0
        while left and stuck < 50:
            try:
                left = left[client.send(left) :]
                stuck = 0
            except BlockingIOError:
                stuck += 1
                turns(front.address(), 5)
        go_on.set()
        client.settimeout(20)
        client.sendall(left)
        wait_until(lambda: len(node.frames) == count)
    assert max(unsent) < 2 * MAX_PENDING_BYTES


def test_a_client_that_has_left_is_noticed_even_if_its_node_does_not_answer():
    """So many requests wait that the gateway reads no more bytes from the client.

    Therefore the gateway does not read the end of the connection.
    """
    with FakeNode() as node, gateway(node.bootstrap, clock=MovingClock()) as front:
        with RawClient(front.address()) as client:
            for _ in range(MAX_PENDING + 1):
                client.send(HeartbeatRequest("g"), 4)
            wait_until(lambda: len(node.frames) == MAX_PENDING)
        processors = front.server.listeners[0].processors

        def are_gone_as_time_passes():
            front.advance_ms(600_000)
            return not any(each._reactor.selector.channels for each in processors)

        wait_until(are_gone_as_time_passes)


def clients(front):
    """Return the connections of clients that the gateway's network threads have."""
    selectors = [each._reactor.selector for each in front.server.listeners[0].processors]
    return [one for each in selectors for one in (*each.channels.values(), *each.closing)]


def test_the_connection_ends_if_a_client_leaves_during_a_response():
    """The client has read only a part of the response.

    So many requests wait that the gateway reads no more from the client.
    """
    large = FetchResponse(
        responses=[FetchableTopicResponse("t", partitions=[PartitionData(0, records=bytes(30 << 20))])]
    )

    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        answer = large.encode(version) if key == fetch.API_KEY else HEARTBEAT
        sock.sendall(response(correlation_id, key, version, answer))

    with FakeNode(serve) as node, gateway(node.bootstrap) as front:
        with RawClient(front.address()) as client:
            client.send(FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(0)])]), 12)
            for _ in range(MAX_PENDING):
                client.send(HeartbeatRequest("g"), 4)
            wait_until(lambda: any(one.send is not None for one in clients(front)))
        wait_until(lambda: not clients(front))


def test_a_reset_connection_ends_before_the_node_answers():
    """All requests of the client reach the node, also the last one, which had to wait for room."""
    frame = encode_request_header(heartbeat.API_KEY, 4, 1, "c") + HeartbeatRequest("g").encode(4)
    burst = (len(frame).to_bytes(4, "big") + frame) * (MAX_PENDING + 1)
    with FakeNode() as node, gateway(node.bootstrap) as front:
        with RawClient(front.address()) as client:
            client.send_bytes(burst)
            # The gateway must read all bytes first, because a reset discards unread bytes.
            wait_until(lambda: sum(one.connection.received_bytes for one in clients(front)) == len(burst))
            wait_until(lambda: len(node.frames) == MAX_PENDING)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: not clients(front))
        wait_until(lambda: len(node.frames) == MAX_PENDING + 1)


def test_a_response_arrives_if_a_later_request_without_response_is_done_first():
    """The response to the first request comes from the node after the second request is done."""
    go_on = threading.Event()

    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        if key == heartbeat.API_KEY:
            wait_until(go_on.is_set)
            sock.sendall(response(correlation_id, key, version, HEARTBEAT))

    with FakeNode(serve) as node, gateway(node.bootstrap) as front, RawClient(front.address(), timeout_s=60) as client:
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, b"")])]
        unanswered = ProduceRequest(acks=0, timeout_ms=1000, topic_data=data)
        # Both requests are sent at once. If the gateway is connected to the node, the second is done as soon as it is
        # read.
        client.socket.sendall(
            b"".join(
                len(frame).to_bytes(4, "big") + frame
                for number, (request, version) in enumerate([(HeartbeatRequest("g"), 4), (unanswered, 9)])
                for frame in [encode_request_header(request.API_KEY, version, number, "c") + request.encode(version)]
            )
        )
        wait_until(lambda: any(one.answers and one.answers.delivered for one in clients(front)))
        go_on.set()
        assert client.receive(heartbeat.API_KEY, 4, 0).error_code == 0
