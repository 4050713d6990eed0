"""Tests of SASL over real sockets and every transport: right and wrong logins, sessions, delays and limits."""

import struct
import time

import pytest

from klamm import ErrorCode
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.contract.api_sets import OBSERVERS
from tests.sasl_client import authenticate, handshake, log_in, plain, send_token, users_setting

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = users_setting(alice="sesame", bob="opens")


def framed(request, version, correlation_id):
    frame = encode_request_header(request.API_KEY, version, correlation_id, "raw") + request.encode(version)
    return struct.pack(">i", len(frame)) + frame


@pytest.fixture
def serve(start):
    """Yield `serve(…)`, which starts a server whose only listener requires SASL."""

    def one(*settings):
        names = ", ".join(f'"{name}"' for name in MECHANISMS)
        return start("authenticator=sasl", f"listeners.default.sasl.mechanisms=[{names}]", "listeners.default." + USERS,
                     "connection_failed_authentication_delay_ms=20", *settings)  # fmt: skip

    return one


def is_out(server, client):
    """Return True if no request of the client was served and the connection ends."""
    try:
        client.send(MetadataRequest(topics=None), 12)
    except ConnectionError:
        return server.api_set("trying").seen == []
    assert client.at_end()
    return server.api_set("trying").seen == []


def is_in(server, client, user):
    """Return True if the client is served under its name."""
    assert client.call(MetadataRequest(topics=None), 12).brokers
    return server.api_set("trying").seen[-1].principal.name == user


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_right_credentials_are_accepted(serve, connect, mechanism):
    server = serve('observers=["tell_tale"]')
    client = connect(server)
    assert log_in(client, mechanism, "alice", "sesame").error_code == 0
    assert is_in(server, client, "alice")
    connection = server.api_set("trying").seen[-1].connection
    assert connection.sasl_mechanism == mechanism
    assert connection.listener.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")
    (observer,) = OBSERVERS
    assert [event[1].principal.name for event in observer.events if event[0] == "opened"] == ["alice"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "opens"), ("nobody", "sesame")])
def test_wrong_credentials_are_refused(serve, connect, mechanism, user, password, caplog):
    server = serve()
    client = connect(server)
    response = log_in(client, mechanism, user, password)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert is_out(server, client)
    assert f"authentication failed: mechanism={mechanism}" in caplog.text
    assert password not in caplog.text


@pytest.mark.parametrize(
    "way",
    [
        "no handshake",
        "nothing but versions",
        "unknown mechanism",
        "handshake alone",
        "token before handshake",
        "garbage",
    ],
)
def test_frames_that_do_not_belong_to_sasl_close_the_connection(serve, connect, way):
    server = serve()
    client = connect(server)
    if way == "nothing but versions":
        client.call(ApiVersionsRequest("x", "1"), 3)
    elif way == "unknown mechanism":
        response = handshake(client, "NONE")
        assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, list(MECHANISMS))
    elif way == "handshake alone":
        handshake(client, "PLAIN")
        response = client.call(MetadataRequest(topics=None), 12)
        assert (response.error_code, response.brokers) == (0, [])
    elif way == "token before handshake":
        client.send(SaslAuthenticateRequest(plain("alice", "sesame")), 2)
    elif way == "garbage":
        client.send_frame(b"\x16\x03\x01 what is this")
    assert is_out(server, client)


@pytest.mark.parametrize("right", [True, False])
def test_tokens_after_handshake_v0_have_no_header(serve, connect, right):
    server = serve()
    client = connect(server)
    handshake(client, "PLAIN", version=0)
    client.send_frame(plain("alice", "sesame" if right else "wrong"))
    if right:
        assert client.receive_frame() == b""
        assert is_in(server, client, "alice")
    else:
        assert is_out(server, client)


def test_only_an_authenticated_client_learns_that_it_reached_another_node():
    """Before authentication the server says nothing about its node and cluster, as in Kafka."""
    settings = [f"listeners.default.{each}" for each in ("authenticator=sasl", 'sasl.mechanisms=["PLAIN"]', USERS)]
    means = ApiVersionsRequest("x", "1", "another", 7)
    with EmbeddedServer(settings) as server, RawClient(server.address()) as client:
        assert client.call(means, 5).error_code == ErrorCode.NONE
        assert authenticate(client, "PLAIN", "alice", "sesame").error_code == ErrorCode.NONE
        assert client.call(means, 5).error_code == ErrorCode.REBOOTSTRAP_REQUIRED


def test_api_versions_offers_the_apis_of_sasl(serve, connect):
    response = connect(serve()).call(ApiVersionsRequest("x", "1"), 3)
    listed = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert listed[17] == (0, 1)
    assert listed[36] == (0, 2)
    assert 3 in listed


def test_a_client_may_send_the_whole_login_and_a_request_at_once(serve, connect):
    server = serve()
    client = connect(server)
    client.send_bytes(
        framed(ApiVersionsRequest("x", "1"), 3, 1)
        + framed(SaslHandshakeRequest("PLAIN"), 1, 2)
        + framed(SaslAuthenticateRequest(plain("alice", "sesame")), 2, 3)
        + framed(MetadataRequest(topics=None), 12, 4)
        + framed(FindCoordinatorRequest(key="5"), 2, 5)
    )
    client.receive(18, 3, 1)
    client.receive(17, 1, 2)
    assert client.receive(36, 2, 3).error_code == 0
    assert client.receive(3, 12, 4).brokers
    client.receive(10, 2, 5)
    assert [context.principal.name for context in server.api_set("trying").seen] == ["alice"]


