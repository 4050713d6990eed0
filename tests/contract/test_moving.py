"""Tests of connections that move between processors, and of processors that are added and removed."""

import gc
import random
import struct
import threading
from contextlib import ExitStack

import pytest

from bench.frames import record_batch
from klamm import Interest, Provider, Transport, TransportLayer, hookimpl
from klamm.metrics.requests import RequestRecorder
from klamm.network.channel import ChannelState
from klamm.testing import EmbeddedServer, MovingClock, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm_plaintext.transport import PlaintextTransportLayer
from tests.contract.api_sets import Plugin
from tests.sasl_client import log_in, users_setting
from tests.waiting import wait_until


class HoardingLayer(TransportLayer):
    """A transport layer that reads more than it is asked for, and keeps the rest, as TLS does.

    So the socket does not show that there are more bytes.
    """

    def __init__(self, inner):
        self.inner = inner
        self.kept = b""

    def handshake(self):
        return Interest.NONE

    def read_into(self, buffer):
        if not self.kept:
            shared = memoryview(bytearray(8192))
            count = self.inner.read_into(shared)
            if count <= 0:
                return count
            self.kept = bytes(shared[:count])
        count = min(len(self.kept), len(buffer), 100)
        buffer[:count], self.kept = self.kept[:count], self.kept[count:]
        return count

    def write(self, chunks, more=False):
        return self.inner.write(chunks, more)

    def send_file(self, descriptor, position, count):
        return self.inner.send_file(descriptor, position, count)

    @property
    def has_buffered_data(self):
        return bool(self.kept)

    def close(self):
        self.inner.close()


ENOUGH_MOVES = 20


class HoardingTransport(Transport):
    def wrap(self, sock, peer):
        return HoardingLayer(PlaintextTransportLayer(sock))


class HoardingPlugin(Plugin):
    @hookimpl
    def klamm_transports(self):
        yield Provider("hoarding", "tests.contract.test_moving:HoardingTransport")


@pytest.fixture
def serve(on_channel):
    servers = []

    def serve_one(*settings):
        own = ["listeners.default.api_set=trying", *on_channel(), *settings]
        server = EmbeddedServer(own, plugins=[HoardingPlugin()], clock=MovingClock()).start()
        servers.append(server)
        return server

    yield serve_one
    for server in servers:
        server.api_set("trying").release.set()
        server.stop()


def listener_of(server):
    return server.server.listeners[0]


def only_channel(server):
    """Return (its processor, the other processor, the channel) of a server with two processors and one connection."""
    first, second = listener_of(server).processors
    source, target = (first, second) if first.connection_count else (second, first)
    (channel,) = source.channels
    return source, target, channel


class Mover:
    """A thread that moves connections at random until the block ends."""

    def __init__(self, server, seed):
        self.listener = listener_of(server)
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stopping.wait(0.001):
            processors = self.listener.all_processors
            source = self.random.choice(processors)
            for channel in source.channels:
                target = self.random.choice(processors)
                if target is not source:
                    source.migrate(channel, target)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()


def moved_connections(server):
    return sum(processor.migrated_connections for processor in listener_of(server).processors)


def talk(server, number, failures, client_options):
    """Send requests of all kinds in batches. Check that each gets its own response, in order.

    It goes on for twelve turns, and then until enough connections have moved.
    """
    chances = random.Random(number)
    try:
        with RawClient(server.address(), client_id=f"client-{number}", timeout_s=60, **client_options) as client:
            for turn in range(300):
                if turn >= 12 and moved_connections(server) > ENOUGH_MOVES:
                    break
                due = []
                for _ in range(chances.randrange(1, 30)):
                    request, version = chances.choice(
                        [
                            (ApiVersionsRequest("talking", "1"), 3),
                            (MetadataRequest(topics=None), 12),
                            (HeartbeatRequest(group_id="ok"), 4),
                            (FindCoordinatorRequest(key=str(chances.randrange(1, 30_000))), 2),
                        ]
                    )
                    due.append((request, version, client.send(request, version)))
                for request, version, correlation_id in due:
                    answer = client.receive(request.API_KEY, version, correlation_id)
                    if isinstance(request, FindCoordinatorRequest):
                        assert len(answer.host) == int(request.key)
    except Exception as error:
        failures.append(error)


