"""Tests of the handler set `gateway`: what clients send and get through a gateway, and what failures of nodes do."""

import contextlib
import itertools
import logging
import os
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from klamm import Provider, RequestFilter, hookimpl
from klamm.network.pipes import MAX_IDLE
from klamm.network.poller import Waker
from klamm.runtime import PLATFORM
from klamm.testing import EmbeddedServer, RawClient, SecureServer
from klamm.wire.headers import decode_request_header, encode_request_header
from klamm.wire.messages import heartbeat
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.describe_cluster import DescribeClusterRequest
from klamm.wire.messages.fetch import FetchRequest
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import Record, encode_batch
from klamm_gateway import forwarded_request
from klamm_plaintext.transport import PlaintextTransportLayer
from tests.contract.gateway_nodes import (
    FakeNode,
    answer_with,
    free_ports,
    gateway,
    response,
    take,
    upstream_connections,
)
from tests.waiting import wait_until

HEARTBEAT = HeartbeatResponse(0, 0).encode(4)


@pytest.fixture
def broker():
    with EmbeddedServer() as server:
        yield server


def node_port(server):
    return server.api_set().settings.ports.ports.start


def connect(server, port=None, **options):
    return RawClient(("127.0.0.1", port or server.address()[1]), **options)


def failures(server):
    found = server.server.services.metrics.collect(lambda name: name.endswith("UpstreamConnectionFailures"))
    return {sample.labels["reason"]: sample.value for family in found for sample in family.samples}


# ---- what clients get


@pytest.mark.parametrize("recording", [False, True], ids=["opaque", "decoded"])
def test_records_pass_the_gateway_in_both_directions(broker, recording):
    with gateway(broker.bootstrap, recording=recording) as front:
        topic = front.create_topic(partitions=2)
        values = [bytes([number]) * 900 for number in range(200)]
        front.produce(topic, *values)
        assert [record.value for record in front.consume(topic, 200)] == values
        assert [record.value for record in broker.consume(topic, 200)] == values
        if recording:
            assert {request.api for request in front.requests()} <= {"Metadata", "Produce", "Fetch", "ListOffsets"}


def test_an_observed_request_with_an_empty_body_passes_the_gateway(broker):
    with gateway(broker.bootstrap, recording=True) as front, connect(front) as client:
        assert client.call(ListGroupsRequest(), 0).error_code == 0


def test_responses_name_the_gateways_ports_as_nodes(broker):
    with gateway(broker.bootstrap) as front, connect(front) as client:
        here = ("127.0.0.1", node_port(front))
        metadata = client.call(MetadataRequest(None), 9)
        assert [(one.host, one.port) for one in metadata.brokers] == [here]
        cluster = client.call(DescribeClusterRequest(), 0)
        assert [(one.host, one.port) for one in cluster.brokers] == [here]
        (found,) = client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
        assert (found.host, found.port) == here
        old = client.call(FindCoordinatorRequest("g"), 2)
        assert (old.host, old.port) == here


def test_offered_api_versions_are_those_that_gateway_and_node_know():
    with FakeNode() as node, gateway(node.bootstrap) as front, connect(front) as client:
        answer = client.call(ApiVersionsRequest(), 0)
    offered = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert offered[1] == (4, 15), "Fetch"
    assert offered[3] == (0, 13), "Metadata"
    assert offered[17] == (0, 1)
    assert not {4, 5, 6, 7, 38, 52, 58, 82, 83} & set(offered), "what brokers say to each other, and delegation tokens"


@pytest.mark.parametrize("recording", [False, True], ids=["cached", "observed"])
def test_api_versions_change_with_the_nodes(recording):
    def last_version(client):
        return max(one.max_version for one in client.call(ApiVersionsRequest(), 0).api_keys if one.api_key == 3)

    with FakeNode() as node, gateway(node.bootstrap, recording=recording) as front, connect(front) as client:
        assert [last_version(client) for _ in range(5)] == [13] * 5
        for one in node.versions.api_keys:
            one.max_version = 9
        front.api_set().cluster.refresh()
        EmbeddedServer.wait_until(lambda: last_version(client) == 9)
        assert [last_version(client) for _ in range(5)] == [9] * 5


