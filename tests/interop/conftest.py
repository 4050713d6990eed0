"""The server that the clients are tried on: klamm, or Apache Kafka itself with `KLAMM_INTEROP_TARGET=kafka`.

What passes on the one must pass on the other; a test that Apache Kafka fails says nothing about klamm.
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
"""A member that was killed is missed soon."""
_numbers = count(1)


@pytest.fixture(scope="session")
def session_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with target_server(tmp_path_factory.mktemp("server"), {"num.partitions": "3", **QUICK_STREAMS_GROUPS}) as running:
        yield running


@pytest.fixture
def server(session_server: Server) -> Server:
    """One server for all tests of the session. A test may restart it; one that a failed test left down starts again."""
    if session_server.process.poll() is not None:
        session_server.start()
    return session_server


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"interop-{next(_numbers)}"
