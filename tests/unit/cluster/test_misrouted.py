"""Tests of clients whose connection leads to another node or cluster than they mean (KIP-1242)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm import ErrorCode
from klamm.testing import EmbeddedServer
from klamm.wire.messages.api_versions import ApiVersionsRequest
from tests.unit.cluster.test_nodes import node_client

REBOOTSTRAP = ErrorCode.REBOOTSTRAP_REQUIRED


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer(nodes=3) as running:
        yield running


@pytest.mark.parametrize(
    ("version", "ours", "means", "error"),
    [
        (5, True, 2, 0),
        (5, True, 1, REBOOTSTRAP),
        (5, True, 4, REBOOTSTRAP),
        (5, False, 2, REBOOTSTRAP),
        (5, None, -1, 0),
        (5, None, 2, ErrorCode.INVALID_REQUEST),
        (5, True, -1, ErrorCode.INVALID_REQUEST),
        (4, False, 1, 0),
    ],
)
def test_a_client_that_means_another_node_gets_an_error(
    server: EmbeddedServer, version: int, ours: bool | None, means: int, error: int
) -> None:
    cluster_id = server.api_set().cluster_id if ours else None if ours is None else "another"
    request = ApiVersionsRequest("klamm", "1", cluster_id, means)
    with node_client(server, 2) as client:
        for _ in range(3):
            answer = client.call(request, version)
            assert answer.error_code == error
            assert bool(answer.api_keys) is (error == 0)
