"""Tests of OAUTHBEARER: valid and invalid tokens, and keys that are added, removed and unreachable."""

import base64
import hmac
import http.server
import json
import threading
import urllib.request

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

from klamm import ErrorCode, KafkaPrincipal
from klamm.metrics import Counter
from klamm.sasl import SaslContext
from klamm.testing import ManualClock
from klamm_sasl.jwk_set import JwksError, parse_jwks
from klamm_sasl.jwks import JwksKeys, _Redirects, fetcher
from klamm_sasl.oauthbearer import OAuthBearerMechanism
from klamm_sasl.sasl_settings import OAuthBearerSettings, check_url
from tests.unit.sasl.playbook import Playbook
from tests.unit.sasl.users import reconnected

RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
OTHER_RSA = RSAKey.generate_key(2048, {"kid": "other"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
NOW_S = ManualClock().wall_ms() // 1000
INVALID_TOKEN = '{"status":"invalid_token"}'


def jwks(*keys):
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


def claims(**changes):
    found = {"sub": "alice", "iat": NOW_S - 1000, "exp": NOW_S + 600, **changes}
    return {name: value for name, value in found.items() if value is not None}


def signed(key=RSA, algorithm="RS256", header=None, **changes):
    head = {"alg": algorithm, "kid": key.kid, **(header or {})}
    head = {name: value for name, value in head.items() if value is not None}
    return jws.serialize_compact(head, json.dumps(claims(**changes)).encode(), key, algorithms=[algorithm])


def encoded(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsecured(**changes):
    return ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "none"}, claims(**changes))) + "."


def by_hand(header, secret):
    """Return a token that is signed with a key which everyone knows."""
    text = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims()))
    return f"{text}.{encoded(hmac.digest(secret, text.encode(), 'sha256'))}"


def bearer_message(token, authzid="", extra=""):
    return f"n,{'a=' + authzid if authzid else ''},\x01auth=Bearer {token}\x01{extra}\x01".encode()


@pytest.fixture
def listen(tmp_path):
    """Return `listen(**settings)`, which returns a listener with its keys in a file."""
    opened = []

    def one(**given):
        file = tmp_path / "jwks.json"
        file.write_bytes(jwks(RSA, EC))
        if not given.get("unsecured_development_tokens"):
            given.setdefault("jwks_file", file)
        mechanism = OAuthBearerMechanism(OAuthBearerSettings(**given))
        playbook = Playbook({"OAUTHBEARER": mechanism})
        mechanism.open(SaslContext(playbook.listener, (), playbook.sessions))
        opened.append(mechanism)
        playbook.handshake("OAUTHBEARER")
        return playbook

    yield one
    for mechanism in opened:
        mechanism.close()


def refused(playbook, token, answer=INVALID_TOKEN):
    """Check that the token gets the RFC's JSON, and the client's \\x01 ends the exchange."""
    if playbook.mechanisms["OAUTHBEARER"].keys is not None:
        # Work that waits for keys is done here, not on a thread.
        playbook.mechanisms["OAUTHBEARER"].keys.submit = playbook.work.append
    step, response = playbook.token(bearer_message(token))
    assert (response.error_code, response.auth_bytes.decode()) == (0, answer)
    assert not step.complete
    step, response = playbook.token(b"\x01")
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, answer)
    assert step.failed
    return True


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256")])
@pytest.mark.parametrize("authzid", ["", "alice"])
@pytest.mark.parametrize("extra", ["", "host=example.com\x01port=9092\x01", "traceId=1 2\x01"])
def test_a_valid_token_is_accepted(listen, key, algorithm, authzid, extra):
    playbook = listen()
    step, response = playbook.token(bearer_message(signed(key, algorithm), authzid, extra))
    assert step.complete
    assert response.auth_bytes == b""
    assert playbook.authenticator.principal == KafkaPrincipal("alice")
    assert response.session_lifetime_ms == 600_000


@pytest.mark.parametrize(
    "token",
    [
        signed(exp=NOW_S - 30),
        signed(exp=None),
        signed(exp="soon"),
        signed(exp=True),
        signed(exp=1e300),
        signed(iat=None),
        signed(iat=NOW_S + 700),
        signed(nbf=NOW_S + 60),
        signed(sub=None),
        signed(sub=""),
        signed(sub=" "),
        signed(sub=7),
        signed(scope=7),
        signed(scope=[7]),
        signed(OTHER_RSA),
        signed(OTHER_RSA, header={"kid": "rsa"}),
        signed(OTHER_RSA, header={"kid": None}),
        signed()[:-4] + "AAAA",
        signed() + "A",
        signed().rpartition(".")[0],
        signed().rpartition(".")[0] + ".",
        unsecured(),
        unsecured() + signed().rpartition(".")[2],
        "a",
        "a.b.c",
        "...",
        "e30.e30.e30",
        by_hand({"alg": "HS256", "kid": "rsa"}, RSA.as_pem(private=False)),
        by_hand({"alg": "RS256", "kid": "rsa", "crit": ["b64"]}, b"x"),
    ],
)
def test_an_invalid_token_is_refused(listen, token):
    assert refused(listen(), token)


