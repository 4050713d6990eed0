"""Fixtures for servers and clients on each kind of connection (`CHANNELS`).

The kinds are plaintext with epoll, plaintext with Python's `selectors` (as on other systems), TLS 1.2 and TLS 1.3. A
test that uses `start` or `connect` runs once on each kind. `live`, `free_port` and `without_thread` are for tests that
reload a server, `serve` for those of several workers.
"""

import contextlib
import socket
import ssl
import threading

import pytest

from klamm.testing import EmbeddedServer, MovingClock, RawClient
from tests.contract.api_sets import GATES, OBSERVERS, Plugin
from tests.contract.live_server import FIRST, Live
from tests.contract.worker_server import ECHO, Serving
from tests.tls_files import TlsFiles

CHANNELS = {
    "epoll": ("auto", None),
    "selectors": ("selectors", None),
    "tls-1.2": ("auto", ssl.TLSVersion.TLSv1_2),
    "tls-1.3": ("auto", ssl.TLSVersion.TLSv1_3),
}


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory):
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=CHANNELS)
def channel(request):
    """Return the name of the kind of connection, a key of `CHANNELS`."""
    return request.param


@pytest.fixture
def poller(channel):
    return CHANNELS[channel][0]


@pytest.fixture
def client_options(channel, tls_files):
    """Return the options of a `RawClient` for the channel."""
    version = CHANNELS[channel][1]
    return {} if version is None else {"ssl_context": tls_files.client_context(version=version)}


@pytest.fixture
def on_channel(poller, client_options, tls_files):
    """Return `on_channel("NAME")`, which returns the settings that put the listener NAME on the channel."""

    def settings(listener="default"):
        tls = tls_files.server_settings(listener) if client_options else []
        return [f"listeners.{listener}.poller={poller}", *tls]

    return settings


@pytest.fixture
def start(on_channel):
    """Yield `start("key=value", …)`, which starts a server with the handler set `trying` and returns the server."""
    servers = []
    GATES.clear()
    OBSERVERS.clear()

    def start_one(*settings):
        # Authentication may take a minute, because machines are slow. A test that needs less says so.
        own = ["api_set=trying", "connection_setup_timeout_ms=60000", *on_channel()]
        lines = [text if "." in text.partition("=")[0] else f"listeners.default.{text}" for text in [*own, *settings]]
        server = EmbeddedServer(lines, plugins=[Plugin()], clock=MovingClock()).start()
        servers.append(server)
        return server

    yield start_one
    for server in servers:
        server.api_set("trying").release.set()
        server.stop()


@pytest.fixture
def connect(client_options):
    """Yield `connect(server)`, which returns a `RawClient` that is closed at the end of the test."""
    clients = []

    def connect_one(server, **options):
        client = RawClient(server.address(), **{"timeout_s": 60.0, **client_options, **options})
        clients.append(client)
        return client

    yield connect_one
    for client in clients:
        client.close()


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


@pytest.fixture
def serve(tmp_path):
    running = []

    def start(text=ECHO):
        file = tmp_path / "klamm.toml"
        file.write_text(text)
        running.append(Serving(file, tmp_path / "ready.json"))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(60)
        one.process.stdout.close()
