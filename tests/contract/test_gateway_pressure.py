"""What a gateway keeps for a client or a node that does not go on has limits."""

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
    """Have the server's one network thread take so many turns."""
    with RawClient(address) as other:
        for _ in range(count):
            other.call(ApiVersionsRequest(), 0)


def test_answers_that_wait_for_an_earlier_one_have_a_limit(monkeypatch):
    """The gateway answers these itself, so no node slows the client down, and its answers would fill the memory."""
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


def test_a_node_that_does_not_read_holds_back_what_wants_no_response(monkeypatch):
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


def test_a_client_that_has_gone_is_noticed_although_its_node_does_not_answer():
    """So many requests wait that no more is read: not the end of the connection either."""
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
    """The connections that the gateway's network threads have."""
    selectors = [each._reactor.selector for each in front.server.listeners[0].processors]
    return [one for each in selectors for one in (*each.channels.values(), *each.closing)]


def test_a_client_that_has_gone_within_an_answer_keeps_no_connection():
    """The answer is more than the client has taken, and so many requests are behind it that no more is read."""
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


def test_a_client_that_resets_its_connection_keeps_none_until_the_node_answers():
    """All its requests reach the node, also one that waited for room among those without an answer."""
    frame = encode_request_header(heartbeat.API_KEY, 4, 1, "c") + HeartbeatRequest("g").encode(4)
    burst = (len(frame).to_bytes(4, "big") + frame) * (MAX_PENDING + 1)
    with FakeNode() as node, gateway(node.bootstrap) as front:
        with RawClient(front.address()) as client:
            client.send_bytes(burst)
            # What has not been read when the connection is reset is lost.
            wait_until(lambda: sum(one.connection.received_bytes for one in clients(front)) == len(burst))
            wait_until(lambda: len(node.frames) == MAX_PENDING)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: not clients(front))
        wait_until(lambda: len(node.frames) == MAX_PENDING + 1)


def test_a_request_that_wants_no_answer_holds_back_no_answer_before_it():
    """The answer of the first is still at the node when the second is done."""
    go_on = threading.Event()

    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        if key == heartbeat.API_KEY:
            wait_until(go_on.is_set)
            sock.sendall(response(correlation_id, key, version, HEARTBEAT))

    with FakeNode(serve) as node, gateway(node.bootstrap) as front, RawClient(front.address(), timeout_s=60) as client:
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, b"")])]
        unanswered = ProduceRequest(acks=0, timeout_ms=1000, topic_data=data)
        # At once: where the node's connection is there, the second is done as it is taken up.
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
