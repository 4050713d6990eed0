"""`CostMeter`: measures the cost of one frame for a server: the time of the network thread, of a handler's thread, and
memory.

Frames go through the request path of a listener without sockets. Times are processor times of the calling thread, so
other work on the machine has little effect. They are converted to a machine on which `calibration_loop` takes
`LOOP_MS`.
"""

from __future__ import annotations

import contextlib
import threading
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from klamm import Address, ConnectionContext, KafkaPrincipal, RequestOutcome
from klamm.api.pending import LATER
from klamm.requests.ledger import RequestLedger
from klamm.requests.limits import request_limits
from klamm.requests.pending import InvalidRequestError, PendingRequest
from klamm.requests.pipeline import RequestPipeline
from klamm.testing import EmbeddedServer
from klamm.wire.api_keys import spec_of
from klamm.wire.headers import encode_request_header
from klamm.wire.messages import create_topics, metadata, offset_commit
from tests.faults.costly_frames import GROUP, TOPIC, VALUES, CostlyFrame, costly_frames

NETWORK_BUDGET_MS = 50.0
"""Maximum processor time in milliseconds that one frame may take on a network thread."""
MEMORY_BUDGET_BYTES = 192 * 1024 * 1024
"""Maximum memory that one frame may take in addition to its own bytes, as Python counts it."""
DEFAULT_LIMITS = request_limits()
INLINE = {"max_bytes": 64 * 1024, "max_elements": 95}
"""The largest request that a network thread handles itself."""
ALLOWED = {"max_bytes": 4 * 1024 * 1024, "max_elements": 100_000}
LOOP_MS = 12.0
"""Processor time of `calibration_loop` on the machine for which the budgets are stated."""


def calibration_loop() -> None:
    """Do work like that of a request: calls, small objects, a dictionary."""
    found: dict[int, tuple[int, str]] = {}
    for number in range(125_000):
        found[number & 1023] = (number, str(number))


def machine_factor() -> float:
    """Return how many times slower this machine is than the one for which budgets are stated, by the quickest of some
    rounds.
    """
    best = min(_thread_ms(calibration_loop) for _ in range(5))
    return best / LOOP_MS


def _thread_ms(call: Any) -> float:
    started = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - started) / 1e6


@dataclass(frozen=True)
class Cost:
    """Milliseconds of processor time on the calibrated machine, and the outcome of the frame."""

    inline_ms: float
    handler_ms: float
    outcome: str


class CostMeter:
    """A broker with `topics` topics of five partitions, and the request path of its listener."""

    def __init__(self, server: EmbeddedServer, topics: int, principal: str = "u") -> None:
        runtime = server.server.listeners[0].runtime
        self.runtime = runtime
        self.served = runtime.requests.routes.served
        self.factor = machine_factor()
        self._queue: deque[PendingRequest] = deque()
        ledger = RequestLedger(runtime.clock, runtime.context, None, None, None)
        self._pipeline = RequestPipeline(runtime.requests, ledger, self._queue.append, self._deliver)
        self._delivered = threading.Event()
        self._last: PendingRequest | None = None
        self.connection = ConnectionContext("c", runtime.context, Address("127.0.0.1", 1), Address("127.0.0.1", 2))
        self.connection.principal = KafkaPrincipal(principal)
        authorizer, runtime.context.authorizer = runtime.context.authorizer, None
        self._fill(topics)
        runtime.context.authorizer = authorizer

    def _fill(self, topics: int) -> None:
        names = [TOPIC, *(f"topic-{number}" for number in range(topics - 1))]
        for start in range(0, len(names), 200):
            wanted = [create_topics.CreatableTopic(name, 5, 1) for name in names[start : start + 200]]
            self._settle(create_topics.CreateTopicsRequest(wanted, 60_000), 7)
        offsets = [offset_commit.OffsetCommitRequestPartition(number, 1) for number in range(5)]
        committed = [offset_commit.OffsetCommitRequestTopic(name, partitions=offsets) for name in names[:200]]
        self._settle(offset_commit.OffsetCommitRequest(GROUP, -1, "", topics=committed), 8)

    def _settle(self, message: Any, version: int) -> None:
        header = encode_request_header(message.API_KEY, version, 1, "setup")
        self.settle(header + message.encode(version))

    def _deliver(self, request: PendingRequest) -> None:
        self._delivered.set()

    def settle(self, frame: bytes) -> None:
        """Run one frame to its answer, also if it waits for the disk."""
        self._delivered.clear()
        self.run(frame)
        request = self._last
        if request is not None and not request.ended and request.result is None:
            assert self._delivered.wait(60)

    def run(self, frame: bytes) -> Cost:
        """Run one frame to its answer, or until its request waits: for the disk, for other requests, or for data."""
        connection, outcome = self.connection, "answered"
        request: PendingRequest | None = None
        data = bytearray(frame)
        started = time.thread_time_ns()
        try:
            request, result = self._pipeline.submit(data, None, connection, 1)
        except InvalidRequestError:
            outcome, result = "closed", None
        self._last = request
        inline_ms, handler_ms = (time.thread_time_ns() - started) / 1e6, 0.0
        if self._queue:
            started = time.thread_time_ns()
            self._pipeline.run_queued(self._queue.popleft())
            handler_ms = (time.thread_time_ns() - started) / 1e6
        if request is not None and not request.ended and (result is not LATER or request.result is not None):
            self._pipeline.end((request,), RequestOutcome.ANSWERED)
        return Cost(inline_ms / self.factor, handler_ms / self.factor, outcome)

    def inline_ms(self, frame: bytes) -> float:
        """Run only what the network thread does with a frame."""
        started = time.thread_time_ns()
        with contextlib.suppress(InvalidRequestError):
            self._pipeline.submit(bytearray(frame), None, self.connection, 1)
        inline_ms = (time.thread_time_ns() - started) / 1e6 / self.factor
        self._queue.clear()
        return inline_ms

    @property
    def last_answer_bytes(self) -> int:
        """Return the size of the last answer, without its header."""
        return self._last.response_bytes if self._last is not None else 0

    def peak_bytes(self, frame: bytes) -> int:
        """Return the peak memory that one frame takes in addition to its own bytes, as Python counts it."""
        tracemalloc.start()
        try:
            self.run(frame)
            return tracemalloc.get_traced_memory()[1] - len(frame)
        finally:
            tracemalloc.stop()


def frames_of(
    served: list[tuple[int, range]],
    max_bytes: int,
    max_elements: int,
    *,
    every_version: bool,
    values: Sequence[str] = VALUES,
) -> Iterator[CostlyFrame]:
    """Yield the costly frames of all APIs that a listener serves, for all versions, or for the first and the last
    one.
    """
    for api_key, versions in served:
        most = min(max_elements, DEFAULT_LIMITS.max_elements[api_key])
        for version in versions if every_version else sorted({versions[0], versions[-1]}):
            yield from costly_frames(spec_of(api_key).name, version, max_bytes, most, values)


def metadata_of_all() -> bytes:
    """Return a Metadata frame that requests all topics."""
    return encode_request_header(3, 12, 1, "c") + metadata.MetadataRequest(None).encode(12)
