"""Listeners that a reload adds to a running server and removes from it."""

import contextlib
import dataclasses
import errno
import gc
import logging
import socket
import threading
import weakref
from collections import Counter

import pytest

from klamm import ConnectionGate, Provider, hookimpl, setting
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.dispatch import ProcessorAssigner
from klamm.server.serving import reload
from klamm.testing import EmbeddedServer, MovingClock, RawClient
from klamm.testing.embedded import TEST_DEFAULTS
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.describe_cluster import DescribeClusterRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.metadata import MetadataRequest
from tests.tls_files import TlsFiles
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
        yield Provider("failing", "tests.contract.test_live_listeners:FailingGate")
        yield Provider("open", "tests.contract.test_live_listeners:OpenGate")
        yield Provider("bounded", "tests.contract.test_live_listeners:BoundedGate", Bounds)

    @hookimpl
    def klamm_processor_assigners(self):
        yield Provider("failing", "tests.contract.test_live_listeners:FailingAssigner")


OPEN_GATE = 'gates = ["connection_quota", "open"]\n'


class NotedPoller:
    """A poller that records whether it is closed."""

    closed = False

    def __init__(self, poller):
        self._poller = poller

    def __getattr__(self, name):
        return getattr(self._poller, name)

    def close(self):
        self.closed = True
        self._poller.close()


class FewPollers:
    """The threads of a server that can watch only `room` further pollers."""

    def __init__(self, threads, room=3):
        self._threads = threads
        self._room = room
        self.pollers = []

    def __getattr__(self, name):
        return getattr(self._threads, name)

    def watch(self, poller):
        if len(self.pollers) == self._room:
            raise OSError(errno.EMFILE, "too few descriptors")
        self.pollers.append(NotedPoller(poller))
        return self.pollers[-1]


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


@pytest.fixture
def live(tmp_path):
    """Yield `live(text)`, which starts a server from a file with this text."""
    with contextlib.ExitStack() as opened:

        def start(text=FIRST):
            one = Live(tmp_path / "klamm.toml", text)
            opened.callback(one.close)
            return one

        yield start


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def without_thread(monkeypatch):
    """Return `without_thread(text)`, a context manager.

    No thread whose name contains the text can start in its block.
    """

    @contextlib.contextmanager
    def block(text):
        start = threading.Thread.start

        def refuse(thread):
            if text in thread.name:
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            yield

    return block


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


def test_a_listener_is_added_used_removed_and_added_again(live, free_port):
    one = live()
    first = one.connect()
    assert one.change(FIRST + second(free_port)) == [f"[listeners.second] listens on 127.0.0.1:{free_port}", "done"]
    here = one.embedded.address("first")[1]
    client = one.connect("second")
    assert (ports(first), ports(client)) == ({here}, {free_port})
    assert one.labels() == {"first", "second"}
    assert one.change(FIRST) == ["[listeners.second] is removed; its connections end", "done"]
    assert is_refused(free_port)
    # The server reads commands of clients at most ten times a second.
    wait_until(lambda: one.labels() == {"first"})
    with pytest.raises(OSError):
        client.call(ApiVersionsRequest(), 0)
    wait_until(lambda: list(one.server.services.listeners) == ["first"])
    # The port is free again although connections to it have just ended.
    for _ in range(3):
        assert one.change(FIRST + second(free_port))[-1] == "done"
        assert ports(one.connect("second")) == {free_port}
        assert one.change(FIRST)[-1] == "done"
    assert ports(first) == {here}


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("bakclog = 3\n", 'klamm.toml:5:1  listeners.second.bakclog: unknown key; did you mean "backlog"?'),
        (
            'transport = "ssl"\n[listeners.second.ssl]\ncertificate = "none.pem"\nprivate_key = "none.key"\n',
            "klamm.toml:8:1  listeners.second.ssl.private_key: ",
        ),
        (
            'gates = ["connection_quota", "failing"]\n',
            "klamm.toml:3:1  listeners.second: listener second: ",
        ),
    ],
)
def test_nothing_changes_if_the_configuration_of_an_added_listener_is_wrong(live, free_port, more, problem):
    one = live()
    lines = one.change(FIRST + second(free_port, more))
    assert len(lines) == 1
    assert lines[0].startswith("nothing changed: ")
    assert problem in lines[0]
    assert is_refused(free_port)
    assert one.labels() == {"first"}


