"""A well-behaved client beside the others, that notes how long it has to wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from klamm.wire.messages.metadata import MetadataRequest
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient

MEDIAN_S = 0.05
WORST_S = 2.0
"""Far above what a server needs, far below what a client feels as a stall, even on a machine busy with tests."""


class Bystander:
    """Asks for metadata every few milliseconds on a connection of its own."""

    def __init__(self, server: Server) -> None:
        self.latencies_s: list[float] = []
        self._client = WireClient(HOST, server.port, timeout_s=30.0)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._client:
            while not self._stopping.wait(0.002):
                begin = time.monotonic()
                self._client.call(MetadataRequest([], allow_auto_topic_creation=False), 12)
                self.latencies_s.append(time.monotonic() - begin)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@contextmanager
def unharmed(server: Server, least_requests: int = 50) -> Iterator[Bystander]:
    """Fails when a bystander had to wait during the block, or when a new one is not served after it."""
    bystander = Bystander(server)
    try:
        yield bystander
        deadline = time.monotonic() + 30
        while len(bystander.latencies_s) < least_requests and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        bystander.stop()
    assert len(bystander.latencies_s) >= least_requests, f"{len(bystander.latencies_s)} requests were answered"
    assert median(bystander.latencies_s) < MEDIAN_S
    assert max(bystander.latencies_s) < WORST_S
    with WireClient(HOST, server.port, timeout_s=WORST_S) as new_client:
        new_client.call(MetadataRequest([], allow_auto_topic_creation=False), 12)