@pytest.mark.parametrize("token", [signed(exp=NOW_S - 29), signed(nbf=NOW_S + 29), signed(header={"kid": None})])
def test_a_token_at_the_limit_of_its_time_is_accepted(listen, token):
    assert listen().token(bearer_message(token))[0].complete


def test_clock_skew_can_be_set(listen):
    assert refused(listen(clock_skew_seconds=0), signed(exp=NOW_S))
    assert listen(clock_skew_seconds=120).token(bearer_message(signed(exp=NOW_S - 119)))[0].complete


@pytest.mark.parametrize(
    ("audience", "good"),
    [("kafka", True), (["x", "kafka"], True), ("x", False), ([], False), (None, False), (7, False)],
)
def test_audience_is_checked(listen, audience, good):
    playbook = listen(expected_audience=("other", "kafka"))
    assert (
        playbook.token(bearer_message(signed(aud=audience)))[0].complete
        if good
        else refused(playbook, signed(aud=audience))
    )


@pytest.mark.parametrize(("issuer", "good"), [("https://idp", True), ("https://idp/", False), (None, False)])
def test_issuer_is_checked(listen, issuer, good):
    playbook = listen(expected_issuer="https://idp")
    assert (
        playbook.token(bearer_message(signed(iss=issuer)))[0].complete
        if good
        else refused(playbook, signed(iss=issuer))
    )


@pytest.mark.parametrize(
    ("scope", "good"), [("read write", True), (["write", "read"], True), ("read", False), (None, False)]
)
def test_scope_is_checked(listen, scope, good):
    playbook = listen(required_scope=("read", "write"))
    if good:
        assert playbook.token(bearer_message(signed(scope=scope)))[0].complete
    else:
        assert refused(playbook, signed(scope=scope), '{"status":"insufficient_scope","scope":"read write"}')


def test_the_names_of_claims_can_be_set(listen):
    playbook = listen(sub_claim_name="client_id", scope_claim_name="scp", required_scope=("read",))
    assert playbook.token(bearer_message(signed(client_id="bob", scp="read")))[0].complete
    assert playbook.authenticator.principal == KafkaPrincipal("bob")


def test_the_algorithms_can_be_restricted(listen):
    assert refused(listen(algorithms=("ES256",)), signed(RSA))


def test_unsecured_tokens_require_the_setting_for_development(listen):
    playbook = listen(unsecured_development_tokens=True)
    assert playbook.token(bearer_message(unsecured(iat=None)))[0].complete
    assert refused(reconnected(playbook), unsecured(exp=NOW_S - 60))
    assert refused(reconnected(playbook), unsecured()[:-1])
    assert refused(reconnected(playbook), signed())


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_bytes_that_are_not_a_message_are_refused(listen, message):
    step, response = listen().token(message)
    assert step.failed
    assert response.error_message.endswith("due to invalid credentials with SASL mechanism OAUTHBEARER")


def test_only_the_end_follows_a_refusal(listen):
    playbook = listen()
    playbook.token(bearer_message(signed(exp=NOW_S - 60)))
    step, response = playbook.token(bearer_message(signed()))
    assert step.failed
    assert "invalid credentials" in response.error_message


def test_authorization_id_of_another_user_is_refused(listen):
    step, response = listen().token(bearer_message(signed(), "bob"))
    assert step.failed
    assert "different from the token's principal name" in response.error_message


@settings(max_examples=300)
@given(st.text(alphabet="abcdeyJ0123456789._-=", max_size=80) | st.binary(max_size=60).map(encoded))
def test_anything_but_a_token_is_refused(text):
    mechanism = OAuthBearerMechanism(OAuthBearerSettings(unsecured_development_tokens=True))
    playbook = Playbook({"OAUTHBEARER": mechanism})
    mechanism.open(SaslContext(playbook.listener, (), playbook.sessions))
    playbook.handshake("OAUTHBEARER")
    assert not playbook.token(bearer_message(text))[0].complete


# ---- keys


class Source:
    """Keys that a test changes."""

    def __init__(self, *keys):
        self.data = jwks(*keys)
        self.fetched = 0

    def __call__(self):
        self.fetched += 1
        if isinstance(self.data, Exception):
            raise self.data
        return self.data


