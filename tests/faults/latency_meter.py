"""`LatencyMeter`: measures how long a well-behaved client waits for its answers, alone and with hostile clients."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from klamm.wire.api_keys import spec_of
from klamm.wire.messages import api_versions, create_topics, offset_commit
from klamm.wire.messages.metadata import MetadataRequest
from tests.faults.costly_frames import GROUP, TOPIC
from tests.faults.hostile_load import HostileClients
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient

FLOOR_MS = 2.0
"""Least value for a quiet p99. Smaller times come from the scheduler of the operating system, not from the server."""
EVERY_S = 0.002
_COMPUTE = [
    sys.executable,
    "-S",
    "-c",
    "import os, sys, threading\n"
    "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\n"
    "while True: pass",
]


@dataclass(frozen=True, slots=True)
class Beside:
    """The 99th percentile of a client's latency with processes that only compute, and with hostile clients."""

    quiet_p99_ms: float
    p99_ms: float

    def ratio(self, floor_ms: float = FLOOR_MS) -> float:
        """Return the ratio of the two. A quiet p99 counts as at least `floor_ms`."""
        return self.p99_ms / max(floor_ms, self.quiet_p99_ms)


@contextmanager
def computing(count: int) -> Iterator[None]:
    """Run `count` processes that use a core each during the block, because the delays of a busy machine are not the
    server's.
    """
    with ExitStack() as running:
        for _ in range(count):
            # The process ends with its input, in whichever way the test ends.
            process = running.enter_context(subprocess.Popen(_COMPUTE, stdin=subprocess.PIPE))
            running.callback(process.kill)
        yield


class LatencyMeter:
    """A client of a server with `topics` topics of five partitions.

    `processes` is the number of processes that serve a request: two with a gateway. On a machine of their own, each
    would have a core.
    """

    def __init__(self, server: Server, hostile: HostileClients, topics: int, processes: int = 1) -> None:
        self._client = WireClient(HOST, server.port)
        self._hostile = hostile
        self._processes = processes
        self._create(topics)

    def _create(self, topics: int) -> None:
        names = [TOPIC, *(f"topic-{number}" for number in range(topics - 1))]
        wanted = [create_topics.CreatableTopic(name, 5, 1) for name in names]
        self._client.call(create_topics.CreateTopicsRequest(wanted, 60_000), 7)
        offsets = [offset_commit.OffsetCommitRequestPartition(number, 1) for number in range(5)]
        committed = [offset_commit.OffsetCommitRequestTopic(name, partitions=offsets) for name in names[:200]]
        self._client.call(offset_commit.OffsetCommitRequest(GROUP, -1, "", topics=committed), 8)

    def _p99_ms(self, seconds: float) -> float:
        taken_ms = []
        request = MetadataRequest([], allow_auto_topic_creation=False)
        due = time.perf_counter()
        end = due + seconds
        while due < end:
            started = time.perf_counter()
            self._client.call(request, 12)
            taken_ms.append((time.perf_counter() - started) * 1e3)
            due = max(due + EVERY_S, started)
            time.sleep(max(0.0, due - time.perf_counter()))
        taken_ms.sort()
        return taken_ms[int(len(taken_ms) * 0.99)]

    def beside(self, frame: bytes, connections: int, seconds: float) -> Beside:
        """Measure the latency twice, for the same time: first with as many computing processes as serve a request,
        then with connections that send a frame without a pause.
        """
        with computing(self._processes):
            quiet_p99_ms = self._p99_ms(seconds)
        with self._hostile.sending(frame, connections):
            time.sleep(0.05)
            return Beside(quiet_p99_ms, self._p99_ms(seconds))


def served_by(server: Server) -> list[tuple[int, range]]:
    """Return the API keys and versions that a server serves."""
    with WireClient(HOST, server.port) as client:
        answer = client.call(api_versions.ApiVersionsRequest("test", "1"), 3)
    return [
        (one.api_key, range(one.min_version, one.max_version + 1))
        for one in answer.api_keys
        if spec_of(one.api_key).name not in ("SaslHandshake", "SaslAuthenticate")
    ]
