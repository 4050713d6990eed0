"""Tests of connections through a proxy: trusted proxies, the client's address, and the address that gates check."""

import contextlib
import socket
import struct

import pytest

from klamm.testing import EmbeddedServer
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.metadata import MetadataRequest
from tests.contract.api_sets import GATES, OBSERVERS, Plugin
from tests.contract.test_tls import FAILURES, metric
from tests.waiting import wait_until

V1 = b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 9092\r\n"
V2 = b"\r\n\r\n\0\r\nQUIT\n" + struct.pack(">BBH4s4sHH", 0x21, 0x11, 12, bytes([203, 0, 113, 7]), bytes(4), 4711, 9092)
LOCAL = b"\r\n\r\n\0\r\nQUIT\n" + struct.pack(">BBH", 0x20, 0, 0)
TRUSTED, ELSEWHERE = 'trusted_proxies=["127.0.0.0/8"]', 'trusted_proxies=["192.0.2.1"]'


@pytest.fixture
def context(client_options):
    return client_options.get("ssl_context")


@pytest.fixture
def serve(on_channel):
    servers = []
    GATES.clear()
    OBSERVERS.clear()

    def serve_one(*settings):
        own = ["api_set=trying", 'gates=["fussy"]', 'observers=["tell_tale"]', *settings]
        lines = [text if "." in text.partition("=")[0] else f"listeners.default.{text}" for text in own]
        servers.append(EmbeddedServer([*lines, *on_channel()], plugins=[Plugin()]).start())
        return servers[-1]

    yield serve_one
    for server in servers:
        server.stop()


def ask(server, header, context, pieces=1):
    """Send a header and then a request. Return the response, or b"" if the server closed the connection."""
    frame = encode_request_header(3, 12, 1, "raw") + MetadataRequest(topics=None).encode(12)
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.create_connection(server.address(), timeout=60))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = len(header) // pieces + 1
        for start in range(0, len(header), size):
            sock.sendall(header[start : start + size])
        try:
            if context is not None:
                sock = stack.enter_context(context.wrap_socket(sock, server_hostname="localhost"))
            sock.sendall(struct.pack(">i", len(frame)) + frame)
            return sock.recv(1000)
        except TimeoutError:
            raise
        except OSError:
            return b""


@pytest.mark.parametrize("mode", ["optional", "required"])
@pytest.mark.parametrize("header", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("pieces", [1, 7])
def test_a_trusted_proxys_header_names_the_client(serve, context, mode, header, pieces):
    server = serve(f"proxy_protocol={mode}", TRUSTED)
    assert ask(server, header, context, pieces)
    (seen,) = server.api_set("trying").seen
    assert seen.client_address == ("203.0.113.7", 4711)
    assert seen.connection.proxy_address.host == "127.0.0.1"
    assert "-203.0.113.7:4711-0-" in seen.connection.connection_id
    (gate,) = GATES
    wait_until(lambda: (gate.asked, gate.released) == ([("203.0.113.7", 4711)], 1))
    (observer,) = OBSERVERS
    assert [event[1].client_address.host for event in observer.events if event[0] == "opened"] == ["203.0.113.7"]
    assert metric(server, FAILURES) == 0


@pytest.mark.parametrize("header", [b"", LOCAL], ids=["no header", "local"])
def test_a_proxy_without_a_clients_address_is_itself_the_client(serve, context, header):
    server = serve("proxy_protocol=optional", TRUSTED)
    assert ask(server, header, context)
    (seen,) = server.api_set("trying").seen
    assert seen.client_address.host == "127.0.0.1"
    assert GATES[0].admitted == 1


REFUSED = {
    "untrusted, with a header": ("optional", ELSEWHERE, V1, "proxy_untrusted"),
    "untrusted, version 2": ("optional", ELSEWHERE, V2, "proxy_untrusted"),
    "untrusted, and a header is required": ("required", ELSEWHERE, V1, "proxy_untrusted"),
    "untrusted, without the header that is required": ("required", ELSEWHERE, b"", "proxy_untrusted"),
    "trusted, without the header that is required": ("required", TRUSTED, b"", "proxy_header_missing"),
    "trusted, with a wrong header": ("optional", TRUSTED, b"PROXY nonsense and more\r\n", "proxy_header_invalid"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_peer_that_breaks_the_proxy_rules_is_closed_logged_and_counted(serve, context, what, caplog):
    caplog.set_level("INFO", "klamm.network")
    mode, proxies, header, reason = REFUSED[what]
    server = serve(f"proxy_protocol={mode}", proxies)
    assert ask(server, header, context) == b""
    wait_until(lambda: metric(server, FAILURES, reason=reason) == 1)
    assert server.api_set("trying").seen == []
    assert "listener=default" in caplog.text
    assert "127.0.0.1:" in caplog.text
    (gate,) = GATES
    wait_until(lambda: gate.admitted == gate.released)


def test_an_untrusted_peer_is_accepted_without_a_header_if_the_header_is_optional(serve, context):
    server = serve("proxy_protocol=optional", ELSEWHERE)
    assert ask(server, b"", context)
    assert (GATES[0].admitted, server.api_set("trying").seen[0].connection.proxy_address) == (1, None)


@pytest.mark.parametrize("say", ["refuse", "raise", "delay"])
def test_a_gate_refuses_or_delays_the_client_and_not_the_proxy(serve, context, say):
    server = serve("proxy_protocol=required", TRUSTED, f"listeners.default.fussy.say={say}")
    assert ask(server, V1, context) == b""
    reason = "gate_failed" if say == "raise" else "fussy"
    wait_until(lambda: metric(server, FAILURES, reason=reason) == 1)
    assert server.api_set("trying").seen == []
    name = "ConnectionsDelayed" if say == "delay" else "ConnectionsRefused"
    assert metric(server, f"klamm:type=Acceptor,name={name}", reason=reason) == 1


def test_a_delay_that_would_pause_the_acceptor_delays_only_the_proxied_connection(serve, context):
    server = serve("proxy_protocol=required", TRUSTED, "listeners.default.fussy.say=pause")
    assert ask(server, V1, context)
    (gate,) = GATES
    assert gate.asked == [("203.0.113.7", 4711)] * 3, "twice Delay, then in"
    assert metric(server, "klamm:type=Acceptor,name=ConnectionsPaused", reason="fussy") == 1
    wait_until(lambda: (gate.admitted, gate.released) == (1, 1))


def test_a_connection_with_an_endless_header_is_closed(serve, context):
    server = serve("proxy_protocol=required", TRUSTED, "connection_setup_timeout_ms=300")
    with socket.create_connection(server.address(), timeout=60) as slow:
        slow.sendall(V1[:10])
        assert slow.recv(1) == b""
    assert metric(server, FAILURES, reason="timed_out") == 1
