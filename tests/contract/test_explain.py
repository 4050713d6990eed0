"""Tests of `klamm explain`: in ten staged overloads of a real server it names the stage that limits the server."""

import contextlib
import json
import socket
import tempfile
import threading
import time

import pytest

from bench.frames import record_batch
from klamm import ConnectionGate, Delay, Provider, RequestFilter, hookimpl
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import ApiKey
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm_metrics import explain
from tests.contract.api_sets import Plugin
from tests.waiting import wait_until

EXPORTER = ("server.extensions=prometheus", "prometheus.bind=127.0.0.1:0")
TRYING = "listeners.default.api_set=trying"
PIPELINED = 2_000


class Closed(ConnectionGate):
    """A gate that keeps each connection waiting at the acceptor."""

    def admit(self, address):
        return Delay(50, "office_hours", pause_acceptor=True)

    def release(self, address):
        pass


class Held(ConnectionGate):
    """A gate that blocks the acceptor's thread, which no gate may do."""

    go_on = threading.Event()

    def admit(self, address):
        self.go_on.wait(60)

    def release(self, address):
        pass


class Computing(RequestFilter):
    """A filter that computes for 20 ms in each request, on the processor's thread, which many connections share."""

    api_keys = (ApiKey.METADATA,)

    def on_request(self, message, context):
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pass
        return message


class Parts:
    @hookimpl
    def klamm_connection_gates(self):
        yield Provider("closed", f"{__name__}:Closed")
        yield Provider("held", f"{__name__}:Held")

    @hookimpl
    def klamm_request_filters(self):
        yield Provider("computing", f"{__name__}:Computing")


@contextlib.contextmanager
def serving(*settings):
    with EmbeddedServer([*EXPORTER, *settings], plugins=[Plugin(), Parts()]) as server:
        yield server


@contextlib.contextmanager
def repeating(*actions):
    """Call each action again and again, on a thread of its own, until the block ends."""
    ended = threading.Event()

    def repeat(action):
        with contextlib.suppress(OSError, EOFError, ConnectionError):
            while not ended.is_set():
                action()

    threads = [threading.Thread(target=repeat, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)


def blocked(server, count, prefix=""):
    """Return clients whose requests block handlers."""
    clients = [RawClient(server.address(), client_id="blocking") for _ in range(count)]
    for client in clients:
        client.send(HeartbeatRequest(group_id=f"{prefix}block"), 4)
    return clients


@contextlib.contextmanager
def full_queue():
    with serving(TRYING, "server.io_threads=1", "server.queued_max_requests=2") as server:
        blocked(server, 6)
        try:
            yield server
        finally:
            server.api_set("trying").release.set()


@contextlib.contextmanager
def hot_processor():
    frame = encode_request_header(3, 12, 1, "hot") + MetadataRequest(topics=None).encode(12)
    burst = (len(frame).to_bytes(4, "big") + frame) * PIPELINED
    with (
        serving(TRYING) as server,
        RawClient(server.address(), client_id="hot") as hot,
        RawClient(server.address(), client_id="light"),
    ):
        hot.send_bytes(burst[: len(burst) // PIPELINED])
        answer_bytes = len(hot.receive_frame()) + 4

        def ask():
            hot.send_bytes(burst)
            left = PIPELINED * answer_bytes
            while left:
                left -= len(hot.socket.recv(min(left, 1 << 20)))

        with repeating(ask):
            yield server


@contextlib.contextmanager
def empty_pool():
    with serving(TRYING, "server.queued_max_request_bytes=100000") as server:
        blocked(server, 4, "x" * 30_000 + ".")
        try:
            yield server
        finally:
            server.api_set("trying").release.set()


@contextlib.contextmanager
def blocked_acceptor():
    with serving(TRYING, "listeners.default.gates=closed") as server, socket.create_connection(server.address()):
        yield server


@contextlib.contextmanager
def full_backlog():
    Held.go_on.clear()
    settings = ("listeners.default.processors=2", "listeners.default.gates=held", "listeners.default.backlog=4")
    with serving(TRYING, *settings) as server, contextlib.ExitStack() as stack:
        stack.callback(Held.go_on.set)
        for _ in range(5):
            stack.enter_context(socket.create_connection(server.address(), timeout=60))
        yield server


@contextlib.contextmanager
def slow_disk():
    produced = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, record_batch(1, 100))])],
    )
    with (
        tempfile.TemporaryDirectory() as data_dir,
        pytest.MonkeyPatch.context() as patched,
        EmbeddedServer(EXPORTER, data_dir=data_dir) as server,
        RawClient(server.address(), client_id="writer") as client,
    ):
        configs = [CreatableTopicConfig("flush.messages", "1")]
        client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1, configs=configs)]), 7)
        client.call(produced, 9)
        operations = type(server.api_set("broker").logs._context.operations)
        pause, sync = threading.Event(), operations.fsync

        def slow_sync(descriptor):
            pause.wait(0.05)
            sync(descriptor)

        patched.setattr(operations, "fsync", staticmethod(slow_sync))
        with repeating(lambda: client.call(produced, 9)):
            yield server