def keys_of(source, **given):
    clock = ManualClock()
    given.setdefault("jwks_endpoint_url", "https://idp/keys")
    return JwksKeys(OAuthBearerSettings(**given), source, clock, Counter(), "test"), clock


def test_keys_are_fetched_again_after_the_interval():
    source = Source(RSA)
    keys, clock = keys_of(source)
    assert keys.turn() == 3600
    assert set(keys.keys) == {"rsa"}
    source.data = jwks(EC)
    clock.advance_ms(3_599_999)
    assert keys.turn() == pytest.approx(0.001)
    assert set(keys.keys) == {"rsa"}
    clock.advance_ms(1)
    keys.turn()
    assert set(keys.keys) == {"ec"}


def test_a_file_of_keys_is_checked_every_two_seconds(tmp_path):
    keys, _ = keys_of(Source(RSA), jwks_endpoint_url=None, jwks_file=tmp_path / "x")
    assert keys.turn() == 2
    keys, _ = keys_of(Source(RSA), jwks_endpoint_url="file:///x")
    assert keys.turn() == 2


@pytest.mark.parametrize(
    "data", [OSError("down"), b"", b"[]", b'{"keys":{}}', b'{"keys":[]}', b'{"keys":[{"kty":"x"}]}']
)
def test_a_failed_fetch_keeps_the_keys_and_is_tried_again_after_growing_pauses(data):
    source = Source(RSA)
    keys, clock = keys_of(source)
    keys.turn()
    source.data = data
    clock.advance_ms(3_600_000)
    pauses = []
    for _ in range(9):
        pauses.append(round(keys.turn() * 1000))
        clock.advance_ms(pauses[-1])
    assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    assert set(keys.keys) == {"rsa"}
    assert keys._failures.value == 9
    source.data = jwks(EC)
    assert keys.turn() == 3600
    assert set(keys.keys) == {"ec"}


def test_tokens_with_unknown_keys_cause_a_limited_number_of_fetches():
    source = Source(RSA)
    keys, clock = keys_of(source)
    keys.turn()
    seen = []
    for _ in range(3):
        keys.submit(lambda: seen.append(sorted(keys.keys)))
        keys.turn()
    assert source.fetched == 1, "there was a fetch just now"
    source.data = jwks(RSA, EC)
    clock.advance_ms(10_000)
    keys.submit(lambda: seen.append(sorted(keys.keys)))
    keys.turn()
    assert source.fetched == 2
    assert seen == [["rsa"]] * 3 + [["ec", "rsa"]]


def test_a_token_of_a_new_key_waits_for_the_key(listen, tmp_path):
    playbook = listen(jwks_missing_key_interval_ms=0)
    (tmp_path / "jwks.json").write_bytes(jwks(OTHER_RSA))
    keys = playbook.mechanisms["OAUTHBEARER"].keys
    keys.submit = lambda work: (keys.refresh(), playbook.work.append(work))
    assert playbook.token(bearer_message(signed(OTHER_RSA)))[0].complete
    assert refused(reconnected(playbook), signed(RSA)), "a removed key is not accepted"


def test_the_thread_fetches_keys_and_ends(listen, tmp_path):
    playbook = listen(jwks_missing_key_interval_ms=0)
    (tmp_path / "jwks.json").write_bytes(jwks(OTHER_RSA))
    keys = playbook.mechanisms["OAUTHBEARER"].keys
    done = threading.Event()
    keys.submit(done.set)
    assert done.wait(60)
    assert set(keys.keys) == {"other"}
    keys.close()
    assert not keys._thread.is_alive()


