"""20,000 real connections that end in every possible way leak no place in a gate, no memory and no descriptor."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import resource
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.testing import EmbeddedServer, MovingClock, RawClient
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.peers.probe import API_VERSIONS_V0, receive_frame
from tests.peers.wire_client import encode_frame
from tests.sasl_client import log_in, plain, users_setting
from tests.tls_files import TlsFiles
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

CONNECTIONS = 20_000
BATCH = 200
SPECIAL_EVERY = 12
LATER_MS = 100_000
"""The time by which the test moves the server's clock, so that the server closes idle and slow connections. No client
is late on a slow machine.
"""
RESET = struct.pack("ii", 1, 0)
GATES = '["authentication_penalty", "connection_quota", "creation_rate", "handshake_limit"]'

SETTINGS = """
[server]
queued_max_request_bytes = 50_000_000

[connection_quota]
broker_max_connections = 230
overrides = { "127.0.2.1/32" = 0 }

[creation_rate]
overrides = { "127.0.2.2/32" = 1 }

[listeners.plain]
bind = "127.0.0.1:0"
api_set = "echo"
backlog = 1024
gates = %(gates)s
processors = 2
connections_max_idle_ms = 60_000

[listeners.plain.connection_quota]
max_connections = 200

[listeners.secure]
bind = "127.0.0.1:0"
api_set = "echo"
backlog = 1024
gates = %(gates)s
processors = 2
transport = "ssl"
authenticator = "sasl"
connections_max_idle_ms = 60_000
connection_setup_timeout_ms = 40_000
connection_failed_authentication_delay_ms = 20

[listeners.secure.connection_quota]
protected = true

[listeners.secure.handshake_limit]
max_handshakes = 60

[listeners.secure.authentication_penalty]
allowed_failures = 3
initial_penalty_ms = 30_000
delay_ms = 40
exempt = ["127.0.1.0/24"]

[listeners.secure.sasl]
mechanisms = ["PLAIN"]
%(users)s

