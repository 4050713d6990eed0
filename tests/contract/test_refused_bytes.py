"""Tests of invalid bytes after valid requests on one connection: the requests are answered, then the connection closes.

Kafka does the same, because it reads a connection's next bytes after it has answered the request before. The tests run
on every channel, and with every registered filter, which acts on all these requests. In CI they run with filters on one
channel only.
"""

import itertools
import logging
import struct
import threading

import pytest

import klamm_filters
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.headers import decode_request_header
from klamm.wire.messages.fetch import FetchPartition as Asked
from klamm.wire.messages.fetch import FetchRequest, FetchTopic
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.contract.conftest import CHANNELS
from tests.contract.filter_settings import ON_EACH_REQUEST, alone_and_stacked, settings_of
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


IN_CI = "two"
"""The invalid bytes that CI tries with filters."""
SEEN_BY_ALL = sorted({*BAD} - {"cut body"})
"""The bytes that a gateway refuses even if it does not decode bodies."""


def case(channel, name, names=(), *, is_slow=False):
    """Return the parameter of a test: a channel, the name of invalid bytes, and the listener's filters."""
    marks = [pytest.mark.slow] if is_slow else []
    return pytest.param((channel, name, names), id="-".join((channel, name, *names)), marks=marks)


def with_filters(channels, bad):
    """Return the cases with filters. One case for each filter runs in CI."""
    first = next(iter(channels))
    return [
        case(channel, name, names, is_slow=(channel, name) != (first, IN_CI))
        for names, channel, name in itertools.product(alone_and_stacked(), channels, bad)
    ]


@pytest.fixture(params=[*itertools.starmap(case, itertools.product(CHANNELS, BAD)), *with_filters(CHANNELS, BAD)])
def what(request):
    """Return the case: the channel, the name of the invalid bytes, and the filters."""
    return request.param


@pytest.fixture
def channel(what):
    """Return the channel of the case. This replaces the fixture of `conftest.py`."""
    return what[0]


@pytest.fixture
def bad(what):
    """Return the invalid bytes of the case."""
    return BAD[what[1]]


@pytest.fixture
def begin(start, what, tmp_path):
    """Return `begin("key=value", …)`, which is `start` with the filters of the case."""
    return lambda *settings: start(*settings, *filters_of(what[2], tmp_path))


def filters_of(names, folder, **own):
    return settings_of(names, folder, own={**ON_EACH_REQUEST, **own}) if names else []


@pytest.fixture(autouse=True)
def lines(caplog):
    """Yield `lines()`, which returns the log lines about closed connections."""
    with caplog.at_level(logging.WARNING, "klamm"):
        yield lambda: [text for one in caplog.records if "closing connection: " in (text := one.getMessage())]


def test_waiting_requests_are_answered_before_the_close(begin, connect, bad, lines):
    server = begin()
    handlers = server.api_set("trying")
    client = connect(server)
    client.send_bytes(encode_frame(SyncGroupRequest("waits"), 5) + encode_frame(MetadataRequest(None), 12) + bad)
    assert handlers.arrived.acquire(timeout=60)
    handlers.parked[0].respond(SyncGroupResponse(assignment=b"later"))
    assert client.receive(14, 5, 0).assignment == b"later"
    assert client.receive(3, 12, 0).brokers
    assert client.at_end()
    assert len(lines()) == 1


def test_requests_that_a_handler_works_on_are_answered_before_the_close(begin, connect, bad, lines):
    server = begin()
    handlers = server.api_set("trying")
    client = connect(server)
    client.send_bytes(encode_frame(HeartbeatRequest("block"), 4) + HEARTBEAT + bad)
    assert handlers.arrived.acquire(timeout=60)
    handlers.release.set()
    assert [client.receive(12, 4, 0).error_code for _ in range(2)] == [0, 0]
    assert client.at_end()
    assert len(lines()) == 1


def test_partly_sent_responses_are_sent_to_their_end(begin, connect, bad, lines):
    count, size_bytes = 20, 30_000
    client = connect(begin("socket.send.buffer.bytes=8192"))
    client.send_bytes(encode_frame(FindCoordinatorRequest(str(size_bytes)), 1) * count + bad)
    assert [len(client.receive(10, 1, 0).host) for _ in range(count)] == [size_bytes] * count
    assert client.at_end()
    assert len(lines()) == 1


def test_the_connection_ends_if_the_client_leaves_before_the_responses(begin, connect, bad):
    server = begin()
    handlers = server.api_set("trying")
    client = connect(server)
    client.send_bytes(encode_frame(SyncGroupRequest("waits"), 5) + bad)
    assert handlers.arrived.acquire(timeout=60)
    client.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))  # With this option the close resets the connection.
    client.close()
    handlers.parked[0].respond(SyncGroupResponse())
    EmbeddedServer.wait_until(lambda: not connections(server))


