"""Tests of the transport `ssl` over real sockets: accepted and refused clients, principals, and changed files."""

import contextlib
import os
import re
import socket
import ssl
import struct
import threading

import pytest

from klamm.testing import EmbeddedServer, MovingClock, RawClient
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm_ssl.tls_layer import SslTransportLayer
from tests.contract.api_sets import GATES, Plugin
from tests.tls_files import TlsFiles, revocation_list
from tests.waiting import wait_until

FAILURES = "klamm:type=Listener,name=ConnectionFailures"


@pytest.fixture
def files(tmp_path):
    return TlsFiles(tmp_path / "tls")


@pytest.fixture
def serve():
    """Yield `serve("key=value", …)`, which starts a server with the handler set `trying`."""
    servers = []
    GATES.clear()

    def serve_one(*settings):
        own = ["api_set=trying", 'gates=["fussy"]', *settings]
        lines = [text if "." in text.partition("=")[0] else f"listeners.default.{text}" for text in own]
        servers.append(EmbeddedServer(lines, plugins=[Plugin()], clock=MovingClock()).start())
        return servers[-1]

    yield serve_one
    for server in servers:
        server.api_set("trying").release.set()
        server.stop()


def answers(server, **options):
    with RawClient(server.address(), **options) as client:
        return client.call(MetadataRequest(topics=None), 12).brokers[0].node_id == 1


def context_of(server):
    return server.api_set("trying").seen[-1]


def metric(server, name, **labels):
    return sum(
        sample.value
        for family in server.server.services.metrics.collect()
        for sample in family.samples
        if family.name == name and labels.items() <= sample.labels.items()
    )


def ssl_part(server):
    return server.server.listeners[0].parts[0]


# ---- threads of handshakes


@pytest.mark.parametrize("poller", ["auto", "selectors"])
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_handshakes_run_on_the_processor_or_on_threads(serve, files, threads, poller):
    server = serve(f"handshake_threads={threads}", f"poller={poller}", *files.server_settings())
    with contextlib.ExitStack() as stack:
        options = {"ssl_context": files.client_context()}
        clients = [stack.enter_context(RawClient(server.address(), **options)) for _ in range(10)]
        for client in clients:
            assert client.call(MetadataRequest(topics=None), 12).brokers[0].node_id == 1
        found = {thread.name for thread in threading.enumerate() if "klamm-handshake" in thread.name}
    assert bool(found) == bool(threads)
    assert len(found) <= threads


def test_connected_clients_do_not_wait_for_a_handshake(serve, files, monkeypatch):
    release, stuck = threading.Event(), threading.Event()
    step = SslTransportLayer.handshake

    def handshake(layer):
        if armed:
            stuck.set()
            assert release.wait(30)
        return step(layer)

    armed = False
    monkeypatch.setattr(SslTransportLayer, "handshake", handshake)
    server = serve(*files.server_settings())
    try:
        with RawClient(server.address(), ssl_context=files.client_context()) as inside:
            # In TLS 1.3 the client completes its handshake before the server does.
            assert inside.call(MetadataRequest(topics=None), 12).brokers[0].node_id == 1
            armed = True
            with socket.create_connection(server.address()) as outside:
                outside.sendall(b"\x16\x03\x01")
                assert stuck.wait(30)
                assert inside.call(MetadataRequest(topics=None), 12).brokers[0].node_id == 1
            armed = False
            release.set()
            wait_until(lambda: metric(server, FAILURES, reason="closed_by_peer") == 1)
            assert answers(server, ssl_context=files.client_context())
    finally:
        release.set()


# ---- accepted clients


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_the_subject_of_the_clients_certificate_is_the_principal(serve, files, client_auth):
    server = serve(*files.server_settings(client_auth=client_auth))
    assert answers(server, ssl_context=files.client_context(files.client), server_hostname="localhost")
    context = context_of(server)
    assert str(context.principal) == "User:CN=alice,OU=tests,O=klamm"
    assert context.listener.security_protocol == "SSL"
    details = context.connection.transport_details
    assert details["tls_version"] == "TLSv1.3"
    assert details["tls_cipher"].startswith("TLS_")
    assert details["tls_server_name"] == "localhost"


@pytest.mark.parametrize("client_auth", ["none", "requested"])
def test_a_client_without_a_certificate_is_anonymous_where_none_is_required(serve, files, client_auth):
    server = serve(*files.server_settings(client_auth=client_auth))
    assert answers(server, ssl_context=files.client_context())
    assert str(context_of(server).principal) == "User:ANONYMOUS"