[listeners.secure.ssl]
certificate = "%(certificate)s"
private_key = "%(key)s"
"""


@pytest.fixture(scope="module", autouse=True)
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Crowd:
    """Many connections to one server. A *way* opens a connection and begins an exchange. It returns a function that
    later ends it.
    """

    def __init__(self, server: EmbeddedServer, tls: ssl.SSLContext, log: pytest.LogCaptureFixture) -> None:
        self.log = log
        self.rng = random.Random(5)
        self.server = server
        self.addresses = {name: server.address(name) for name in ("plain", "secure")}
        self.tls = tls
        self.hello = client_hello(tls)
        self.opened = 0
        self.seen: Counter[str] = Counter()
        self.left_to_the_server: list[socket.socket] = []
        # Addresses that send garbage connect again soon enough to be penalized. Addresses that guess passwords do not.
        self._garbage = itertools.cycle(f"127.0.3.{number}" for number in range(1, 25))
        self._guessers = itertools.cycle(f"127.0.4.{number}" for number in range(1, 250))

    def connect(self, listener: str, source: str = "127.0.1.1") -> socket.socket:
        peer = socket.socket()
        peer.settimeout(20)
        peer.bind((source, 0))
        peer.connect(self.addresses[listener])
        self.opened += 1
        return peer

    # ---- ways

    def ask(self) -> Callable[[], None]:
        peer = self.connect("plain")
        peer.sendall(API_VERSIONS_V0)

        def end() -> None:
            # The connection may be evicted before it is served.
            with contextlib.suppress(ConnectionError):
                receive_frame(peer)
                self.seen["answered"] += 1
            peer.close()

        return end

    def say_nothing(self) -> Callable[[], None]:
        return self.connect("plain").close

    def reset(self) -> Callable[[], None]:
        peer = self.connect("plain")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return peer.close

    def half_a_request(self) -> Callable[[], None]:
        peer = self.connect("plain")
        peer.sendall(struct.pack(">ihh", 10_000, 3, 12) + bytes(self.rng.randrange(5000)))
        if self.rng.random() < 0.5:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return peer.close

    def stay(self) -> Callable[[], None]:
        peer = self.connect("plain")
        peer.sendall(API_VERSIONS_V0)
        return lambda: self.left_to_the_server.append(peer)

    def one_too_many(self) -> Callable[[], None]:
        peer = self.connect("plain", "127.0.2.1")
        return lambda: self.await_end(peer, "refused")

    def too_fast(self) -> Callable[[], None]:
        peer = self.connect("plain", "127.0.2.2")
        if self.rng.random() < 0.9:
            return peer.close
        return lambda: self.left_to_the_server.append(peer)

    def half_a_handshake(self) -> Callable[[], None]:
        peer = self.connect("secure")
        peer.sendall(self.hello[: self.rng.randrange(1, len(self.hello))])
        if self.rng.random() < 0.5:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return peer.close

    def no_handshake(self) -> Callable[[], None]:
        peer = self.connect("secure")
        return lambda: self.left_to_the_server.append(peer)

    def garbage_for_a_handshake(self) -> Callable[[], None]:
        peer = self.connect("secure", next(self._garbage))
        # A connection from a penalized address is closed before the server reads it.
        with contextlib.suppress(ConnectionError):
            peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return lambda: self.await_end(peer, "failed handshake")

    def with_password(self, password: str, source: str = "127.0.1.1") -> ssl.SSLSocket:
        peer = self.tls.wrap_socket(self.connect("secure", source), server_hostname="localhost")
        peer.sendall(encode_frame(SaslHandshakeRequest("PLAIN"), 1))
        receive_frame(peer)
        peer.sendall(encode_frame(SaslAuthenticateRequest(plain("alice", password)), 2))
        return peer

    def log_in(self) -> Callable[[], None]:
        peer = self.with_password("sesame")
        way = self.rng.choice(["close", "reset", "stay"])
        if way == "reset":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

        def end() -> None:
            assert receive_frame(peer)[5:7] == bytes(2)
            self.seen["authenticated"] += 1
            if way == "stay":
                self.left_to_the_server.append(peer)
            else:
                peer.close()

        return end

    def fail_to_log_in(self) -> Callable[[], None]:
        peer = self.with_password("guessed", next(self._guessers))
        return lambda: self.await_end(peer, "failed authentication")

    # ---- limits that only many connections reach

    def fill_the_listener(self) -> None:
        """Fill a listener to its limit. The acceptor pauses there, and accepts again when connections are closed."""
        with self.pausing("per_listener"):
            peers = [self.connect("plain") for _ in range(215)]
        for peer in self.shuffled(peers):
            peer.close()

    def fill_the_server(self) -> None:
        """Fill the server to its limit. Each new connection of the protected listener makes the other listener close
        one.
        """
        before = self.evictions()
        peers = [self.connect("plain") for _ in range(195)]
        for peer in peers[-3:]:
            peer.sendall(API_VERSIONS_V0)
            receive_frame(peer)
        peers += [self.connect("secure") for _ in range(55)]
        wait_until(lambda: self.evictions() > before + 10, "no connection is closed to make room")
        self.left_to_the_server += peers[-20:]
        for peer in self.shuffled(peers[:-20]):
            peer.close()

    def evictions(self) -> int:
        return sum("closed to make room" in record.msg for record in self.log.records)

    def fill_the_handshakes(self) -> None:
        """Fill the places for handshakes. The acceptor pauses until silent connections are closed."""
        with self.pausing("handshakes"):
            self.left_to_the_server += [self.connect("secure") for _ in range(80)]

    @contextlib.contextmanager
    def pausing(self, reason: str) -> Iterator[None]:
        def count() -> float:
            return metric(self.server, "klamm:type=Acceptor,name=ConnectionsPaused", "reason").get(reason, 0)

        before = count()
        yield
        wait_until(lambda: count() > before, f"no connection waits: {reason}")

    # ----

    def shuffled(self, those: list[Any]) -> list[Any]:
        self.rng.shuffle(those)
        return those

    def await_end(self, peer: socket.socket, what: str) -> None:
        with contextlib.suppress(ConnectionError):
            while peer.recv(4096):
                pass
        self.seen[what] += 1
        peer.close()

    def batch(self) -> None:
        ways = (
            [self.ask] * 40
            + [self.say_nothing] * 45
            + [self.reset] * 35
            + [self.half_a_request] * 25
            + [self.stay] * 3
            + [self.one_too_many] * 6
            + [self.too_fast] * 6
            + [self.half_a_handshake] * 20
            + [self.no_handshake] * 3
            + [self.garbage_for_a_handshake] * 10
            + [self.log_in] * 5
            + [self.fail_to_log_in] * 2
        )
        assert len(ways) == BATCH
        self.shuffled(ways)
        for part in (ways[: BATCH // 2], ways[BATCH // 2 :]):
            for end in self.shuffled([way() for way in part]):
                end()

    def await_all(self) -> None:
        """Wait until the server has closed the remaining connections, which are idle, slow, evicted or delayed."""
        for peer in self.left_to_the_server:
            peer.settimeout(0.2)
            while not self.has_ended(peer):
                # The server accepts some of them only now, after it has closed others.
                self.server.advance_ms(LATER_MS)
            self.seen["closed by the server"] += 1
            peer.close()
        self.left_to_the_server.clear()

    @staticmethod
    def has_ended(peer: socket.socket) -> bool:
        """Read a connection to its end. Return False if no bytes arrive for some time."""
        try:
            while peer.recv(4096):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True


def client_hello(tls: ssl.SSLContext) -> bytes:
    out = ssl.MemoryBIO()
    client = tls.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def metric(server: EmbeddedServer, name: str, key: str) -> dict[str, float]:
    (family,) = server.server.services.metrics.collect(lambda one: one == name)
    sums: Counter[str] = Counter()
    for sample in family.samples:
        sums[sample.labels.get(key, "")] += sample.value  # type: ignore[assignment,arg-type]
    return dict(sums)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def held(server: EmbeddedServer) -> dict[str, object]:
    """Return all resources that open connections hold."""
    assert server.server.pool is not None
    socket_group = "kafka.server:type=socket-server-metrics,name="
    created = metric(server, socket_group + "connection-creation-total", "listener")
    closed = metric(server, socket_group + "connection-close-total", "listener")
    holds: dict[str, object] = {
        "quota": metric(server, "klamm:type=ConnectionQuota,name=Connections", "listener"),
        "handshakes": metric(server, "klamm:type=HandshakeLimit,name=Handshakes", "listener"),
        "connections": metric(server, socket_group + "connection-count", "listener"),
        "neither closed nor open": {name: created[name] - closed[name] for name in created},
        "bytes of the pool": {"": server.server.pool.used_bytes},
    }
    counts = server.server.services.shared.once("connection_counts", dict)
    holds["quota in all"] = {"": counts.total, **counts.by_source}
    for listener in server.server.listeners:
        assert listener.acceptor is not None
        holds[f"delayed at {listener.name}"] = {"": len(listener.acceptor._delayed_sockets)}
        for part in listener.parts:
            if type(part).__name__ == "HandshakeLimit":
                holds[f"handshakes by address at {listener.name}"] = dict(part._by_source)
    return {what: those for what, those in holds.items() if any(those.values())}  # type: ignore[attr-defined]


@pytest.mark.timeout(900)
def test_nothing_is_left_of_20000_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "klamm.network")
    files = TlsFiles(tmp_path / "tls")
    settings = tmp_path / "klamm.toml"
    users = users_setting(alice="sesame").removeprefix("sasl.")
    settings.write_text(
        SETTINGS % {"gates": GATES, "users": users, "certificate": files.server.certificate, "key": files.server.key}
    )
    tls = files.client_context()
    with EmbeddedServer(file=settings, data_dir=tmp_path / "data", clock=MovingClock()) as server:
        crowd = Crowd(server, tls, caplog)
        crowd.batch()
        crowd.await_all()
        wait_until(lambda: not held(server), "the first connections are not closed")
        files_before = open_files()
        specials = itertools.cycle([crowd.fill_the_listener, crowd.fill_the_server, crowd.fill_the_handshakes])
        for number in itertools.count():
            if crowd.opened >= CONNECTIONS:
                break
            crowd.batch()
            if number % SPECIAL_EVERY == 0:
                crowd.await_all()
                next(specials)()
                crowd.await_all()
        crowd.await_all()

        with contextlib.suppress(AssertionError):
            wait_until(lambda: not held(server), "")
        assert held(server) == {}
        wait_until(lambda: open_files() <= files_before, "descriptors stay open")

        refused = metric(server, "klamm:type=Acceptor,name=ConnectionsRefused", "reason")
        delayed = metric(server, "klamm:type=Acceptor,name=ConnectionsDelayed", "reason")
        paused = metric(server, "klamm:type=Acceptor,name=ConnectionsPaused", "reason")
        idle = metric(server, "klamm:type=Listener,name=IdleConnectionsClosed", "listener")
        assert refused["per_ip"] > 100
        assert min(delayed["per_ip_rate"], delayed["authentication_penalty"]) > 20
        assert min(paused["per_listener"], paused["handshakes"]) > 0
        assert min(idle.values()) > 10
        assert crowd.evictions() > 0
        failures = metric(server, "klamm:type=Listener,name=ConnectionFailures", "reason")
        assert failures["timed_out"] > 100
        assert min(crowd.seen["authenticated"], crowd.seen["failed authentication"]) > 100

        # A client that connects now is served like the first one.
        with RawClient(server.address("plain")) as client:
            assert client.call(MetadataRequest(topics=None), 12).brokers
        with RawClient(server.address("secure"), ssl_context=tls, server_hostname="localhost") as client:
            assert log_in(client, "PLAIN", "alice", "sesame").error_code == 0
