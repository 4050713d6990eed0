"""Fixtures: the server for the clients, which is klamm, or Apache Kafka itself with `KLAMM_INTEROP_TARGET=kafka`.

A test that passes on one server must pass on the other. A test that Apache Kafka fails shows nothing about klamm.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.peers.server import Server
from tests.peers.target import target_server

QUICK_STREAMS_GROUPS = {
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
}
"""Short session timeouts, so that the group soon notices the death of a killed member."""
_numbers = count(1)


@pytest.fixture(scope="session")
def session_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with target_server(tmp_path_factory.mktemp("server"), {"num.partitions": "3", **QUICK_STREAMS_GROUPS}) as running:
        yield running


@pytest.fixture
def server(session_server: Server) -> Server:
    """Return one server for all tests. A test may restart it. If a failed test has stopped it, it is started again."""
    if session_server.process.poll() is not None:
        session_server.start()
    return session_server


@pytest.fixture
def topic() -> str:
    """Return a name that no other test uses."""
    return f"interop-{next(_numbers)}"
