"""The trail and the broker agree, whatever becomes of connections: they end at every byte of a request and its answer.

A request that has come whole and was executed has one event that says so; one that has none, or whose event says that
it was not executed, has changed nothing.
"""

import contextlib
import socket
import ssl
import struct
import threading

import pytest

from klamm import Provider, hookimpl
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import spec_of
from klamm.wire.headers import encode_request_header
from klamm_plaintext.transport import PlaintextTransport, PlaintextTransportLayer
from klamm_spark.api_classes import CHANGING
from tests.audit_spool import assert_numbered, events_of
from tests.contract.trail import CHANGES, any_change
from tests.sasl_client import log_in, users_setting
from tests.tls_files import TlsFiles
from tests.waiting import wait_until

RESET = struct.pack("ii", 1, 0)
TRIED = {change.api_key: change for change in CHANGES}
SAMPLED = 12
"""So many places of a request and of its answer, over TLS and SASL."""


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
        """Until every connection to `front` is gone."""
        wait_until(lambda: not any(one.connection_count for one in self.front.processors))

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


class Told:
    """What one API's requests were to leave behind: `whole` have come as a whole, `partial` have not."""

    def __init__(self, change):
        self.change = change
        self.whole, self.partial, self.unsure = set(), set(), set()
        self.names, self.prepared = [], {}
        self.done = None


def cut_requests(trail, change, told, size, connect, places):
    """Each request is cut at one place; the last ones come whole, with something behind them that is no request."""
    for number, place in enumerate(places):
        name = told.names[number]
        data = frame_of(change, name, told.prepared)
        assert len(data) == size
        with contextlib.suppress(OSError):
            sock = connect(name)
            sock.sendall(data[:place] if place <= size else data + b"\0\0\0\7garbage"[: place - size])
            lose(sock, abruptly=number % 2 == 1)
        (told.partial if place < size else told.unsure if number % 2 else told.whole).add(name)


def check(told, events):
    change, done = told.change, told.done
    mine = [
        event
        for event in events
        if event.get("api_name") == spec_of(change.api_key).name and event["kind"] == "request"
    ]
    recorded = {}
    for event in mine:
        if event["client_id"] in told.names:
            assert event["client_id"] not in recorded, "it is told once"
            recorded[event["client_id"]] = event
    assert told.partial & recorded.keys() == set()
    assert told.whole - recorded.keys() == set()
    executed = {name for name, event in recorded.items() if event["outcome"] in ("ok", "throttled")}
    assert all("intent_id" in recorded[name] for name in executed)
    if done is not None:
        assert executed == done
        assert done


def look(trail, told):
    """The names whose state has changed; None if the broker shows none. Tokens are shown to those who logged in."""
    if told.change.done is None or told.change.api_key.name == "CREATE_DELEGATION_TOKEN":
        return None
    with RawClient(trail.embedded.address("back"), timeout_s=60) as admin:
        return told.change.done(admin, told.names, told.prepared)


def stopped(trail):
    trail.embedded.stop()
    events = events_of(trail.spool)
    assert_numbered(events)
    assert [event for event in events if event["kind"] == "audit_gap"] == []
    return events


# ---- plaintext: every byte


def test_a_connection_that_is_lost_at_any_byte_of_a_request(start):
    trail = start()
    tried = []
    for change in trail.changes():
        told = Told(change)
        names, prepared = prepare(trail, change, 2)
        size = len(frame_of(change, names[0], prepared))
        # The first two were made to know the size; those of the test have further names.
        told.names, told.prepared = _more(trail, change, size + 16)
        cut_requests(
            trail, change, told, size, lambda name: socket.create_connection(trail.address()), range(1, size + 12)
        )
        trail.settle()
        told.done = look(trail, told)
        tried.append(told)
    events = stopped(trail)
    for told in tried:
        check(told, events)
    assert len(tried) >= 20


def _more(trail, change, count):
    names = [f"{change.api_key.name.lower()}-{number:05d}" for number in range(10_000, 10_000 + count)]
    with RawClient(trail.embedded.address("back"), timeout_s=60) as admin:
        return names, change.prepare(admin, names)


