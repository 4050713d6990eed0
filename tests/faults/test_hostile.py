"""Malicious or broken peers do not harm other clients, and take no memory."""

from __future__ import annotations

import os
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bench.frames import record_batch
from bench.load import IdleConnections
from klamm.wire.errors import ErrorCode
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.faults.bystander import unharmed
from tests.peers.probe import API_VERSIONS_V0, receive_frame
from tests.peers.server import HOST, Server
from tests.peers.target import TARGET, target_server
from tests.peers.wire_client import WireClient, encode_frame

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]
WITHIN_S = 1.0
"""Time within which a bad request must get an error, or its connection must be closed."""
FEW_MIB_BYTES = 6 << 20
IDLE_CONNECTIONS = 5_000

only_klamm = pytest.mark.skipif(TARGET != "klamm", reason="Apache Kafka does not keep this promise")


def connect(server: Server) -> socket.socket:
    return socket.create_connection((HOST, server.port), 10)


@contextmanager
def crowd(server: Server, count: int) -> Iterator[list[socket.socket]]:
    """Open `count` connections, and close them at the end of the block."""
    with ExitStack() as stack:
        yield [stack.enter_context(connect(server)) for _ in range(count)]


@contextmanager
def hardly_any_memory(server: Server) -> Iterator[None]:
    """Fail if the server's memory grows by more than a few MiB during the block."""
    before = server.rss_bytes()
    yield
    grown = server.rss_bytes() - before
    assert grown < FEW_MIB_BYTES, f"memory grew by {grown / (1 << 20):.1f} MiB"


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


METADATA = encode_frame(MetadataRequest(None), 12)

BAD_BYTES = {
    "a size of -1": struct.pack(">i", -1),
    "the smallest size": struct.pack(">i", -(1 << 31)),
    "a size of 2 GiB": struct.pack(">i", (1 << 31) - 1),
    "one byte more than socket.request.max.bytes": struct.pack(">i", 100 * (1 << 20) + 1),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    "a TLS handshake": bytes.fromhex("16030100f1010000ed0303") + bytes(240),
    "an empty frame": struct.pack(">i", 0),
    "half a header": framed(b"\0\3\0"),
    "a client id longer than the frame": framed(struct.pack(">hhih", 3, 9, 1, 32000) + b"x"),
    "an unknown API key": framed(struct.pack(">hhih", 999, 0, 1, -1)),
    "a negative API key": framed(struct.pack(">hhih", -5, 0, 1, -1)),
    "an unknown version": framed(struct.pack(">hhih", 3, 99, 1, -1)),
    "a version that Kafka 4 has removed": framed(struct.pack(">hhih", 0, 2, 1, -1)),
    "a negative version": framed(struct.pack(">hhih", 3, -1, 1, -1)),
    "no body": framed(encode_request_header(3, 12, 1)),
    "half a body": framed(METADATA[4:-1]),
    "an array of two thousand million topics": framed(
        encode_request_header(3, 1, 1) + struct.pack(">i", (1 << 31) - 1)
    ),
    "a varint without an end": framed(encode_request_header(3, 12, 1) + b"\xff" * 32),
    "a string that is not UTF-8": framed(encode_request_header(3, 1, 1) + b"\0\0\0\1\0\2\xff\xfe"),
    "noise": framed(bytes(range(256)) * 4),
}


@pytest.mark.parametrize("data", BAD_BYTES.values(), ids=BAD_BYTES)
def test_bad_bytes_end_in_an_error_or_a_close(server: Server, data: bytes) -> None:
    with unharmed(server, least_requests=5), connect(server) as peer:
        peer.settimeout(WITHIN_S)
        peer.sendall(data)
        try:
            answer = peer.recv(4096)
        except ConnectionResetError:
            answer = b""
    assert answer == b"" or len(answer) > 8, answer


def test_an_unknown_version_of_api_versions_is_answered(server: Server) -> None:
    with connect(server) as peer:
        peer.settimeout(WITHIN_S)
        peer.sendall(framed(encode_request_header(18, 99, 7) + b"\5what\5ever\0"))
        answer = receive_frame(peer)
        assert struct.unpack_from(">i", answer) == (7,)
        response = ApiVersionsResponse.decode(0, answer, 4)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert 18 in {api.api_key for api in response.api_keys}
        peer.sendall(encode_frame(ApiVersionsRequest("klamm-test", "1"), 3, correlation_id=8))
        assert ApiVersionsResponse.decode(3, receive_frame(peer), 4).error_code == ErrorCode.NONE


