"""Tests of SslTransportLayer over a socket in memory: how much it reads at a time, and when it must write."""

import random
import ssl
import struct

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given
from hypothesis import strategies as st

from klamm import END_OF_STREAM, WOULD_BLOCK, Address, Interest
from tests.tls_files import TlsFiles
from tests.unit.ssl.test_transport import open_transport

RECORD_BYTES = 16_384
TURN_BYTES = 256 * 1024
RECEIVE_BYTES = 32 * 1024


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return TlsFiles(tmp_path_factory.mktemp("tls"))


class MemorySocket:
    """A socket in memory, with its received and sent bytes. `asked` has the sizes with which `recv` was called."""

    def __init__(self):
        self.arrived = bytearray()
        self.sent = bytearray()
        self.room = 1 << 30
        self.ended = False
        self.asked = []

    def recv(self, size):
        self.asked.append(size)
        if not self.arrived and not self.ended:
            raise BlockingIOError
        data = bytes(self.arrived[:size])
        del self.arrived[:size]
        return data

    def send(self, data):
        count = min(len(data), self.room)
        if not count:
            raise BlockingIOError
        self.room -= count
        self.sent += data[:count]
        return count

    def close(self):
        self.ended = True


class Connection:
    """A transport layer and a client, both in memory."""

    def __init__(self, files, version=None, keys=None):
        self.socket = MemorySocket()
        self.layer = open_transport(files).wrap(self.socket, Address("127.0.0.1", 1))
        context = files.client_context(version=version)
        if keys is not None:
            context.keylog_filename = str(keys)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake_hands(self, first=b""):
        """Complete the handshake. `first` is sent together with its last message."""
        shaken = False
        while True:
            if not shaken:
                try:
                    self.client.do_handshake()
                    shaken = True
                    if first:
                        self.client.write(first)
                except ssl.SSLWantReadError:
                    pass
            self.pass_on()
            if self.layer.handshake() is Interest.NONE:
                break
            self.fetch()
        self.fetch()
        self.read()
        self.socket.asked.clear()
        return self

    def send(self, *pieces):
        for piece in pieces:
            self.client.write(piece)
        self.pass_on()

    def pass_on(self):
        self.socket.arrived += self.outgoing.read()

    def fetch(self):
        self.incoming.write(bytes(self.socket.sent))
        self.socket.sent.clear()

    def read(self):
        self.fetch()
        received = bytearray()
        try:
            while piece := self.client.read(1 << 20):
                received += piece
        except ssl.SSLWantReadError:
            pass
        return bytes(received)

    def layer_reads(self, size):
        buffer = memoryview(bytearray(size))
        count = self.layer.read_into(buffer)
        return bytes(buffer[: max(count, 0)])


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def connection(request, files):
    return Connection(files, request.param).shake_hands()


def test_several_small_records_cost_one_system_call(connection):
    draw = random.Random(6)
    pieces = [draw.randbytes(size) for _ in range(60) for size in (10, 1024)]
    connection.send(*pieces)
    assert connection.layer_reads(1 << 20) == b"".join(pieces)
    assert len(connection.socket.asked) <= 4


def test_a_small_request_costs_one_system_call(connection):
    connection.send(b"a request")
    assert connection.layer_reads(1 << 18) == b"a request"
    assert len(connection.socket.asked) == 1
    assert not connection.layer.has_buffered_data


def test_the_bytes_of_a_turn_are_limited(connection):
    data = random.Random(1).randbytes(1 << 20)
    connection.send(data)
    first = connection.layer_reads(1 << 21)
    assert TURN_BYTES // 2 < len(first) <= TURN_BYTES + RECEIVE_BYTES
    received = first
    while len(received) < len(data):
        assert connection.socket.arrived or connection.layer.has_buffered_data
        received += connection.layer_reads(1 << 21)
    assert received == data


