"""The audit trail and the broker agree, even if connections break at any byte of a request or its response.

A request that has arrived as a whole and was executed has exactly one event that says so. A request without an event
has changed nothing, and neither has one whose event says that it was not executed. Over TLS the connection breaks at
bytes of TLS. The tests also run through each registered filter, alone and stacked: a request that a filter refuses has
changed nothing.
"""

import contextlib
import itertools
import struct

import pytest

import klamm_filters
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import spec_of
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm_filters.tenancy.rules import MAPPED
from klamm_spark.requests.state_changes import CHANGING
from tests.audit_spool import assert_numbered, events_of
from tests.contract.cutting import CutClient, CuttingSocket, CuttingTransports
from tests.contract.filter_settings import alone_and_stacked, settings_of
from tests.contract.gateway_nodes import free_ports
from tests.contract.trail import CHANGES, any_change
from tests.sasl_client import log_in, users_setting
from tests.tls_files import TlsFiles
from tests.waiting import wait_until

TRIED = {change.api_key: change for change in CHANGES}
CHANNELS = ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
RENAMING = ("topic_prefix",)
GARBAGE = b"\0\0\0\7garbage"
WHOLE = pytest.mark.parametrize(
    "is_whole", [pytest.param(False, id="sampled"), pytest.param(True, id="whole", marks=pytest.mark.slow)]
)


class Trail:
    """A broker with two listeners: `front` has the audit, and `back` shows the broker's state.

    With a channel `gateway-…`, `front` is a gateway, and the broker is another server. `names` are the filters of
    `front`. The listener `tenants` is like `back`, but has the names that a prefix gives.
    """

    def __init__(self, folder, channel, names=()):
        channel, self.forwards = channel.removeprefix("gateway-"), channel.startswith("gateway-")
        self.spool = folder / "spool"
        secret = folder / "secret"
        secret.write_text("a secret for tokens")
        secret.chmod(0o600)
        guarded = ("authorizer=acl", 'acl.super_users=["User:ANONYMOUS", "User:alice"]', "api_set=broker")
        broker = [
            "broker.group.initial.rebalance.delay.ms=0",
            f"broker.delegation.token.secret.key.file={secret}",
            *(f"listeners.{name}.{line}" for name in ("back", "tenants") for line in ("bind=127.0.0.1:0", *guarded)),
            *settings_of([name for name in names if name in RENAMING], folder, "tenants"),
        ]
        self.back = None
        if self.forwards:
            self.back = EmbeddedServer(broker, plugins=[klamm_filters]).start()
            host, port = self.back.address("back")
            broker = [f'gateway.bootstrap=["{host}:{port}"]', f"gateway.node_ports={free_ports(1)}"]
            guarded = ("api_set=gateway",)
        settings = [
            *(f"listeners.front.{line}" for line in ("bind=127.0.0.1:0", *guarded)),
            *broker,
            *settings_of(names, folder, "front", own={"audit": ("on_full=refuse",)}),
            'listeners.front.observers=["audit"]', f"listeners.front.audit.spool={self.spool}",
            "listeners.front.audit.node=node-1", "listeners.front.connection_failed_authentication_delay_ms=1",
            # Syncs matter only after a power failure, which another test checks.
            "listeners.front.audit.sync_intents=none",
            "listeners.front.transport=cutting_plaintext",
        ]  # fmt: skip
        self.context, self.logs_in, self.is_filtered = None, channel.startswith("sasl"), bool(names)
        if channel.endswith("ssl"):
            files = TlsFiles(folder / "tls")
            self.context = files.client_context()
            settings += [line.replace("ssl", "cutting_ssl", 1) for line in files.server_settings("front")]
        if self.logs_in:
            settings += [
                "listeners.front.authenticator=sasl",
                'listeners.front.sasl.mechanisms=["PLAIN"]',
                f"listeners.front.{users_setting(alice='sesame')}",
            ]
        self.embedded = EmbeddedServer(settings, plugins=[CuttingTransports(), klamm_filters]).start()
        (self.front,) = (one for one in self.embedded.server.listeners if one.name == "front")
        listeners = [self.front, *(self.back.server.listeners if self.back is not None else ())]
        self.served = set.intersection(*({key for key, _ in one.runtime.requests.routes.served} for one in listeners))

    def changes(self):
        """Return one change for each API that may change state and that the broker serves."""
        return [TRIED.get(key) or any_change(key) for key in sorted(self.served & CHANGING)]

    def connect(self):
        """Return a client that is logged in if the listener requires that. No request or response is on its way."""
        client = CutClient(self.embedded.address("front"), self.context)
        if self.logs_in:
            assert log_in(client, "PLAIN", "alice", "sesame").error_code == 0
        else:
            assert client.call(ApiVersionsRequest("test", "1"), 3).error_code == 0
        return client

    def settle(self):
        """Wait until all connections to `front` were accepted and are closed, and all outcomes are in the spool."""
        self.connect().close()
        wait_until(lambda: not any(one.connection_count for one in self.front.processors), within_s=60)
        name = f"klamm_spark.observer.audit:{self.spool.absolute()}"
        sink = self.embedded.server.services.shared.once(name, lambda: None)
        wait_until(lambda: not sink.journal.open_count, within_s=60)

    def admin(self, change):
        """Connect to the broker without audit.

        The names are those of `front` if the prefix changes names of this API.
        """
        listener = "tenants" if change.api_key in MAPPED else "back"
        return RawClient((self.back or self.embedded).address(listener), timeout_s=60)

    def stop(self):
        self.embedded.stop()
        if self.back is not None:
            self.back.stop()