@contextlib.contextmanager
def slow_reader():
    with serving(TRYING) as server, RawClient(server.address(), client_id="slow") as client:
        # The responses are together larger than the system's buffers for a connection.
        frame = encode_request_header(10, 2, 1, "slow") + FindCoordinatorRequest(key="30000").encode(2)
        client.send_bytes((len(frame).to_bytes(4, "big") + frame) * 1_000)
        yield server


@contextlib.contextmanager
def throttled():
    from tests.contract.test_default_quotas import PRODUCE, set_quota

    with (
        serving() as server,
        RawClient(server.address(), client_id="admin") as admin,
        RawClient(server.address(), client_id="app") as client,
    ):
        admin.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
        set_quota(admin, "producer_byte_rate", 100.0)
        with repeating(lambda: client.call(PRODUCE, 9)):
            yield server


@contextlib.contextmanager
def tls_storm(tls_files):
    settings = (*tls_files.server_settings(), "listeners.default.handshake_threads=0")

    with serving(TRYING, *settings) as server:

        def connect():
            RawClient(server.address(), ssl_context=tls_files.client_context()).close()

        with repeating(*[connect] * 4):
            yield server


@contextlib.contextmanager
def computing_plugin():
    with (
        serving(TRYING, "listeners.default.filters=computing") as server,
        RawClient(server.address()) as client,
        repeating(lambda: client.call(MetadataRequest(topics=None), 12)),
    ):
        yield server


OVERLOADS = {
    "queue": (full_queue, "queue", "behind handlers: Heartbeat of client blocking"),
    "processor": (hot_processor, "processor", "client hot"),
    "pool": (empty_pool, "pool", "in requests in handlers: Heartbeat"),
    "acceptor": (blocked_acceptor, "accept", "the gate with reason office_hours of [listeners.default] gates"),
    "backlog": (full_backlog, "accept", "gate held of [listeners.default] gates has not returned"),
    "syncing client": (slow_disk, "disk", "client writer of User:ANONYMOUS at 127.0.0.1"),
    "disk": (slow_disk, "disk", "topic t: "),
    "reader": (slow_reader, "send", "client slow"),
    "quota": (throttled, "quota", "quota producer_byte_rate"),
    "plugin": (computing_plugin, "handler", "filter computing, handler set trying; they run on the processor's"),
}


def explained(server, capsys):
    """Return what the command finds, the worst first."""
    host, port = server.server.extensions[0].address
    assert explain.main([f"{host}:{port}", "--interval", "1.2", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def names(found, stage, look_at):
    return bool(found) and found[0]["stage"] == stage and look_at in " ".join(found[0]["look_at"])


@pytest.mark.parametrize(("overload", "stage", "look_at"), OVERLOADS.values(), ids=list(OVERLOADS))
def test_the_command_names_the_overload_and_what_to_look_at(overload, stage, look_at, capsys):
    with overload() as server:
        wait_until(lambda: names(explained(server, capsys), stage, look_at))


def test_the_command_names_a_storm_of_handshakes(tls_files, capsys):
    with tls_storm(tls_files) as server:
        wait_until(lambda: names(explained(server, capsys), "handshake", "address 127.0.0.1"))


def test_the_command_finds_nothing_in_an_idle_server(capsys):
    with serving(TRYING) as server, RawClient(server.address()) as client:
        client.call(MetadataRequest(topics=None), 12)
        assert explained(server, capsys) == []
        host, port = server.server.extensions[0].address
        assert explain.main([f"{host}:{port}", "--interval", "0.2"]) == 0
        line = capsys.readouterr().out
    assert line.startswith("nothing limits this server now; the busiest: client raw of User:ANONYMOUS at 127.0.0.1")
