"""Tests of the network layer over real sockets: order, isolation, backpressure, limits, and misbehaving peers."""

import ssl
import struct
import threading

import pytest

from klamm import ErrorCode
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.contract.api_sets import GATES, OBSERVERS
from tests.waiting import is_readable


def heartbeat(client, what):
    return client.call(HeartbeatRequest(group_id=what), 4)


def answers(client):
    return client.call(MetadataRequest(topics=None), 12).brokers[0].node_id == 1


def is_silent(client):
    """Return True if no bytes come for a moment."""
    return not is_readable(client.socket, 0.05)


def test_a_request_is_answered_and_the_client_is_known(start, connect):
    server = start()
    client = connect(server, client_id="somebody")
    versions = client.call(ApiVersionsRequest("software", "1.2.3"), 3)
    assert versions.error_code == 0
    assert {key.api_key for key in versions.api_keys} == {3, 10, 12, 14, 18, 22}
    assert answers(client)
    (context,) = server.api_set("trying").seen
    assert (context.client_id, context.connection.client_software_name) == ("somebody", "software")
    assert context.connection.client_software_version == "1.2.3"
    assert str(context.principal) == "User:ANONYMOUS"
    assert context.client_address == client.socket.getsockname()
    assert context.connection.connection_id == "{}:{}-{}:{}-0-0".format(
        *client.socket.getpeername(), *client.socket.getsockname()
    )


def test_an_invalid_client_software_name_is_refused(start, connect):
    client = connect(start())
    assert client.call(ApiVersionsRequest("so ftware", "1"), 3).error_code == ErrorCode.INVALID_REQUEST


def test_client_software_is_known_even_if_the_response_is_cached(start, connect):
    server = start()
    first, second = ApiVersionsRequest("one", "1"), ApiVersionsRequest("two", "2")
    seen = []
    for _ in range(2):
        client = connect(server)
        for request in (first, first, first, second, first, second, second, second):
            assert client.call(request, 3).error_code == 0
            assert answers(client)
            connection = server.api_set("trying").seen[-1].connection
            seen.append((connection.client_software_name, request.client_software_name))
            assert connection.client_id == "raw"
    assert [name for name, _ in seen] == [name for _, name in seen]


def test_an_invalid_client_software_name_is_refused_each_time(start, connect):
    server = start()
    for _ in range(2):
        client = connect(server)
        for name, code in (("so ftware", 42), ("so ftware", 42), ("software", 0), ("so ftware", 42), ("software", 0)):
            assert client.call(ApiVersionsRequest(name, "1"), 3).error_code == code


@pytest.mark.parametrize("dispatch", ["hybrid", "inline", "pool"])
def test_pipelined_requests_are_answered_in_order_from_processors_and_handlers(start, connect, dispatch):
    client = connect(start(f"dispatch={dispatch}"))
    requests = []
    for number in range(300):
        request = MetadataRequest(topics=None) if number % 3 else HeartbeatRequest(group_id="ok")
        version = 12 if number % 3 else 4
        requests.append((request.API_KEY, version, client.send(request, version)))
    for api_key, version, correlation_id in requests:
        client.receive(api_key, version, correlation_id)


def test_frames_may_arrive_in_pieces_of_any_size(start, connect):
    client = connect(start())
    frame = encode_request_header(3, 12, 7, "raw") + MetadataRequest(topics=None).encode(12)
    data = struct.pack(">i", len(frame)) + frame
    for cut in range(1, len(data)):
        client.send_bytes(data[:cut])
        client.send_bytes(data[cut:])
        client.receive(3, 12, 7)


def test_a_large_request_and_a_large_response_pass(start, connect):
    client = connect(start())
    assert len(client.call(FindCoordinatorRequest(key="32000"), 2).host) == 32000
    frame = encode_request_header(12, 0, 9, "raw") + HeartbeatRequest(group_id="ok").encode(0)
    client.send_frame(frame + bytes(3_000_000))
    assert client.receive(12, 0, 9).error_code == 0


