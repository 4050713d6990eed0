"""Tests of rare audit events: real servers on real sockets cause them, and the tests read the spool.

Each event is checked against the JSON schema of the repository and against the tables of docs/audit/reference.md.
"""

import contextlib
import json
import os
import socket
import ssl
import struct
import time
from pathlib import Path

import jsonschema
import pytest

import klamm_spark
from klamm import KafkaPrincipal, Provider, ServerExtension, hookimpl
from klamm.sasl import DELEGATION_TOKENS, DelegationToken, DelegationTokenCache, ScramCredential, ScramMechanism
from klamm.server.server import StartError
from klamm.testing import EmbeddedServer, MovingClock, RawClient
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm_spark.spool.layout import Seal
from tests.audit_spool import assert_numbered, events_of, lines_of
from tests.contract.api_sets import Plugin
from tests.contract.test_proxied import V1, V2
from tests.contract.test_sasl_failures import unsigned
from tests.contract.test_tls import metric, subject_served
from tests.sasl_client import authenticate, handshake, log_in, send_token, users_setting
from tests.tls_files import TlsFiles
from tests.waiting import wait_until

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "audit" / "reference.md").read_text()
SCHEMA = json.loads((Path(klamm_spark.__file__).parent / "events" / "schema" / "audit_event.v5.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
TLS_FIELDS = ("transport", "security_protocol", "tls_version", "sni")


def rows_of(heading):
    """Yield the cells of the first table below a heading of the page."""
    lines = iter(PAGE.split(f"\n{heading}\n", 1)[1].splitlines())
    row = next(line for line in lines if line.startswith("| ---"))
    for row in lines:
        if not row.startswith("|"):
            return
        yield [cell.strip() for cell in row.strip("|").split("|")]


def recorded_actions():
    """Return the actions of each kind of event, as the page lists them."""
    actions, kind = {}, ""
    for first, words, _when in rows_of("## Recorded events"):
        kind = first.strip("`") or kind
        actions.setdefault(kind, set()).update(word.strip(" `") for word in words.split(","))
    return actions


ACTIONS = recorded_actions()
FIELDS = {cells[0].strip("`"): cells[2] for cells in rows_of("## The record")}


def check(event):
    """Check that an event fits the schema and the page."""
    assert [error.message for error in VALIDATOR.iter_errors(event)] == []
    assert event["action"] in ACTIONS[event["kind"]]
    for name in event:
        assert FIELDS[name] == "always" or event["kind"] in FIELDS[name].split(", "), (event["kind"], name)
    assert {name for name, kinds in FIELDS.items() if kinds == "always"} <= event.keys()


def spooled(spool):
    """Return all events of a spool, and check each of them."""
    events = events_of(spool)
    for event in events:
        check(event)
    assert_numbered(events)
    return events


class Audited:
    """A server whose listener is audited. `start("key=value", …)` starts it; keys without a dot are the listener's."""

    def __init__(self, folder):
        self.spool = folder / "spool"
        self.server = None

    def start(self, *settings, plugins=(), **options):
        lines = [
            'observers=["audit"]', f"audit.spool={self.spool}", "audit.node=node-1", "audit.flush_interval_ms=5",
            *settings,
        ]  # fmt: skip
        own = ("listeners.", "server.", "brittle.")
        below = [text if text.startswith(own) else f"listeners.default.{text}" for text in lines]
        self.server = EmbeddedServer(below, plugins=[Plugin(), *plugins], **options)
        self.server.start()
        return self.server

    def client(self, **options):
        return RawClient(self.server.address(), **options)

    def wait_for(self, action):
        """Wait until an event with this action is in the spool."""
        text = f'"action":"{action}"'.encode()
        wait_until(lambda: any(text in line for line in lines_of(self.spool, unsealed=True)))

    def events(self, *kinds):
        """Stop the server, and return its events of these kinds."""
        self.server.stop()
        return [event for event in spooled(self.spool) if event["kind"] in kinds]


@pytest.fixture
def audited(tmp_path):
    one = Audited(tmp_path)
    yield one
    if one.server is not None:
        one.server.stop()


@pytest.fixture
def files(tmp_path):
    return TlsFiles(tmp_path / "tls")


def sasl(*more, mechanisms='["PLAIN"]'):
    users = users_setting(alice="sesame")
    return ("authenticator=sasl", f"sasl.mechanisms={mechanisms}", users, "api_set=trying",
            "connection_failed_authentication_delay_ms=20", *more)  # fmt: skip


def ask(client):
    return client.call(MetadataRequest(topics=None), 12)


# ---- certificates


def test_a_certificate_that_a_running_listener_reloads_is_recorded(audited, files):
    both = files.server.both
    settings = files.server_settings(certificate=both, private_key=both, reload_interval_ms=10)
    server = audited.start(*settings)
    context = files.client_context()
    with RawClient(server.address(), ssl_context=context) as there:
        files.issue("next", "CN=renewed", hosts=("127.0.0.1",))
        os.replace(files.directory / "next-both.pem", both)
        wait_until(lambda: "renewed" in subject_served(server, context, set()))
        # Both files change in one step, because the server must not read an empty file.
        garbage = files.directory / "garbage.pem"
        garbage.write_text("garbage")
        os.replace(garbage, both)
        wait_until(lambda: metric(server, "klamm:type=SslTransport,name=ReloadFailures") == 1)
        assert there.call(ApiVersionsRequest("test", "1"), 3).error_code == 0
    swapped = [event for event in audited.events("admin") if event["action"] == "certificate_swapped"]
    assert [(event["outcome"], event["listener"]) for event in swapped] == [("ok", "default"), ("error", "default")]
    assert "detail" not in swapped[0]
    assert str(both) in swapped[1]["detail"]
    assert swapped[0]["time_us"] < swapped[1]["time_us"]


# ---- sessions

LIFETIME_S = 600
"""The lifetime of sessions and tokens. The tests move the clock by it."""


def expires(audited, client, lifetime_ms):
    """Let the session of a client expire, send a request, and return the event about the expiry.

    If a token limits the session, a timer of the server ends it, or the request, whichever is first. The event is the
    same.
    """
    assert 0 < lifetime_ms <= LIFETIME_S * 1000
    assert ask(client).brokers
    audited.server.advance_ms(lifetime_ms + 10)
    with contextlib.suppress(ConnectionError):
        client.send(MetadataRequest(topics=None), 12)
    assert client.at_end()
    events = audited.events("authentication", "connection", "request")
    assert [(event["kind"], event["action"], event["outcome"]) for event in events if "sasl" not in event] == [
        ("authentication", "success", "ok"),
        ("connection", "opened", "ok"),
        ("request", "completed", "ok"),
        ("authentication", "expiry", "closed"),
        ("connection", "closed", "closed"),
    ]
    expiry, closed = events[-2:]
    assert expiry["reason"] == "not authenticated again within the session's lifetime"
    assert (expiry["error_code"], closed["reason"]) == (0, "the session has expired and was not renewed")
    assert closed["duration_ms"] >= lifetime_ms
    assert len({event["connection_id"] for event in events}) == 1
    return expiry


def test_a_session_that_expires_is_recorded(audited):
    audited.start(*sasl(f"sasl.connections_max_reauth_ms={LIFETIME_S * 1000}"), clock=MovingClock())
    with audited.client() as client:
        expiry = expires(audited, client, log_in(client, "PLAIN", "alice", "sesame").session_lifetime_ms)
    assert (expiry["principal"], expiry["sasl_mechanism"]) == ("User:alice", "PLAIN")
    assert expiry["security_protocol"] == "SASL_PLAINTEXT"


def test_a_bearer_token_that_expires_ends_its_session(audited):
    audited.start(
        *sasl("sasl.OAUTHBEARER.unsecured_development_tokens=true", mechanisms='["OAUTHBEARER"]'), clock=MovingClock()
    )
    token = unsigned({"alg": "none"}, {"sub": "carol", "exp": time.time() + LIFETIME_S})
    with audited.client() as client:
        handshake(client, "OAUTHBEARER")
        expiry = expires(audited, client, send_token(client, token).session_lifetime_ms)
    assert (expiry["principal"], expiry["sasl_mechanism"]) == ("User:carol", "OAUTHBEARER")
    assert token.split(b"Bearer ")[1].strip(b"\1") not in (audited_bytes := read_all(audited.spool))
    assert b"carol" in audited_bytes


def read_all(spool):
    return b"".join(lines_of(spool))


def test_a_delegation_token_that_expires_ends_its_session(audited):
    server = audited.start(*sasl(mechanisms='["SCRAM-SHA-256"]'), clock=MovingClock())
    now_ms, owner = int(time.time() * 1000), KafkaPrincipal("owner")
    salt = b"a salt of 24 characters."
    proofs = {one: ScramCredential.from_password(one, "the hmac", salt) for one in ScramMechanism}
    expiry_ms = now_ms + LIFETIME_S * 1000
    token = DelegationToken("token-1", owner, owner, (), now_ms, expiry_ms, now_ms + 10**9, proofs)
    server.server.services.shared.once(DELEGATION_TOKENS, DelegationTokenCache).tokens = {"token-1": token}
    with audited.client() as client:
        last = log_in(client, "SCRAM-SHA-256", "token-1", "the hmac", ",tokenauth=true")
        expiry = expires(audited, client, last.session_lifetime_ms)
    assert (expiry["principal"], expiry["sasl_mechanism"]) == ("User:owner", "SCRAM-SHA-256")
    assert b"the hmac" not in read_all(audited.spool)


def test_failed_reauthentication_is_recorded_as_denied(audited):
    audited.start(*sasl("sasl.connections_max_reauth_ms=60000"))
    with audited.client() as client:
        assert log_in(client, "PLAIN", "alice", "sesame").error_code == 0
        assert authenticate(client, "PLAIN", "alice", "guessed").error_code == 58
        assert client.at_end()
    events = audited.events("authentication", "connection")
    assert [(event["action"], event["outcome"]) for event in events] == [
        ("success", "ok"),
        ("opened", "ok"),
        ("reauthentication_failure", "denied"),
        ("closed", "closed"),
    ]
    failure = events[2]
    assert (failure["error_code"], failure["error_name"]) == (58, "SASL_AUTHENTICATION_FAILED")
    assert (failure["principal"], failure["sasl_mechanism"]) == ("User:alice", "PLAIN")
    assert "wrong password" in failure["reason"]
    assert "authentication failed" in events[3]["reason"]
    assert len({event["connection_id"] for event in events}) == 1
    assert b"guessed" not in read_all(audited.spool)


# ---- plugins


class Brittle(ServerExtension):
    """An extension that fails when it is made, when it opens, or when it gets ready."""

    def __init__(self, settings):
        super().__init__(settings)
        if settings.say == "make":
            raise OSError("no such device")

    def open(self, services):
        if self.settings.say == "open":
            raise OSError("no such device")

    def ready(self):
        if self.settings.say == "ready":
            raise OSError("no such device")

    def close(self):
        """Do nothing, because there is nothing to close."""


class BrittlePlugin:
    @hookimpl
    def klamm_extensions(self):
        from tests.contract.api_sets import FussySettings

        yield Provider("brittle", f"{__name__}:Brittle", settings=FussySettings)


def test_loaded_plugins_are_recorded(audited):
    audited.start('gates=["fussy"]', 'throttles=["slow_down"]')
    admin = audited.events("admin")
    assert [event["action"] for event in admin if event["action"] != "plugin_loaded"] == [
        "server_started",
        "server_stopping",
    ]
    loaded = [
        (event.get("listener"), event["detail"].partition(" of ")[0], event["outcome"])
        for event in admin
        if event["action"] == "plugin_loaded"
    ]
    for part in ("transport plaintext", "connection gate fussy", "throttle slow_down", "request observer audit"):
        assert ("default", part, "ok") in loaded
    assert (None, "api set broker", "ok") in loaded


@pytest.mark.parametrize("phase", ["make", "open", "ready"])
def test_an_extension_that_fails_at_the_start_is_recorded(audited, phase):
    settings = ('server.extensions=["brittle"]', f"brittle.say={phase}")
    with pytest.raises(StartError, match="extension.*brittle.*no such device") as error:
        audited.start(*settings, plugins=[BrittlePlugin()])
    (failed,) = [event for event in audited.events("admin") if event["action"] == "plugin_failed"]
    assert (failed["outcome"], "listener" in failed) == ("error", False)
    assert failed["detail"] == str(error.value)


def test_a_failing_part_of_another_listener_is_recorded(audited, tmp_path):
    other = ("listeners.other.bind=127.0.0.1:0", "listeners.other.transport=ssl",
             f"listeners.other.ssl.certificate={tmp_path / 'missing.pem'}")  # fmt: skip
    with pytest.raises(StartError, match=r"missing\.pem"):
        audited.start(*other)
    (failed,) = [event for event in audited.events("admin") if event["action"] == "plugin_failed"]
    assert (failed["outcome"], failed["listener"]) == ("error", "other")
    assert "missing.pem" in failed["detail"]


# ---- TLS


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_version_and_server_name_are_on_the_events_of_a_connection(audited, files, version):
    audited.start(*files.server_settings(client_auth="required"), "api_set=trying")
    context = files.client_context(files.client, version=version)
    with audited.client(ssl_context=context, server_hostname="localhost") as client:
        assert ask(client).brokers
    events = audited.events("authentication", "connection", "request")
    assert [event["action"] for event in events] == ["success", "opened", "completed", "closed"]
    recorded = "TLSv1.3" if version is ssl.TLSVersion.TLSv1_3 else "TLSv1.2"
    assert {tuple(event[name] for name in TLS_FIELDS) for event in events} == {("ssl", "SSL", recorded, "localhost")}
    (cipher,) = {event["tls_cipher"] for event in events}
    assert cipher.startswith("TLS_") is (recorded == "TLSv1.3")
    assert {event["principal"] for event in events} == {"User:CN=alice,OU=tests,O=klamm"}
    assert "sasl_mechanism" not in events[0]


def test_a_client_without_sni_has_no_server_name(audited, files):
    audited.start(*files.server_settings(), "api_set=trying")
    with audited.client(ssl_context=files.client_context()) as client:
        assert ask(client).brokers
    events = audited.events("connection", "request")
    assert [event["action"] for event in events] == ["opened", "completed", "closed"]
    assert all("sni" not in event and event["tls_version"] == "TLSv1.3" for event in events)


def test_authentication_below_tls_is_recorded_with_its_protocol(audited, files):
    audited.start(*files.server_settings(), *sasl())
    with audited.client(ssl_context=files.client_context(), server_hostname="localhost") as client:
        assert log_in(client, "PLAIN", "alice", "sesame").error_code == 0
    with audited.client(ssl_context=files.client_context(), server_hostname="localhost") as client:
        assert log_in(client, "PLAIN", "alice", "guessed").error_code == 58
        assert client.at_end()
    events = audited.events("authentication")
    assert [event["action"] for event in events] == ["success", "failure"]
    assert {tuple(event[name] for name in TLS_FIELDS) for event in events} == {
        ("ssl", "SASL_SSL", "TLSv1.3", "localhost")
    }


def test_a_failed_handshake_is_recorded(audited, files):
    audited.start(*files.server_settings(client_auth="required"), "connection_failed_authentication_delay_ms=20")
    context = files.client_context(version=ssl.TLSVersion.TLSv1_3)
    with audited.client(ssl_context=context) as client, pytest.raises((ssl.SSLError, ConnectionError)):
        client.call(ApiVersionsRequest("test", "1"), 3)
    # The client gets the failure earlier than the server records it.
    audited.wait_for("failure")
    failure, closed = audited.events("authentication", "connection")
    assert (failure["action"], failure["outcome"], failure["principal"]) == ("failure", "denied", "User:ANONYMOUS")
    assert "certificate" in failure["reason"].lower()
    assert "sasl_mechanism" not in failure
    assert closed["action"] == "closed"


# ---- addresses and refusals


def through_proxy(server, header, context=None):
    """Send a PROXY header and a request. Return True if the server answered."""
    frame = encode_request_header(3, 12, 1, "behind") + MetadataRequest(topics=None).encode(12)
    with socket.create_connection(server.address(), timeout=60) as sock:
        try:
            sock.sendall(header)
            if context is not None:
                sock = context.wrap_socket(sock, server_hostname="localhost")
            sock.sendall(struct.pack(">i", len(frame)) + frame)
            answered = sock.recv(1000) != b""
        except (ssl.SSLError, ConnectionError):
            answered = False
        sock.close()
        return answered


PROXY = ("proxy_protocol=required", 'trusted_proxies=["127.0.0.0/8"]', "api_set=trying")


@pytest.mark.parametrize("header", [V1, V2], ids=["v1", "v2"])
def test_events_have_the_address_of_a_client_behind_a_proxy(audited, files, header):
    server = audited.start(*PROXY, *files.server_settings())
    assert through_proxy(server, header, files.client_context())
    events = audited.events("connection", "request")
    assert [event["action"] for event in events] == ["opened", "completed", "closed"]
    assert {(event["client_address"], event["client_port"]) for event in events} == {("203.0.113.7", 4711)}
    assert all("-203.0.113.7:4711-" in event["connection_id"] for event in events)
    assert {event["sni"] for event in events} == {"localhost"}
    assert events[1]["client_id"] == "behind"


def test_a_refused_client_behind_a_proxy_is_recorded_with_its_own_address(audited):
    quota = ('gates=["connection_quota"]', 'connection_quota.overrides={ "203.0.113.7" = 0 }')
    server = audited.start(*PROXY, *quota)
    assert not through_proxy(server, V1)
    assert through_proxy(server, V1.replace(b"203.0.113.7", b"203.0.113.8"))
    events = audited.events("connection")
    (refused,) = [event for event in events if event["action"] == "refused"]
    assert (refused["client_address"], refused["client_port"]) == ("203.0.113.7", 4711)
    assert (refused["outcome"], refused["reason"], refused["listener"]) == ("refused", "per_ip", "default")
    assert [event["client_address"] for event in events if event["action"] == "opened"] == ["203.0.113.8"]


@pytest.mark.parametrize(("say", "reason"), [("refuse", "fussy"), ("delay", "fussy"), ("raise", "gate_failed")])
def test_a_refused_connection_is_recorded_with_reason_and_address(audited, say, reason):
    server = audited.start('gates=["fussy"]', f"fussy.say={say}", "api_set=trying")
    with RawClient(server.address()) as client:
        port = client.socket.getsockname()[1]
        assert client.at_end()
    events = audited.events("connection", "authentication", "request")
    (refused,) = events
    assert (refused["action"], refused["outcome"], refused["reason"]) == ("refused", "refused", reason)
    assert (refused["client_address"], refused["client_port"]) == ("127.0.0.1", port)
    assert (refused["transport"], refused["security_protocol"]) == ("plaintext", "PLAINTEXT")


def test_an_event_of_refused_connections_has_their_number(audited):
    server = audited.start('gates=["connection_quota"]', "connection_quota.max_connections_per_ip=1", "api_set=trying")
    with RawClient(server.address()) as first:
        assert ask(first).brokers
        with RawClient(server.address()) as second:
            assert second.at_end()
    (refused,) = [event for event in audited.events("connection") if event["action"] == "refused"]
    assert (refused["reason"], refused["detail"]) == ("per_ip", "127.0.0.1 has 1 of 1 connections")


# ---- a spool that cannot be read


@pytest.mark.parametrize("how", ["garbage", "a folder"])
def test_a_seal_that_cannot_be_read_does_not_stop_the_start(audited, caplog, how):
    audited.start()
    (first,) = {event["boot"] for event in audited.events("admin")}
    (seal,) = (audited.spool / "node-1~administration").rglob("*.seal")
    last_seq = Seal.read(seal).last_seq
    seal.unlink()
    if how == "garbage":
        seal.write_bytes(b"\xff\xfe garbage")
    else:
        # Even root cannot read a folder as a file.
        seal.mkdir()
    server = audited.start()
    with RawClient(server.address()) as client:
        assert client.call(ApiVersionsRequest("test", "1"), 3).error_code == 0
    server.stop()
    aside = seal.with_name(seal.name + ".unreadable")
    assert aside.exists()
    assert f"{seal} cannot be read" in caplog.text
    assert "Traceback" not in caplog.text
    (gap,) = [event for event in events_of(audited.spool) if event["kind"] == "audit_gap"]
    check(gap)
    assert (gap["action"], gap["reason"], gap["gap_boot"]) == ("unclean_stop", "unreadable", first)
    assert gap["gap_first_seq"] == last_seq + 1
    assert gap["detail"].startswith(f"{aside.name}: ")


def test_an_open_segment_that_cannot_be_read_does_not_stop_the_start(audited, caplog):
    folder = audited.spool / "node-1"
    segment = folder / f"{'0' * 12}00000000-{7:020d}.open"
    segment.mkdir(parents=True)
    audited.start()
    gap = audited.events("audit_gap")[0]
    assert (gap["action"], gap["reason"]) == ("unclean_stop", "unreadable")
    assert (gap["gap_boot"], gap["gap_first_seq"]) == ("0" * 20, 7)
    assert (folder / f"{segment.name}.unreadable").is_dir()
    assert f"{segment} cannot be read" in caplog.text
