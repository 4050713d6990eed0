"""Tests of a gateway that chooses the node by host name (SNI), and of its logins to nodes.

The gateway logs in with one account, with an account for each principal, or passes on the client's own login.
"""

import pytest

from klamm import ErrorCode
from klamm.server.server import StartError
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.headers import decode_request_header
from klamm.wire.messages import sasl_authenticate, sasl_handshake
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.audit_spool import events_of, read_segment
from tests.contract.gateway_nodes import FakeNode, answer_with, gateway, response
from tests.contract.test_gateway import failures
from tests.sasl_client import authenticate, handshake, log_in, plain, send_token, users_setting
from tests.tls_files import TlsFiles

HEARTBEAT = HeartbeatResponse(0, 0).encode(4)
OWN_ACCOUNT = ("gateway", "its password")


class LoginNode(FakeNode):
    """A node that requires PLAIN.

    `users` has the passwords, and `logged_in` the names of the users that logged in, in order.
    """

    def __init__(self, users, mechanisms=("PLAIN", "GSSAPI")):
        super().__init__(_serve)
        self.users, self.mechanisms, self.logged_in = users, list(mechanisms), []


def _serve(node, sock, frame):
    key, version, correlation_id, _client, offset = decode_request_header(frame)
    if key == sasl_handshake.API_KEY:
        body = SaslHandshakeResponse(0, node.mechanisms).encode(version)
    elif key == sasl_authenticate.API_KEY:
        _, user, password = SaslAuthenticateRequest.decode(version, frame, offset).auth_bytes.decode().split("\0")
        right = node.users.get(user) == password
        node.logged_in += [user] if right else []
        answer = SaslAuthenticateResponse() if right else SaslAuthenticateResponse(58, "no")
        body = answer.encode(version)
    else:
        body = HEARTBEAT
    sock.sendall(response(correlation_id, key, version, body))


@pytest.fixture
def upstream(tmp_path):
    """Return `upstream("principal", …)`, which returns settings with which a gateway logs in to a `LoginNode`."""

    def settings(login, *more):
        (tmp_path / "password").write_text(OWN_ACCOUNT[1])
        own = [
            "security_protocol=SASL_PLAINTEXT",
            "sasl_mechanism=PLAIN",
            f"sasl_username={OWN_ACCOUNT[0]}",
            f"sasl_password_file={tmp_path / 'password'}",
            f"login={login}",
            *more,
        ]
        return [f"gateway.upstream.{one}" for one in own]

    return settings


def front_sasl(**users):
    return [
        "listeners.default.authenticator=sasl",
        'listeners.default.sasl.mechanisms=["PLAIN"]',
        f"listeners.default.{users_setting(**users)}",
    ]


# ---- host names


def test_each_host_name_leads_to_its_node_through_one_port(tmp_path):
    files = TlsFiles(tmp_path)
    files.server = files.issue("front", "CN=front", hosts=("front.test", "*.front.test"))
    tls = [line for line in files.server_settings() if "trust_store" not in line]
    settings = [*tls, "gateway.nodes=sni", "gateway.node_ports=", "listeners.default.advertise=front.test:9092"]
    with FakeNode(answer_with(HEARTBEAT), 1) as one, FakeNode(answer_with(HEARTBEAT), 12) as two:
        one.brokers = two.brokers = {1: one.port, 12: two.port}
        with gateway(one.bootstrap, settings) as front:

            def client(name):
                return RawClient(front.address(), ssl_context=files.client_context(), server_hostname=name)

            with client("front.test") as any_node:
                brokers = any_node.call(MetadataRequest([]), 9).brokers
            assert {each.node_id: (each.host, each.port) for each in brokers} == {
                1: ("broker-1.front.test", 9092),
                12: ("broker-12.front.test", 9092),
            }
            for name, node in (("broker-1.front.test", one), ("BROKER-12.front.test", two)):
                with client(name) as reached:
                    reached.call(HeartbeatRequest("g"), 4)
                assert len(node.frames) == 1
            with client("broker-7.front.test") as unknown:
                unknown.send(HeartbeatRequest("g"), 4)
                assert unknown.at_end()
            assert failures(front) == {"unknown_node": 1}


def test_host_names_of_nodes_require_tls():
    with FakeNode() as node:
        front = gateway(node.bootstrap, ["gateway.nodes=sni"])
        with pytest.raises(StartError, match='nodes = "sni" needs TLS'):
            front.start()


# ---- an account for each principal


ACCOUNTS = """
["User:alice"]
username = "alice-there"
password = "a"
"""


def bob_only(principal):
    if principal == "User:mallory":
        raise ZeroDivisionError("on purpose")
    return ("bob-there", "b") if principal == "User:bob" else None