def test_small_requests_of_a_blocking_api_may_run_on_the_processor(start, connect):
    client = connect(start())
    assert client.call(InitProducerIdRequest(), 4).producer_id == 0
    assert client.call(InitProducerIdRequest(transactional_id="x" * 100), 4).producer_id == 1


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("raise", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("kafka-error", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("garbage", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("none", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("wrong-shape", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
@pytest.mark.parametrize("dispatch", ["inline", "pool"])
def test_a_handler_that_fails_fails_only_its_request(start, connect, what, code, dispatch):
    client = connect(start(f"dispatch={dispatch}"))
    assert heartbeat(client, what).error_code == code
    assert answers(client)


def test_a_handler_that_exits_closes_only_its_connection_and_ends_no_thread(start, connect):
    server = start("server.io_threads=1")
    other = connect(server)
    for _ in range(3):
        with pytest.raises(ConnectionError):
            heartbeat(connect(server), "exit")
    assert heartbeat(other, "ok").error_code == 0
    assert server.server.handler_pool.size == 1


def test_a_handler_can_close_the_connection(start, connect):
    server = start()
    with pytest.raises(ConnectionError):
        heartbeat(connect(server), "close")


def test_a_request_without_a_response_does_not_stop_the_next(start, connect):
    client = connect(start())
    client.send(HeartbeatRequest(group_id="no-response"), 4)
    assert answers(client)


def test_a_response_that_comes_later_keeps_its_place(start, connect):
    server = start()
    client = connect(server)
    first = client.send(SyncGroupRequest(group_id="wait"), 5)
    second = client.send(MetadataRequest(topics=None), 12)
    assert server.api_set("trying").arrived.acquire(timeout=60)
    (context,) = server.api_set("trying").parked
    threading.Thread(target=context.respond, args=(SyncGroupResponse(assignment=b"late"),)).start()
    assert client.receive(14, 5, first).assignment == b"late"
    client.receive(3, 12, second)
    with pytest.raises(RuntimeError, match="twice"):
        context.respond(SyncGroupResponse())


def test_a_response_may_come_before_the_handler_returns(start, connect):
    client = connect(start())
    assert client.call(SyncGroupRequest(group_id="at-once"), 5).assignment == b"at once"


def test_a_late_failure_is_answered_as_an_error(start, connect):
    server = start()
    client = connect(server)
    correlation_id = client.send(SyncGroupRequest(group_id="wait"), 5)
    assert server.api_set("trying").arrived.acquire(timeout=60)
    server.api_set("trying").parked[0].respond(ValueError("on purpose"))
    assert client.receive(14, 5, correlation_id).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_response_to_a_closed_connection_is_dropped(start, connect):
    server = start()
    client = connect(server)
    client.send(SyncGroupRequest(group_id="wait"), 5)
    assert server.api_set("trying").arrived.acquire(timeout=60)
    client.close()
    server.api_set("trying").parked[0].respond(SyncGroupResponse())
    assert answers(connect(server))


def test_a_blocked_handler_delays_no_other_client(start, connect):
    server = start("server.io_threads=2")
    blocked = connect(server)
    correlation_id = blocked.send(HeartbeatRequest(group_id="block"), 4)
    assert server.api_set("trying").arrived.acquire(timeout=60)
    assert answers(connect(server))
    assert heartbeat(connect(server), "ok").error_code == 0
    server.api_set("trying").release.set()
    assert blocked.receive(12, 4, correlation_id).error_code == 0


def test_requests_wait_for_a_full_queue_and_none_is_lost(start, connect):
    server = start("server.io_threads=1", "server.queued_max_requests=2")
    trying = server.api_set("trying")
    clients = [connect(server) for _ in range(12)]
    sent = [(client, client.send(HeartbeatRequest(group_id="block"), 4)) for client in clients]
    assert trying.arrived.acquire(timeout=60)
    assert answers(connect(server)), "what needs no handler goes on"
    trying.release.set()
    for client, correlation_id in sent:
        assert client.receive(12, 4, correlation_id).error_code == 0
    assert server.server.request_channel.full_count > 0


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 104_857_601),
        b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n",
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 3, 1, 1, 5000),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhih", 10, -3, 0, 1, -1),
        struct.pack(">ihhih", 10, 0, 9, 1, -1),
        struct.pack(">ihhih", 14, 3, 1, 1, -1) + struct.pack(">i", 2**31 - 1),
    ],
    ids=str,
)
def test_bytes_that_are_not_a_request_close_the_connection_at_once(start, connect, data, caplog):
    server = start()
    bad = connect(server, timeout_s=20.0)
    bad.send_bytes(data)
    assert bad.at_end()
    assert answers(connect(server))
    assert "listener=default connection_id=127.0.0.1:" in caplog.text
    assert "closing connection:" in caplog.text


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(start, connect):
    client = connect(start())
    client.send_frame(encode_request_header(18, 99, 5, "raw") + b"an unknown body")
    frame = client.receive_frame()
    assert frame[:4] == struct.pack(">i", 5)
    response = ApiVersionsResponse.decode(0, frame, 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version) for key in response.api_keys] == [(18, 0)]
    assert client.call(ApiVersionsRequest("a", "1"), 3).error_code == 0