def test_a_frame_may_come_byte_by_byte(server: Server) -> None:
    with unharmed(server), connect(server) as peer:
        for byte in API_VERSIONS_V0:
            peer.sendall(bytes([byte]))
            time.sleep(0.01)
        assert struct.unpack_from(">ih", receive_frame(peer)) == (1, 0)


def test_half_sent_frames_delay_no_other_client(server: Server) -> None:
    with crowd(server, 50) as peers, unharmed(server), hardly_any_memory(server):
        for peer in peers:
            peer.sendall(METADATA[: len(METADATA) // 2])
        time.sleep(0.2)


def test_peers_that_vanish_in_the_middle_of_a_frame_are_forgotten(server: Server) -> None:
    with unharmed(server), hardly_any_memory(server):
        for _ in range(200):
            with connect(server) as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.sendall(METADATA[:-2])


@only_klamm
def test_a_declared_size_costs_no_memory(server: Server) -> None:
    with crowd(server, 50) as peers, unharmed(server), hardly_any_memory(server):
        for peer in peers:
            peer.sendall(struct.pack(">i", 90_000_000) + b"\0\0\0\0")
        time.sleep(0.5)


def fill(server: Server, topic: str, mib: int) -> None:
    """Create a topic of one partition with `mib` MiB of records."""
    batch = record_batch(1, 1_000_000)
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
    with WireClient(HOST, server.port) as client:
        client.call(CreateTopicsRequest([CreatableTopic(topic, 1, 1)]), 5)
        written, deadline = 0, time.monotonic() + 30
        while written < mib:
            answer = client.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), 9)
            written += answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert time.monotonic() < deadline


def test_slow_readers_delay_no_other_client(server: Server) -> None:
    fill(server, "slow", 16)
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=16 << 20)
    topics = [FetchTopic("slow", partitions=[partition])]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=16 << 20, topics=topics)
    with crowd(server, 20) as peers:
        with unharmed(server):
            for peer in peers:
                for correlation_id in range(5):
                    peer.sendall(encode_frame(request, 12, correlation_id))
            time.sleep(0.5)
            if TARGET == "klamm":
                assert server.rss_bytes() < 200 << 20, "what slow readers have not read is kept in memory"
        for correlation_id in range(5):
            answer = receive_frame(peers[0])
            assert struct.unpack_from(">i", answer) == (correlation_id,)
            assert len(answer) > 15_000_000


def test_a_reader_that_leaves_in_the_middle_of_an_answer_is_forgotten(server: Server) -> None:
    fill(server, "left", 4)
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=4 << 20)
    topics = [FetchTopic("left", partitions=[partition])]
    frame = encode_frame(FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=4 << 20, topics=topics), 12)
    open_files = Path(f"/proc/{server.pid}/fd")
    with unharmed(server):
        for _ in range(30):
            with connect(server) as peer:
                peer.sendall(frame)
                peer.recv(1000)
    before = len(os.listdir(open_files))
    for _ in range(30):
        with connect(server) as peer:
            peer.sendall(frame)
            peer.recv(1000)
    deadline = time.monotonic() + 10
    while len(os.listdir(open_files)) > before + 3:
        assert time.monotonic() < deadline, "files or sockets of readers that left stay open"
        time.sleep(0.05)


@contextmanager
def soft_limit_of_files(count: int) -> Iterator[None]:
    """Set the soft limit of open files that child processes inherit, during the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_thousands_of_idle_connections_are_held(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE_CONNECTIONS + 500:
        pytest.skip(f"the hard limit is {hard} open files")
    with soft_limit_of_files(1024):
        server = target_server(tmp_path / "server")
        server.start()
    with server_stopped_after(server), IdleConnections((HOST, server.port), IDLE_CONNECTIONS) as idle:
        with unharmed(server):
            time.sleep(1)
        assert idle.release() == IDLE_CONNECTIONS


@contextmanager
def server_stopped_after(server: Server) -> Iterator[None]:
    try:
        yield
    finally:
        server.stop()