def test_keys_that_are_not_for_signatures_are_left_out():
    found = parse_jwks(
        json.dumps(
            {
                "keys": [
                    RSA.as_dict(private=False),
                    {**OTHER_RSA.as_dict(private=False), "use": "enc"},
                    {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
                    {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
                    "garbage",
                    {key: value for key, value in EC.as_dict(private=False).items() if key != "kid"},
                ]
            }
        ).encode()
    )
    assert set(found) == {"rsa", ""}


def test_keys_are_read_over_http():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802
            body = jwks(RSA) if self.path == "/keys" else b"x" * (1024 * 1024 + 1)
            moved = {"/moved": f"http://127.0.0.1:{self.server.server_port}/keys", "/away": "http://example.com/keys",
                     "/other": "https://127.0.0.1:1/keys", "/ftp": "ftp://127.0.0.1:1/keys"}  # fmt: skip
            self.send_response(404 if self.path == "/none" else 302 if self.path in moved else 200)
            if self.path in moved:
                self.send_header("Location", moved[self.path])
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            base = f"http://127.0.0.1:{server.server_port}"

            def fetch(path):
                return fetcher(OAuthBearerSettings(jwks_endpoint_url=base + path))()

            assert set(parse_jwks(fetch("/keys"))) == {"rsa"}
            assert set(parse_jwks(fetch("/moved"))) == {"rsa"}
            for path in ("/away", "/other", "/ftp"):
                with pytest.raises((JwksError, OSError), match=r"which is not trusted|is not allowed"):
                    fetch(path)
            with pytest.raises(OSError, match="404"):
                fetch("/none")
            with pytest.raises(JwksError, match="larger than"):
                fetch("/huge")
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("https://idp.example.com/keys", None),
        ("file:///keys", None),
        ("http://localhost:8080/keys", None),
        ("http://127.0.0.2/keys", None),
        ("http://[::1]:80/keys", None),
        ("http://idp.example.com/keys", "must begin with https://: over"),
        ("http://localhost.example.com/keys", "must begin with https://: over"),
        ("http://localhost@example.com/keys", "must begin with https://: over"),
        ("http://10.0.0.1/keys", "must begin with https://: over"),
        ("http://[::1/keys", "must begin with https://: over"),
        ("http://", "must begin with https://: over"),
        ("ftp://localhost/keys", "must begin with https://, http:// or file://"),
    ],
)
def test_keys_are_only_fetched_over_protected_connections(url, complaint):
    found = check_url(url)
    assert found is None if complaint is None else found.startswith(complaint)


def test_an_https_endpoint_cannot_redirect_to_http():
    request = urllib.request.Request("https://127.0.0.1/keys")
    with pytest.raises(JwksError, match=r"'http://127\.0\.0\.1/keys'"):
        _Redirects().redirect_request(request, None, 302, "Found", {}, "http://127.0.0.1/keys")
    assert (
        _Redirects().redirect_request(request, None, 302, "Found", {}, "https://idp/keys").full_url
        == "https://idp/keys"
    )


def test_keys_are_read_from_a_file_url(tmp_path):
    (tmp_path / "a b.json").write_bytes(jwks(RSA))
    url = (tmp_path / "a b.json").as_uri()
    assert set(parse_jwks(fetcher(OAuthBearerSettings(jwks_endpoint_url=url))())) == {"rsa"}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "needs jwks_endpoint_url or jwks_file"),
        ({"jwks_endpoint_url": "https://x", "jwks_file": "y"}, "both set"),
    ],
)
def test_invalid_settings_are_reported(given, complaint):
    mechanism = OAuthBearerMechanism(OAuthBearerSettings(**given))
    playbook = Playbook()
    with pytest.raises(ValueError, match=complaint):
        mechanism.open(SaslContext(playbook.listener, (), playbook.sessions))


@pytest.mark.parametrize(
    ("token", "authzid", "attempted"),
    [
        (signed(exp=NOW_S - 60), "", "User:alice"),
        (signed(OTHER_RSA, sub="mallory"), "", "User:mallory"),
        (signed(OTHER_RSA, header={"kid": "rsa"}), "", "User:alice"),
        (unsecured(sub="eve"), "", "User:eve"),
        (signed(exp=NOW_S - 60), "bob", "User:bob"),
        (signed(sub=None), "", ""),
        (signed(sub=7), "", ""),
        ("a", "", ""),
        ("a.b.c", "", ""),
        ("e30.W10.e30", "", ""),
    ],
)
def test_the_subject_of_a_refused_token_is_recorded_as_attempted(listen, token, authzid, attempted):
    playbook = listen()
    playbook.mechanisms["OAUTHBEARER"].keys.submit = playbook.work.append
    playbook.token(bearer_message(token, authzid))
    playbook.token(b"\x01")
    assert playbook.connection.attempted_principal == attempted
    assert playbook.authenticator.principal.name == "ANONYMOUS"


def test_closing_after_a_refused_token_counts_as_a_failed_login(listen):
    playbook = listen()
    assert playbook.authenticator.abandoned() is None
    playbook.token(bearer_message(signed(exp=NOW_S - 60)))
    assert playbook.authenticator.abandoned() == "mechanism=OAUTHBEARER the token has expired"
    assert playbook.connection.attempted_principal == "User:alice"
    assert playbook.authenticator.abandoned() is None, "it has failed once"


def test_closing_before_the_token_is_refused_does_not_count_as_a_failed_login(listen):
    playbook = listen()
    playbook.token(bearer_message(signed()))
    assert playbook.authenticator.abandoned() is None