@pytest.mark.parametrize(
    ("more", "problem"),
    [("processors = 4\n", "too few descriptors"), ('processors = 3\nassigner = "failing"\n', "out of order")],
)
def test_an_added_listener_that_cannot_open_releases_its_processors(monkeypatch, live, free_port, more, problem):
    one = live()
    few = FewPollers(one.server.services.threads)
    monkeypatch.setattr(one.server.services, "threads", few)
    (line,) = one.change(FIRST + second(free_port, more))
    assert line.startswith("nothing changed: ")
    assert problem in line
    assert [poller.closed for poller in few.pollers] == [True] * 3
    assert is_refused(free_port)


def test_nothing_changes_if_a_port_is_taken(live):
    one = live()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = FIRST + second(port)
        lines = one.change("[server]\nio_threads = 3\n" + text)
        cannot = f"listener second: cannot bind 127.0.0.1:{port}: Address already in use"
        assert lines == [f"nothing changed: {one.file}:6:1  listeners.second.bind: {cannot}"]
        assert one.server.handler_pool.size == 8
        assert (one.labels(), list(one.server.services.listeners)) == ({"first"}, ["first"])
    assert one.change(text)[-1] == "done"


@pytest.mark.parametrize(
    "thread", ["klamm-handler-9", "klamm-processor-second-0", "klamm-processor-second-1", "klamm-acceptor-second"]
)
def test_nothing_changes_if_a_thread_cannot_start(live, free_port, without_thread, caplog, thread):
    one = live()
    level = one.server.plan.server.log_level
    caplog.set_level(level)
    text = f'[server]\nio_threads = 12\nlog_level = "DEBUG"\n{FIRST}{second(free_port, "processors = 2")}'
    where = "[server] io_threads = 12: " if "handler" in thread else ""
    with without_thread(thread):
        assert one.change(text) == [f"nothing changed: {where}can't start new thread"]
    assert is_refused(free_port)
    assert (one.labels(), list(one.server.services.listeners)) == ({"first"}, ["first"])
    assert [each.name for each in one.server.listeners] == ["first"]
    wait_until(lambda: one.server.handler_pool.size == 8)
    assert (one.server.plan.server.io_threads, one.server.plan.server.log_level) == (8, level)
    assert logging.getLevelName(logging.getLogger().level) == level
    assert one.change(text)[-1] == "done"
    assert ports(one.connect("second")) == {free_port}


def sized(io_threads, *processors):
    """Return a file with two listeners and these numbers of threads."""
    listeners = zip((FIRST, second(0)), processors, strict=True)
    return f"[server]\nio_threads = {io_threads}\n" + "".join(f"{text}processors = {n}\n" for text, n in listeners)


def numbers(one):
    """Return the numbers of threads in the plan, and of those that run."""
    running = [one.server.handler_pool.size, *(len(each.all_processors) for each in one.server.listeners)]
    planned = [one.server.plan.server.io_threads, *(each.settings.processors for each in one.server.plan.listeners)]
    return running, planned


@pytest.mark.parametrize(
    ("before", "after", "thread", "where"),
    [
        ((2, 1, 3), (4, 3, 1), "klamm-handler-3", "[server] io_threads = 4"),
        ((2, 1, 3), (1, 3, 1), "klamm-processor-first-1", "[listeners.first] processors = 3"),
        ((2, 1, 3), (1, 3, 1), "klamm-processor-first-2", "[listeners.first] processors = 3"),
        ((2, 1, 1), (4, 3, 1), "klamm-acceptor-first", "[listeners.first] processors = 3"),
        ((4, 2, 2), (2, 3, 4), "klamm-processor-second-3", "[listeners.second] processors = 4"),
        ((4, 3, 1), (5, 1, 2), "klamm-acceptor-second", "[listeners.second] processors = 2"),
    ],
)
def test_numbers_of_threads_change_together_or_not_at_all(live, without_thread, before, after, thread, where):
    one = live(sized(*before))
    clients = [one.connect(name) for name in ("first", "second") for _ in range(3)]
    with without_thread(thread):
        assert one.change(sized(*after)) == [f"nothing changed: {where}: can't start new thread"]
    wait_until(lambda: numbers(one) == (list(before), list(before)))
    for client in [*clients, one.connect("first"), one.connect("second")]:
        assert ports(client)
    assert one.change(sized(*after))[-1] == "done"
    wait_until(lambda: numbers(one) == (list(after), list(after)))
    for client in [*clients, one.connect("first"), one.connect("second")]:
        assert ports(client)