@pytest.fixture
def start(tmp_path):
    started = []

    def make(channel, names=()):
        started.append(Trail(tmp_path, channel, names))
        return started[-1]

    yield make
    for trail in started:
        trail.stop()


def frame_of(change, name, prepared):
    header = encode_request_header(int(change.api_key), change.version, 1, name)
    frame = header + change.request(name, prepared.get(name)).encode(change.version)
    return struct.pack(">i", len(frame)) + frame


class Attempt:
    """The cut requests of one API.

    `whole` has client ids whose request arrived as a whole, `partial` has the others.
    """

    def __init__(self, trail, change):
        self.trail, self.change = trail, change
        self.whole, self.partial = set(), set()
        self.names, self.prepared = [], {}
        self.done = None

    def prepare(self, count, first=10_000):
        """Prepare this many requests of the same size. Return their names."""
        self.names = [f"{self.change.api_key.name.lower()}-{number}" for number in range(first, first + count)]
        with self.trail.admin(self.change) as admin:
            self.prepared = self.change.prepare(admin, self.names)
        return self.names

    def frame(self, name):
        return frame_of(self.change, name, self.prepared)

    def look(self):
        """Find the names whose state has changed, if the broker shows the state.

        It shows tokens only to their owners.
        """
        if self.change.done is not None and self.change.api_key.name != "CREATE_DELEGATION_TOKEN":
            with self.trail.admin(self.change) as admin:
                self.done = self.change.done(admin, self.names, self.prepared)

    def check(self, events):
        api_name = spec_of(self.change.api_key).name
        recorded = {}
        for event in events:
            if event["kind"] == "request" and event["api_name"] == api_name and event["client_id"] in self.names:
                assert event["client_id"] not in recorded, "it is recorded once"
                recorded[event["client_id"]] = event
        assert self.partial & recorded.keys() == set()
        assert self.whole - recorded.keys() == set()
        executed = {name for name, event in recorded.items() if event["outcome"] in ("ok", "throttled")}
        unknown = {name for name, event in recorded.items() if event["outcome"] == "unknown"}
        assert all("intent_id" in recorded[name] for name in executed | unknown)
        if self.trail.forwards:
            assert all("upstream_node_id" in recorded[name] for name in executed | unknown)
        else:
            assert not unknown
        if self.trail.logs_in:
            assert {event["principal"] for event in recorded.values()} <= {"User:alice"}
        if self.done is not None:
            assert executed <= self.done <= executed | unknown
            # If a client leaves at once, a gateway sends no request for it.
            refused = {name for name, event in recorded.items() if event["outcome"] == "refused"}
            assert self.done or self.trail.forwards or refused
            assert not refused & self.done
            assert not refused or self.trail.is_filtered


