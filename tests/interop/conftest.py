"""The server that the clients are tried on: klamm, or Apache Kafka itself with `KLAMM_INTEROP_TARGET=kafka`.

What passes on the one must pass on the other; a test that Apache Kafka fails says nothing about klamm.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.peers.server import Server
from tests.peers.target import target_server

_numbers = count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests of the session. A test may restart it, and leaves it running."""
    with target_server(tmp_path_factory.mktemp("server"), {"num.partitions": "3"}) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"interop-{next(_numbers)}"
