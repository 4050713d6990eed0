"""Tests of connection gates over real sockets: refusals, delays, eviction, and settings that change in a reload."""

import socket
import struct
import threading
import time
from dataclasses import dataclass

import pytest

from klamm import ConnectionGate, Provider, hookimpl, setting
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.server.serving import reload
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.metadata import MetadataRequest
from tests.waiting import wait_until

GATES = '["connection_quota", "creation_rate", "handshake_limit", "authentication_penalty"]'
LISTENERS = f"""
[listeners.outer]
bind = "127.0.0.1:0"
api_set = "echo"
gates = {GATES}

[listeners.inner]
bind = "127.0.0.1:0"
api_set = "echo"
gates = {GATES}

[listeners.inner.connection_quota]
protected = true
"""
ASK = MetadataRequest(topics=None)


class Served:
    """A server with a configuration file that a test can change."""

    def __init__(self, file, settings, overrides, client_options):
        self.file = file
        self.write(settings)
        self.client_options = client_options
        self.embedded = EmbeddedServer(overrides, file=file).start()
        self.clients = []

    def write(self, settings):
        self.file.write_text(LISTENERS + settings)

    def reload(self, settings):
        self.write(settings)
        return reload(self.embedded.server, lambda: load_plan(self.file, PluginRegistry()))

    def connect(self, listener="outer"):
        client = RawClient(self.embedded.address(listener), timeout_s=60)
        self.clients.append(client)
        return client

    def acceptor(self, listener="outer"):
        return next(one.acceptor for one in self.embedded.server.listeners if one.name == listener)

    def metric(self, name):
        for family in self.embedded.server.services.metrics.collect():
            if family.name == name:
                return {tuple(sample.labels.values()): sample.value for sample in family.samples}
        raise AssertionError(f"no metric {name}")

    @property
    def counts(self):
        return self.embedded.server.services.shared.once("connection_counts", dict)


@pytest.fixture
def serve(tmp_path):
    started = []

    def start(settings="", overrides=(), client_options=None):
        started.append(Served(tmp_path / "klamm.toml", settings, overrides, client_options or {}))
        return started[-1]

    yield start
    for served in started:
        for client in served.clients:
            client.close()
        served.embedded.stop()


def answers(client):
    return client.call(ASK, 12).cluster_id == "klamm-echo"


def test_a_connection_above_the_limit_of_its_address_is_closed_at_once(serve):
    served = serve("[connection_quota]\nmax_connections_per_ip = 2")
    assert answers(served.connect())
    assert answers(served.connect("inner"))
    assert served.connect().at_end()
    assert served.metric("klamm:type=Acceptor,name=ConnectionsRefused") == {("outer", "per_ip"): 1}


def test_a_connection_above_the_rate_of_its_address_is_closed_after_a_delay(serve):
    served = serve("[creation_rate]\nconnection_creation_rate = 1\nquota_window_num = 2")
    assert answers(served.connect())
    start = time.monotonic()
    late = served.connect()
    assert late.at_end()
    assert time.monotonic() - start > 0.4
    assert served.metric("klamm:type=Acceptor,name=ConnectionsDelayed") == {("outer", "per_ip_rate"): 1}


def test_a_stop_closes_refused_connections_that_wait_for_their_delay(serve):
    served = serve(
        "[creation_rate]\nconnection_creation_rate = 1\nquota_window_num = 2\nquota_window_size_seconds = 60"
    )
    assert answers(served.connect())
    late = [served.connect() for _ in range(80)]
    delayed = served.acceptor().outcomes.delayed
    wait_until(lambda: served.acceptor().accepted + sum(delayed.values()) == 81)
    assert delayed["per_ip_rate"] > 0
    served.embedded.stop()
    assert all(client.at_end() for client in late)


