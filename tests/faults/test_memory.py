"""Many concurrent large requests under a small memory pool: the memory stays bounded, and every request is answered."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import pytest

from klamm.wire.errors import ErrorCode
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.faults import unhurried_server
from tests.faults.bystander import unharmed
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST, Server
from tests.peers.target import TARGET, target_server
from tests.peers.wire_client import encode_frame

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(300),
    pytest.mark.skipif(TARGET != "klamm", reason="Apache Kafka keeps a request's whole memory from its first byte on"),
]
MIB = 1 << 20


class Highest:
    """The peak resident memory of a server, measured every few milliseconds."""

    def __init__(self, server: Server) -> None:
        self.rss_bytes = 0
        self._server = server
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stopping.wait(0.01):
            self.rss_bytes = max(self.rss_bytes, self._server.rss_bytes())

    def __enter__(self) -> Highest:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def large_request(size_bytes: int) -> bytes:
    """Return a frame that is answered with an error, so that no records are stored."""
    data = [TopicProduceData("nowhere", partition_data=[PartitionProduceData(0, bytes(size_bytes))])]
    return encode_frame(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data), 9)


def answered(server: Server, connections: int, frame: bytes, within_s: float) -> int:
    """Send the frame on a number of connections at once. Return how many were answered with the expected error."""
    poller = selectors.DefaultSelector()
    view = memoryview(frame)
    sent: dict[socket.socket, int] = {}
    answers = 0
    try:
        for _ in range(connections):
            peer = socket.create_connection((HOST, server.port), 10)
            peer.setblocking(False)
            poller.register(peer, selectors.EVENT_READ | selectors.EVENT_WRITE)
            sent[peer] = 0
        deadline = time.monotonic() + within_s
        while answers < connections and time.monotonic() < deadline:
            for key, mask in poller.select(1.0):
                peer = key.fileobj
                assert isinstance(peer, socket.socket)
                if mask & selectors.EVENT_WRITE:
                    position = sent[peer]
                    sent[peer] += peer.send(view[position : position + MIB])
                    if sent[peer] == len(view):
                        poller.modify(peer, selectors.EVENT_READ)
                if mask & selectors.EVENT_READ:
                    answer = peer.recv(4096)
                    (size_bytes,) = struct.unpack_from(">i", answer)
                    assert len(answer) == size_bytes + 4
                    response = ProduceResponse.decode(9, answer, 9)
                    code = response.responses[0].partition_responses[0].error_code
                    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    answers += 1
                    poller.unregister(peer)
    finally:
        for peer in sent:
            peer.close()
        poller.close()
    return answers


class UnhurriedServer(KlammServer):
    """A server that does not treat a client as slow because of a busy machine. Tests of the pool check slow clients."""

    name = "unhurried"

    def command(self) -> list[str]:
        return [sys.executable, "-m", unhurried_server.__name__, str(self.port), self.settings["pool_bytes"]]

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, self.port), 10).close()
            return True
        return False


@pytest.mark.parametrize(
    ("request_mib", "pool_mib"),
    [(6, 32), pytest.param(50, 256, marks=pytest.mark.slow)],
)
def test_two_hundred_large_requests_at_once_stay_within_the_memory_limit(
    tmp_path: Path, request_mib: int, pool_mib: int
) -> None:
    with UnhurriedServer(tmp_path / "server", {"pool_bytes": str(pool_mib * MIB)}) as server:
        base = server.rss_bytes()
        with Highest(server) as highest:
            assert answered(server, 200, large_request(request_mib * MIB), within_s=240) == 200
        print(f"base {base / MIB:.0f} MiB, highest {highest.rss_bytes / MIB:.0f} MiB")
        assert highest.rss_bytes < (pool_mib + 128) * MIB


def test_large_requests_that_never_end_delay_no_other_client(tmp_path: Path) -> None:
    """Fill the memory for partial requests. Small requests continue, and large requests that arrive completely
    succeed.
    """
    settings = {"server.queued_max_request_bytes": str(16 * MIB)}
    with target_server(tmp_path / "server", settings) as server:
        half = large_request(6 * MIB)
        silent = []
        try:
            for _ in range(6):
                peer = socket.create_connection((HOST, server.port), 10)
                peer.settimeout(0.5)
                silent.append(peer)
                try:
                    peer.sendall(memoryview(half)[: 5 * MIB])
                except TimeoutError:
                    continue
            with unharmed(server):
                assert answered(server, 4, half, within_s=60) == 4
        finally:
            for peer in silent:
                peer.close()