def test_threads_that_go_stay_if_a_listener_cannot_be_added(live, free_port, without_thread):
    one = live(sized(4, 3, 2))
    third = second(free_port).replace("second", "third")
    with without_thread("klamm-processor-third"), without_thread("klamm-handler"):
        assert one.change(sized(2, 1, 1) + third) == ["nothing changed: can't start new thread"]
    assert numbers(one) == ([4, 3, 2], [4, 3, 2])


@pytest.mark.parametrize("room", [0, 1, 2])
def test_processors_stay_if_the_system_has_no_descriptor_left(live, room):
    one = live()
    listener, threads = one.listener("first"), one.server.services.threads
    few = FewPollers(threads, room)

    def use(threads):
        listener.runtime = listener._accepting._runtime = dataclasses.replace(listener.runtime, threads=threads)

    use(few)
    with pytest.raises(OSError, match="too few descriptors"):
        listener.resize(3)
    assert (len(listener.processors), [poller.closed for poller in few.pollers]) == (1, [True] * room)
    assert ports(one.connect())
    use(threads)
    listener.resize(3)
    assert ports(one.connect())


def test_a_client_may_request_threads_again_after_they_could_not_start(live, without_thread, caplog):
    one, key = live(), "listener.name.first.num.network.threads"
    with without_thread("klamm-processor-first-2"):
        one.server.dynamic.change({key: "3"}, False)
        text = "cannot be changed by a client: [listeners.first] processors = 3: can't start new thread"
        wait_until(lambda: text in caplog.text)
    assert numbers(one)[1][1:] == [1]
    wait_until(lambda: one.server.dynamic._is_applied is False)
    one.server.dynamic.change({key: "3"}, False)
    wait_until(lambda: len(one.listener("first").processors) == 3)


def test_a_listener_that_cannot_start_does_not_end_an_earlier_one_of_the_same_name(live, free_port, without_thread):
    one = live(FIRST + second(free_port))
    sender = stuck(one)
    context = one.listener("second").context
    assert one.change(FIRST)[-1] == "done"
    with without_thread("klamm-processor-second"):
        assert one.change(FIRST + second(free_port)) == ["nothing changed: can't start new thread"]
    assert one.server.services.listeners["second"] is context
    one.server.stop(deadline_ms=100)
    sender.join()


@pytest.mark.parametrize("stops", [False, True])
def test_a_removed_listener_ends_although_its_thread_cannot_start(live, free_port, without_thread, monkeypatch, stops):
    closed = []
    monkeypatch.setattr(OpenGate, "close", lambda gate: closed.append(gate))
    one = live(FIRST + second(free_port, OPEN_GATE))
    with without_thread("removed"):
        assert one.change(FIRST) == ["[listeners.second] is removed; its connections end", "done"]
    assert [each.name for each in one.server.plan.listeners] == ["first"]
    assert (is_refused(free_port), closed) == (True, [])
    if stops:
        one.server.stop()
    else:
        assert one.change(FIRST) == ["done"]
        wait_until(lambda: closed)
    wait_until(lambda: list(one.server.services.listeners) == ["first"])
    assert len(closed) == 1


class CallingLock:
    """A lock that calls a function before a thread takes the lock for the first time."""

    def __init__(self, lock, call):
        self.lock = lock
        self.call = call

    def __enter__(self):
        call, self.call = self.call, lambda: None
        call()
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


@pytest.mark.interpreted
def test_a_client_that_changes_configs_during_a_reload_reverts_nothing(live):
    one = live(f"[server]\nio_threads = 3\n{FIRST}")
    reloaded = threading.Event()

    def reload_first():
        one.change(f"[server]\nio_threads = 9\n{FIRST}")
        reloaded.set()

    one.server.changing = CallingLock(one.server.changing, reload_first)
    one.server.dynamic.change({"listener.name.first.num.network.threads": "2"}, False)
    reloaded.wait()
    wait_until(lambda: len(one.listener("first").processors) == 2)
    assert (one.server.handler_pool.size, one.server.plan.server.io_threads) == (9, 9)