def test_requests_before_a_bad_one_are_answered(start, connect):
    client = connect(start())
    frame = encode_request_header(3, 12, 1, "raw") + MetadataRequest(topics=None).encode(12)
    client.send_bytes(struct.pack(">i", len(frame)) + frame + struct.pack(">i", -5))
    client.receive(3, 12, 1)
    assert client.at_end()


@pytest.mark.parametrize("dispatch", ["inline", "pool"])
def test_requests_sent_before_the_peer_closed_are_served(start, connect, dispatch):
    server = start(f"dispatch={dispatch}")
    client = connect(server)
    # A socket that is closed with unread bytes resets the connection, and the peer loses bytes that it has not read:
    # the session tickets of TLS 1.3, which come with the first response, and further responses.
    assert answers(client)
    for _ in range(50):
        client.send(HeartbeatRequest(group_id="no-response"), 4)
    client.close()
    arrived = server.api_set("trying").unanswered
    for _ in range(50):
        assert arrived.acquire(timeout=60)
    assert answers(connect(server))


def test_a_client_that_never_reads_delays_only_itself(start, connect):
    server = start()
    greedy = connect(server, timeout_s=2.0)
    frame = encode_request_header(10, 2, 1, "raw") + FindCoordinatorRequest(key="30000").encode(2) + bytes(3000)
    with pytest.raises(TimeoutError):
        greedy.send_bytes((struct.pack(">i", len(frame)) + frame) * 20_000)
    assert answers(connect(server))
    assert all(len(p._reactor.selector.channels) == 2 for p in server.server.listeners[0].processors)


def test_a_client_that_never_reads_its_responses_is_closed_as_idle(start, connect):
    server = start("connections_max_idle_ms=400")
    greedy = connect(server, timeout_s=60.0)
    frame = encode_request_header(10, 2, 1, "raw") + FindCoordinatorRequest(key="30000").encode(2) + bytes(3000)
    with pytest.raises((ConnectionError, ssl.SSLEOFError)):
        # The server does not read from the client while its responses cannot be sent, so it sees no end of the
        # connection.
        greedy.send_bytes((struct.pack(">i", len(frame)) + frame) * 20_000)


def test_only_idle_connections_are_closed(start, connect):
    server = start("connections_max_idle_ms=100000")
    idle, busy = connect(server), connect(server)
    for _ in range(12):
        assert answers(busy)
        server.advance_ms(10_000)
    assert idle.at_end()
    assert answers(busy)


