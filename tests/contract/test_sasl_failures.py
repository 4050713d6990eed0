"""Every way to fail an authentication, over real sockets: no such client is served, and the log has the reason."""

import ast
import base64
import itertools
import json
import threading
import time
from pathlib import Path

import pytest
import scramp
from joserfc import jws
from joserfc.jwk import RSAKey

import klamm_sasl
from klamm import KafkaPrincipal
from klamm.sasl import DELEGATION_TOKENS, DelegationToken, DelegationTokenCache, ScramCredential, ScramMechanism
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.audit_spool import events_of
from tests.contract.api_sets import Plugin
from tests.contract.test_sasl import is_in, is_out
from tests.sasl_client import authenticate, handshake, log_in, plain, send_token, users_setting

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "EXTERNAL")
USERS = users_setting(alice="sesame", bob="opens")
KEY, OTHER_KEY = (RSAKey.generate_key(2048, {"kid": name}) for name in ("known", "unknown"))
NOW_S = int(time.time())
asked, answer = threading.Event(), threading.Event()


def directory(user, password):
    """A credential store that fails for one user and hangs for another."""
    if user == "broken":
        raise OSError("the directory does not answer")
    if user == "slow":
        asked.set()
        return answer.wait(60)
    return None


def no_verifier(user, mechanism):
    if user == "broken":
        raise OSError("the directory does not answer")


def bearer(key=KEY, **changes):
    """Return the first message of OAUTHBEARER with a token. `changes` make the token invalid."""
    claims = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 86_400, "aud": "kafka", "iss": "idp", "scope": "use"}
    claims = {name: value for name, value in {**claims, **changes}.items() if value is not None}
    token = jws.serialize_compact({"alg": "RS256", "kid": key.kid}, json.dumps(claims).encode(), key)
    return bearer_message(token)


def bearer_message(token, authzid=""):
    return f"n,{authzid},\x01auth=Bearer {token}\x01\x01".encode()


def unsigned(header, payload, signature=""):
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, payload))
    return bearer_message(".".join([*parts, signature]))


def changed_last(change):
    """Log in as alice by SCRAM, with a changed last message."""

    def go(_server, client):
        handshake(client, "SCRAM-SHA-256")
        scram = scramp.ScramClient(["SCRAM-SHA-256"], "alice", "sesame")
        response = send_token(client, scram.get_client_first().encode())
        scram.set_server_first(response.auth_bytes.decode())
        assert send_token(client, change(scram.get_client_final().encode())).error_code

    return go


def token(mechanism, message):
    """Send a message that fails. A bearer token is refused in two steps."""

    def go(_server, client):
        handshake(client, mechanism)
        response = send_token(client, message)
        if mechanism == "OAUTHBEARER" and not response.error_code:
            assert "status" in json.loads(response.auth_bytes)
            response = send_token(client, b"\x01")
        assert response.error_code

    return go


def raw(mechanism, *messages):
    """Send handshake v0 and messages without headers. The last one fails."""

    def go(_server, client):
        handshake(client, mechanism, version=0)
        for message in messages[:-1]:
            client.send_frame(message)
            assert client.receive_frame()
        client.send_frame(messages[-1])

    return go


def raw_scram(_server, client):
    handshake(client, "SCRAM-SHA-512", version=0)
    scram = scramp.ScramClient(["SCRAM-SHA-512"], "alice", "wrong")
    client.send_frame(scram.get_client_first().encode())
    scram.set_server_first(client.receive_frame().decode())
    client.send_frame(scram.get_client_final().encode())


def credentials(mechanism, user, password, extensions=""):
    return lambda _server, client: log_in(client, mechanism, user, password, extensions)