def test_a_client_cannot_set_configs_of_a_listener_that_is_being_removed(live, free_port, monkeypatch):
    key = "listener.name.second.num.network.threads"
    one = live(FIRST + second(free_port))
    monkeypatch.setattr(OpenGate, "open", lambda *_: one.server.dynamic.change({key: "2"}, False))
    third = f'[listeners.third]\nbind = "127.0.0.1:0"\n{OPEN_GATE}'
    assert one.change(FIRST + third) == [
        f"nothing changed: a client has set {key}: delete it by AlterConfigs before its listener goes"
    ]
    assert one.labels() == {"first", "second"}
    wait_until(lambda: len(one.listener("second").processors) == 2)
    monkeypatch.undo()
    one.server.dynamic.change({}, False)
    assert one.change(FIRST + third)[-1] == "done"


def test_a_reload_that_fails_leaves_the_configs_that_clients_can_set(live, free_port, without_thread):
    one = live()
    with without_thread("klamm-processor-second"):
        assert one.change(FIRST + second(free_port)) == ["nothing changed: can't start new thread"]
    with pytest.raises(ValueError, match="listener.name.second"):
        one.server.dynamic.change({"listener.name.second.num.network.threads": "2"}, False)


def test_a_listener_keeps_its_backlog_if_the_change_fails(live, free_port):
    one = live(FIRST + second(free_port))
    acceptor = one.listener("second").acceptor
    before = [queue.limit for queue in acceptor.accept_queues()]
    third = second(free_port, "backlog = 7\n").replace("second", "third")
    taken = f'[listeners.taken]\nbind = "127.0.0.1:{one.embedded.address("first")[1]}"\n'
    (line,) = one.change(FIRST + third + taken)
    assert line.startswith("nothing changed: ")
    assert [queue.limit for queue in acceptor.accept_queues()] == before
    assert one.change(FIRST + third)[-1] == "done"
    # Only Linux reports the backlog.
    assert [queue.limit for queue in one.listener("third").acceptor.accept_queues()] == [7 for _ in before]


def test_a_listener_that_is_added_to_a_stopped_node_is_offline_until_the_node_starts(live):
    nodes = "[broker]\nnodes = 3\n"
    one = live(FIRST + nodes)
    one.embedded.nodes.stop(2)
    assert one.change(f'[listeners.second]\nbind = "127.0.0.1:0"\n{FIRST}{nodes}')[-1] == "done"
    here = [each.context for each in one.server.listeners if each.context.configured_as == "second"]
    assert [is_refused(each.bound.port) for each in here] == [False, True, False]
    one.embedded.nodes.start(2)
    assert ports(one.connect("second")) == {each.bound.port for each in here}


def test_a_port_moves_to_another_listener_and_no_connection_is_refused(live, free_port):
    one = live(FIRST + second(free_port))
    old = one.connect("second")
    text = FIRST + second(free_port).replace("second", "third")
    lines = one.change(text)
    assert lines == [
        f"[listeners.third] listens on 127.0.0.1:{free_port}",
        "[listeners.second] is removed; its connections end",
        "done",
    ]
    assert ports(one.connect("third")) == {free_port}
    with pytest.raises(OSError):
        old.call(ApiVersionsRequest(), 0)
    wait_until(lambda: one.labels() == {"first", "third"})


def test_a_unix_domain_socket_is_added_removed_and_added_again(live, tmp_path):
    one, path = live(), tmp_path / "klamm.sock"
    for _ in range(3):
        assert one.change(f'{FIRST}[listeners.second]\nbind = "unix:{path}"\n')[-1] == "done"
        one.connect("second").call(ApiVersionsRequest(), 0)
        assert one.change(FIRST)[-1] == "done"
        assert not path.exists()