def test_mapping_rules_name_the_principal(serve, files):
    server = serve(
        *files.server_settings(client_auth="required", principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/U,DEFAULT")
    )
    assert answers(server, ssl_context=files.client_context(files.client))
    assert str(context_of(server).principal) == "User:ALICE"


def test_a_certificate_below_an_intermediate_authority_is_trusted_by_the_root(serve, files):
    below = files.authority.intermediate("CN=klamm intermediate", now=files.now)
    server_files = files.write("below", below.issue("CN=localhost", now=files.now, hosts=("127.0.0.1",)))
    client = files.write("bob", below.issue("CN=bob", now=files.now))
    settings = files.server_settings(
        certificate=server_files.certificate, private_key=server_files.key, client_auth="required"
    )
    server = serve(*settings)
    assert answers(server, ssl_context=files.client_context(client))
    assert str(context_of(server).principal) == "User:CN=bob"


def test_application_protocols_that_a_client_offers_are_ignored(serve, files):
    context = files.client_context()
    context.set_alpn_protocols(["h2", "kafka"])
    server = serve(*files.server_settings())
    with RawClient(server.address(), ssl_context=context) as client:
        assert client.socket.selected_alpn_protocol() is None
        assert client.call(ApiVersionsRequest("a", "1"), 3).error_code == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_keeps_its_principal(serve, files, version):
    server = serve(*files.server_settings(client_auth="required"))
    context = files.client_context(files.client, version=version)
    with RawClient(server.address(), ssl_context=context) as client:
        client.call(MetadataRequest(topics=None), 12)
        session = client.socket.session
    with socket.create_connection(server.address(), timeout=60) as raw:
        again = context.wrap_socket(raw, server_hostname="127.0.0.1", session=session)
        frame = encode_request_header(3, 12, 1, "raw") + MetadataRequest(topics=None).encode(12)
        again.sendall(struct.pack(">i", len(frame)) + frame)
        assert again.recv(4)
        assert again.session_reused
    assert str(context_of(server).principal) == "User:CN=alice,OU=tests,O=klamm"


def test_the_server_name_chooses_the_certificate(serve, files):
    other = files.issue("other", "CN=other", hosts=("kafka.example.org",))
    wild = files.issue("wild", "CN=wild", hosts=("*.example.net",))
    sni = (
        f'{{"kafka.example.org"={{certificate="{other.both}"}},'
        f'"*.example.net"={{certificate="{wild.certificate}",private_key="{wild.key}"}}}}'
    )
    server = serve(*files.server_settings(sni=sni))
    for name in ("localhost", "KAFKA.example.org", "b1.example.net"):
        assert answers(server, ssl_context=files.client_context(), server_hostname=name), "the client checks the name"
    with pytest.raises(ssl.SSLCertVerificationError):
        RawClient(server.address(), ssl_context=files.client_context(), server_hostname="a.b.example.net")


# ---- refused clients


def connect_raw(server, data):
    with socket.create_connection(server.address(), timeout=60) as raw:
        raw.sendall(data)
        # A server that closes a connection with unread bytes resets it.
        with contextlib.suppress(ConnectionResetError):
            while raw.recv(1000):
                pass


def handshake(server, files, client=None, hostname="localhost", **options):
    """Connect and wait for a response. With TLS 1.3 the client notices a refusal only then."""
    context = files.client_context(client)
    for key, value in options.items():
        setattr(context, key, value)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        answers(server, ssl_context=context, server_hostname=hostname)


def frame_of_metadata():
    frame = encode_request_header(3, 12, 1, "raw") + MetadataRequest(topics=None).encode(12)
    return struct.pack(">i", len(frame)) + frame


@pytest.fixture
def mutual(serve, files):
    """Yield a server that requires a valid certificate, which is not revoked, and a known server name."""
    revoked = files.issue("revoked", "CN=revoked")
    crl = files.directory / "crl.pem"
    crl.write_bytes(revocation_list(files.authority, [revoked.identity.certificate], now=files.now))
    server = serve(
        *files.server_settings(
            client_auth="required",
            revocation_lists=[str(crl)],
            unknown_server_name="refuse",
            sni=f'{{localhost={{certificate="{files.server.both}"}}}}',
            principal_mapping_rules="RULE:^CN=(alice).*$/$1/",
        )
    )
    return server, revoked


REFUSED = {
    "a request in plain text": ("not_tls", lambda server, *_: connect_raw(server, frame_of_metadata())),
    "http": ("not_tls", lambda server, *_: connect_raw(server, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")),
    "garbage": ("not_tls", lambda server, *_: connect_raw(server, b"\xff" * 100)),
    "no certificate": ("certificate_missing", lambda server, files, _: handshake(server, files)),
    "an expired certificate": (
        "certificate_expired",
        lambda server, files, _: handshake(server, files, files.issue("old", "CN=old", days=-1)),
    ),
    "a revoked certificate": (
        "certificate_revoked",
        lambda server, files, revoked: handshake(server, files, revoked),
    ),
    "a certificate of another authority": (
        "certificate_unknown_authority",
        lambda server, files, _: handshake(server, files, TlsFiles(files.directory / "x", "other CA").client),
    ),
    "another server name": (
        "unknown_server_name",
        lambda server, files, _: handshake(server, files, files.client, "elsewhere.example.org"),
    ),
    "a name that no rule maps": (
        "no_matching_rule",
        lambda server, files, _: handshake(server, files, files.issue("eve", "CN=eve")),
    ),
    "a server that the client does not trust": (
        "alert_from_peer",
        lambda server, files, _: handshake(server, TlsFiles(files.directory / "y", "the client's CA"), files.client),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_failed_handshake_is_logged_and_counted_and_affects_no_other_client(mutual, files, what, caplog):
    server, revoked = mutual
    reason, attempt = REFUSED[what]
    attempt(server, files, revoked)
    # The gates are notified last.
    wait_until(lambda: [gate.failed for gate in GATES] == [1])
    assert metric(server, FAILURES, listener="default", reason=reason) == metric(server, FAILURES) == 1
    (line,) = [record.getMessage() for record in caplog.records if "authentication failed" in record.getMessage()]
    assert re.match(r"listener=default connection_id=127.0.0.1:\d+-127.0.0.1:\d+-0-0 .*: authentication failed: ", line)
    assert answers(server, ssl_context=files.client_context(files.client), server_hostname="localhost")
    assert server.api_set("trying").seen[0].principal.name == "alice", "no other client sent a request"


@pytest.mark.parametrize(
    ("setting", "option", "reason"),
    [
        ("min_version=TLSv1.3", ("maximum_version", ssl.TLSVersion.TLSv1_2), "unsupported_version"),
        ("max_version=TLSv1.2", ("minimum_version", ssl.TLSVersion.TLSv1_3), "unsupported_version"),
    ],
)
def test_a_version_that_is_not_allowed_is_refused(serve, files, setting, option, reason):
    server = serve(*files.server_settings(), f"listeners.default.ssl.{setting}")
    handshake(server, files, **dict([option]))
    wait_until(lambda: metric(server, FAILURES, reason=reason) == 1)


def test_the_settings_select_the_ciphers(serve, files):
    server = serve(*files.server_settings(ciphers="ECDHE-ECDSA-AES256-GCM-SHA384", max_version="TLSv1.2"))
    assert answers(server, ssl_context=files.client_context())
    assert context_of(server).connection.transport_details["tls_cipher"] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    context = files.client_context(version=ssl.TLSVersion.TLSv1_2)
    context.set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305")
    with pytest.raises(ssl.SSLError):
        RawClient(server.address(), ssl_context=context)
    wait_until(lambda: metric(server, FAILURES, reason="no_shared_cipher") == 1)


def test_tls_sent_to_a_plaintext_listener_is_reported(serve, files, caplog):
    server = serve()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        RawClient(server.address(), ssl_context=files.client_context())
    assert "the beginning of a TLS handshake" in caplog.text
    assert metric(server, FAILURES, listener="default", reason="tls_to_plaintext") == 1
    assert answers(server)


def test_a_client_that_leaves_during_the_handshake_is_not_counted_as_a_failed_authentication(serve, files):
    server = serve(*files.server_settings())
    socket.create_connection(server.address(), timeout=60).close()
    wait_until(lambda: metric(server, FAILURES, reason="closed_by_peer") == 1)
    assert [gate.failed for gate in GATES] == [0]


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00"], ids=["silent", "started"])
def test_a_connection_whose_handshake_never_finishes_is_closed(serve, files, first, caplog):
    server = serve(*files.server_settings(), "connection_setup_timeout_ms=60000")
    with socket.create_connection(server.address(), timeout=30) as slow:
        slow.sendall(first)
        wait_until(lambda: any(each.connection_count for each in server.server.listeners[0].processors))
        server.advance_ms(60_000)
        # The system resets a connection that is closed with unread bytes.
        with contextlib.suppress(ConnectionResetError):
            assert slow.recv(1) == b""
    assert metric(server, FAILURES, reason="timed_out") == 1
    assert "not ready within connection_setup_timeout_ms" in caplog.text
    with RawClient(server.address(), ssl_context=files.client_context()) as client:
        for _ in range(5):
            client.call(MetadataRequest(topics=None), 12)
            server.advance_ms(20_000)
    assert metric(server, FAILURES) == 1, "who is ready may stay"


# ---- large responses


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_slow_reader_gets_every_byte_of_many_large_responses(serve, files, version):
    server = serve(*files.server_settings())
    with RawClient(server.address(), ssl_context=files.client_context(version=version)) as client:
        sizes = [31_000 + number for number in range(300)]
        for size in sizes:
            client.send(FindCoordinatorRequest(key=str(size)), 2)
        for number, size in enumerate(sizes, 1):
            if number % 50 == 0:
                threading.Event().wait(0.05)
            assert client.receive(10, 2, number).host == "x" * size


# ---- changed files

RELOAD_INTERVAL_MS = 600_000


def test_certificates_are_swapped_under_load_without_a_dropped_connection(serve, files):
    server = serve(*files.server_settings(client_auth="required", reload_interval_ms=20))
    context = files.client_context(files.client)
    stop = threading.Event()
    served, problems = [0] * 4, []

    def load(number):
        try:
            with RawClient(server.address(), ssl_context=context) as client:
                while not stop.is_set():
                    client.call(MetadataRequest(topics=None), 12)
                    served[number] += 1
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=load, args=(number,)) for number in range(len(served))]
    for thread in threads:
        thread.start()
    serials = set()
    for number in range(5):
        files.issue("server", f"CN=generation {number}", hosts=("localhost", "127.0.0.1"))
        # A reload may read the new certificate before the new key exists. The certificate of the last reload counts.
        wait_until(lambda generation=number: f"generation {generation}" in subject_served(server, context, serials))
    before = list(served)
    wait_until(lambda: all(now > then for now, then in zip(served, before, strict=True)))
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(serials) >= 5
    assert metric(server, "klamm:type=SslTransport,name=Reloads") >= 5
    assert all(served)


def subject_served(server, context, serials):
    with RawClient(server.address(), ssl_context=context) as client:
        certificate = client.socket.getpeercert()
    serials.add(certificate["serialNumber"])
    return str(certificate["subject"])


def test_an_unusable_new_file_is_counted_once_and_the_old_one_stays_in_use(serve, files, caplog):
    server = serve(*files.server_settings(reload_interval_ms=10))
    # The file changes in one step, because the server must not read an empty file.
    (files.directory / "garbage.pem").write_text("garbage")
    os.replace(files.directory / "garbage.pem", files.server.key)
    failures = "klamm:type=SslTransport,name=ReloadFailures"
    wait_until(lambda: metric(server, failures, listener="default") == 1)
    assert answers(server, ssl_context=files.client_context())
    # The server has read the file many more times by now, with the same content.
    threading.Event().wait(0.1)
    assert metric(server, failures) == 1
    assert "listener=default: the new files cannot be used; the old ones stay in use" in caplog.text
    files.issue("server", "CN=mended", hosts=("127.0.0.1",))
    wait_until(lambda: "mended" in subject_served(server, files.client_context(), set()))


def read_files_again(server):
    """Let the server read its files again, and return once it has."""
    has_read = threading.Event()
    # The reload is due no later than this call, and the scheduler runs calls in the order of their times.
    server.server.scheduler.schedule(RELOAD_INTERVAL_MS, has_read.set)
    server.advance_ms(RELOAD_INTERVAL_MS)
    assert has_read.wait(120)


def test_a_missing_file_is_counted_once(serve, files, caplog):
    server = serve(*files.server_settings(reload_interval_ms=RELOAD_INTERVAL_MS))
    failures = "klamm:type=SslTransport,name=ReloadFailures"
    saved = files.server.certificate.read_bytes()
    for times in (1, 2):
        files.server.certificate.unlink()
        for _ in range(3):
            read_files_again(server)
            assert metric(server, failures, listener="default") == times
        assert caplog.text.count("new files cannot be used") == times
        files.server.certificate.write_bytes(saved)
        read_files_again(server)
    assert answers(server, ssl_context=files.client_context())


def test_a_reload_of_files_reports_problems(serve, files):
    server = serve(*files.server_settings(reload_interval_ms=0))
    assert server.server.reload() == []
    assert metric(server, "klamm:type=SslTransport,name=Reloads") == 0, "nothing had changed"
    files.issue("server", "CN=new", hosts=("127.0.0.1",))
    assert server.server.reload() == []
    assert "new" in subject_served(server, files.client_context(), set())
    files.server.certificate.unlink()
    (problem,) = server.server.reload()
    assert problem == f"listener default: SslTransport: {files.server.certificate}: No such file or directory"
    assert answers(server, ssl_context=files.client_context())


def authority_swapped(files, trust_store, crl):
    trust_store.write_bytes(files.directory.joinpath("other.pem").read_bytes())


def client_revoked(files, trust_store, crl):
    crl.write_bytes(revocation_list(files.authority, [files.client.identity.certificate], now=files.now))


def other_revoked(files, trust_store, crl):
    other = files.issue("other-client", "CN=other")
    crl.write_bytes(revocation_list(files.authority, [other.identity.certificate], now=files.now))


def authority_added(files, trust_store, crl):
    trust_store.write_bytes(files.ca.read_bytes() + files.directory.joinpath("other.pem").read_bytes())


@pytest.mark.parametrize("revoke_sessions", [True, False])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (client_revoked, "the client certificate was revoked"),
        (authority_swapped, "no trusted authority issued the client certificate"),
        (other_revoked, None),
        (authority_added, None),
    ],
)
def test_a_client_that_is_no_longer_trusted_is_disconnected(serve, files, change, reason, revoke_sessions):
    crl, trust_store = files.directory / "crl.pem", files.directory / "trust.pem"
    crl.write_bytes(revocation_list(files.authority, [], now=files.now))
    trust_store.write_bytes(files.ca.read_bytes())
    (files.directory / "other.pem").write_bytes(TlsFiles(files.directory / "other", "other CA").ca.read_bytes())
    settings = {} if change in (authority_swapped, authority_added) else {"revocation_lists": [str(crl)]}
    server = serve(
        *files.server_settings(
            client_auth="required",
            trust_store=str(trust_store),
            reload_interval_ms=0,
            revoke_sessions=str(revoke_sessions).lower(),
            **settings,
        )
    )
    events = []
    server.server.services.admin_events.subscribe(events.append)
    with RawClient(server.address(), ssl_context=files.client_context(files.client)) as there:
        there.call(MetadataRequest(topics=None), 12)
        change(files, trust_store, crl)
        assert server.server.reload() == []
        if reason is None or not revoke_sessions:
            there.call(MetadataRequest(topics=None), 12)
            assert not [event for event in events if event.action == "sessions_ended"]
            return
        with pytest.raises((ssl.SSLError, ConnectionError)):
            there.receive_frame()
    (event,) = [event for event in events if event.action == "sessions_ended"]
    assert event.detail.startswith(f"{reason}: connections of User:")


def test_the_expiry_of_certificates_is_a_metric_and_a_warning(serve, files, caplog):
    soon = files.issue("soon", "CN=soon", hosts=("soon.example.org",), days=10)
    server = serve(*files.server_settings(sni=f'{{"soon.example.org"={{certificate="{soon.both}"}}}}'))
    name = "klamm:type=SslTransport,name=CertificateExpiresInSeconds"
    assert metric(server, name, server_name="soon.example.org") / 86_400 == pytest.approx(10, abs=0.1)
    assert metric(server, name, server_name="default") / 86_400 == pytest.approx(397, abs=0.1)
    (line,) = [record.getMessage() for record in caplog.records if "expires" in record.getMessage()]
    assert line == "listener=default: the certificate for server name soon.example.org expires in 10.0 days"


def test_a_name_without_a_certificate_is_counted_and_reported_but_served(serve, files, caplog):
    caplog.set_level("INFO", "klamm.ssl")
    other = files.issue("other", "CN=other", hosts=("other.example.org",))
    server = serve(*files.server_settings(sni=f'{{"other.example.org"={{certificate="{other.both}"}}}}'))
    name = "klamm:type=SslTransport,name=UnknownServerNames"
    context = files.client_context()
    for known in ("localhost", "other.example.org"):
        assert answers(server, ssl_context=context, server_hostname=known)
    assert metric(server, name, listener="default") == 0
    # A client that checks the name closes the connection. A client that does not check it is served.
    handshake(server, files, hostname="wrong.example.org")
    context.check_hostname = False
    assert answers(server, ssl_context=context, server_hostname="wrong.example.org")
    wait_until(lambda: metric(server, name, listener="default") == 2)
    (line,) = [record.getMessage() for record in caplog.records if "no certificate for" in record.getMessage()]
    assert re.fullmatch(
        r"listener=default peer=127.0.0.1:\d+: no certificate for the server name 'wrong.example.org';"
        r" the default one was sent",
        line,
    )