def test_a_full_listener_accepts_the_next_connection_as_soon_as_one_ends(serve):
    served = serve("[listeners.outer.connection_quota]\nmax_connections = 1")
    first = served.connect()
    assert answers(first)
    second = served.connect()
    second.send(ASK, 12)
    wait_until(lambda: served.acceptor().outcomes.paused["per_listener"] == 1)
    assert answers(served.connect("inner"))
    # The metric counts a pause while the pause lasts.
    wait_until(lambda: served.metric("kafka.network:type=Acceptor,name=AcceptorBlockedPercent")[("outer",)] > 0.02)
    start = time.monotonic()
    first.close()
    second.receive(ASK.API_KEY, 12, 1)
    assert time.monotonic() - start < 30
    assert served.acceptor().blocked_ns_until(time.monotonic_ns()) > 0


def test_a_listener_above_its_rate_pauses_and_serves_all_clients(serve):
    served = serve("[listeners.outer.creation_rate]\nmax_connection_creation_rate = 20\nquota_window_num = 2")
    start = time.monotonic()
    clients = [served.connect() for _ in range(40)]
    assert all(map(answers, clients))
    assert time.monotonic() - start > 0.5
    assert served.acceptor().outcomes.paused["per_listener_rate"] > 0
    assert not served.acceptor().outcomes.refused


def test_the_protected_listener_costs_another_its_least_recently_used_connection(serve):
    served = serve("[connection_quota]\nbroker_max_connections = 3")
    oldest, middle, newest = (served.connect() for _ in range(3))
    for client in (oldest, middle, newest):
        assert answers(client)
        time.sleep(0.01)
    assert answers(oldest)
    assert answers(served.connect("inner"))
    assert middle.at_end()
    assert answers(oldest)
    assert answers(newest)
    wait_until(lambda: served.counts.total == 3)


def test_a_stop_does_not_wait_for_a_full_listener(serve):
    served = serve("[connection_quota]\nmax_connections = 1")
    assert answers(served.connect())
    served.connect()
    wait_until(lambda: served.acceptor().outcomes.paused["per_listener"] == 1)
    start = time.monotonic()
    served.embedded.stop()
    assert time.monotonic() - start < 30


def test_a_reload_applies_new_settings_of_gates(serve):
    served = serve("[connection_quota]\nmax_connections_per_ip = 1")
    first = served.connect()
    assert answers(first)
    assert served.connect().at_end()
    lines = served.reload("[connection_quota]\nmax_connections_per_ip = 2\n[creation_rate]\nprotected = true")
    assert sorted(lines) == [
        "reload: [listeners.inner.connection_quota] max_connections_per_ip has changed and is applied",
        "reload: [listeners.inner.creation_rate] protected has changed and is applied",
        "reload: [listeners.outer.connection_quota] max_connections_per_ip has changed and is applied",
        "reload: [listeners.outer.creation_rate] protected has changed and is applied",
        "reload: done",
    ]
    assert answers(served.connect())
    assert served.connect().at_end()
    assert answers(first)
    # The next reload compares its file with the settings that now apply.
    assert served.reload("[connection_quota]\nmax_connections_per_ip = 2\n[creation_rate]\nprotected = true") == [
        "reload: done"
    ]
    assert "unknown key" in served.reload("[connection_quota]\nmax_connection_per_ip = 3")[0]
    assert served.connect().at_end()


@dataclass(frozen=True, slots=True)
class MoodySettings:
    mood: str = setting("calm", doc="How it takes new settings.")


class Moody(ConnectionGate):
    """A gate that accepts new settings, leaves them to the next start, or raises an exception."""

    def admit(self, address):
        return None

    def release(self, address):
        pass

    def reconfigure(self, settings):
        if settings.mood == "angry":
            raise RuntimeError("not today")
        return settings.mood == "willing"


class MoodyPlugin:
    @hookimpl
    def klamm_connection_gates(self):
        yield Provider("moody", f"{__name__}:Moody", settings=MoodySettings)


WAITS = "this takes effect at the next start: the part does not accept the values while it runs"