def test_api_versions_fails_before_a_node_has_answered():
    nowhere = free_ports(1)
    with gateway(f"127.0.0.1:{nowhere}") as front, connect(front) as client:
        assert client.call(ApiVersionsRequest(), 0).error_code == 8
        assert failures(front)["connection_failed"] >= 1


def test_each_port_leads_to_its_node():
    with FakeNode(answer_with(HEARTBEAT), 1) as one, FakeNode(answer_with(HEARTBEAT), 2) as two:
        one.brokers = two.brokers = {1: one.port, 2: two.port}
        with gateway(one.bootstrap, node_ids=3) as front:
            for node_id, node in ((1, one), (2, two)):
                with connect(front, node_port(front) + node_id - 1) as client:
                    client.call(HeartbeatRequest(f"to {node_id}"), 4)
                assert len(node.frames) == 1
            with connect(front, node_port(front) + 2) as client:
                client.send(HeartbeatRequest("to 3"), 4)
                assert client.at_end(), "there is no node 3"
            assert failures(front) == {"unknown_node": 1}


def test_a_client_that_means_another_node_gets_an_error():
    with FakeNode(node_id=1) as one, FakeNode(node_id=2) as two:
        one.brokers = two.brokers = {1: one.port, 2: two.port}
        with gateway(one.bootstrap, node_ids=2) as front:
            for port, at in ((front.address()[1], None), (node_port(front), 1), (node_port(front) + 1, 2)):
                for cluster_id, means in (("fake", 1), ("fake", 2), ("another", 1), ("another", 2), (None, -1)):
                    with connect(front, port) as client:
                        answers = [
                            client.call(ApiVersionsRequest("a", "1", cluster_id, means), 5).error_code for _ in range(3)
                        ]
                    is_meant = cluster_id is None or (cluster_id, means) == ("fake", at)
                    assert answers == [0 if is_meant else 129] * 3


def test_a_new_node_is_learned_from_metadata():
    with FakeNode(answer_with(HEARTBEAT), 1) as one, FakeNode(answer_with(HEARTBEAT), 2) as two:
        with gateway(one.bootstrap, node_ids=2) as front, connect(front) as client:
            one.brokers = two.brokers = {1: one.port, 2: two.port}
            client.call(MetadataRequest([]), 9)
            EmbeddedServer.wait_until(lambda: len(front.api_set().cluster.layout.nodes) == 2)
            with connect(front, node_port(front) + 1) as other:
                other.call(HeartbeatRequest("g"), 4)
        assert len(two.frames) == 1


def test_pipelined_requests_are_answered_in_order():
    with FakeNode(answer_with(HEARTBEAT)) as node, gateway(node.bootstrap) as front, connect(front) as client:
        sent = []
        for number in range(300):
            # The gateway itself answers every third request.
            request = (ApiVersionsRequest(), 0) if number % 3 == 0 else (HeartbeatRequest(f"g{number}"), 4)
            sent.append((request, client.send(*request)))
        for (request, version), correlation_id in sent:
            client.receive(request.API_KEY, version, correlation_id)
        assert len(node.frames) == 200


