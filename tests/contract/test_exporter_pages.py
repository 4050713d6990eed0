"""Tests of the HTTP server of the extension `prometheus`: health pages, invalid requests, and slow HTTP clients."""

import http.client
import socket

import pytest

from klamm import ApiSet, Provider, hookimpl
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.metadata import MetadataRequest
from tests.contract.exporters import EXPORTER, eventually, exporter, get, servers_with_exporter


@pytest.fixture
def start():
    yield from servers_with_exporter()


def test_the_pages_of_a_running_server(start):
    server = start()
    assert get(server, "/live") == (200, "alive\n")
    assert get(server, "/started") == (200, "started\n")
    assert get(server, "/ready") == (200, "ready\n")
    assert get(server, "/")[0] == 404
    status, text = get(server, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert status == 200
    assert text.endswith("# EOF\n")


class SlowStart(ApiSet):
    """A handler set that records what the health pages return while the server stops."""

    def listener_opened(self, listener):
        self.services = listener.services

    def close(self):
        STOPPED.append([get(CURRENT[0], path) for path in ("/ready", "/started", "/live")])


CURRENT, STOPPED = [], []


class SlowStartPlugin:
    @hookimpl
    def klamm_api_sets(self):
        yield Provider("slow_start", "tests.contract.test_exporter_pages:SlowStart")


def test_ready_fails_before_the_start_is_complete_and_during_the_stop():
    server = EmbeddedServer(["listeners.default.api_set=slow_start", *EXPORTER], plugins=[SlowStartPlugin()])
    CURRENT[:], STOPPED[:] = [server], []
    starting = []
    start_listener = type(server.server)._open_extension

    def open_and_look(self, part):
        start_listener(self, part)
        starting.append([get(server, path) for path in ("/ready", "/started", "/live")])

    server.server._open_extension = open_and_look.__get__(server.server)
    server.start()
    assert starting == [[(503, "the server is starting\n"), (503, "the server is starting\n"), (200, "alive\n")]]
    assert get(server, "/ready") == (200, "ready\n")
    server.stop()
    assert STOPPED == [[(503, "the server is stopping\n"), (200, "started\n"), (200, "alive\n")]]
    with pytest.raises(OSError, match="refused"):
        get(server, "/ready")


def test_a_server_with_a_stuck_processor_is_not_ready(start, monkeypatch):
    server = start("listeners.default.dispatch=inline")
    trying = server.api_set("trying")
    with RawClient(server.address()) as client:
        client.send(HeartbeatRequest(group_id="block"), 4)
        assert trying.arrived.acquire(timeout=60)
        monkeypatch.setattr("klamm_metrics.exporter._STUCK_AFTER_MS", 1)
        assert eventually(lambda: get(server, "/ready")[0] == 503)
        assert "listener=default networkProcessor=0 has not finished a turn of its loop for" in get(server, "/ready")[1]
        monkeypatch.undo()
        trying.release.set()
        client.receive_frame()
    assert eventually(lambda: get(server, "/ready")[0] == 200)


def test_slow_scrapers_delay_no_other_client(start):
    server = start()
    slow = [socket.create_connection(exporter(server).address, timeout=60) for _ in range(8)]
    for one in slow:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(b"GET /metrics HTTP/1.0\r\n")
    assert get(server, "/metrics")[0] == 200
    with RawClient(server.address()) as client:
        client.call(MetadataRequest(topics=None), 12)
    for one in slow:
        one.close()


def test_many_slow_clients_block_no_other_client(start):
    server = start()
    slow = []
    for _ in range(40):
        one = socket.create_connection(exporter(server).address, timeout=60)
        one.sendall(b"GET ")
        slow.append(one)
    for path in ("/live", "/ready", "/metrics"):
        assert get(server, path)[0] == 200
    for one in slow:
        one.close()


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x00\x05hello", b"POST /metrics HTTP/1.1\r\n\r\n", b"GET /\xff\r\n\r\n"]
)
def test_invalid_requests_for_metrics_are_refused(start, garbage):
    server = start()
    with socket.create_connection(exporter(server).address, timeout=60) as sock:
        sock.sendall(garbage + b"\r\n")
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass
    assert get(server, "/live")[0] == 200


def test_head_has_no_body(start):
    server = start()
    connection = http.client.HTTPConnection(*exporter(server).address, timeout=60)
    connection.request("HEAD", "/live")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()
