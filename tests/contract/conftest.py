"""Servers over real sockets: plaintext with epoll and with what other systems have, TLS 1.2, TLS 1.3."""

import ssl

import pytest

from klamm.testing import EmbeddedServer, MovingClock, RawClient
from tests.contract.api_sets import GATES, OBSERVERS, Plugin
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
    """The kind of connection: poller and TLS version."""
    return request.param


@pytest.fixture
def poller(channel):
    return CHANNELS[channel][0]


@pytest.fixture
def client_options(channel, tls_files):
    """The options of a RawClient for the channel."""
    version = CHANNELS[channel][1]
    return {} if version is None else {"ssl_context": tls_files.client_context(version=version)}


@pytest.fixture
def on_channel(poller, client_options, tls_files):
    """`on_channel("NAME")` → the settings that put a listener on the channel, as overrides."""

    def settings(listener="default"):
        tls = tls_files.server_settings(listener) if client_options else []
        return [f"listeners.{listener}.poller={poller}", *tls]

    return settings


@pytest.fixture
def start(on_channel):
    """`start("key=value", …)` → a server whose handler set the test drives."""
    servers = []
    GATES.clear()
    OBSERVERS.clear()

    def start_one(*settings):
        # No one is late on a busy machine, unless a test wants it.
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
    """`connect(server)` → a raw client that is closed in the end."""
    clients = []

    def connect_one(server, **options):
        client = RawClient(server.address(), **{"timeout_s": 60.0, **client_options, **options})
        clients.append(client)
        return client

    yield connect_one
    for client in clients:
        client.close()