def test_a_reload_reports_changes_that_take_effect_at_the_next_start(live, free_port):
    one = live(FIRST + second(free_port))
    lines = one.change(FIRST + second(free_port, "backlog = 7\n"))
    assert lines == [
        "[listeners.second] backlog has changed; this takes effect at the next start: "
        "a listener keeps its socket and its parts",
        "done",
    ]
    other = '[listeners.other]\nbind = "127.0.0.1:0"\napi_set = "echo"\n'
    assert one.change(FIRST + second(free_port) + other) == [
        "[listeners.other] has changed; this takes effect at the next start: a server opens its handler sets once",
        "done",
    ]


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


def test_a_client_that_never_reads_delays_the_end_of_a_listener_at_most_as_long_as_a_stop(live, free_port):
    one = live(FIRST + second(free_port))
    listener = one.listener("second")
    sender = stuck(one)
    assert one.change(FIRST)[-1] == "done"
    one.clock.advance_ms(20_000)
    assert not any(processor.ended for processor in listener.processors)
    one.clock.advance_ms(11_000)
    wait_until(lambda: list(one.server.services.listeners) == ["first"])
    assert all(processor.ended for processor in listener.processors)
    sender.join()


def test_a_listener_of_the_same_name_serves_while_the_earlier_one_still_drains(live, free_port):
    one = live(FIRST + second(free_port))
    sender = stuck(one)
    earlier = one.listener("second")
    (processor,) = earlier.processors
    assert one.change(FIRST)[-1] == "done"
    assert one.change(FIRST + second(free_port))[-1] == "done"
    client = one.connect("second")
    assert ports(client) == {free_port}
    assert not processor.ended
    assert one.labels() == {"first", "second"}
    # A stop ends both listeners within its own deadline.
    one.server.stop(deadline_ms=100)
    sender.join()
    assert processor.ended


def test_a_waiting_fetch_delays_the_end_of_a_listener_only_for_a_moment(live, free_port):
    one = live(FIRST + second(free_port))
    waiting_fetch(one.connect("second"))
    (processor,) = one.listener("second").processors
    wait_until(lambda: any(channel.in_flight is not None for channel in processor.channels))
    assert one.change(FIRST)[-1] == "done"
    wait_until(lambda: processor.ended)


def test_a_removed_listener_ends_after_its_last_response_is_sent(live, free_port, monkeypatch):
    one = live(FIRST + second(free_port))
    client = one.connect("second")
    (listener,) = (each for each in one.server.listeners if each.name == "second")
    started, release = threading.Event(), threading.Event()
    store = one.embedded.api_set().store
    write = store.write_and_wait

    def write_late(*arguments):
        started.set()
        release.wait()
        return write(*arguments)

    monkeypatch.setattr(store, "write_and_wait", write_late)
    correlation = client.send(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 5)
    started.wait()
    assert one.change(FIRST)[-1] == "done"
    assert is_refused(free_port)
    assert not listener.processors[0].ended
    release.set()
    (created,) = client.receive(CreateTopicsRequest.API_KEY, 5, correlation).topics
    assert (created.name, created.error_code) == ("t", 0)
    wait_until(lambda: listener.processors[0].ended)


def test_a_removed_listener_cannot_be_put_online_again(live, free_port):
    one = live(FIRST + second(free_port))
    context = one.listener("second").context
    context.go_offline()
    assert one.change(FIRST)[-1] == "done"
    context.go_online()
    assert is_refused(free_port)


def test_a_reload_during_a_stop_changes_nothing(live, free_port):
    one = live()
    one.file.write_text(FIRST + second(free_port))
    one.server.stop()
    assert one.reload() == ["reload: nothing changed: the server stops", "reload: done"]
    assert is_refused(free_port)


def test_simultaneous_reloads_run_one_after_the_other(live, free_port):
    one = live()
    one.file.write_text(FIRST + second(free_port))
    threads = [threading.Thread(target=one.reload) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.name for each in one.server.listeners] == ["first", "second"]
    assert ports(one.connect("second")) == {free_port}


def test_a_listener_with_tls_and_authorizer_is_added(live, free_port, tmp_path):
    files = TlsFiles(tmp_path)
    more = f"""
authorizer = "acl"
transport = "ssl"
[listeners.second.ssl]
certificate = "{files.server.certificate}"
private_key = "{files.server.key}"
"""
    one = live()
    lines = one.change(FIRST + second(free_port, more))
    assert lines[-1] == "done", lines
    client = one.connect("second", ssl_context=files.client_context())
    assert client.call(MetadataRequest(topics=None), 12).topics == []


