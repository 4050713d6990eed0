"""Tests of clients that send half a request and then nothing, with a small memory pool."""

import struct
from contextlib import ExitStack

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.contract.api_sets import Plugin
from tests.waiting import wait_until

SILENT = 40
POOL_BYTES = 400_000
DECLARED_BYTES = 30_000
SENT_BYTES = 15_000


@pytest.mark.parametrize("names", [80, 120], ids=["20 kB", "29 kB"])
def test_whole_requests_do_not_wait_for_half_requests_of_silent_clients(names):
    settings = ("listeners.default.api_set=trying", f"server.queued_max_request_bytes={POOL_BYTES}")
    with EmbeddedServer(settings, plugins=[Plugin()]) as server, ExitStack() as stack:
        pool = server.server.pool
        half = struct.pack(">ihh", DECLARED_BYTES, 3, 12) + bytes(SENT_BYTES)
        for _ in range(SILENT):
            stack.enter_context(RawClient(server.address())).send_bytes(half)
        wait_until(lambda: pool.is_low)
        client = stack.enter_context(RawClient(server.address()))
        topics = [MetadataRequestTopic(name=f"{number:03}" + "x" * 237) for number in range(names)]
        for _ in range(20):
            client.call(MetadataRequest(topics=topics), 9)
        # No connection was closed to make room for this request, because the other half of the memory was free.
        assert pool.evictions == 0