def test_a_connection_whose_authentication_never_ends_is_closed(start, connect):
    client = connect(start("authenticator=endless", "connection_setup_timeout_ms=400"))

    def go_on():
        for _ in range(100):
            client.send_frame(b"again")
            assert client.receive_frame() == b"again"
            threading.Event().wait(0.1)

    with pytest.raises(ConnectionError):
        go_on()


def test_connections_are_assigned_to_processors_in_turn(start, connect):
    server = start("processors=3")
    clients = [connect(server) for _ in range(6)]
    assert all(map(answers, clients))
    assert [p.connection_count for p in server.server.listeners[0].processors] == [2, 2, 2]


def test_every_gate_is_released_for_every_connection(start, connect):
    server = start('gates=["fussy"]')
    clients = [connect(server) for _ in range(10)]
    assert all(map(answers, clients))
    clients[0].send_bytes(struct.pack(">i", -1))
    assert clients[0].at_end()
    for client in clients:
        client.close()
    server.stop()
    (gate,) = GATES
    assert (gate.admitted, gate.released) == (10, 10)


@pytest.mark.parametrize("say", ["refuse", "raise", "delay"])
def test_a_gate_that_refuses_delays_or_raises_admits_no_connection(start, connect, say):
    server = start('gates=["fussy"]', f"listeners.default.fussy.say={say}")
    with pytest.raises(ConnectionError):
        answers(connect(server))
    acceptor = server.server.listeners[0].acceptor
    assert sum((acceptor.outcomes.delayed if say == "delay" else acceptor.outcomes.refused).values()) == 1


def test_clients_are_served_while_observers_and_throttles_raise(start, connect):
    server = start(
        'gates=["fussy"]',
        "listeners.default.fussy.say=raise-later",
        'observers=["tell_tale"]',
        "listeners.default.tell_tale.say=raise",
        'throttles=["slow_down"]',
        "listeners.default.slow_down.throttle_time_ms=-1",
    )
    for _ in range(3):
        with_one = connect(server)
        assert answers(with_one)
        assert heartbeat(with_one, "raise").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        with_one.close()
    assert answers(connect(server))


def test_observers_are_notified_of_connections_and_requests(start, connect):
    server = start('observers=["tell_tale"]')
    client = connect(server)
    answers(client)
    heartbeat(client, "kafka-error")
    client.call(SyncGroupRequest(group_id="at-once"), 5)
    client.close()
    server.stop()
    (observer,) = OBSERVERS
    kinds = [event[0] for event in observer.events]
    assert kinds == ["opened", "completed", "completed", "completed", "closed"]
    events = [event[1] for event in observer.events if event[0] == "completed"]
    assert [event.context.api_key for event in events] == [3, 12, 14]
    assert [event.error_code for event in events] == [0, ErrorCode.COORDINATOR_NOT_AVAILABLE, 0]
    assert all(event.response_bytes > 0 and event.times.total_ns >= event.times.local_ns > 0 for event in events)


@pytest.mark.parametrize("dispatch", ["inline", "pool"])
def test_a_throttled_client_is_answered_at_once_and_its_next_request_waits(start, connect, dispatch):
    server = start(
        'throttles=["slow_down"]', "listeners.default.slow_down.throttle_time_ms=60000", f"dispatch={dispatch}"
    )
    client = connect(server)
    assert client.call(MetadataRequest(topics=None), 12).throttle_time_ms == 60_000
    correlation_id = client.send(MetadataRequest(topics=None), 12)
    server.advance_ms(30_000)
    assert is_silent(client)
    server.advance_ms(30_000)
    client.receive(MetadataRequest.API_KEY, 12, correlation_id)


def test_a_stop_waits_for_running_requests(start, connect):
    server = start()
    client = connect(server)
    correlation_id = client.send(HeartbeatRequest(group_id="block"), 4)
    assert server.api_set("trying").arrived.acquire(timeout=60)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    server.api_set("trying").release.set()
    assert client.receive(12, 4, correlation_id).error_code == 0
    stopping.join(60)
    assert not stopping.is_alive()
    with pytest.raises(ConnectionError):
        connect(server)