def delegation_token(password, expires_in_s):
    def go(server, client):
        now_ms, owner = int(time.time() * 1000), KafkaPrincipal("owner")
        proofs = {
            one: ScramCredential.from_password(one, "the hmac", b"a salt of 24 characters.") for one in ScramMechanism
        }
        made = DelegationToken(
            "token-1", owner, owner, (), now_ms, now_ms + expires_in_s * 1000, now_ms + 10**9, proofs
        )  # fmt: skip
        server.server.services.shared.once(DELEGATION_TOKENS, DelegationTokenCache).tokens = {"token-1": made}
        assert log_in(client, "SCRAM-SHA-256", "token-1", password, ",tokenauth=true").error_code

    return go


def again(go):
    """Authenticate correctly, and then fail in the same way when authenticating again."""

    def begin(server, client):
        assert log_in(client, "PLAIN", "alice", "sesame").error_code == 0
        assert is_in(server, client, "alice")
        del server.api_set("trying").seen[:]
        go(server, client)

    return begin


def two_versions(_server, client):
    assert client.call(ApiVersionsRequest("x", "1"), 3).error_code == 0
    client.send(ApiVersionsRequest("x", "1"), 3)


def only_versions(_server, client):
    assert client.call(ApiVersionsRequest("x", "1"), 3).error_code == 0


def request_for_a_token(_server, client):
    handshake(client, "PLAIN")
    assert client.call(MetadataRequest(topics=None), 12).brokers == []


def other_mechanism(_server, client):
    handshake(client, "SCRAM-SHA-256")
    client.send(SaslAuthenticateRequest(b"x"), 2)


def frame(data, mechanism=None):
    def go(_server, client):
        if mechanism is not None:
            handshake(client, mechanism)
        client.send_frame(data)

    return go


def stays_silent(server, client):
    handshake(client, "PLAIN")
    server.advance_ms(LATE_MS)
    assert client.at_end()


def is_evaluated_too_long(server, client):
    handshake(client, "PLAIN")
    client.send(SaslAuthenticateRequest(plain("slow", "x")), 2)
    assert asked.wait(60)
    server.advance_ms(LATE_MS)


