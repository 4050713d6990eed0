"""Servers over real sockets, with epoll and with what other systems have."""

import pytest

from klamm.testing import EmbeddedServer, RawClient
from tests.contract.api_sets import GATES, OBSERVERS, Plugin


@pytest.fixture(params=["epoll", "selectors"])
def poller(request):
    return request.param


@pytest.fixture
def start(poller):
    """`start("key=value", …)` → a server whose handler set does what it is told."""
    servers = []
    GATES.clear()
    OBSERVERS.clear()

    def start_one(*settings):
        own = ["api_set=trying", f"poller={poller}"]
        lines = [text if "." in text.partition("=")[0] else f"listeners.default.{text}" for text in [*own, *settings]]
        server = EmbeddedServer(lines, plugins=[Plugin()]).start()
        servers.append(server)
        return server

    yield start_one
    for server in servers:
        server.api_set("trying").release.set()
        server.stop()


@pytest.fixture
def connect():
    """`connect(server)` → a raw client that is closed in the end."""
    clients = []

    def connect_one(server, **options):
        client = RawClient(server.address(), **options)
        clients.append(client)
        return client

    yield connect_one
    for client in clients:
        client.close()