@pytest.mark.parametrize("source", ["file", "function"])
def test_the_gateway_logs_in_with_the_account_of_each_principal(tmp_path, upstream, source):
    (tmp_path / "accounts").write_text(ACCOUNTS)
    setting = {"file": f"accounts_file={tmp_path / 'accounts'}", "function": f"accounts_function={__name__}:bob_only"}
    known, unknown = ("alice", "bob") if source == "file" else ("bob", "alice")
    with LoginNode({OWN_ACCOUNT[0]: OWN_ACCOUNT[1], "alice-there": "a", "bob-there": "b"}) as node:
        settings = [*front_sasl(alice="x", bob="y", mallory="z"), *upstream("principal", setting[source])]
        passwords = {"alice": "x", "bob": "y", "mallory": "z"}
        with gateway(node.bootstrap, settings) as front:
            with RawClient(front.address()) as client:
                assert log_in(client, "PLAIN", known, passwords[known]).error_code == 0
                client.call(HeartbeatRequest("g"), 4)
            assert node.logged_in[-1] == f"{known}-there"
            for user in (unknown, "mallory"):
                with RawClient(front.address()) as client:
                    assert log_in(client, "PLAIN", user, passwords[user]).error_code == 0
                    client.send(HeartbeatRequest("g"), 4)
                    assert client.at_end()
            assert failures(front) == {"no_account": 2}
    assert set(node.logged_in) == {OWN_ACCOUNT[0], f"{known}-there"}


def test_a_wrong_file_of_accounts_stops_the_start(tmp_path, upstream):
    (tmp_path / "accounts").write_text('["User:alice"]\nusername = "a"\npasword = "b"\n')
    with LoginNode({}) as node:
        front = gateway(node.bootstrap, upstream("principal", f"accounts_file={tmp_path / 'accounts'}"))
        with pytest.raises(StartError, match=r'accounts:3:1.*pasword: unknown key; did you mean "password"'):
            front.start()


# ---- the client itself


@pytest.fixture
def audited(tmp_path):
    """Return `audited()`, which returns the audit's events. `audited.settings` let a gateway record them."""

    def events(api_name):
        return [each for each in events_of(tmp_path / "spool") if each.get("api_name") == api_name]

    events.settings = [
        'listeners.default.observers=["audit"]', f"listeners.default.audit.spool={tmp_path / 'spool'}",
        "listeners.default.audit.node=node-1",
    ]  # fmt: skip
    return events


def test_a_client_logs_in_to_the_node_itself(tmp_path, upstream, audited):
    with (
        LoginNode({OWN_ACCOUNT[0]: OWN_ACCOUNT[1], "alice": "her own"}) as node,
        gateway(node.bootstrap, [*upstream("client"), *audited.settings]) as front,
        RawClient(front.address()) as client,
    ):
        offered = {one.api_key: one.min_version for one in client.call(ApiVersionsRequest("t", "1"), 3).api_keys}
        assert offered[sasl_handshake.API_KEY] == 1
        shaken = handshake(client, "PLAIN")
        assert (shaken.error_code, shaken.mechanisms) == (0, ["PLAIN"]), "GSSAPI is not offered"
        assert send_token(client, plain("alice", "her own")).error_code == 0
        client.call(HeartbeatRequest("g"), 4)
        assert node.logged_in[-1] == "alice"
    (event,) = audited("Heartbeat")
    assert event["principal"] == "User:alice"
    assert "her own" not in b"".join(map(read_segment, (tmp_path / "spool").rglob("*.jsonl*"))).decode()


@pytest.mark.parametrize("token_first", [True, False])
def test_requests_sent_before_the_login_is_answered_have_the_clients_principal(upstream, audited, token_first):
    """The client sends all requests at once.

    The node handles them in order, and the audit knows the client of each request.
    """
    with LoginNode({OWN_ACCOUNT[0]: OWN_ACCOUNT[1], "alice": "her own"}) as node:
        with (
            gateway(node.bootstrap, [*upstream("client"), *audited.settings]) as front,
            RawClient(front.address()) as client,
        ):
            requests = [(SaslAuthenticateRequest(plain("alice", "her own")), 2)]
            if token_first:
                handshake(client, "PLAIN")
            else:
                requests.insert(0, (SaslHandshakeRequest("PLAIN"), 1))
            # The second token comes after the end of the login, and the node must not answer it.
            requests += [requests[-1], (HeartbeatRequest("g"), 4)]
            sent = [(one.API_KEY, version, client.send(one, version)) for one, version in requests]
            assert [client.receive(*each).error_code for each in sent] == [0] * len(sent)
        assert node.logged_in[-1] == "alice"
    (event,) = audited("Heartbeat")
    assert event["principal"] == "User:alice"