PROOF = base64.b64encode(bytes(32))
LATE_MS = 61_000
TOO_LATE = "not ready within connection_setup_timeout_ms"
WAYS = [
    # the protocol
    ("neither ApiVersions nor SaslHandshake", lambda _server, client: None),
    ("the first request is neither", frame(b"\x16\x03\x01 what is this")),
    ("a frame cannot be parsed", frame(b"\0", "PLAIN")),
    ("ApiVersions in state HANDSHAKE_REQUEST", two_versions),
    ("METADATA before authentication", only_versions),
    ("Unexpected Kafka request of type METADATA", request_for_a_token),
    ("unsupported SASL mechanism 'NONE'", lambda _server, client: handshake(client, "NONE")),
    ("invalid receive", frame(bytes(5000))),
    ("invalid receive", frame(bytes(5000), "PLAIN")),
    (TOO_LATE, stays_silent),
    (TOO_LATE, is_evaluated_too_long),
    # PLAIN
    ("user 'alice': wrong password, or no such user", credentials("PLAIN", "alice", "wrong")),
    ("user 'zoe': wrong password, or no such user", credentials("PLAIN", "zoe", "sesame")),
    ("user 'broken': a store failed", credentials("PLAIN", "broken", "x")),
    ("user 'alice' requests the authorization id 'bob'", token("PLAIN", b"bob\0alice\0sesame")),
    ("username not specified", token("PLAIN", b"\0\0sesame")),
    ("password not specified", token("PLAIN", b"\0alice\0")),
    ("Invalid SASL/PLAIN response: expected 3 tokens, got 1", token("PLAIN", b"alice")),
    ("a PLAIN message is not UTF-8", token("PLAIN", b"\0alice\0\xff")),
    ("wrong password, or no such user", raw("PLAIN", plain("alice", "wrong"))),
    # SCRAM
    ("user 'alice': wrong credentials, or no such user", credentials("SCRAM-SHA-256", "alice", "wrong")),
    ("user 'zoe': wrong credentials, or no such user", credentials("SCRAM-SHA-512", "zoe", "sesame")),
    ("mechanism SCRAM-SHA-256 failed: OSError", credentials("SCRAM-SHA-256", "broken", "x")),
    ("user 'alice': wrong credentials, or no such user", raw_scram),
    ("a SCRAM message is not UTF-8", token("SCRAM-SHA-256", b"\xff")),
    ("invalid SCRAM client first message", token("SCRAM-SHA-256", b"x")),
    ("different from username", token("SCRAM-SHA-256", b"n,a=bob,n=alice,r=abc")),
    ("invalid SCRAM client final message", changed_last(lambda last: b"x")),
    ("invalid base64 in a SCRAM client final", changed_last(lambda last: last[:-1])),
    ("channel binding differs from the first", changed_last(lambda last: last.replace(b"c=biws", b"c=eSws"))),
    ("the nonce differs from the server first message", changed_last(lambda last: last.replace(b",p=", b"x,p="))),
    ("the proof has the wrong length", changed_last(lambda last: last.partition(b",p=")[0] + b",p=AAAA")),
    ("wrong credentials, or no such user", changed_last(lambda last: last.partition(b",p=")[0] + b",p=" + PROOF)),
    ("wrong credentials, or no such user", delegation_token("the hmac", -1)),
    ("wrong credentials, or no such user", delegation_token("not the hmac", 600)),
    # OAUTHBEARER
    ("the token has expired", token("OAUTHBEARER", bearer(exp=NOW_S - 60))),
    ("the token is not valid yet", token("OAUTHBEARER", bearer(nbf=NOW_S + 86_400))),
    ("the token expires before it was issued", token("OAUTHBEARER", bearer(iat=NOW_S + 90_000))),
    ("the token has no time in the claim 'iat'", token("OAUTHBEARER", bearer(iat=None))),
    ("the token is from another issuer", token("OAUTHBEARER", bearer(iss="other"))),
    ("the token is for another audience", token("OAUTHBEARER", bearer(aud="other"))),
    ("the token lacks the scope 'use'", token("OAUTHBEARER", bearer(scope="view"))),
    ("has scopes that are neither a string nor a list of strings", token("OAUTHBEARER", bearer(scope=7))),
    ("the token has no name in the claim 'sub'", token("OAUTHBEARER", bearer(sub=None))),
    ("the token is signed with a key that is not known", token("OAUTHBEARER", bearer(OTHER_KEY))),
    (
        "the token has a signature that does not match",
        token("OAUTHBEARER", bearer().replace(b"\x01\x01", b"A\x01\x01")),
    ),
    ("is signed with 'HS256', which is not accepted", token("OAUTHBEARER", unsigned({"alg": "HS256"}, {}, "AA"))),
    ("the token is not signed", token("OAUTHBEARER", unsigned({"alg": "none"}, {"sub": "alice"}))),
    ("the token is not an unsecured token of three parts", token("OAUTHBEARER", unsigned({"alg": "none"}, {}, "AA")),
     "listeners.default.sasl.OAUTHBEARER.unsecured_development_tokens=true"),
    ("the token is not a JWT", token("OAUTHBEARER", bearer_message("a.b.c"))),
    ("Authentication failed: Client requested an authorization id (bob) that is different",
     token("OAUTHBEARER", bearer().replace(b"n,,", b"n,a=bob,"))),
    ("an OAUTHBEARER message is not UTF-8", token("OAUTHBEARER", b"\xff")),
    ("invalid OAUTHBEARER client first message", token("OAUTHBEARER", b"x")),
    ("first message without a bearer token", token("OAUTHBEARER", b"n,,\x01auth=Basic x\x01\x01")),
    ("expected the client's \\x01 after a token that was refused",
     raw("OAUTHBEARER", bearer(exp=NOW_S - 60), bearer())),
    ("the token has expired", raw("OAUTHBEARER", bearer(exp=NOW_S - 60), b"\x01")),
    # EXTERNAL without a certificate. For EXTERNAL with a certificate see below.
    ("the transport has not verified a principal", token("EXTERNAL", b"")),
    ("the transport has not verified a principal", token("EXTERNAL", b"alice")),
    # again: failures of a second authentication
    ("user 'alice': wrong password", again(lambda _server, client: authenticate(client, "PLAIN", "alice", "no"))),
    ("Cannot change principals", again(lambda _server, client: authenticate(client, "PLAIN", "bob", "opens"))),
    ("unsupported SASL mechanism 'NONE'", again(lambda _server, client: handshake(client, "NONE"))),
    ("re-authentication of PLAIN may not use the mechanism SCRAM-SHA-256",
     again(other_mechanism)),
    ("Unexpected Kafka request of type METADATA", again(request_for_a_token)),
    ("user 'broken': a store failed", again(lambda _server, client: authenticate(client, "PLAIN", "broken", "x"))),
]  # fmt: skip


