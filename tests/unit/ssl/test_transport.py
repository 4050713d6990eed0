"""Tests of SslTransportLayer over a socket pair with small buffers: all bytes arrive in order, with any sizes."""

import contextlib
import os
import random
import socket
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm import END_OF_STREAM, WOULD_BLOCK, Address, HandshakeError, Interest, ListenerContext, ServerServices
from klamm.network.send import NetworkSend
from klamm.testing import ManualClock
from klamm_ssl.ssl_settings import SslSettings
from klamm_ssl.tls_layer import _pieces
from klamm_ssl.transport import SslTransport
from tests.tls_files import TlsFiles

PEER = Address("127.0.0.1", 1)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return TlsFiles(tmp_path_factory.mktemp("tls"))


def open_transport(files, clock=None, **more):
    transport = SslTransport(
        SslSettings(certificate=files.server.certificate, private_key=files.server.key, **more), {}
    )
    transport.open(ListenerContext("test", PEER, PEER, services=ServerServices(clock or ManualClock())))
    return transport


class Pair:
    """A transport layer and a client at the other end. Both are non-blocking and take turns on one thread."""

    def __init__(self, files, version=None, **more):
        server, client = socket.socketpair()
        for end in (server, client):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
            end.setblocking(False)
        self.layer = open_transport(files, **more).wrap(server, PEER)
        context = files.client_context(version=version)
        self.client = context.wrap_socket(client, server_hostname="localhost", do_handshake_on_connect=False)
        self.started = False

    def shake_hands(self):
        shaken = False
        interest = Interest.READ
        while not shaken or interest is not Interest.NONE:
            try:
                self.client.do_handshake()
                shaken = True
            except ssl.SSLWantReadError:
                pass
            interest = self.layer.handshake()
        return self

    def read_some(self, size=100_000):
        try:
            return self.client.recv(size)
        except ssl.SSLWantReadError:
            return b""

    def close(self):
        self.layer.close()
        self.client.close()


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def pair(request, files):
    pair = Pair(files, request.param).shake_hands()
    yield pair
    pair.close()


def drain(pair, send, total, patience=200_000):
    received = bytearray()
    done = False
    for _ in range(patience):
        done = done or send.write_to(pair.layer)
        received += pair.read_some()
        if done and len(received) == total:
            return bytes(received)
    raise AssertionError(f"{len(received)} of {total} bytes came")


class Region:
    """A region of a file, as in responses."""

    def __init__(self, file, position, size_bytes):
        self.file = file
        self.position = position
        self.size_bytes = size_bytes
        self.closed = False

    def fileno(self):
        return self.file.fileno()

    def read_into(self, position, buffer):
        return os.preadv(self.fileno(), [buffer], position)

    def close(self):
        self.closed = True


@pytest.mark.parametrize("scratch", [None, 100_000])
def test_buffers_and_file_regions_arrive_completely_with_a_slow_socket(pair, tmp_path, scratch):
    content = random.Random(1).randbytes(700_000)
    path = tmp_path / "log"
    path.write_bytes(content)
    with path.open("rb") as file:
        region = Region(file, 1000, 600_000)
        chunks = [b"head", content[:70_000], memoryview(content)[:200_000], b"a", b"b", region, b"tail", bytes(65_537)]
        wanted = b"".join(content[1000:601_000] if chunk is region else bytes(chunk) for chunk in chunks)
        send = NetworkSend(chunks, None if scratch is None else memoryview(bytearray(scratch)))
        assert drain(pair, send, len(wanted)) == wanted
        assert region.closed


def test_data_added_while_a_send_waits_follows_it(pair):
    first, second = random.Random(2).randbytes(300_000), random.Random(3).randbytes(100_000)
    send = NetworkSend([first[:100], first[100:]], None)
    assert not send.write_to(pair.layer)
    send.extend([second])
    assert drain(pair, send, 400_000) == first + second


def test_a_file_that_has_become_shorter_is_an_error(pair, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"short")
    with path.open("rb") as file, pytest.raises(OSError, match="ends before"):
        pair.layer.send_file(file.fileno(), 0, 10)


def test_reading_returns_received_bytes_and_shows_if_more_are_buffered(pair):
    buffer = memoryview(bytearray(10_000))
    assert pair.layer.read_into(buffer) == WOULD_BLOCK
    pair.client.send(b"x" * 5000)
    assert pair.layer.read_into(buffer[:2000]) == 2000
    assert pair.layer.has_buffered_data
    assert pair.layer.read_into(buffer) == 3000
    assert not pair.layer.has_buffered_data
    # If session tickets were unread, closing would reset the connection.
    with contextlib.suppress(ssl.SSLWantReadError):
        pair.client.recv(1)
    pair.client.close()
    assert pair.layer.read_into(buffer) == END_OF_STREAM


def test_one_read_returns_several_records(pair):
    data = random.Random(4).randbytes(3 * 16_384 + 5)
    sent, received = 0, bytearray()
    buffer = memoryview(bytearray(100_000))
    reads = 0
    while len(received) < len(data):
        with contextlib.suppress(ssl.SSLWantWriteError):
            sent += pair.client.send(data[sent : sent + 16_384]) if sent < len(data) else 0
        count = pair.layer.read_into(buffer)
        reads += 1
        received += buffer[: max(count, 0)]
    assert received == data
    assert reads < 100


def test_closing_sends_close_notify(pair):
    pair.layer.close()
    # Without close_notify this would raise SSLEOFError.
    pair.client.setblocking(True)
    pair.client.settimeout(5)
    pair.client.suppress_ragged_eofs = False
    assert pair.client.recv(1) == b""
    pair.layer.close()


def test_a_handshake_waits_and_fails_with_a_short_reason(files):
    pair = Pair(files)
    assert pair.layer.handshake() is Interest.READ
    plain = socket.socket(fileno=os.dup(pair.client.fileno()))
    plain.sendall(b"\0\0\0\x10 a request in plain text")
    with pytest.raises(HandshakeError, match="plain text") as raised:
        pair.layer.handshake()
    assert raised.value.reason == "not_tls"
    plain.close()
    pair.close()


@given(
    chunks=st.lists(st.integers(0, 200_000), min_size=1, max_size=8),
    taken=st.integers(0, 20),
)
def test_pieces_have_a_maximum_size_and_are_the_same_when_they_are_offered_again(chunks, taken):
    data = random.Random(5).randbytes(sum(chunks))
    cut, position = [], 0
    for size in chunks:
        cut.append(data[position : position + size])
        position += size
    pieces = list(_pieces(cut))
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= 65_536 for piece in pieces)
    # A NetworkSend keeps this after it has sent the first pieces.
    gone = sum(map(len, pieces[:taken]))
    left = []
    for chunk in cut:
        if gone >= len(chunk):
            gone -= len(chunk)
        else:
            left.append(memoryview(chunk)[gone:])
            gone = 0
    assert [bytes(piece) for piece in _pieces(left)] == [bytes(piece) for piece in pieces[taken:]]


def test_a_warning_is_logged_before_a_certificate_expires(files, caplog):
    clock = ManualClock(wall_ms=int(files.now.timestamp() * 1000))
    transport = open_transport(files, clock)
    assert caplog.messages == []
    clock.advance_ms(370 * 86_400_000)
    transport.warn_of_expiration()
    assert "expires in 27" in caplog.text
    clock.advance_ms(40 * 86_400_000)
    transport.warn_of_expiration()
    assert caplog.messages[-1] == "listener=test: the certificate for server name default has expired"
    transport.close()
