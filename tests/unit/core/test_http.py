"""Tests of the base of HTTP servers: slow requests, and unusable addresses."""

import contextlib
import select
import socket

import pytest

from klamm.http import HttpHandler, HttpServer


class Answers(HttpHandler):
    timeout = 0.2
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, "text/plain", b"fine")

    def do_POST(self):
        self.rfile.read(self.body_length())
        self.answer(200, "text/plain", b"fine")


class Careless(Answers):
    """A handler that treats an error of the body as its own."""

    def do_POST(self):
        try:
            self.rfile.read(self.body_length())
        except Exception:
            self.answer(500, "text/plain", b"failed")


@pytest.fixture
def server():
    server = HttpServer(("127.0.0.1", 0), Answers, "http-under-test")
    server.start()
    yield server
    server.close()


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\nX: ", b"POST / HTTP/1.1\r\nContent-Length: 9999\r\n\r\n"], ids=["head", "body"]
)
def test_a_client_that_sends_single_bytes_slowly_is_disconnected(server, start):
    with socket.create_connection(server.address, timeout=60) as sock:
        sock.sendall(start)
        for _ in range(200):
            if select.select([sock], [], [], 0.05)[0]:
                break
            sock.send(b"x")
        else:
            pytest.fail("it still has its place")
        with contextlib.suppress(ConnectionError):
            assert sock.recv(1) == b""


def test_the_rest_of_a_late_body_is_not_read_as_a_request():
    server = HttpServer(("127.0.0.1", 0), Careless, "http-under-test")
    server.start()
    try:
        with socket.create_connection(server.address, timeout=60) as sock:
            sock.sendall(b"POST / HTTP/1.1\r\nContent-Length: 9999\r\n\r\n")
            received = sock.recv(4096)
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while more := sock.recv(4096):
                    received += more
    finally:
        server.close()
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in received


def test_each_request_of_a_connection_has_its_own_time_limit(server):
    with socket.create_connection(server.address, timeout=60) as sock:
        for _ in range(3):
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            received = b""
            while not received.endswith(b"fine"):
                received += sock.recv(4096)


def test_an_address_that_cannot_be_resolved_is_named():
    with pytest.raises(OSError, match="none") as refused:
        HttpServer(("fe80::1%none", 1), Answers, "http-under-test")
    assert refused.value.filename == "[fe80::1%none]:1"