@pytest.mark.parametrize("dispatch", ["hybrid", "pool"])
def test_nothing_is_lost_or_out_of_order_while_connections_move(serve, dispatch, client_options):
    talk_while_they_move(
        serve("listeners.default.processors=3", f"listeners.default.dispatch={dispatch}"), client_options
    )


@pytest.mark.parametrize("dispatch", ["hybrid", "pool"])
def test_bytes_that_a_transport_keeps_are_not_lost_while_connections_move(dispatch):
    settings = ["api_set=trying", "processors=3", f"dispatch={dispatch}", "transport=hoarding"]
    with EmbeddedServer([f"listeners.default.{text}" for text in settings], plugins=[HoardingPlugin()]) as server:
        talk_while_they_move(server, {})


def talk_while_they_move(server, client_options):
    failures = []
    talkers = [threading.Thread(target=talk, args=(server, number, failures, client_options)) for number in range(8)]
    with Mover(server, seed=7):
        for talker in talkers:
            talker.start()
        for talker in talkers:
            talker.join()
    assert not failures, failures[0]
    assert moved_connections(server) > ENOUGH_MOVES


def test_a_connection_moves_only_when_its_request_is_answered(serve, client_options):
    server = serve("listeners.default.processors=2")
    client = RawClient(server.address(), **client_options)
    correlation_id = client.send(HeartbeatRequest(group_id="block"), 4)
    assert server.api_set("trying").arrived.acquire(timeout=60)
    source, target, channel = only_channel(server)
    source.migrate(channel, target)
    wait_until(lambda: channel.migrating)
    assert target.connection_count == 0
    server.api_set("trying").release.set()
    assert client.receive(12, 4, correlation_id).error_code == 0
    wait_until(lambda: target.connection_count == 1)
    assert source.connection_count == 0
    assert client.call(MetadataRequest(topics=None), 12).brokers
    client.close()


def test_half_a_frame_moves_with_its_connection(serve, client_options):
    server = serve("listeners.default.processors=2")
    client = RawClient(server.address(), **client_options)
    client.call(MetadataRequest(topics=None), 12)
    source, target, channel = only_channel(server)
    client.send_bytes(struct.pack(">ih", 10, 18))
    wait_until(lambda: not channel.receive.idle)
    source.migrate(channel, target)
    wait_until(lambda: target.connection_count == 1)
    client.send_bytes(struct.pack(">hih", 0, 1, -1))
    assert client.receive_frame()[:6] == struct.pack(">ih", 1, 0)
    client.close()


def test_a_connection_that_closes_before_it_moves_leaves_nothing_behind(serve, client_options):
    server = serve("listeners.default.processors=2")
    client = RawClient(server.address(), **client_options)
    client.send(HeartbeatRequest(group_id="block"), 4)
    assert server.api_set("trying").arrived.acquire(timeout=60)
    source, target, channel = only_channel(server)
    source.migrate(channel, target)
    wait_until(lambda: channel.migrating)
    client.close()
    server.api_set("trying").release.set()
    wait_until(lambda: channel.state is ChannelState.CLOSED)
    assert (source.connection_count, target.connection_count) == (0, 0)