@pytest.fixture
def serve(start, tmp_path):
    """Yield `serve(…)`, which starts a server with all mechanisms and a store that may fail."""

    def one(*settings):
        keys = tmp_path / "jwks.json"
        keys.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
        sasl = "listeners.default.sasl"
        names = ", ".join(f'"{name}"' for name in MECHANISMS)
        return start("authenticator=sasl", f"{sasl}.mechanisms=[{names}]", f"listeners.default.{USERS}",
                     f'{sasl}.credential_stores=["callable"]', f"{sasl}.callable.password={__name__}:directory",
                     f"{sasl}.callable.verifier={__name__}:no_verifier", f"{sasl}.OAUTHBEARER.jwks_file={keys}",
                     f'{sasl}.OAUTHBEARER.expected_audience=["kafka"]', f"{sasl}.OAUTHBEARER.expected_issuer=idp",
                     f'{sasl}.OAUTHBEARER.required_scope=["use"]', f"{sasl}.connections_max_reauth_ms=60000",
                     f"{sasl}.server_max_receive_size=4000", "connection_failed_authentication_delay_ms=20",
                     *settings)  # fmt: skip

    asked.clear()
    answer.clear()
    yield one
    answer.set()


@pytest.mark.parametrize("way", WAYS, ids=[f"{number}-{way[0][:40]}" for number, way in enumerate(WAYS)])
def test_a_client_that_fails_to_authenticate_is_not_served(serve, connect, caplog, way):
    reason, go, *settings = way
    server = serve(*settings)
    client = connect(server)
    go(server, client)
    assert is_out(server, client)
    assert reason in caplog.text


def test_the_same_server_serves_clients_that_authenticate(serve, connect):
    server = serve()
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        client = connect(server)
        assert log_in(client, mechanism, "alice", "sesame").error_code == 0
        assert is_in(server, client, "alice")
    client = connect(server)
    handshake(client, "OAUTHBEARER")
    assert send_token(client, bearer()).error_code == 0
    assert is_in(server, client, "alice")


def test_an_evaluation_that_ends_late_does_not_authenticate_a_closed_channel(serve, connect):
    server = serve()
    client = connect(server)
    is_evaluated_too_long(server, client)
    assert client.at_end()
    answer.set()
    other = connect(server)
    assert log_in(other, "PLAIN", "alice", "sesame").error_code == 0, "the thread is free again"
    assert server.api_set("trying").seen == []


def test_a_user_name_cannot_start_a_line_of_the_log(serve, connect, caplog):
    server = serve()
    client = connect(server)
    handshake(client, "OAUTHBEARER")
    assert send_token(client, bearer(sub="eve\nlistener=forged")).error_code == 0
    assert is_in(server, client, "eve\nlistener=forged")
    handshake(client, "NONE")
    other = connect(server)
    handshake(other, "OAUTHBEARER")
    send_token(other, bearer(sub="eve\nlistener=forged").replace(b"n,,", b"n,a=bob,"))
    del server.api_set("trying").seen[:]
    assert is_out(server, other)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("klamm")]
    assert any("forged" in line for line in lines)
    assert [line for line in lines if "\n" in line] == []


