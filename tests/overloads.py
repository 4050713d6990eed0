"""Staged overloads of a real server: each with the stage that limits it, and who or what causes it.

`OVERLOADS` is the registry. `tests/contract/test_explain.py` asks the commands and the console about each, and
`tools/overloads.py` stages one of them for operators who do not know which it is.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

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
from tests.contract.api_sets import Plugin
from tests.contract.test_default_quotas import PRODUCE, set_quota
from tests.tls_files import TlsFiles

TRYING: Final = "listeners.default.api_set=trying"
_PIPELINED: Final = 2_000


class Closed(ConnectionGate):
    """Keeps each connection waiting at the acceptor."""

    def admit(self, address):
        return Delay(50, "office_hours", pause_acceptor=True)

    def release(self, address):
        pass


class Held(ConnectionGate):
    """Blocks the acceptor's thread, which no gate may do."""

    go_on = threading.Event()

    def admit(self, address):
        self.go_on.wait(60)

    def release(self, address):
        pass


class Computing(RequestFilter):
    """Computes for 20 ms in each request, on the thread that many connections share."""

    api_keys = (ApiKey.METADATA,)

    def on_request(self, message, context):
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pass
        return message


class Parts:
    """The plugin with these parts."""

    @hookimpl
    def klamm_connection_gates(self):
        yield Provider("closed", f"{__name__}:Closed")
        yield Provider("held", f"{__name__}:Held")

    @hookimpl
    def klamm_request_filters(self):
        yield Provider("computing", f"{__name__}:Computing")


class Staging:
    """How to stage an overload: the extensions of the server, and the names of its clients.

    An overload names its clients by their roles; `name` returns the name of a client in a role.
    """

    def __init__(self, *extensions: str, name: Callable[[str], str] = str) -> None:
        self.extensions = extensions
        self.name = name

    def __getitem__(self, role: str) -> str:
        return self.name(role)

    @property
    def settings(self) -> list[str]:
        """The settings of the extensions."""
        names = ",".join(f'"{one}"' for one in self.extensions)
        return [f"server.extensions=[{names}]", *(f"{one}.bind=127.0.0.1:0" for one in self.extensions)]

    def serving(self, *settings: str) -> EmbeddedServer:
        """Return a server that is not yet started."""
        return EmbeddedServer([*self.settings, *settings], plugins=[Plugin(), Parts()])

    def client(self, server: EmbeddedServer, role: str) -> RawClient:
        """Return a connected client."""
        return RawClient(server.address(), client_id=self[role])


Stage = Callable[[Staging], Iterator[EmbeddedServer]]


class Overload(NamedTuple):
    """A way to overload a server. `stage` is the stage that limits it then; `look_at` are texts that name the cause,
    with the roles of clients in braces, and `role` is the client that causes it, if it is one.
    """

    staged: Callable[[Staging], contextlib.AbstractContextManager[EmbeddedServer]]
    stage: str
    look_at: tuple[str, ...]
    role: str


OVERLOADS: dict[str, Overload] = {}


def overload(stage: str, *look_at: str, role: str = "") -> Callable[[Stage], Stage]:
    """Put a function that stages an overload into the registry."""

    def register(function: Stage) -> Stage:
        OVERLOADS[function.__name__] = Overload(contextlib.contextmanager(function), stage, look_at, role)
        return function

    return register


@contextlib.contextmanager
def _repeating(*actions: Callable[[], object]) -> Iterator[None]:
    """Call each again and again, on a thread of its own, until the block ends."""
    ended = threading.Event()

    def repeat(action: Callable[[], object]) -> None:
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


@contextlib.contextmanager
def _blocked(staging: Staging, count: int, settings: Sequence[str], prefix: str = "") -> Iterator[EmbeddedServer]:
    """Serve clients whose requests block handlers, until the block ends."""
    with staging.serving(TRYING, *settings) as server:
        for _ in range(count):
            staging.client(server, "blocking").send(HeartbeatRequest(group_id=f"{prefix}block"), 4)
        try:
            yield server
        finally:
            server.api_set("trying").release.set()


@overload("queue", "behind handlers: Heartbeat of client {blocking}", role="blocking")
def full_queue(staging: Staging) -> Iterator[EmbeddedServer]:
    with _blocked(staging, 6, ("server.io_threads=1", "server.queued_max_requests=2")) as server:
        yield server


@overload("pool", "in requests in handlers: Heartbeat", "client {blocking}", role="blocking")
def empty_pool(staging: Staging) -> Iterator[EmbeddedServer]:
    with _blocked(staging, 4, ("server.queued_max_request_bytes=100000",), "x" * 30_000 + ".") as server:
        yield server