def test_light_connections_leave_a_hot_processor(serve, client_options):
    server = serve(
        "listeners.default.processors=2",
        "listeners.default.dispatch=inline",
        "listeners.default.assigner=least_loaded",
        "listeners.default.least_loaded.rebalance_interval_ms=200",
        "listeners.default.least_loaded.hot=0.3",
        "listeners.default.least_loaded.skew=0.2",
    )
    first, second = listener_of(server).processors
    clients = [RawClient(server.address(), timeout_s=60, **client_options) for _ in range(8)]
    for client in clients:
        client.call(MetadataRequest(topics=None), 12)
    # On a slow machine connections may move already at this point.
    assert first.connection_count + second.connection_count == 8
    stopping = threading.Event()

    def keep_busy(client):
        while not stopping.is_set():
            due = [client.send(FindCoordinatorRequest(key="30000"), 2) for _ in range(50)]
            for correlation_id in due:
                client.receive(10, 2, correlation_id)

    busy = threading.Thread(target=keep_busy, args=(clients[0],))
    busy.start()
    try:
        wait_until(lambda: {first.connection_count, second.connection_count} == {1, 7})
        for client in clients[1:]:
            assert client.call(MetadataRequest(topics=None), 12).brokers
    finally:
        stopping.set()
        busy.join()
        for client in clients:
            client.close()


def test_processors_are_added_and_removed_while_clients_send_requests(serve, client_options):
    server = serve("listeners.default.processors=1")
    listener = listener_of(server)
    failures = []
    talkers = [threading.Thread(target=talk, args=(server, number, failures, client_options)) for number in range(6)]
    for talker in talkers:
        talker.start()
    for count in (3, 1, 2, 4, 1, 3):
        listener.resize(count)
        threading.Event().wait(0.05)
    for talker in talkers:
        talker.join()
    assert not failures, failures[0]
    wait_until(lambda: len(listener.all_processors) == 3)
    assert len({processor.index for processor in listener.all_processors}) == 3


def test_connections_spread_over_new_processors(serve, client_options):
    server = serve("listeners.default.processors=1")
    listener = listener_of(server)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(server.address(), **client_options)) for _ in range(9)]
        for client in clients:
            client.call(MetadataRequest(topics=None), 12)
        listener.resize(3)
        wait_until(lambda: [processor.connection_count for processor in listener.processors] == [3, 3, 3])
        for client in clients:
            assert client.call(MetadataRequest(topics=None), 12).brokers


@pytest.mark.parametrize("assigner", ["round_robin", "least_loaded"])
def test_a_stuck_processor_gets_no_new_connection(serve, client_options, assigner):
    server = serve("listeners.default.processors=2", f"listeners.default.assigner={assigner}")
    stuck, _ = listener_of(server).processors
    release = threading.Event()
    with ExitStack() as stack:
        stack.callback(release.set)
        stuck.inbox.call_soon(None, lambda _: release.wait(30), None)
        wait_until(lambda: stuck.turn_age_ns(server.server.clock.monotonic_ns()) > 200_000_000)
        for _ in range(4):
            client = stack.enter_context(RawClient(server.address(), **client_options))
            assert client.call(MetadataRequest(topics=None), 12).brokers
        assert stuck.connection_count == 0


def test_handlers_and_processors_follow_a_new_plan(serve, on_channel):
    server = serve("server.io_threads=2")
    other = EmbeddedServer(
        ["listeners.default.api_set=trying", "server.io_threads=5", "listeners.default.processors=2", *on_channel()],
        plugins=[HoardingPlugin()],
    )
    lines = server.server.resize(other.plan)
    assert lines == [
        "[server] io_threads: 2 before, 5 now",
        "[listeners.default] processors: 1 before, 2 now",
    ]
    assert (server.server.handler_pool.size, len(listener_of(server).processors)) == (5, 2)
    assert server.server.resize(other.plan) == []


