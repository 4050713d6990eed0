"""A server whose configuration file a test changes and reloads, and parts that fail for it."""

import contextlib
import dataclasses
import socket
import threading
from collections import Counter

from klamm import ConnectionGate, Provider, hookimpl, setting
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.dispatch import ProcessorAssigner
from klamm.server.serving import reload
from klamm.testing import EmbeddedServer, MovingClock, RawClient
from klamm.testing.embedded import TEST_DEFAULTS
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.describe_cluster import DescribeClusterRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.metadata import MetadataRequest
from tests.waiting import klamm_threads, wait_until

FIRST = '[listeners.first]\nbind = "127.0.0.1:0"\n'


class FailingGate(ConnectionGate):
    def open(self, listener):
        raise RuntimeError("out of order")

    def admit(self, address):
        return None

    def release(self, address):
        pass


class OpenGate(ConnectionGate):
    """A gate that admits every connection. Tests replace its methods."""

    def open(self, listener):
        pass

    def close(self):
        pass

    def admit(self, address):
        return None

    def release(self, address):
        pass


@dataclasses.dataclass(frozen=True)
class Bounds:
    low: int = setting(1, doc="At least.")
    high: int = setting(1, doc="At most.")

    def __post_init__(self):
        if self.low > self.high:
            raise ValueError("low is above high")


class BoundedGate(OpenGate):
    live_keys = ("low",)

    def __init__(self, settings):
        pass


class FailingAssigner(ProcessorAssigner):
    @property
    def rebalance_interval_ms(self):
        raise RuntimeError("out of order")

    def assign(self, address, loads):
        return 0


class Plugin:
    @hookimpl
    def klamm_connection_gates(self):
        yield Provider("failing", "tests.contract.live_server:FailingGate")
        yield Provider("open", "tests.contract.live_server:OpenGate")
        yield Provider("bounded", "tests.contract.live_server:BoundedGate", Bounds)

    @hookimpl
    def klamm_processor_assigners(self):
        yield Provider("failing", "tests.contract.live_server:FailingAssigner")


OPEN_GATE = 'gates = ["connection_quota", "open"]\n'


def second(port, more=""):
    return f'[listeners.second]\nbind = "127.0.0.1:{port}"\n{more}'


class Live:
    """A server with a configuration file that a test changes."""

    def __init__(self, file, text):
        self.file = file
        self.threads = Counter(klamm_threads())
        file.write_text(text)
        self.clock = MovingClock()
        self.embedded = EmbeddedServer(file=file, clock=self.clock, plugins=[Plugin()]).start()
        self.registry = PluginRegistry()
        self.registry.add(Plugin(), "tests")
        self.clients = []

    @property
    def server(self):
        return self.embedded.server

    def change(self, text):
        """Replace the file and reload. Return the report without its last line, which is always the same."""
        self.file.write_text(text)
        return [line.removeprefix("reload: ") for line in self.reload()]

    def reload(self):
        return reload(self.server, lambda: load_plan(self.file, self.registry, defaults=TEST_DEFAULTS))

    def connect(self, listener="first", **options):
        self.clients.append(RawClient(self.embedded.address(listener), timeout_s=60, **options))
        return self.clients[-1]

    def listener(self, name):
        return next(one for one in self.server.listeners if one.name == name)

    def labels(self):
        """Return the names of listeners in the metrics. Each sample must occur once."""
        found = set()
        for family in self.server.services.metrics.collect():
            samples = [tuple(sorted(sample.labels.items())) for sample in family.samples]
            assert len(samples) == len(set(samples)), family
            found |= {sample.labels.get("listener", "") for sample in family.samples}
        return found - {""}

    def close(self):
        for client in self.clients:
            client.close()
        self.embedded.stop()
        # Threads of earlier tests may end meanwhile.
        wait_until(lambda: not Counter(klamm_threads()) - self.threads)


def is_refused(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


def ports(client):
    """Return the ports of the broker in Metadata and DescribeCluster."""
    metadata = client.call(MetadataRequest(topics=[]), 12).brokers
    cluster = client.call(DescribeClusterRequest(), 1).brokers
    return {one.port for one in (*metadata, *cluster)}


def waiting_fetch(client):
    """Send a fetch that waits for a minute."""
    client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 5)
    topics = [FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1000)])]
    client.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=topics), 11)


def stuck(live):
    """Return a client of `second` that has pipelined requests, and reads none of the answers."""
    client = live.connect("second")
    client.call(CreateTopicsRequest([CreatableTopic("t", 1000, 1)]), 5)

    def send():
        with contextlib.suppress(OSError):
            while True:
                client.send(MetadataRequest(topics=None), 12)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    (processor,) = live.listener("second").processors
    wait_until(lambda: any(channel.send is not None for channel in processor.channels))
    return thread