def connections(server):
    (listener,) = server.server.listeners
    return sum(processor.connection_count for processor in listener.processors)


LOOKED_AT, OPAQUE = "looked at", "opaque"
NO_DELAY = ("rules.all.kind=delay", "rules.all.delay_ms=1", "rules.all.after=1000")
"""Settings of the filter `faults` that delay no request. Requests after a delayed one would not reach the node."""
BEFORE_NODES = pytest.mark.parametrize(
    "what",
    [
        *itertools.starmap(case, itertools.product((LOOKED_AT, OPAQUE), SEEN_BY_ALL)),
        *with_filters((OPAQUE,), SEEN_BY_ALL),
    ],
)
"""The cases of gateways: does it decode requests, the invalid bytes, and the filters."""


@pytest.fixture
def in_front(what, audited, tmp_path):
    """Return `in_front(node)`, which returns a gateway that is not started."""
    guards = GUARDS if what[0] == LOOKED_AT else []
    settings = [*guards, *filters_of(what[2], tmp_path, faults=NO_DELAY)]
    return lambda node: gateway(node.bootstrap, settings, plugins=[klamm_filters])


def sent_at_once(front, api_key, count):
    """Return how many of `count` requests reach the node before one is answered. It is one if a filter may block."""
    (listener,) = front.server.listeners
    return count if listener.runtime.requests.routes.find(api_key).inline_max_bytes >= 0 else 1


@BEFORE_NODES
def test_a_gateway_answers_the_requests_that_its_node_got(audited, in_front, what, bad, lines):
    """The node has three requests of the connection when the gateway reads the invalid bytes."""
    refused = threading.Event()

    def serve(node, sock, frame):
        at_once = sent_at_once(front, 12, 3)
        if len(node.frames) % at_once == 0:
            assert at_once == 1 or refused.wait(60)
            for each in node.frames[-at_once:]:
                body = HeartbeatResponse(error_code=0).encode(4)
                sock.sendall(response(decode_request_header(each)[2], 12, 4, body))

    looked_at = what[0] == LOOKED_AT
    with FakeNode(serve) as node:
        front = (audited(node) if looked_at else in_front(node)).start()
        with RawClient(front.address()) as client:
            client.send_bytes(HEARTBEAT * 3 + bad)
            if sent_at_once(front, 12, 3) > 1:
                EmbeddedServer.wait_until(lines)
            refused.set()
            assert [client.receive(12, 4, 0).error_code for _ in range(3)] == [0, 0, 0]
            assert client.at_end()
        front.stop()
    assert len(lines()) == 1
    if looked_at:
        events = requests_in(audited.spool, "Heartbeat")
        assert [(one["outcome"], one.get("reason")) for one in events] == [("ok", None)] * 3


@BEFORE_NODES
def test_a_gateway_sends_streamed_responses_to_their_end(in_front, what, bad, lines):
    """The gateway has sent a part of one response, and another response follows."""
    refused = threading.Event()
    frame = encode_frame(FetchRequest(topics=[FetchTopic("topic", [Asked(0), Asked(1)])]), FETCH_VERSION)
    name = "a.topic" if "topic_prefix" in what[2] else "topic"

    def serve(node, sock, _frame):
        at_once = sent_at_once(front, 1, 2)
        if len(node.frames) % at_once == 0:
            ids = [decode_request_header(each)[2] for each in node.frames[-at_once:]]
            data = b"".join(response(each, 1, FETCH_VERSION, fetched(BATCH, name)) for each in ids)
            sock.sendall(data[:120_000])
            assert at_once == 1 or refused.wait(60)
            sock.sendall(data[120_000:])

    with FakeNode(serve) as node:
        front = in_front(node).start()
        with RawClient(front.address()) as client:
            client.send_bytes(frame * 2 + bad)
            if sent_at_once(front, 1, 2) > 1:
                EmbeddedServer.wait_until(lines)
            refused.set()
            for _ in range(2):
                (topic,) = client.receive(1, FETCH_VERSION, 0).responses
                first, second = topic.partitions
                assert (topic.topic, bytes(first.records), second.error_code) == ("topic", BATCH, 3)
            assert client.at_end()
        front.stop()
    assert len(lines()) == 1


@BEFORE_NODES
def test_a_gateway_closes_the_connection_if_its_node_fails_meanwhile(in_front, bad, lines):
    """No response can come any more."""
    refused = threading.Event()

    def serve(node, sock, _frame):
        assert refused.wait(60)
        sock.close()

    with FakeNode(serve) as node:
        front = in_front(node).start()
        with RawClient(front.address()) as client:
            client.send_bytes(HEARTBEAT + bad)
            EmbeddedServer.wait_until(lines)
            refused.set()
            assert client.at_end()
        front.stop()
