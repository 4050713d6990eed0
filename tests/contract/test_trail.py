"""The trail and the broker agree, whatever becomes of connections: they end at every byte of a request and its answer.

A request that has come whole and was executed has one event that says so; one that has none, or whose event says that
it was not executed, has changed nothing.
"""

import contextlib
import socket
import struct

import pytest

from klamm import Provider, hookimpl
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import spec_of
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm_plaintext.transport import PlaintextTransport, PlaintextTransportLayer
from klamm_spark.api_classes import CHANGING
from tests.audit_spool import assert_numbered, events_of
from tests.contract.trail import CHANGES, any_change
from tests.waiting import wait_until

RESET = struct.pack("ii", 1, 0)
TRIED = {change.api_key: change for change in CHANGES}


class CuttingLayer(PlaintextTransportLayer):
    """Sends so many bytes, then the connection is lost."""

    left = 1 << 40

    def write(self, chunks, more=False):
        if self.left <= 0:
            raise ConnectionResetError("cut")
        data = b"".join(bytes(chunk) for chunk in chunks)[: self.left]
        sent = super().write([data])
        self.left -= max(0, sent)
        return sent


class Cutting(PlaintextTransport):
    """Connections send `limit` bytes: that of the moment in which they were accepted."""

    limit = 1 << 40

    def wrap(self, sock, peer):
        layer = CuttingLayer(sock)
        layer.left = Cutting.limit
        return layer


class Parts:
    @hookimpl
    def klamm_transports(self):
        yield Provider("cutting", f"{__name__}:Cutting")


class Trail:
    """A broker behind `front`, which is audited, and `back`, where its state is looked at."""

    def __init__(self, folder, *front):
        self.spool = folder / "spool"
        secret = folder / "secret"
        secret.write_text("a secret for tokens")
        secret.chmod(0o600)
        guarded = ("authorizer=acl", 'acl.super_users=["User:ANONYMOUS", "User:alice"]', "api_set=broker")
        settings = [
            *(f"listeners.{name}.{line}" for name in ("front", "back") for line in ("bind=127.0.0.1:0", *guarded)),
            'listeners.front.observers=["audit"]', f"listeners.front.audit.spool={self.spool}",
            "listeners.front.audit.node=node-1", "listeners.front.connection_failed_authentication_delay_ms=1",
            "broker.group.initial.rebalance.delay.ms=0",
            f"broker.delegation.token.secret.key.file={secret}",
            *(f"listeners.front.{line}" for line in front),
        ]  # fmt: skip
        self.embedded = EmbeddedServer(settings, plugins=[Parts()]).start()
        (self.front,) = (one for one in self.embedded.server.listeners if one.name == "front")
        self.served = {key for key, _ in self.front.runtime.requests.routes.served}

    def changes(self):
        """One of each API that may change state and that the broker serves."""
        return [TRIED.get(key) or any_change(key) for key in sorted(self.served & CHANGING)]

    def address(self):
        return self.embedded.address("front")

    def settle(self):
        """Until every connection to `front` has been accepted and is gone, and every outcome is in the spool."""
        with RawClient(self.address()) as last:
            last.call(ApiVersionsRequest("test", "1"), 3)
        wait_until(lambda: not any(one.connection_count for one in self.front.processors), within_s=60)
        sink = self.embedded.server.services.shared.once(f"klamm_spark.audit:{self.spool.absolute()}", lambda: None)
        wait_until(lambda: not sink.journal.open_count, within_s=60)

    def stop(self):
        Cutting.limit = 1 << 40
        self.embedded.stop()


@pytest.fixture
def start(tmp_path):
    started = []

    def make(*front):
        started.append(Trail(tmp_path, *front))
        return started[-1]

    yield make
    for trail in started:
        trail.stop()


def frame_of(change, name, prepared):
    header = encode_request_header(int(change.api_key), change.version, 1, name)
    frame = header + change.request(name, prepared.get(name)).encode(change.version)
    return struct.pack(">i", len(frame)) + frame


def lose(sock, *, abruptly):
    if abruptly:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


def prepare(trail, change, count):
    """Names, what was prepared for them, and the request of each."""
    names = [f"{change.api_key.name.lower()}-{number:05d}" for number in range(count)]
    with RawClient(trail.embedded.address("back"), timeout_s=60) as admin:
        prepared = change.prepare(admin, names)
    return names, prepared


