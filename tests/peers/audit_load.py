"""A server with the audit, clients that record their answered requests, and the events in the spool."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any

from klamm.testing import RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm_spark.spool.layout import sealed_segments
from tests.audit_spool import read_segment
from tests.peers.server import HOST
from tests.waiting import wait_until

CLIENTS = 2


def audit_settings(spool: Path) -> dict[str, str]:
    """Return settings with which every request is an event, and a segment takes a sixth of a second."""
    return {
        "listeners.default.observers": "audit",
        "listeners.default.audit.spool": str(spool),
        "listeners.default.audit.node": "node-1",
        "listeners.default.audit.aggregate_above_per_second": "-1",
        "listeners.default.audit.flush_interval_ms": "10",
        "listeners.default.audit.fsync_interval_ms": "200",
        "listeners.default.audit.segment_age_ms": "150",
    }


class Load:
    """Clients that send one request after the other until the server dies, and record the time of each answer."""

    def __init__(self, port: int, life: int | str, pause_s: float = 0.001) -> None:
        self._pause_s = pause_s
        self.answered: set[tuple[str, int]] = set()
        """Client id and correlation id of each answered request, with the time of the answer."""
        self._threads = [
            threading.Thread(target=self._run, args=(port, f"life-{life}-{number}")) for number in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, port: int, client_id: str) -> None:
        with contextlib.suppress(OSError), RawClient((HOST, port), client_id=client_id) as client:
            for correlation_id in itertools.count(1):
                client.call(ApiVersionsRequest("kill9", "1"), 3)
                self.answered.add((client_id, correlation_id))
                time.sleep(self._pause_s)

    def wait_for_answers(self, count: int) -> None:
        wait_until(lambda: len(self.answered) >= count)

    def is_served(self) -> bool:
        """Return True while no client has lost the server."""
        return all(thread.is_alive() for thread in self._threads)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def read_events(folder: Path) -> list[dict[str, Any]]:
    """Return all events of the spool, in order. Each line must be an event."""
    return [json.loads(line) for path in sealed_segments(folder) for line in read_segment(path).splitlines()]
