"""Many connections, slow peers, and limits of the system: the server continues, and logs the problem."""

from __future__ import annotations

import os
import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import ApiKey
from klamm.wire.errors import ErrorCode
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.metadata import MetadataRequest
from tests.contract.api_sets import Plugin, Trying
from tests.faults.bystander import unharmed
from tests.peers.probe import API_VERSIONS_V0, answers_api_versions, receive_frame
from tests.peers.server import HOST, Server
from tests.peers.target import TARGET, target_server
from tests.peers.wire_client import encode_frame
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(180),
    pytest.mark.skipif(TARGET != "klamm", reason="looks into what only klamm promises"),
]
MIB = 1 << 20
STORM_CONNECTIONS = 10_000
STORM_OUTSTANDING = 4_000
SLOW_CLIENTS = 1_000
SLOW_CLIENTS_THAT_FINISH = 100
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module", autouse=True)
def _many_files() -> Iterator[None]:
    """Allow this process as many open files as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


class Storm:
    """Thousands of connections at once. A third sends a request, a third resets the connection, and a third closes
    it.
    """

    def __init__(self, port: int) -> None:
        self.started = self.ended = self.answered = self.failed = self.most_outstanding = 0
        self._address = (HOST, port)
        self._connecting: dict[int, tuple[socket.socket, int]] = {}
        self._asking: dict[int, tuple[socket.socket, bytes]] = {}
        self._poll = select.epoll()

    def go_on(self) -> None:
        while self.started < STORM_CONNECTIONS and len(self._connecting) < STORM_OUTSTANDING:
            peer = socket.socket()
            peer.setblocking(False)
            peer.connect_ex(self._address)
            self._poll.register(peer.fileno(), select.EPOLLOUT)
            self._connecting[peer.fileno()] = (peer, self.started)
            self.started += 1
        # All connect before the first of them is checked.
        self.most_outstanding = max(self.most_outstanding, len(self._connecting))
        for descriptor, _ in self._poll.poll(20.0):
            if descriptor in self._connecting:
                self._connected(descriptor)
            else:
                self._receive(descriptor)

    def _connected(self, descriptor: int) -> None:
        peer, number = self._connecting.pop(descriptor)
        if peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.failed += 1
        elif number % 3 == 0:
            peer.send(API_VERSIONS_V0)
            self._asking[descriptor] = (peer, b"")
            self._poll.modify(descriptor, select.EPOLLIN)
            return
        elif number % 3 == 1:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._end(peer)

    def _receive(self, descriptor: int) -> None:
        peer, before = self._asking[descriptor]
        try:
            data = peer.recv(65536)
        except ConnectionError:
            data = b""
        answer = before + data
        if data and (len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big")):
            self._asking[descriptor] = (peer, answer)
            return
        del self._asking[descriptor]
        if data:
            self.answered += 1
        else:
            self.failed += 1
        self._end(peer)

    def _end(self, peer: socket.socket) -> None:
        peer.close()
        self.ended += 1


def test_an_accept_storm(tmp_path: Path) -> None:
    """Some connections send a request and get an answer, some close, some reset. In the end all resources are free."""
    with target_server(tmp_path / "server", {"listeners.default.backlog": "4096"}) as server:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
        before = open_files(server)
        storm = Storm(server.port)
        with unharmed(server):
            while storm.ended < STORM_CONNECTIONS:
                storm.go_on()
        assert storm.most_outstanding >= STORM_OUTSTANDING
        assert storm.failed == 0
        assert storm.answered == sum(number % 3 == 0 for number in range(STORM_CONNECTIONS))
        wait_until(lambda: open_files(server) <= before + 2, "connections stay open")


def test_a_thousand_slow_clients_are_served(tmp_path: Path) -> None:
    """Each client sends a byte of its request now and then. Most requests are declared as large. The others are
    answered once their last byte has arrived.
    """
    request = encode_frame(MetadataRequest([], allow_auto_topic_creation=False), 12, correlation_id=7)
    with target_server(tmp_path / "server", {"listeners.default.backlog": "1024"}) as server, ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection((HOST, server.port), 30)) for _ in range(SLOW_CLIENTS)]
        before = server.rss_bytes()
        with unharmed(server):
            patient = peers[:: SLOW_CLIENTS // SLOW_CLIENTS_THAT_FINISH]
            for peer in set(peers) - set(patient):
                peer.sendall(struct.pack(">ihh", 90_000_000, ApiKey.PRODUCE, 9))
            for place in range(len(request)):
                for peer in patient:
                    peer.sendall(request[place : place + 1])
                if place < 5:
                    for peer in set(peers) - set(patient):
                        peer.sendall(b"\0")
            for peer in patient:
                assert receive_frame(peer)[:4] == struct.pack(">i", 7)
        grown = server.rss_bytes() - before
        # Each connection takes a page for the received bytes, and its own objects.
        assert grown < 32 * MIB, f"memory grew by {grown / MIB:.1f} MiB"


def test_clients_that_never_read(tmp_path: Path) -> None:
    """Clients pipeline requests until the server accepts no more. Unread answers stop only these clients, and take
    bounded memory.

    Clients that read in the end get all answers, in order.
    """
    requests = [encode_frame(ApiVersionsRequest("never", "1"), 3, correlation_id=number) for number in range(1000)]
    request_bytes = len(requests[0])
    data = b"".join(requests)
    with target_server(tmp_path / "server") as server, ExitStack() as stack:
        before = server.rss_bytes()
        sent_by: list[tuple[socket.socket, int]] = []
        with unharmed(server):
            for _ in range(20):
                peer = stack.enter_context(socket.create_connection((HOST, server.port), 10))
                peer.setblocking(False)
                sent = 0
                stopped_at = time.monotonic() + 0.1
                while time.monotonic() < stopped_at:
                    try:
                        sent += peer.send(data[sent % len(data) :])
                        stopped_at = time.monotonic() + 0.1
                    except BlockingIOError:
                        time.sleep(0.01)
                assert sent > 100 * request_bytes
                sent_by.append((peer, sent))
            for peer, sent in sent_by[::7]:
                peer.settimeout(30)
                # The server reads the connection again only after the client has read answers.
                end = -(-sent // request_bytes) * request_bytes
                rest = data[sent % len(data) :][: end - sent]
                sender = threading.Thread(target=peer.sendall, args=(rest,))
                sender.start()
                with peer.makefile("rb") as answers:
                    for number in range(end // request_bytes):
                        (size, correlation_id) = struct.unpack(">ii", answers.read(8))
                        assert correlation_id == number % 1000
                        answers.read(size - 4)
                sender.join()
        assert server.rss_bytes() - before < 64 * MIB


def test_the_limit_of_open_files(tmp_path: Path) -> None:
    """The server pauses accepting, logs it, uses no processor time meanwhile, and continues by itself. Connected
    clients do not notice.
    """
    with target_server(tmp_path / "server") as server, ExitStack() as stack:
        with unharmed(server):
            limit = open_files(server) + 20
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (limit, limit))
            peers = [stack.enter_context(socket.create_connection((HOST, server.port), 10)) for _ in range(40)]
            for peer in peers:
                peer.sendall(API_VERSIONS_V0)
            wait_until(lambda: "accepting pauses" in server.log_tail(), "it is not said that accepting pauses")
            spent = cpu_seconds(server.pid)
            time.sleep(1.0)
            assert cpu_seconds(server.pid) - spent < 0.5, "waiting for a free descriptor takes processor time"
            for peer in peers[:15]:
                peer.close()
            wait_until(lambda: "accepting again" in server.log_tail(), "it is not accepted again")
            for peer in peers[15:25]:
                receive_frame(peer)
            for peer in peers:
                peer.close()
            # The new client of `unharmed` must not wait for connections that are still in the backlog.
            wait_until(
                lambda: answers_api_versions(HOST, server.port), "no connection is accepted any more", within_s=10
            )
        log = server.log_tail(1000)
        assert log.count("accepting pauses") <= 5, "the log is filled"


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def blocked_handlers(*settings: str) -> Iterator[tuple[EmbeddedServer, Trying]]:
    own = ["listeners.default.api_set=trying", *settings]
    with EmbeddedServer(own, plugins=[Plugin()]) as server:
        trying = server.api_set("trying")
        try:
            yield server, trying
        finally:
            trying.release.set()


@pytest.mark.parametrize("seconds", [3.0, pytest.param(30.0, marks=pytest.mark.slow)])
def test_full_request_queue_drains(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Inline requests are always served, no client is disconnected, and in the end all requests are answered."""
    with (
        blocked_handlers("server.io_threads=2", "server.queued_max_requests=5") as (server, trying),
        ExitStack() as stack,
    ):
        # Each handler blocks at one request until the test releases it.
        monkeypatch.setattr(trying.release, "wait", lambda _timeout: threading.Event.wait(trying.release))
        clients = [stack.enter_context(RawClient(server.address(), timeout_s=60)) for _ in range(40)]
        due = [(client, client.send(HeartbeatRequest(group_id="block"), 4)) for client in clients]
        bystander = stack.enter_context(RawClient(server.address()))
        deadline = time.monotonic() + seconds
        longest = 0.0
        while time.monotonic() < deadline:
            begin = time.monotonic()
            bystander.call(MetadataRequest(topics=None), 12)
            longest = max(longest, time.monotonic() - begin)
            time.sleep(0.01)
        assert server.server.request_channel.size() == 5
        assert longest < 2.0
        trying.release.set()
        for client, correlation_id in due:
            assert client.receive(12, 4, correlation_id).error_code == ErrorCode.NONE
        # The count grows once in each turn, and the bystander causes a hundred turns a second.
        assert server.server.request_channel.full_count < 350 * seconds, "waiting for room takes processor time"


def test_handlers_that_raise_block_and_return_garbage_at_once() -> None:
    """Every good request of the other clients is answered, and no handler thread is lost."""
    with blocked_handlers("server.io_threads=4") as (server, trying), ExitStack() as stack:
        blocked = stack.enter_context(RawClient(server.address(), timeout_s=60))
        correlation_id = blocked.send(HeartbeatRequest(group_id="block"), 4)
        assert trying.arrived.acquire(timeout=60)
        good = stack.enter_context(RawClient(server.address(), timeout_s=10))
        for what in ("raise", "garbage", "none", "wrong-shape", "kafka-error", "exit", "close") * 10:
            with RawClient(server.address(), timeout_s=10) as bad:
                bad.send(HeartbeatRequest(group_id=what), 4)
                assert good.call(HeartbeatRequest(group_id="ok"), 4).error_code == ErrorCode.NONE
        assert server.server.handler_pool.size == 4
        trying.release.set()
        assert blocked.receive(12, 4, correlation_id).error_code == ErrorCode.NONE