@pytest.mark.parametrize("groups_listed", [300, 5_000])
@pytest.mark.parametrize("connection", ["stays", "leaves"])
def test_a_worker_thread_decodes_a_large_response(monkeypatch, connection, groups_listed):
    """A worker thread decodes it, so that other clients of the network thread need not wait.

    The response still comes before the responses to later requests.
    """
    on_worker = {}
    find = forwarded_request._response_class

    class Noting:
        def __init__(self, found):
            self.found = found

        def decode(self, *parts):
            message = self.found.decode(*parts)
            thread = threading.current_thread().name
            on_worker.setdefault(self.found.__name__, []).append(thread.startswith("klamm-gateway-responses"))
            return message

    monkeypatch.setattr(forwarded_request, "_response_class", lambda api_key: Noting(find(api_key)))
    groups = ListGroupsResponse(groups=[ListedGroup(f"group-{number}", "consumer") for number in range(groups_listed)])

    def serve(node, sock, frame):
        key, version, correlation_id, _client, _offset = decode_request_header(frame)
        answer = groups if key == ListGroupsResponse.API_KEY else HeartbeatResponse(0, 0)
        sock.sendall(response(correlation_id, key, version, answer.encode(version)))

    with FakeNode(serve) as node, gateway(node.bootstrap, recording=True) as front:
        with RawClient(front.address()) as client:
            client.send(ListGroupsRequest(), 4)
            client.send(HeartbeatRequest("g"), 4)
            if connection == "stays":
                assert ListGroupsResponse.decode(4, client.receive_frame()[5:]) == groups
                assert HeartbeatResponse.decode(4, client.receive_frame()[5:]) == HeartbeatResponse(0, 0)
        with RawClient(front.address()) as client:
            assert client.call(ListGroupsRequest(), 4) == groups
    assert {*on_worker.pop("ListGroupsResponse")} == {True}
    assert {each for of_one in on_worker.values() for each in of_one} <= {False}


def test_requests_are_pipelined_to_the_node():
    def serve(node, sock, frame):
        if len(node.frames) == 5:
            for each in node.frames:
                key, version, correlation_id, _client, _offset = decode_request_header(each)
                sock.sendall(response(correlation_id, key, version, HEARTBEAT))

    with FakeNode(serve) as node, gateway(node.bootstrap) as front, connect(front) as client:
        sent = [client.send(HeartbeatRequest("g"), 4) for _ in range(5)]
        for correlation_id in sent:
            client.receive(heartbeat.API_KEY, 4, correlation_id)


def test_a_request_without_response_is_forwarded_even_if_its_client_leaves_at_once(broker):
    with gateway(broker.bootstrap) as front:
        topic = front.create_topic()
        with connect(front, node_port(front)) as client:
            for value in (b"one", b"two"):
                client.send(_produce(topic, value, acks=0), 9)
        assert [record.value for record in broker.consume(topic, 2)] == [b"one", b"two"]


def _produce(topic, value, acks):
    batch = bytes(encode_batch([Record(0, 1000, None, value, ())]))
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def test_later_requests_are_served_after_a_request_with_an_empty_body():
    with (
        FakeNode(answer_with(ListGroupsResponse().encode(0))) as node,
        gateway(node.bootstrap, recording=True) as front,
    ):
        for _ in range(2):
            with connect(front) as client:
                assert client.call(ListGroupsRequest(), 0).groups == []
        assert [len(frame) for frame in node.frames] == [13, 13]


def test_answers_of_nodes_do_not_wake_the_thread_that_reads_them(monkeypatch):
    with FakeNode(answer_with(HEARTBEAT)) as node, gateway(node.bootstrap) as front, connect(front) as client:
        client.call(HeartbeatRequest("g"), 4)
        woken, wake = [], Waker.wake
        monkeypatch.setattr(Waker, "wake", lambda waker: (woken.append(waker), wake(waker)))
        for _ in range(50):
            client.call(HeartbeatRequest("g"), 4)
        assert len(woken) < 25


# ---- back pressure