@pytest.mark.parametrize(
    ("mood", "lines"),
    [
        ("willing", ["reload: [listeners.a.moody] mood has changed and is applied"]),
        ("lazy", [f"reload: [listeners.a.moody] mood has changed; {WAITS}"]),
        (
            "angry",
            [
                "reload: [listeners.a.moody] stays as it was: not today",
                f"reload: [listeners.a.moody] mood has changed; {WAITS}",
            ],
        ),
    ],
)
def test_a_reload_reports_what_each_part_did_with_its_new_settings(tmp_path, mood, lines):
    file = tmp_path / "klamm.toml"
    text = (
        '[listeners.a]\nbind = "127.0.0.1:0"\napi_set = "echo"\ngates = ["moody"]\n[listeners.a.moody]\nmood = "{}"\n'
    )
    file.write_text(text.format("calm"))
    registry = PluginRegistry()
    registry.add(MoodyPlugin(), "embedded-0")
    with EmbeddedServer(file=file, plugins=[MoodyPlugin()]) as server:
        file.write_text(text.format(mood))
        assert reload(server.server, lambda: load_plan(file, registry)) == [*lines, "reload: done"]


def test_a_rate_set_with_alter_client_quotas_applies_at_once(tmp_path):
    file = tmp_path / "klamm.toml"
    file.write_text('[listeners.default]\nbind = "127.0.0.1:0"\ngates = ["creation_rate"]\n')
    with EmbeddedServer(file=file) as server, RawClient(server.address()) as client:
        entry = RequestEntryData([RequestEntityData("ip", "127.0.0.1")], [OpData("connection_creation_rate", 1.0)])
        assert client.call(AlterClientQuotasRequest([entry]), 1).entries[0].error_code == 0
        acceptor = server.server.listeners[0].acceptor
        others = [socket.create_connection(server.address()) for _ in range(30)]
        wait_until(lambda: acceptor.outcomes.delayed["per_ip_rate"] > 0)
        for sock in others:
            sock.close()


def come_and_go(served, listener, number):
    """Open a connection and end it in one of nine ways, which `number` selects."""
    way = number % 9
    try:
        client = RawClient(served.embedded.address(listener), timeout_s=60, **served.client_options)
    except OSError:
        return
    try:
        if way == 1:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif way == 2:
            client.send_bytes(struct.pack(">i", 1000) + b"half")
        elif way == 3:
            client.send_bytes(struct.pack(">i", -5))
            client.at_end()
        elif way == 4:
            client.send_frame(b"\x7f\xff" + b"garbage" * 3)
            client.at_end()
        elif way == 5:
            answers(client)
        elif way == 6:
            client.send(ASK, 12)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif way == 7:
            client.socket.shutdown(socket.SHUT_WR)
        elif way == 8:
            # The client does nothing until the server closes the idle connection.
            client.at_end()
    except (OSError, AssertionError):
        pass
    finally:
        client.close()


@pytest.mark.timeout(60)
def test_connections_that_end_in_every_way_leave_nothing_behind(serve, on_channel, client_options):
    served = serve(
        """
[connection_quota]
max_connections_per_ip = 40
broker_max_connections = 30
[listeners.outer.connection_quota]
max_connections = 20
[listeners.outer.creation_rate]
connection_creation_rate = 300
quota_window_num = 2
[handshake_limit]
max_handshakes = 10
""",
        [*on_channel("outer"), *on_channel("inner")],
        client_options,
    )
    for listener in served.embedded.server.listeners:
        for processor in listener.processors:
            processor._reactor.expiry._idle_ns = 200_000_000

    # TLS handshakes are slow, so there are fewer connections. Each way is still used many times.
    share = 60 if client_options else 180

    def many(first):
        for number in range(first, first + share):
            come_and_go(served, ("outer", "inner")[number % 2], number // 2)

    threads = [threading.Thread(target=many, args=(first,)) for first in range(0, 8 * share, share)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = served.counts
    wait_until(lambda: counts.total == 0)
    assert counts.by_source == {}
    assert [listener.connections for listener in counts.listeners.values()] == [0, 0]
    assert served.metric("klamm:type=HandshakeLimit,name=Handshakes") == {("outer",): 0, ("inner",): 0}
    assert served.acceptor("outer").accepted > 100