@pytest.mark.parametrize("dispatch", ["hybrid", "pool"])
def test_old_connections_are_closed_once_their_requests_are_answered(serve, dispatch, client_options):
    server = serve("listeners.default.max_connection_age_ms=600000", f"listeners.default.dispatch={dispatch}")
    with (
        RawClient(server.address(), **client_options) as idle,
        RawClient(server.address(), **client_options) as blocked,
    ):
        correlation_id = blocked.send(HeartbeatRequest(group_id="block"), 4)
        assert server.api_set("trying").arrived.acquire(timeout=60)
        server.advance_ms(600_000)
        assert idle.at_end()
        server.api_set("trying").release.set()
        assert blocked.receive(12, 4, correlation_id).error_code == 0
        assert blocked.at_end()


class FullPoller:
    """A poller without room for another descriptor, as epoll has none beyond `max_user_watches`."""

    def __init__(self, poller):
        self.poller = poller

    def __getattr__(self, name):
        return getattr(self.poller, name)

    def register(self, descriptor, mask):
        raise OSError(28, "No space left on device")


def test_a_connection_that_no_processor_can_take_is_closed_and_no_longer_counted(serve, client_options):
    server = serve("listeners.default.processors=2", "listeners.default.gates=connection_quota")
    counts = server.server.services.shared.once("connection_counts", dict)
    listener = listener_of(server)
    gone = listener.processors[1]
    listener.resize(1)
    wait_until(lambda: gone.ended)
    with RawClient(server.address(), **client_options) as client:
        client.call(MetadataRequest(topics=None), 12)
        assert counts.total == 1
        (processor,) = listener.processors
        (channel,) = processor.channels
        processor._reactor.selector._poller = FullPoller(processor._reactor.selector._poller)
        processor.migrate(channel, gone)
        assert client.at_end()
        wait_until(lambda: counts.total == 0)
    assert counts.by_source == {}


def test_memory_of_a_connection_that_is_evicted_while_it_moves_is_released(serve, client_options):
    """The pool evicts the connection after one processor has released it, and before the other one has added it."""
    server = serve("listeners.default.processors=2", "server.queued_max_request_bytes=100000")
    with RawClient(server.address(), **client_options) as client:
        client.call(MetadataRequest(topics=None), 12)
        client.send_bytes(struct.pack(">ihh", 90_000, 3, 12) + bytes(5000))
        source, target, channel = only_channel(server)
        wait_until(lambda: server.server.pool.used_bytes >= 5000)
        adopt = target.adopt

        def evict_and_adopt(moving):
            # The pool would do this after one processor has released the connection and before the other has it.
            moving.receive._claim.evicted = True
            return adopt(moving)

        target.adopt = evict_and_adopt
        source.migrate(channel, target)
        assert client.at_end()
        wait_until(lambda: server.server.pool.used_bytes == 0)


TALKERS = 6
CONNECTIONS_EACH = 8
BROKER = (
    "listeners.default.authenticator=sasl",
    'listeners.default.sasl.mechanisms=["PLAIN"]',
    f"listeners.default.{users_setting(alice='sesame')}",
    "listeners.default.gates=connection_quota,handshake_limit",
    "listeners.default.processors=3",
    "server.queued_max_request_bytes=1000000",
)


