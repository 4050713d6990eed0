"""Tests of the exporter's HTTP server: deadlines, limits, and which connections end if there are too many."""

import contextlib
import socket
import threading

import pytest

from klamm.testing import ManualClock
from klamm_metrics.http import CONNECTIONS, DEADLINE_S, Page, PageServer
from tests.waiting import wait_until

DEADLINE_MS = int(DEADLINE_S * 1000)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def server(clock):
    def fail(_request):
        raise ZeroDivisionError

    pages = {"/ok": lambda request: Page(200, request.accept.encode() or b"fine"), "/bad": fail}
    server = PageServer(("127.0.0.1", 0), pages, clock)
    server.start()
    yield server
    server.close()


def connect(server, sent=b"", host="127.0.0.1"):
    sock = socket.create_connection(server.address, timeout=60, source_address=(host, 0))
    sock.sendall(sent)
    return sock


def answer(sock):
    """Return all bytes until the end; None if the connection is closed or reset without an answer."""
    received = b""
    try:
        while data := sock.recv(4096):
            received += data
    except ConnectionError:
        pass
    finally:
        sock.close()
    return received or None


def get(server, path="/ok", host="127.0.0.1"):
    return answer(connect(server, f"GET {path} HTTP/1.1\r\nAccept: x/y\r\n\r\n".encode(), host))


def count(server):
    return len(server._open)


def test_the_page_is_served_and_others_are_not_found(server):
    head, _, body = get(server).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200")
    assert body == b"x/y"
    assert get(server, "/other").startswith(b"HTTP/1.0 404")


def test_a_page_that_raises_gets_an_error_response(server):
    assert get(server, "/bad").startswith(b"HTTP/1.0 500")
    assert get(server).startswith(b"HTTP/1.0 200")


@pytest.mark.parametrize("sent", [b"", b"GET /ok HTTP/1.1\r\nA: b\r\n"])
def test_connections_are_closed_at_their_deadline(server, clock, sent):
    slow = [connect(server, sent) for _ in range(5)]
    wait_until(lambda: count(server) == 5)
    clock.advance_ms(DEADLINE_MS - 1)
    late = connect(server, sent)
    wait_until(lambda: count(server) == 6)
    clock.advance_ms(1)
    assert [answer(sock) for sock in slow] == [None] * 5
    wait_until(lambda: count(server) == 1)
    late.sendall(b"\r\n" if sent else b"GET /ok HTTP/1.1\r\n\r\n")
    assert answer(late) is not None


def test_slowly_sent_bytes_do_not_extend_the_deadline(server, clock):
    slow = connect(server, b"GET /ok HTTP/1.1\r\n")
    wait_until(lambda: count(server) == 1)
    for _ in range(10):
        # The last bytes may be sent to a closed connection.
        with contextlib.suppress(ConnectionError):
            slow.sendall(b"A: b\r\n")
        clock.advance_ms(DEADLINE_MS // 10)
    assert answer(slow) is None


def test_the_newest_request_is_answered_however_many_wait(server):
    slow = [connect(server, b"GET ") for _ in range(5 * CONNECTIONS)]
    assert get(server).startswith(b"HTTP/1.0 200")
    assert count(server) <= CONNECTIONS
    wait_until(lambda: server._thread_places._value >= CONNECTIONS)
    for sock in slow:
        sock.close()


def test_an_address_with_many_connections_loses_its_own(server):
    patient = connect(server, b"GET /ok HTTP/1.1\r\n", host="127.0.0.2")
    wait_until(lambda: count(server) == 1)
    slow = [connect(server, b"GET ") for _ in range(3 * CONNECTIONS)]
    wait_until(lambda: count(server) == CONNECTIONS)
    patient.sendall(b"\r\n")
    assert answer(patient).startswith(b"HTTP/1.0 200")
    for sock in slow:
        sock.close()


def test_a_request_that_is_too_large_is_not_read(server):
    assert answer(connect(server, b"GET /ok HTTP/1.1\r\n" + b"A: b\r\n" * 4000)) is None
    assert get(server).startswith(b"HTTP/1.0 200")


def test_a_connection_gets_one_answer(server):
    sock = connect(server, b"GET /ok HTTP/1.1\r\nConnection: keep-alive\r\n\r\n" * 2)
    assert answer(sock).count(b"HTTP/1.0 200") == 1


def test_closing_the_server_closes_all_connections(clock):
    before = threading.active_count()
    server = PageServer(("127.0.0.1", 0), {}, clock)
    server.start()
    assert get(server).startswith(b"HTTP/1.0 404")
    server.close()
    wait_until(lambda: threading.active_count() == before)


def test_a_taken_address_is_named(clock):
    server = PageServer(("127.0.0.1", 0), {}, clock)
    try:
        port = server.address[1]
        with pytest.raises(OSError, match="in use") as taken:
            PageServer(("127.0.0.1", port), {}, clock)
        assert taken.value.filename == f"127.0.0.1:{port}"
    finally:
        server.server_close()