def test_a_connection_that_is_lost_at_any_byte_of_an_answer(start):
    trail = start("transport=cutting")
    tried = []
    for change in trail.changes():
        told = Told(change)
        names, prepared = prepare(trail, change, 1)
        Cutting.limit = 1 << 40
        with RawClient(trail.address(), timeout_s=30) as client:
            client.send_bytes(frame_of(change, names[0], prepared))
            size = 4 + len(client.receive_frame())
        told.names, told.prepared = _more(trail, change, size)
        for place, name in enumerate(told.names):
            Cutting.limit = place
            with socket.create_connection(trail.address(), timeout=30) as sock:
                sock.sendall(frame_of(change, name, told.prepared))
                received = b""
                with contextlib.suppress(ConnectionResetError):
                    while data := sock.recv(65536):
                        received += data
            assert len(received) <= place
            told.whole.add(name)
        Cutting.limit = 1 << 40
        trail.settle()
        told.done = look(trail, told)
        tried.append(told)
    events = stopped(trail)
    for told in tried:
        check(told, events)
    lost = {event["reason"] for event in events if event.get("client_id") and "reason" in event}
    assert "lost_after" in lost


# ---- TLS and SASL: through a relay that cuts


class Relay:
    """Passes so many bytes of each direction on, and then resets both connections."""

    def __init__(self, target):
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = self._listening.getsockname()
        self.up = self.down = 1 << 40
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._target)
                pair = (client, server)
                for one, other, limit in ((client, server, "up"), (server, client, "down")):
                    threading.Thread(target=self._pass, args=(one, other, pair, limit), daemon=True).start()

    def _pass(self, one, other, pair, limit):
        passed = 0
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                part = data[: max(0, getattr(self, limit) - passed)]
                other.sendall(part)
                passed += len(part)
                setattr(self, f"{limit}_passed", passed)
                if len(part) < len(data) or passed >= getattr(self, limit):
                    break
        for sock in pair:
            with contextlib.suppress(OSError):
                lose(sock, abruptly=True)

    def close(self):
        self._listening.close()


def through(relay, context, sasl):
    """A function that connects, and logs in if it is to."""

    def connect(name):
        client = RawClient(relay.address, timeout_s=30, ssl_context=context, server_hostname="localhost")
        if sasl:
            assert log_in(client, "PLAIN", "alice", "sesame").error_code == 0
        return client

    return connect


@pytest.mark.parametrize("every_byte", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("channel", ["ssl", "sasl", "sasl over ssl"])
def test_the_same_over_tls_and_sasl(start, tmp_path, channel, every_byte):
    files = TlsFiles(tmp_path / "tls") if "ssl" in channel else None
    front = []
    if files is not None:
        front += [line.removeprefix("listeners.front.") for line in files.server_settings("front")]
    if "sasl" in channel:
        front += ["authenticator=sasl", 'sasl.mechanisms=["PLAIN"]', users_setting(alice="sesame")]
    trail = start(*front)
    context = files.client_context() if files is not None else None
    if context is not None:
        # The same number of bytes each time: no tickets in between.
        context.options |= ssl.OP_NO_TICKET
    relay = Relay(trail.address())
    connect = through(relay, context, "sasl" in channel)
    try:
        tried = [_cut_in_relay(trail, change, relay, connect, every_byte) for change in trail.changes()]
    finally:
        relay.close()
    events = stopped(trail)
    for told in tried:
        check(told, events)
    executed = [event for event in events if event.get("intent_id")]
    if "sasl" in channel:
        assert {event["principal"] for event in executed} == {"User:alice"}


def _cut_in_relay(trail, change, relay, connect, every_byte):
    told = Told(change)
    relay.up = relay.down = 1 << 40
    names, prepared = prepare(trail, change, 1)
    client = connect(names[0])
    before_up, before_down = relay.up_passed, relay.down_passed
    client.send_bytes(frame_of(change, names[0], prepared))
    client.receive_frame()
    up, down = relay.up_passed - before_up, relay.down_passed - before_down
    client.close()
    step = 1 if every_byte else max(1, up // SAMPLED)
    places = [("up", place) for place in range(1, up, step)] + [("up", up)]
    step = 1 if every_byte else max(1, down // SAMPLED)
    places += [("down", place) for place in range(1, down, step)]
    told.names, told.prepared = _more(trail, change, len(places))
    for name, (direction, place) in zip(told.names, places, strict=True):
        relay.up = relay.down = 1 << 40
        with contextlib.suppress(OSError, ConnectionError):
            client = connect(name)
            passed = getattr(relay, f"{direction}_passed")
            setattr(relay, direction, passed + place)
            client.send_bytes(frame_of(change, name, told.prepared))
            client.receive_frame()
            client.close()
        (told.whole if direction == "down" else told.unsure if place >= up else told.partial).add(name)
    trail.settle()
    told.done = look(trail, told)
    return told