@pytest.mark.parametrize("message", [b"", b"CN=alice,OU=tests,O=klamm", b"CN=bob"])
def test_a_certificate_proves_only_its_own_name(tls_files, caplog, message):
    settings = ["listeners.default.authenticator=sasl", 'listeners.default.sasl.mechanisms=["EXTERNAL"]',
                "listeners.default.api_set=trying", "listeners.default.connection_failed_authentication_delay_ms=20",
                *tls_files.server_settings(client_auth="required")]  # fmt: skip
    context = tls_files.client_context(tls_files.client)
    with (
        EmbeddedServer(settings, plugins=[Plugin()]) as server,
        RawClient(server.address(), ssl_context=context) as client,
    ):
        handshake(client, "EXTERNAL")
        response = send_token(client, message)
        if message == b"CN=bob":
            assert response.error_code
            assert is_out(server, client)
            assert "authorization id that is different from its principal" in caplog.text
        else:
            assert is_in(server, client, "CN=alice,OU=tests,O=klamm")


FAILURES = {
    "SaslError",
    "SaslAuthenticationError",
    "AuthenticationFailedError",
    "TokenError",
    "UnknownKeyError",
    "_refused",
}
ELSEWHERE = {
    # The channel ends before a mechanism is asked again.
    "a SCRAM message after the end of the exchange",
    # test_revocation.py
    "the session has ended",
    # tests/unit/sasl/test_states.py
    " bytes before authentication",
    # tests/unit/sasl/test_revocation.py
    " while the client authenticated",
    # test_a_certificate_proves_only_its_own_name
    "Authentication failed: Client requested an authorization id that is different from its principal",
}


def reasons(source):
    """Return for each reason with which a module fails a client its longest fixed words."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        if (getattr(call.func, "id", None) or getattr(call.func, "attr", None)) not in FAILURES:
            continue
        text = next((one.value for one in call.keywords if one.arg == "reason"), call.args[0])
        parts = text.values if isinstance(text, ast.JoinedStr) else [text]
        words = [part.value for part in parts if isinstance(part, ast.Constant)]
        if words:
            yield max(words, key=len).rstrip(": ")


def test_the_cases_contain_every_reason_in_the_code():
    directory = Path(klamm_sasl.__file__).parent
    # GSSAPI needs a KDC: tests/interop/test_gssapi.py.
    files = [file for file in directory.glob("*.py") if file.name != "gssapi_mechanism.py"]
    found = set(itertools.chain.from_iterable(reasons(file.read_text()) for file in files))
    assert len(found) > 40
    expected = [way[0] for way in WAYS]
    assert sorted(one for one in found - ELSEWHERE if not any(one in way or way in one for way in expected)) == []
    assert found >= ELSEWHERE


@pytest.mark.parametrize("ends", ["closes", "says so"])
def test_a_refused_token_is_a_failed_login_whether_or_not_the_client_ends_the_exchange(serve, connect, tmp_path, ends):
    server = serve('observers=["audit"]', f"listeners.default.audit.spool={tmp_path}",
                   "listeners.default.audit.node=node-1")  # fmt: skip
    client = connect(server)
    handshake(client, "OAUTHBEARER")
    send_token(client, bearer(sub="mallory", exp=NOW_S - 60))
    if ends == "says so":
        send_token(client, b"\x01")
    client.close()
    server.stop()
    (failure,) = (event for event in events_of(tmp_path) if event["action"] == "failure")
    assert (failure["attempted_principal"], failure["principal"]) == ("User:mallory", "User:ANONYMOUS")
    assert failure["reason"] == "mechanism=OAUTHBEARER the token has expired"