def test_requests_after_a_wrong_password_are_not_served(serve, connect):
    server = serve()
    client = connect(server)
    client.send_bytes(
        framed(SaslHandshakeRequest("PLAIN"), 1, 1)
        + framed(SaslAuthenticateRequest(plain("alice", "wrong")), 2, 2)
        + framed(MetadataRequest(topics=None), 12, 3)
    )
    client.receive(17, 1, 1)
    assert client.receive(36, 2, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.at_end()
    assert server.api_set("trying").seen == []


def test_the_size_of_frames_before_authentication_is_limited(serve, connect):
    server = serve("listeners.default.sasl.server_max_receive_size=1000")
    small = connect(server)
    small.send_bytes(struct.pack(">i", 1001))
    assert small.at_end()
    client = connect(server)
    assert log_in(client, "PLAIN", "alice", "sesame").error_code == 0
    frame = encode_request_header(10, 2, 9, "raw") + FindCoordinatorRequest(key="5").encode(2)
    client.send_frame(frame + bytes(5000))
    client.receive(10, 2, 9)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_the_response_to_a_wrong_password_is_delayed(serve, connect, mechanism):
    server = serve("connection_failed_authentication_delay_ms=300")
    client = connect(server)
    started_s = time.monotonic()
    response = log_in(client, mechanism, "alice", "wrong")
    assert time.monotonic() - started_s >= 0.3
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.at_end()


def test_a_handshake_after_authentication_is_an_illegal_state(serve, connect):
    server = serve()
    client = connect(server)
    log_in(client, "PLAIN", "alice", "sesame")
    assert handshake(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert send_token(client, b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_in(server, client, "alice")


def test_a_renewed_session_continues(serve, connect):
    server = serve("listeners.default.sasl.connections_max_reauth_ms=150000")
    client = connect(server)
    assert log_in(client, "SCRAM-SHA-512", "alice", "sesame").session_lifetime_ms == 150_000
    for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-512"):
        server.advance_ms(100_000)
        assert is_in(server, client, "alice")
        assert authenticate(client, mechanism, "alice", "sesame").session_lifetime_ms == 150_000
    assert is_in(server, client, "alice")


def test_a_session_that_is_not_renewed_ends_with_the_next_request(serve, connect):
    server = serve("listeners.default.sasl.connections_max_reauth_ms=100000")
    late, renewing = connect(server), connect(server)
    log_in(late, "PLAIN", "alice", "sesame")
    log_in(renewing, "PLAIN", "alice", "sesame")
    server.advance_ms(200_000)
    assert authenticate(renewing, "PLAIN", "alice", "sesame").error_code == 0, "even now"
    assert is_in(server, renewing, "alice")
    del server.api_set("trying").seen[:]
    assert is_out(server, late)


@pytest.mark.parametrize(
    ("user", "password", "message"),
    [
        ("alice", "wrong", "Authentication failed: Invalid username or password"),
        ("bob", "opens", "Cannot change principals during re-authentication from User.alice: User.bob"),
    ],
)
def test_a_failed_reauthentication_ends_the_connection(serve, connect, user, password, message):
    server = serve("listeners.default.sasl.connections_max_reauth_ms=60000")
    client = connect(server)
    log_in(client, "PLAIN", "alice", "sesame")
    assert is_in(server, client, "alice")
    response = authenticate(client, "PLAIN", user, password)
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, message)
    del server.api_set("trying").seen[:]
    assert is_out(server, client)


def test_no_request_is_served_during_a_reauthentication(serve, connect):
    server = serve("listeners.default.sasl.connections_max_reauth_ms=60000")
    client = connect(server)
    log_in(client, "PLAIN", "alice", "sesame")
    handshake(client, "PLAIN")
    client.call(MetadataRequest(topics=None), 12)
    assert is_out(server, client)


def test_clients_that_disconnect_in_the_middle_affect_no_other_client(serve, connect):
    server = serve()
    for _ in range(20):
        client = connect(server)
        handshake(client, "PLAIN")
        client.send(SaslAuthenticateRequest(plain("alice", "wrong")), 2)
        client.close()
    client = connect(server)
    assert log_in(client, "PLAIN", "alice", "sesame").error_code == 0
    assert is_in(server, client, "alice")


def test_many_wrong_passwords_delay_no_connected_client(serve, connect):
    server = serve()
    client = connect(server)
    log_in(client, "PLAIN", "alice", "sesame")
    crowd = [connect(server) for _ in range(60)]
    for one in crowd:
        one.send_bytes(
            framed(SaslHandshakeRequest("PLAIN"), 1, 1) + framed(SaslAuthenticateRequest(plain("alice", "wrong")), 2, 2)
        )
    for _ in range(20):
        assert is_in(server, client, "alice")
    again = connect(server)
    assert log_in(again, "PLAIN", "alice", "sesame").error_code == 0, "remembered: it need not queue"
    for one in crowd:
        one.receive(17, 1, 1)
        assert one.receive(36, 2, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert one.at_end()
