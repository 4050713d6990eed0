"""Bytes that are no request, behind good requests on one connection: these are answered, and then it is closed.

As in Kafka, which looks at a connection's next bytes when it has answered the request before.
"""

import logging
import struct
import threading

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.headers import decode_request_header
from klamm.wire.messages.fetch import FetchPartition as Asked
from klamm.wire.messages.fetch import FetchRequest, FetchTopic
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.contract.gateway_nodes import FakeNode, gateway, response
from tests.contract.test_gateway_cuts import BATCH, FETCH_VERSION, GUARDS, audited, fetched, requests_in
from tests.peers.wire_client import encode_frame

__all__ = ["audited"]

BAD = {
    "size -1": struct.pack(">i", -1),
    "largest size": struct.pack(">i", 2**31 - 1),
    "size 3": struct.pack(">i", 3) + b"abc",
    "nothing": struct.pack(">i", 0),
    "unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "unknown version": struct.pack(">ihhih", 10, 3, 99, 1, -1),
    "cut body": struct.pack(">ihhih", 14, 3, 1, 1, -1) + struct.pack(">i", 2**31 - 1),
    "two": struct.pack(">ihhih", 10, 999, 0, 1, -1) + struct.pack(">i", -1),
}
HEARTBEAT = encode_frame(HeartbeatRequest("group"), 4)


@pytest.fixture(params=BAD)
def bad(request):
    """Bytes that are no request."""
    return BAD[request.param]


@pytest.fixture(params=sorted({*BAD} - {"cut body"}))
def seen_by_all(request):
    """Bytes that also a gateway refuses that does not look at bodies."""
    return BAD[request.param]


@pytest.fixture(autouse=True)
def lines(caplog):
    """`lines()` → why connections have been closed."""
    with caplog.at_level(logging.WARNING, "klamm"):
        yield lambda: [text for one in caplog.records if "closing connection: " in (text := one.getMessage())]


def test_what_waits_is_answered_before(start, connect, bad, lines):
    server = start()
    handlers = server.api_set("trying")
    client = connect(server)
    client.send_bytes(encode_frame(SyncGroupRequest("waits"), 5) + encode_frame(MetadataRequest(None), 12) + bad)
    assert handlers.arrived.acquire(timeout=10)
    handlers.parked[0].respond(SyncGroupResponse(assignment=b"later"))
    assert client.receive(14, 5, 0).assignment == b"later"
    assert client.receive(3, 12, 0).brokers
    assert client.at_end()
    assert len(lines()) == 1


def test_what_a_handler_works_on_is_answered_before(start, connect, bad, lines):
    server = start()
    handlers = server.api_set("trying")
    client = connect(server)
    client.send_bytes(encode_frame(HeartbeatRequest("block"), 4) + HEARTBEAT + bad)
    assert handlers.arrived.acquire(timeout=10)
    handlers.release.set()
    assert [client.receive(12, 4, 0).error_code for _ in range(2)] == [0, 0]
    assert client.at_end()
    assert len(lines()) == 1


def test_what_is_being_sent_goes_out_whole(start, connect, bad, lines):
    count, size_bytes = 20, 30_000
    client = connect(start("socket.send.buffer.bytes=8192"))
    client.send_bytes(encode_frame(FindCoordinatorRequest(str(size_bytes)), 1) * count + bad)
    assert [len(client.receive(10, 1, 0).host) for _ in range(count)] == [size_bytes] * count
    assert client.at_end()
    assert len(lines()) == 1


def test_a_client_that_leaves_meanwhile_ends_its_connection(start, connect, bad):
    server = start()
    handlers = server.api_set("trying")
    client = connect(server)
    client.send_bytes(encode_frame(SyncGroupRequest("waits"), 5) + bad)
    assert handlers.arrived.acquire(timeout=10)
    client.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER: it is reset.
    client.close()
    handlers.parked[0].respond(SyncGroupResponse())
    EmbeddedServer.wait_until(lambda: not connections(server))


def connections(server):
    (listener,) = server.server.listeners
    return sum(processor.connection_count for processor in listener.processors)


@pytest.mark.parametrize("looked_at", [True, False], ids=["looked at", "opaque"])
def test_a_gateway_answers_what_its_node_got(audited, seen_by_all, lines, looked_at):
    """Three requests of one connection are with the node when the gateway reads what is none."""
    refused = threading.Event()

    def serve(node, sock, frame):
        if len(node.frames) == 3:
            assert refused.wait(10)
            for each in node.frames:
                body = HeartbeatResponse(error_code=0).encode(4)
                sock.sendall(response(decode_request_header(each)[2], 12, 4, body))

    with FakeNode(serve) as node:
        front = (audited(node) if looked_at else gateway(node.bootstrap)).start()
        with RawClient(front.address()) as client:
            client.send_bytes(HEARTBEAT * 3 + seen_by_all)
            EmbeddedServer.wait_until(lines)
            refused.set()
            assert [client.receive(12, 4, 0).error_code for _ in range(3)] == [0, 0, 0]
            assert client.at_end()
        front.stop()
    assert len(lines()) == 1
    if looked_at:
        events = requests_in(audited.spool, "Heartbeat")
        assert [(one["outcome"], one.get("reason")) for one in events] == [("ok", None)] * 3


@pytest.mark.parametrize("settings", [GUARDS, []], ids=["looked at", "opaque"])
def test_a_gateway_sends_a_stream_to_its_end(seen_by_all, lines, settings):
    """A response of which a part is sent, and the one behind it."""
    refused = threading.Event()
    frame = encode_frame(FetchRequest(topics=[FetchTopic("topic", [Asked(0), Asked(1)])]), FETCH_VERSION)

    def serve(node, sock, _frame):
        if len(node.frames) == 2:
            ids = [decode_request_header(each)[2] for each in node.frames]
            first, second = (response(each, 1, FETCH_VERSION, fetched(BATCH)) for each in ids)
            sock.sendall(first[:120_000])
            assert refused.wait(10)
            sock.sendall(first[120_000:] + second)

    with FakeNode(serve) as node:
        front = gateway(node.bootstrap, settings).start()
        with RawClient(front.address()) as client:
            client.send_bytes(frame * 2 + seen_by_all)
            EmbeddedServer.wait_until(lines)
            refused.set()
            for _ in range(2):
                first, second = client.receive(1, FETCH_VERSION, 0).responses[0].partitions
                assert (bytes(first.records), second.error_code) == (BATCH, 3)
            assert client.at_end()
        front.stop()
    assert len(lines()) == 1


def test_a_gateway_whose_node_fails_meanwhile_closes(seen_by_all, lines):
    """No answer can come any more."""
    refused = threading.Event()

    def serve(node, sock, _frame):
        assert refused.wait(10)
        sock.close()

    with FakeNode(serve) as node:
        front = gateway(node.bootstrap).start()
        with RawClient(front.address()) as client:
            client.send_bytes(HEARTBEAT + seen_by_all)
            EmbeddedServer.wait_until(lines)
            refused.set()
            assert client.at_end()
        front.stop()