@pytest.mark.parametrize("extension", [",n=alice", ",tokenauth=false", ",tokenauth=true,tokenauth=no"])
def test_the_principal_of_a_scram_login_is_the_name_that_the_node_checks(upstream, audited, extension):
    """An extension of the client's first message may look like a user name, or like the mark of a delegation token."""
    guarded = [
        "listeners.default.authenticator=sasl",
        'listeners.default.sasl.mechanisms=["SCRAM-SHA-256", "PLAIN"]',
        f"listeners.default.{users_setting(**{OWN_ACCOUNT[0]: OWN_ACCOUNT[1], 'mallory': 'm'})}",
    ]
    with (
        EmbeddedServer(guarded) as broker,
        gateway(broker.bootstrap, [*upstream("client"), *audited.settings]) as front,
        RawClient(front.address()) as client,
    ):
        assert authenticate(client, "SCRAM-SHA-256", "mallory", "m", extensions=extension).error_code == 0
        client.call(HeartbeatRequest("g"), 4)
    (event,) = audited("Heartbeat")
    assert event["principal"] == "User:mallory"


def test_logins_at_the_node_are_recorded(tmp_path, upstream, audited):
    with (
        LoginNode({OWN_ACCOUNT[0]: OWN_ACCOUNT[1], "bob": "b"}) as node,
        gateway(node.bootstrap, [*upstream("client"), *audited.settings]) as front,
        RawClient(front.address()) as client,
    ):
        for user, password in (("alice", "guess"), ("bob", "b"), ("alice", "guess")):
            assert handshake(client, "PLAIN").error_code == 0
            refused = user == "alice"
            error = ErrorCode.SASL_AUTHENTICATION_FAILED if refused else ErrorCode.NONE
            assert send_token(client, plain(user, password)).error_code == error
    assert "alice" not in node.logged_in
    logins = [each for each in events_of(tmp_path / "spool") if each["kind"] == "authentication"]
    reason = "the node refuses the login: error 58: no"
    keys = ("action", "principal", "attempted_principal", "reason")
    assert [tuple(each.get(key) for key in keys) for each in logins] == [
        ("failure", "User:ANONYMOUS", "User:alice", reason),
        ("success", "User:bob", None, None),
        ("reauthentication_failure", "User:bob", "User:alice", reason),
    ]


def test_an_address_that_guesses_passwords_of_a_node_over_tls_gets_a_penalty(tmp_path, upstream):
    """The penalty counts failed logins by address. A handshake alone counts as neither failed nor successful."""
    files = TlsFiles(tmp_path)
    tls = [line for line in files.server_settings() if "trust_store" not in line]
    gate = [
        'listeners.default.gates=["authentication_penalty"]',
        "listeners.default.authentication_penalty.allowed_failures=2",
    ]
    metric = "klamm:type=AuthenticationPenalty,name=PenalizedAddresses"
    with (
        LoginNode({OWN_ACCOUNT[0]: OWN_ACCOUNT[1], "bob": "b"}) as node,
        gateway(node.bootstrap, [*upstream("client"), *tls, *gate]) as front,
    ):

        def log_in_as(user, password):
            with RawClient(front.address(), ssl_context=files.client_context()) as client:
                assert handshake(client, "PLAIN").error_code == 0
                return send_token(client, plain(user, password)).error_code

        def penalized():
            (family,) = front.server.services.metrics.collect(lambda name: name == metric)
            return family.samples[0].value

        for _ in range(4):
            assert log_in_as("alice", "guess") == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert log_in_as("bob", "b") == ErrorCode.NONE
            assert penalized() == 0, "a login pays for one failure"
        for _ in range(3):
            assert log_in_as("alice", "guess") == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert penalized() == 1


def test_gssapi_is_refused_because_its_tokens_name_the_server(upstream):
    with LoginNode({OWN_ACCOUNT[0]: OWN_ACCOUNT[1]}) as node, gateway(node.bootstrap, upstream("client")) as front:
        seen = len(node.frames)
        with RawClient(front.address()) as client:
            assert handshake(client, "GSSAPI").error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert len(node.frames) == seen


def test_a_client_is_closed_if_its_connection_to_the_node_is_lost_after_the_login(upstream):
    with (
        LoginNode({OWN_ACCOUNT[0]: OWN_ACCOUNT[1], "alice": "a"}) as node,
        gateway(node.bootstrap, upstream("client")) as front,
        RawClient(front.address()) as client,
    ):
        handshake(client, "PLAIN")
        assert send_token(client, plain("alice", "a")).error_code == 0
        node.cut()
        assert client.at_end()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (front_sasl(alice="x"), "passes SASL on"),
        (["listeners.default.authorizer=static", "listeners.default.static.rules=[]"], "lets the cluster authorize"),
    ],
)
def test_the_gateway_does_not_start_if_its_listener_must_know_the_client_itself(upstream, settings, problem):
    with LoginNode({OWN_ACCOUNT[0]: OWN_ACCOUNT[1]}) as node:
        front = gateway(node.bootstrap, [*upstream("client"), *settings])
        with pytest.raises(StartError, match=problem):
            front.start()