@pytest.mark.parametrize("size", [1, 1000, 4096, RECORD_BYTES])
def test_at_most_a_record_is_read_ahead_of_a_small_buffer(connection, size):
    data = random.Random(2).randbytes(100_000)
    connection.send(data)
    arrived = len(connection.socket.arrived)
    received = b""
    for _ in range(50_000 // size):
        received += connection.layer_reads(size)
        assert arrived - len(connection.socket.arrived) - len(received) <= 2 * RECORD_BYTES + 1000
    assert data.startswith(received)


def test_an_incomplete_record_waits(connection):
    connection.send(b"x" * 10_000)
    rest = connection.socket.arrived[5000:]
    del connection.socket.arrived[5000:]
    assert connection.layer_reads(100_000) == b""
    assert not connection.layer.has_buffered_data
    connection.socket.arrived += rest
    assert connection.layer_reads(100_000) == b"x" * 10_000


def test_data_that_arrives_with_the_end_of_the_handshake_is_read(files):
    connection = Connection(files).shake_hands(b"first")
    assert connection.layer.has_buffered_data
    assert connection.layer_reads(5) == b"first"
    assert connection.socket.asked == []
    assert not connection.layer.has_buffered_data


def test_close_notify_ends_a_connection_although_the_socket_is_open(connection):
    connection.client.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        connection.client.unwrap()
    connection.pass_on()
    assert connection.layer_reads(100) == b"last"
    assert connection.layer.has_buffered_data
    assert connection.layer.read_into(memoryview(bytearray(100))) == END_OF_STREAM


def test_the_client_gets_an_alert_for_a_broken_record(connection):
    connection.send(b"x" * 100)
    connection.socket.arrived[-1] ^= 1
    with pytest.raises(ssl.SSLError):
        connection.layer_reads(100)
    with pytest.raises(ssl.SSLError, match="(?i)alert bad record mac"):
        connection.read()


@given(
    sizes=st.lists(st.integers(1, 150_000), min_size=1, max_size=5),
    rooms=st.lists(st.integers(0, 120_000), max_size=20),
    offered=st.lists(st.integers(1, 1500) | st.integers(1, 200_000), max_size=10),
)
def test_every_byte_is_sent_once_in_any_portions(files, sizes, rooms, offered):
    connection = Connection(files).shake_hands()
    data = random.Random(3).randbytes(sum(sizes))
    received, position = b"", 0
    rooms, offered = [*rooms], [*offered]
    while position < len(data):
        connection.socket.room = rooms.pop() if rooms else 1 << 30
        # A send that was extended, or a piece of a file, is offered again like this.
        end = position + (offered.pop() if offered else len(data))
        chunks = [data[position : position + 1000], data[position + 1000 : end]]
        position += connection.layer.write(chunks if chunks[1] else chunks[:1])
        received += connection.read()
    assert received == data


def test_a_small_answer_that_the_socket_refused_first_is_sent_once(connection):
    connection.socket.room = 10
    assert connection.layer.write([b"an answer"]) == WOULD_BLOCK
    assert connection.layer.write([b"an answer"]) == WOULD_BLOCK
    connection.socket.room = 1 << 30
    assert connection.layer.write([b"an answer, and more"]) == 19
    assert connection.layer.write([b"."]) == 1
    assert connection.read() == b"an answer, and more."


def test_closing_does_not_cut_a_record_that_waits_for_the_socket(connection):
    connection.socket.room = 1000
    assert connection.layer.write([b"x" * 5000]) == WOULD_BLOCK
    connection.layer.close()
    assert len(connection.socket.sent) == 1000


class KeyUpdates:
    """Makes the records with which a client requests new keys repeatedly (RFC 8446, sections 4.6.3 and 7.2)."""

    def __init__(self, keys):
        lines = dict(line.split()[::2] for line in keys.read_text().splitlines() if not line.startswith("#"))
        self._secret = bytes.fromhex(lines["CLIENT_TRAFFIC_SECRET_0"])

    def _expand(self, label, length):
        info = struct.pack(">HB", length, 6 + len(label)) + b"tls13 " + label + b"\0"
        return HKDFExpand(SHA384(), length, info).derive(self._secret)

    def record(self):
        key, nonce = self._expand(b"key", 32), self._expand(b"iv", 12)
        self._secret = self._expand(b"traffic upd", 48)
        head = struct.pack(">BHH", 23, 0x0303, 6 + 16)
        return head + AESGCM(key).encrypt(nonce, bytes([24, 0, 0, 1, 1, 22]), head)


def test_key_updates_are_answered_and_a_peer_that_does_not_read_the_answers_is_closed(files, tmp_path):
    keys = tmp_path / "keys"
    connection = Connection(files, keys=keys).shake_hands()
    assert connection.client.cipher()[0] == "TLS_AES_256_GCM_SHA384"
    updates = KeyUpdates(keys)
    connection.socket.arrived += updates.record()
    assert connection.layer_reads(100) == b""
    assert connection.layer.write([b"with new keys"]) == 13
    assert connection.read() == b"with new keys"
    connection.socket.room = 0

    def ask_for_many():
        for _ in range(10_000):
            connection.socket.arrived += updates.record()
            connection.layer_reads(100)

    with pytest.raises(ConnectionError, match="does not read"):
        ask_for_many()