class Attempt:
    """The cut requests of one API: `whole` are client ids whose request arrived in full, `partial` the others."""

    def __init__(self, change):
        self.change = change
        self.whole, self.partial, self.unsure = set(), set(), set()
        self.names, self.prepared = [], {}
        self.done = None


def cut_requests(trail, change, attempt, size, connect, places):
    """Each request is cut at one place; the last ones come whole, with something behind them that is no request."""
    for number, place in enumerate(places):
        name = attempt.names[number]
        data = frame_of(change, name, attempt.prepared)
        assert len(data) == size
        with contextlib.suppress(OSError):
            sock = connect(name)
            sock.sendall(data[:place] if place <= size else data + b"\0\0\0\7garbage"[: place - size])
            lose(sock, abruptly=number % 2 == 1)
        (attempt.partial if place < size else attempt.unsure if number % 2 else attempt.whole).add(name)


def check(attempt, events):
    change, done = attempt.change, attempt.done
    mine = [
        event
        for event in events
        if event.get("api_name") == spec_of(change.api_key).name and event["kind"] == "request"
    ]
    recorded = {}
    for event in mine:
        if event["client_id"] in attempt.names:
            assert event["client_id"] not in recorded, "it is recorded once"
            recorded[event["client_id"]] = event
    assert attempt.partial & recorded.keys() == set()
    assert attempt.whole - recorded.keys() == set()
    executed = {name for name, event in recorded.items() if event["outcome"] in ("ok", "throttled")}
    assert all("intent_id" in recorded[name] for name in executed)
    if done is not None:
        assert executed == done
        assert done


def look(trail, attempt):
    """The names whose state has changed; None if the broker shows none. Tokens are shown to those who logged in."""
    if attempt.change.done is None or attempt.change.api_key.name == "CREATE_DELEGATION_TOKEN":
        return None
    with RawClient(trail.embedded.address("back"), timeout_s=60) as admin:
        return attempt.change.done(admin, attempt.names, attempt.prepared)


def stopped(trail):
    trail.embedded.stop()
    events = events_of(trail.spool)
    assert_numbered(events)
    assert [event for event in events if event["kind"] == "audit_gap"] == []
    return events


def test_a_connection_that_is_lost_at_any_byte_of_a_request(start):
    trail = start()
    tried = []
    for change in trail.changes():
        attempt = Attempt(change)
        names, prepared = prepare(trail, change, 2)
        size = len(frame_of(change, names[0], prepared))
        # The first two were made to know the size; those of the test have further names.
        attempt.names, attempt.prepared = _more(trail, change, size + 16)
        cut_requests(
            trail, change, attempt, size, lambda name: socket.create_connection(trail.address()), range(1, size + 12)
        )
        trail.settle()
        attempt.done = look(trail, attempt)
        tried.append(attempt)
    events = stopped(trail)
    for attempt in tried:
        check(attempt, events)
    assert len(tried) >= 20


def _more(trail, change, count):
    names = [f"{change.api_key.name.lower()}-{number:05d}" for number in range(10_000, 10_000 + count)]
    with RawClient(trail.embedded.address("back"), timeout_s=60) as admin:
        return names, change.prepare(admin, names)


def test_a_connection_that_is_lost_at_any_byte_of_an_answer(start):
    trail = start("transport=cutting")
    tried = []
    for change in trail.changes():
        attempt = Attempt(change)
        names, prepared = prepare(trail, change, 1)
        Cutting.limit = 1 << 40
        with RawClient(trail.address(), timeout_s=30) as client:
            client.send_bytes(frame_of(change, names[0], prepared))
            size = 4 + len(client.receive_frame())
        attempt.names, attempt.prepared = _more(trail, change, size)
        for place, name in enumerate(attempt.names):
            Cutting.limit = place
            with socket.create_connection(trail.address(), timeout=30) as sock:
                sock.sendall(frame_of(change, name, attempt.prepared))
                received = b""
                with contextlib.suppress(ConnectionResetError):
                    while data := sock.recv(65536):
                        received += data
            assert len(received) <= place
            attempt.whole.add(name)
        Cutting.limit = 1 << 40
        trail.settle()
        attempt.done = look(trail, attempt)
        tried.append(attempt)
    events = stopped(trail)
    for attempt in tried:
        check(attempt, events)
    lost = {event["reason"] for event in events if event.get("client_id") and "reason" in event}
    assert "lost_after" in lost