def test_listeners_of_several_nodes_are_added_and_removed_together(live):
    one = live(FIRST + "[broker]\nnodes = 3\n")
    assert one.change('[listeners.second]\nbind = "127.0.0.1:0"\n' + FIRST + "[broker]\nnodes = 3\n")[-1] == "done"
    client = one.connect("second")
    wanted = {each.context.bound.port for each in one.server.listeners if each.context.configured_as == "second"}
    assert len(wanted) == 3
    assert ports(client) == wanted
    assert one.change(FIRST + "[broker]\nnodes = 3\n")[-1] == "done"
    wait_until(lambda: len(one.server.services.listeners) == 3)


def test_a_listener_with_dynamic_configs_cannot_be_removed(live, free_port):
    one = live(FIRST + second(free_port))
    one.server.dynamic.change({"listener.name.second.num.network.threads": "2"}, False)
    wait_until(lambda: len(one.listener("second").processors) == 2)
    key = "listener.name.second.num.network.threads"
    assert one.change(FIRST) == [
        f"nothing changed: a client has set {key}: delete it by AlterConfigs before its listener goes"
    ]
    one.server.dynamic.change({}, False)
    assert one.change(FIRST)[-1] == "done"


def test_a_reload_may_add_a_listener_and_change_settings_that_all_listeners_share(live, free_port):
    quotas = "[client_quota]\nclients = {{ batch = {{ producer_byte_rate = {} }} }}\n"
    one = live(FIRST + quotas.format(1000))
    lines = one.change(FIRST + second(free_port) + quotas.format(2000))
    assert lines == [
        f"[listeners.second] listens on 127.0.0.1:{free_port}",
        "[listeners.first.client_quota] clients has changed and is applied",
        "[listeners.second.client_quota] clients has changed and is applied",
        "done",
    ]
    assert one.listener("first").part("client_quota").settings == one.listener("second").part("client_quota").settings


@pytest.mark.interpreted
def test_a_removed_listener_leaves_nothing_in_memory(live, free_port, tmp_path):
    files = TlsFiles(tmp_path)
    more = f"""
authorizer = "acl"
authenticator = "sasl"
transport = "ssl"
filters = ["client_limits"]
[listeners.second.ssl]
certificate = "{files.server.certificate}"
private_key = "{files.server.key}"
[listeners.second.sasl]
mechanisms = ["SCRAM-SHA-256", "PLAIN"]
credential_stores = ["broker"]
"""
    one = live()
    assert one.change(FIRST + second(free_port, more))[-1] == "done"
    listener = one.listener("second")
    ended = [weakref.ref(each) for each in (listener, *listener.parts, *listener.processors)]
    client = one.connect("second", ssl_context=files.client_context())
    client.call(ApiVersionsRequest(), 0)
    del listener
    assert one.change(FIRST)[-1] == "done"
    wait_until(lambda: list(one.server.services.listeners) == ["first"])

    def left():
        gc.collect()
        return [each() for each in ended if each() is not None]

    # Cancelled timers are removed at the time when they are due.
    one.clock.advance_ms(120_000)
    wait_until(lambda: not left())


def test_live_keys_that_do_not_fit_the_other_keys_in_use_are_reported(live):
    one = live(FIRST + 'gates = ["connection_quota", "bounded"]\n')
    one.file.write_text(one.file.read_text() + "[listeners.first.bounded]\nlow = 3\nhigh = 5\n")
    plan = EmbeddedServer(file=one.file, plugins=[Plugin()]).plan
    lines = reload(one.server, lambda: plan)
    assert "reload: [listeners.first.bounded] stays as it was: low is above high" in lines
    assert ports(one.connect())


@pytest.mark.interpreted
def test_listeners_stay_if_a_thread_that_must_end_does_not_end(live, free_port):
    one = live(FIRST + "processors = 3\n")
    listener = one.listener("first")

    def refuse(count):
        raise RuntimeError("out of order")

    listener.resize = refuse
    one.change(FIRST + "processors = 2\n" + second(free_port))
    del listener.resize
    assert ports(one.connect("second")) == {free_port}