def places_of(size, *, is_whole):
    """Return the places of the cuts: all, or only those at the end of the size, at the last byte, and in the middle."""
    return range(1, size) if is_whole else sorted({4, size // 2, size - 1})


def cut_requests(attempt, *, is_whole):
    """Cut each request at one place. The last requests are sent as a whole, followed by invalid bytes."""
    trail = attempt.trail
    (name,) = attempt.prepare(1, first=90_000)
    with trail.connect() as client:
        size = len(client.on_the_wire(attempt.frame(name)))
    places = places_of(size, is_whole=is_whole)
    behind = range(len(GARBAGE) + 1) if is_whole else (0, len(GARBAGE))
    names = iter(attempt.prepare(len(places) + 2 * len(behind)))
    for number, place in enumerate(places):
        name = next(names)
        client = trail.connect()
        data = client.on_the_wire(attempt.frame(name))
        assert len(data) == size
        client.send_below(data[:place])
        client.lose(abruptly=number % 2 == 1)
        attempt.partial.add(name)
    for more, abruptly in itertools.product(behind, (False, True)):
        name = next(names)
        client = trail.connect()
        client.send_below(client.on_the_wire(attempt.frame(name)))
        with contextlib.suppress(OSError):
            client.send_bytes(GARBAGE[:more])
        client.lose(abruptly=abruptly)
        if not abruptly:
            # A reset may discard the request before the server reads it.
            attempt.whole.add(name)


def cut_answers(attempt, *, is_whole):
    """Cut each response at one place. The requests arrive as a whole."""
    trail = attempt.trail
    (name,) = attempt.prepare(1, first=90_000)
    with trail.connect() as client:
        before = CuttingSocket.newest.left
        client.send_bytes(attempt.frame(name))
        client.receive_frame()
        size = before - CuttingSocket.newest.left
    places = range(size) if is_whole else sorted({0, size - 1})
    for place, name in zip(places, attempt.prepare(len(places)), strict=True):
        with trail.connect() as client:
            CuttingSocket.newest.left = place
            client.send_bytes(attempt.frame(name))
            assert len(client.receive_below()) == place
        attempt.whole.add(name)


@WHOLE
@pytest.mark.parametrize(
    "channel", [*CHANNELS, "gateway-plaintext", pytest.param("gateway-sasl_ssl", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("cut", [cut_requests, cut_answers])
def test_the_trail_agrees_with_the_broker_if_connections_break_at_any_byte(start, cut, channel, is_whole):
    check(start(channel), cut, is_whole=is_whole)


ALL = alone_and_stacked()[-1]
THROUGH_FILTERS = [
    pytest.param(names, channel, id="-".join((*names, channel)), marks=[] if names == ALL else pytest.mark.slow)
    for names in alone_and_stacked()
    for channel in ("plaintext", "gateway-plaintext")
]


@pytest.mark.parametrize(("names", "channel"), THROUGH_FILTERS)
@pytest.mark.parametrize("cut", [cut_requests, cut_answers])
def test_the_trail_agrees_with_the_broker_through_filters_if_connections_break(start, cut, channel, names):
    check(start(channel, names), cut, is_whole=False)


def check(trail, cut, *, is_whole):
    attempts = [Attempt(trail, change) for change in trail.changes()]
    for attempt in attempts:
        cut(attempt, is_whole=is_whole)
    trail.settle()
    for attempt in attempts:
        attempt.look()
    trail.stop()
    events = events_of(trail.spool)
    assert_numbered(events)
    assert [event for event in events if event["kind"] == "audit_gap"] == []
    for attempt in attempts:
        attempt.check(events)
    assert len(attempts) >= 20
    if cut is cut_answers:
        assert "lost_after" in {event.get("reason") for event in events}