@overload("processor", "client {hot}", role="hot")
def hot_processor(staging: Staging) -> Iterator[EmbeddedServer]:
    frame = encode_request_header(3, 12, 1, staging["hot"]) + MetadataRequest(topics=None).encode(12)
    burst = (len(frame).to_bytes(4, "big") + frame) * _PIPELINED
    with (
        staging.serving(TRYING) as server,
        staging.client(server, "hot") as hot,
        staging.client(server, "light"),
    ):
        hot.send_bytes(burst[: len(burst) // _PIPELINED])
        answer_bytes = len(hot.receive_frame()) + 4

        def ask() -> None:
            hot.send_bytes(burst)
            left = _PIPELINED * answer_bytes
            while left:
                left -= len(hot.socket.recv(min(left, 1 << 20)))

        with _repeating(ask):
            yield server


@overload("accept", "the gate with reason office_hours of [listeners.default] gates")
def blocked_acceptor(staging: Staging) -> Iterator[EmbeddedServer]:
    with (
        staging.serving(TRYING, "listeners.default.gates=closed") as server,
        socket.create_connection(server.address()),
    ):
        yield server


@overload("accept", "gate held of [listeners.default] gates has not returned")
def full_backlog(staging: Staging) -> Iterator[EmbeddedServer]:
    Held.go_on.clear()
    settings = ("listeners.default.processors=2", "listeners.default.gates=held", "listeners.default.backlog=4")
    with staging.serving(TRYING, *settings) as server, contextlib.ExitStack() as stack:
        stack.callback(Held.go_on.set)
        for _ in range(5):
            stack.enter_context(socket.create_connection(server.address(), timeout=60))
        yield server


@overload("disk", "client {writer} of User:ANONYMOUS at 127.0.0.1", "topic t: ", role="writer")
def slow_disk(staging: Staging) -> Iterator[EmbeddedServer]:
    produced = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, record_batch(1, 100))])],
    )
    with (
        tempfile.TemporaryDirectory() as data_dir,
        contextlib.ExitStack() as stack,
        EmbeddedServer(staging.settings, data_dir=data_dir) as server,
        staging.client(server, "writer") as client,
    ):
        configs = [CreatableTopicConfig("flush.messages", "1")]
        client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1, configs=configs)]), 7)
        client.call(produced, 9)
        operations: Any = type(server.api_set("broker").logs._context.operations)
        pause, sync = threading.Event(), operations.fsync

        def slow_sync(descriptor: int) -> None:
            pause.wait(0.05)
            sync(descriptor)

        # The first to be undone is the last: the server stops at the disk's own speed.
        operations.fsync = staticmethod(slow_sync)
        stack.callback(setattr, operations, "fsync", staticmethod(sync))
        with _repeating(lambda: client.call(produced, 9)):
            yield server


@overload("send", "client {slow}", role="slow")
def slow_reader(staging: Staging) -> Iterator[EmbeddedServer]:
    with staging.serving(TRYING) as server, staging.client(server, "slow") as client:
        # Together more than the system buffers for a connection.
        frame = encode_request_header(10, 2, 1, staging["slow"]) + FindCoordinatorRequest(key="30000").encode(2)
        client.send_bytes((len(frame).to_bytes(4, "big") + frame) * 1_000)
        yield server


@overload("quota", "client {app}", "quota producer_byte_rate", role="app")
def used_quota(staging: Staging) -> Iterator[EmbeddedServer]:
    with (
        staging.serving() as server,
        staging.client(server, "admin") as admin,
        staging.client(server, "app") as client,
    ):
        admin.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
        set_quota(admin, "producer_byte_rate", 100.0, ("client-id", staging["app"]))
        with _repeating(lambda: client.call(PRODUCE, 9)):
            yield server


@overload("handshake", "address 127.0.0.1")
def tls_storm(staging: Staging) -> Iterator[EmbeddedServer]:
    with tempfile.TemporaryDirectory() as folder:
        files = TlsFiles(Path(folder))
        settings = [*files.server_settings(), "listeners.default.handshake_threads=0"]
        if "console" in staging.extensions:
            # By default it chooses no listener that may request a client's certificate.
            settings += ["console.listener=default", f"console.ca_file={files.ca}"]
        context = files.client_context()

        with staging.serving(TRYING, *settings) as server:

            def connect() -> None:
                RawClient(server.address(), ssl_context=context).close()

            with _repeating(*[connect] * 4):
                yield server


@overload("handler", "filter computing, handler set trying; they run on the processor's", role="asking")
def computing_plugin(staging: Staging) -> Iterator[EmbeddedServer]:
    with (
        staging.serving(TRYING, "listeners.default.filters=computing") as server,
        staging.client(server, "asking") as client,
        _repeating(lambda: client.call(MetadataRequest(topics=None), 12)),
    ):
        yield server