def produce_and_fetch(server, tls, number, failures):
    """Send pipelined Produce and Metadata requests on several connections, one after the other.

    Each Produce request must get the next offset, and each high watermark must follow the last acknowledged record.
    Each connection is closed in the middle of a request.
    """
    chances = random.Random(number)
    topic, offset = f"t-{number}", 0
    try:
        for _ in range(CONNECTIONS_EACH):
            client = RawClient(server.address(), ssl_context=tls, server_hostname="localhost", timeout_s=60)
            with client:
                assert log_in(client, "PLAIN", "alice", "sesame").error_code == 0
                if not offset:
                    client.call(CreateTopicsRequest([CreatableTopic(topic, 1, 1)]), 5)
                for _ in range(10):
                    due = []
                    for _ in range(chances.randrange(1, 12)):
                        request, version = MetadataRequest(topics=[]), 12
                        if chances.random() < 0.7:
                            batch = record_batch(1, chances.choice([100, 5000, 60_000]))
                            data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
                            request, version = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), 9
                        due.append((request, version, client.send(request, version)))
                    for request, version, correlation_id in due:
                        answer = client.receive(request.API_KEY, version, correlation_id)
                        if isinstance(request, ProduceRequest):
                            partition = answer.responses[0].partition_responses[0]
                            assert (partition.error_code, partition.base_offset) == (0, offset)
                            offset += 1
                partitions = [FetchPartition(0, fetch_offset=offset - 1, partition_max_bytes=100_000)]
                topics = [FetchTopic(topic, partitions=partitions)]
                answer = client.call(FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=100_000, topics=topics), 12)
                assert answer.responses[0].partitions[0].high_watermark == offset
                # Send half a request and close the connection.
                client.send_bytes(struct.pack(">ihh", 50_000, 0, 9) + bytes(chances.randrange(20_000)))
    except Exception as error:
        failures.append(error)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_broker_loses_nothing_while_connections_move(tls_files, seed):
    """Test TLS, SASL, a memory pool that is too small, connection gates, and processors that are added and removed."""
    chances = random.Random(seed)
    tls = tls_files.client_context()
    with EmbeddedServer([*BROKER, *tls_files.server_settings()]) as server:
        counts = server.server.services.shared.once("connection_counts", dict)
        listener = listener_of(server)
        failures = []
        talkers = [
            threading.Thread(target=produce_and_fetch, args=(server, tls, seed * 100 + number, failures))
            for number in range(TALKERS)
        ]
        with Mover(server, seed):
            for talker in talkers:
                talker.start()
            while any(talker.is_alive() for talker in talkers):
                listener.resize(chances.randrange(2, 5))
                talkers[0].join(0.1)
                for talker in talkers:
                    talker.join(0.01)
        assert not failures, failures[0]
        assert sum(processor.migrated_connections for processor in listener.all_processors) > 20
        wait_until(lambda: counts.total == 0)
        assert counts.by_source == {}
        (handshakes,) = (part for part in listener.parts if type(part).__name__ == "HandshakeLimit")
        assert not handshakes._under_way
        assert not handshakes._by_source
        wait_until(lambda: server.server.pool.used_bytes == 0)
        assert listener.counts.created.value == listener.counts.closed.value == TALKERS * CONNECTIONS_EACH
        assert sum(processor.connection_count for processor in listener.all_processors) == 0


def recorders():
    gc.collect()
    return sum(isinstance(one, RequestRecorder) for one in gc.get_objects())


def test_counts_of_removed_processors_take_no_memory(serve, client_options):
    server = serve("listeners.default.processors=1", "server.metrics=true")
    listener = listener_of(server)
    counts = []
    with RawClient(server.address(), **client_options) as client:
        for _ in range(4):
            listener.resize(3)
            client.call(MetadataRequest(topics=None), 12)
            listener.resize(1)
            wait_until(lambda: len(listener.all_processors) == 1)
            for processor in listener.retired:
                processor.join()
            counts.append(recorders())
    # The listener keeps processors that have ended until the next change.
    assert counts[-1] <= counts[0]


@pytest.mark.interpreted
@pytest.mark.parametrize("counts", [(1, 3), (3, 1)])
def test_a_listener_that_goes_offline_while_its_processors_change_goes_online_again(serve, client_options, counts):
    before, after = counts
    server = serve(f"listeners.default.processors={before}")
    listener = listener_of(server)
    begin, other = listener._accepting.begin, threading.Thread(target=listener.go_offline)

    def interrupted(processors):
        if len(processors) == after and not other.ident:
            held = listener._port_lock.locked()
            other.start()
            if not held:
                other.join()
        begin(processors)

    listener._accepting.begin = interrupted
    listener.resize(after)
    other.join()
    assert not listener.is_online
    listener.go_online()
    with RawClient(server.address(), **client_options) as client:
        assert client.call(MetadataRequest(topics=None), 12).brokers