def pipes():
    """Return how many ends of pipes this process has open; 0 on systems that do not show this."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        return 0
    found = 0
    for one in descriptors.iterdir():
        with contextlib.suppress(OSError):
            found += os.readlink(one).startswith("pipe:")
    return found


FETCHED = struct.Struct(">ihiihiihqqqiii")
"""The head of a Fetch v11 response with one topic without a name and one partition: all bytes before the records."""


@pytest.mark.parametrize("recording", [False, True], ids=["opaque", "observed"])
def test_a_slow_client_slows_the_node_down(recording):
    sent = [0]
    size = 60 * 1024 * 1024
    head = FETCHED.pack(0, 0, 0, 1, 0, 1, 0, 0, 9, 9, 0, 0, -1, size - FETCHED.size)
    piece = bytes(64 * 1024)

    def serve(node, sock, frame):
        correlation_id = decode_request_header(frame)[2]
        sock.sendall((size + 4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + head)
        sent[0] = len(head)
        while sent[0] < size:
            part = piece[: size - sent[0]]
            sock.sendall(part)
            sent[0] += len(part)

    request = FetchRequest().encode(11)
    with FakeNode(serve) as node, gateway(node.bootstrap, recording=recording) as front, connect(front) as client:
        before_pipes = pipes()
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.send_frame(encode_request_header(1, 11, 5, "slow") + request)
        # The bytes that the client has not yet read wait in the kernel.
        EmbeddedServer.wait_until(lambda: pipes() > before_pipes or not PLATFORM.has_splice)
        before = -1
        while before != sent[0]:
            # Wait until no more bytes move.
            before = sent[0]
            time.sleep(0.3)
        assert sent[0] < size / 4, "the rest waits in the node"
        assert take(client.socket, 8)[4:] == (5).to_bytes(4, "big")
        left = size
        while left:
            left -= len(client.socket.recv(min(left, 1 << 20)))
        client.send_frame(encode_request_header(1, 11, 6, "slow") + request)
        assert take(client.socket, 8)[4:] == (6).to_bytes(4, "big")


def test_slow_clients_of_one_network_thread_each_get_their_own_bytes():
    size = 12 * 1024 * 1024

    def serve(node, sock, frame):
        correlation_id = decode_request_header(frame)[2]
        sock.sendall((size + 4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big"))
        sock.sendall(bytes([correlation_id]) * size)

    with FakeNode(serve) as node, gateway(node.bootstrap) as front, contextlib.ExitStack() as stack:
        left = {}
        for number in (1, 2, 3):
            client = stack.enter_context(connect(front))
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
            client.send_frame(encode_request_header(1, 11, number, "slow") + bytes(50))
            assert take(client.socket, 8)[4:] == number.to_bytes(4, "big")
            left[number] = [client.socket, size]
        while left:
            for number, (sock, count) in list(left.items()):
                data = sock.recv(min(count, 200_000))
                assert data.count(number) == len(data) > 0
                left[number][1] -= len(data)
                if not left[number][1]:
                    del left[number]


def test_no_pipes_stay_open_after_clients_leave_during_a_response():
    size = 8 * 1024 * 1024

    def serve(node, sock, frame):
        correlation_id = decode_request_header(frame)[2]
        with contextlib.suppress(OSError):
            sock.sendall((size + 4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big"))
            sock.sendall(bytes(size))

    with FakeNode(serve) as node, gateway(node.bootstrap) as front:
        before = pipes()
        for number in range(2 * MAX_IDLE):
            with connect(front) as client:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
                client.send_frame(encode_request_header(1, 11, number, "slow") + bytes(50))
                assert take(client.socket, 200_000)
        deadline = time.monotonic() + 20
        while pipes() > before + 2 * MAX_IDLE:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.skipif(not PLATFORM.has_splice, reason="there is no splice")
def test_a_transport_whose_splice_raises_costs_only_its_connection(monkeypatch):
    size = 2 * 1024 * 1024
    raised = []

    def serve(node, sock, frame):
        correlation_id = decode_request_header(frame)[2]
        with contextlib.suppress(OSError):
            sock.sendall((size + 4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + bytes(size))

    def raises_once(layer, pipe, count):
        if not raised:
            raised.append(count)
            raise ZeroDivisionError("on purpose")
        return splice_from(layer, pipe, count)

    splice_from = PlaintextTransportLayer.splice_from
    monkeypatch.setattr(PlaintextTransportLayer, "splice_from", raises_once)
    with FakeNode(serve) as node, gateway(node.bootstrap) as front, connect(front) as other:
        with connect(front) as client:
            client.send_frame(encode_request_header(1, 11, 5, "unlucky") + bytes(50))
            with pytest.raises((ConnectionError, EOFError)):
                take(client.socket, size + 8)
        assert raised
        other.send_frame(encode_request_header(1, 11, 6, "lucky") + bytes(50))
        assert take(other.socket, size + 8)[4:8] == (6).to_bytes(4, "big")


# ---- failures


def test_a_lost_node_closes_its_clients_and_no_request_is_repeated(caplog):
    with FakeNode() as node, gateway(node.bootstrap) as front, connect(front) as client:
        client.send(HeartbeatRequest("g"), 4)
        EmbeddedServer.wait_until(lambda: node.frames)
        with caplog.at_level(logging.WARNING, "klamm.gateway"):
            node.cut()
            assert client.at_end()
        assert "upstream connection failed" in caplog.text
        assert len(node.frames) == 1
        assert failures(front).keys() <= {"closed_by_node", "connection_lost"}


def test_clients_are_served_after_a_node_has_closed_an_idle_connection():
    with FakeNode(answer_with(HEARTBEAT)) as node, gateway(node.bootstrap) as front, connect(front) as client:
        client.call(HeartbeatRequest("g"), 4)
        node.cut()
        EmbeddedServer.wait_until(lambda: not upstream_connections(front))
        client.call(HeartbeatRequest("g"), 4)
        assert not failures(front)


def test_clients_of_a_node_that_refuses_connections_are_closed(caplog):
    with FakeNode() as node:
        front = gateway(node.bootstrap).start()
    try:
        with connect(front, node_port(front)) as client:
            client.send(HeartbeatRequest("g"), 4)
            assert client.at_end()
        assert failures(front)["connection_failed"] >= 1
    finally:
        front.stop()


def test_clients_of_a_node_that_answers_garbage_are_closed():
    def serve(node, sock, frame):
        sock.sendall(struct.pack(">ii", 8, 424242) + bytes(4))

    with FakeNode(serve) as node, gateway(node.bootstrap) as front, connect(front) as client:
        client.send(HeartbeatRequest("g"), 4)
        assert client.at_end()
        assert failures(front) == {"invalid_response": 1}


def test_a_response_that_is_cut_at_any_byte_never_looks_complete():
    whole = response(3, heartbeat.API_KEY, 4, HEARTBEAT)
    cuts = itertools.count(0)

    def serve(node, sock, frame):
        sock.sendall(whole[: next(cuts)])
        sock.shutdown(socket.SHUT_RDWR)

    request = encode_request_header(heartbeat.API_KEY, 4, 3, "c") + HeartbeatRequest("g").encode(4)
    with FakeNode(serve) as node, gateway(node.bootstrap) as front:
        for _ in range(len(whole)):
            with connect(front) as client:
                client.send_frame(request)
                assert client.at_end()
        with connect(front) as client:
            client.send_frame(request)
            assert client.receive_frame() == whole[4:]
        assert len(node.frames) == len(whole) + 1, "each was sent once"


def test_a_large_response_that_ends_early_closes_the_client():
    def serve(node, sock, frame):
        correlation_id = decode_request_header(frame)[2]
        sock.sendall((1_000_004).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + bytes(600_000))
        sock.shutdown(socket.SHUT_RDWR)

    with FakeNode(serve) as node, gateway(node.bootstrap) as front, connect(front) as client:
        client.send_frame(encode_request_header(1, 11, 5, "c") + bytes(50))
        with pytest.raises(ConnectionError):
            client.receive_frame()
        assert sum(failures(front).values()) == 1


def test_a_request_that_is_cut_at_any_byte_reaches_the_node_whole_or_not_at_all():
    request = encode_request_header(heartbeat.API_KEY, 4, 3, "c") + HeartbeatRequest("g").encode(4)
    data = len(request).to_bytes(4, "big") + request
    with FakeNode(answer_with(HEARTBEAT)) as node, gateway(node.bootstrap) as front:
        for count in range(len(data)):
            with connect(front) as client:
                client.send_bytes(data[:count])
        with connect(front) as client:
            client.send_bytes(data)
            client.receive_frame()
        assert [bytes(frame) for frame in node.frames] == [request]


def test_no_connection_to_a_node_remains_after_clients_leave():
    with FakeNode() as node, gateway(node.bootstrap) as front:
        clients = [connect(front) for _ in range(5)]
        for client in clients:
            client.send(HeartbeatRequest("g"), 4)
        EmbeddedServer.wait_until(lambda: len(node.frames) == 5)
        assert upstream_connections(front) == 5
        for client in clients:
            client.close()
        EmbeddedServer.wait_until(lambda: upstream_connections(front) == 0)
        assert not failures(front)


# ---- security towards the nodes, filters, start


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_gateway_authenticates_to_nodes_with_tls_and_scram(tmp_path, password):
    (tmp_path / "password").write_text(f"{password}\n")
    with SecureServer() as broker:
        settings = [
            "gateway.upstream.security_protocol=SASL_SSL",
            "gateway.upstream.sasl_username=admin",
            f"gateway.upstream.sasl_password_file={tmp_path / 'password'}",
            f"gateway.upstream.ssl_truststore_location={broker.ca_file}",
        ]
        with gateway(broker.bootstrap, settings) as front:
            if password == "secret":
                topic = front.create_topic()
                front.produce(topic, b"x" * 50_000, b"y")
                assert [len(record.value) for record in front.consume(topic, 2)] == [50_000, 1]
                assert not failures(front)
            else:
                assert failures(front).keys() == {"authentication_failed"}


class Prefix(RequestFilter):
    """A filter that adds a prefix to the names of groups."""

    @property
    def api_keys(self):
        return (heartbeat.API_KEY,)

    def on_request(self, message, context):
        message.group_id = "tenant-" + message.group_id
        return message

    def on_response(self, response, context):
        response.throttle_time_ms = 7
        return response


class Filters:
    """The plugin with the filter."""

    @hookimpl
    def klamm_request_filters(self):
        yield Provider("prefix", "tests.contract.test_gateway:Prefix")


def test_a_filter_sees_and_changes_messages():
    with (
        FakeNode(answer_with(HEARTBEAT)) as node,
        gateway(node.bootstrap, ['listeners.default.filters=["prefix"]'], plugins=[Filters()]) as front,
        connect(front) as client,
    ):
        assert client.call(HeartbeatRequest("g"), 4).throttle_time_ms == 7
        (frame,) = node.frames
        assert HeartbeatRequest.decode(4, frame, decode_request_header(frame)[4]).group_id == "tenant-g"


def test_a_gateway_does_not_start_if_a_node_port_is_taken(broker):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        front = gateway(broker.bootstrap, [f"gateway.node_ports={port}"])
        with pytest.raises(Exception, match=f"cannot bind 127.0.0.1:{port}"):
            front.start()


def test_a_gateway_is_ready_as_long_as_a_node_answers(monkeypatch):
    monkeypatch.setattr("klamm_gateway.learner._OLD_AFTER_NS", 0)
    bind = f"listeners.default.bind=127.0.0.1:{free_ports(1)}"
    exporter = ("server.extensions=prometheus", "prometheus.bind=127.0.0.1:0")
    with EmbeddedServer([bind]) as broker:
        front = gateway(broker.bootstrap, exporter).start()
        page = "http://{}:{}/ready".format(*front.server.extensions[0].address)
        assert status_of(page) == (200, "ready\n")
    try:
        wait_until(lambda: status_of(page) == (503, "[gateway]: no node of the cluster answers\n"))
        with EmbeddedServer([bind]):
            wait_until(lambda: status_of(page) == (200, "ready\n"))
    finally:
        front.stop()


def status_of(page):
    """Return status and text of a page."""
    try:
        with urllib.request.urlopen(page, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
