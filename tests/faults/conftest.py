from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.server import Server
from tests.peers.target import target_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return one server for the tests of a file. The tests must leave it in good order."""
    with target_server(tmp_path_factory.mktemp("server"), {"num.partitions": "3"}) as running:
        yield running
