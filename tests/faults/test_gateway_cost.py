"""No frame within the limits holds a gateway's network thread for long, by the processor time that Linux counts.

The gateway has an authorizer and the audit, so that every request and every response is decoded. The time of a request
and its response counts together, although the thread is never held for the whole of it. A Fetch response passes in
pieces, between which others are served, so the time of one piece counts. The tests run without filters, and with all
registered filters.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from klamm.wire.api_keys import ApiKey
from klamm.wire.messages import api_versions
from tests.contract.filter_settings import alone_and_stacked
from tests.faults.cost_meter import (
    ALLOWED,
    INLINE,
    MEMORY_BUDGET_BYTES,
    NETWORK_BUDGET_MS,
    frames_of,
    machine_factor,
)
from tests.faults.costly_frames import CostlyFrame
from tests.faults.guarded_gateway import guarded_gateway
from tests.faults.latency_meter import served_by
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1200)]

PIECE_BYTES = 16 * 1024
WAITS_S = 2.0
"""Time to wait for an answer. Requests that wait for others get none."""
LOOK_S = 0.02
CALM_MS = 4.0
"""Processor time of all other threads between two measurements if they have no request left."""
CALM_WITHIN_S = 120.0


class NetworkThread:
    """The thread that serves connections, and its processor time."""

    def __init__(self, server: Server) -> None:
        self._tasks = Path(f"/proc/{server.pid}/task")
        self._client = WireClient(HOST, server.port)
        self.factor = machine_factor()
        before = {task.name: self._task_ms(task.name) for task in self._tasks.iterdir()}
        for _ in range(300):
            self.turn()
        self._task = max(before, key=lambda task: self._task_ms(task) - before[task])

    def _task_ms(self, task: str) -> float:
        return int((self._tasks / task / "schedstat").read_text().split()[0]) / 1e6

    def turn(self) -> None:
        """Wait for a turn of the thread. All earlier requests have then been served."""
        self._client.call(api_versions.ApiVersionsRequest("test", "1"), 3)

    def _wait_for_calm(self) -> None:
        """Wait until no other thread computes. A thread that waits for the interpreter wakes up every 0.1 ms to request
        it, so the audit's work for earlier frames would count here.
        """
        until = time.monotonic() + CALM_WITHIN_S
        before = self._others_ms()
        while time.monotonic() < until:
            time.sleep(LOOK_S)
            if (now := self._others_ms()) - before < CALM_MS:
                return
            before = now
        raise TimeoutError(f"other threads still compute after {CALM_WITHIN_S} s")

    def _others_ms(self) -> float:
        total_ms = 0.0
        for task in self._tasks.iterdir():
            # A thread may end meanwhile.
            with contextlib.suppress(OSError):
                total_ms += self._task_ms(task.name) if task.name != self._task else 0
        return total_ms

    def cost_ms(self, server: Server, frame: bytes) -> float:
        """Return the cost of one frame and its answer, on the machine that budgets are stated for."""
        self._wait_for_calm()
        self.turn()
        before = self._task_ms(self._task)
        answer_bytes = self._answered(server, frame)
        self.turn()
        pieces = max(1, answer_bytes // PIECE_BYTES) if _is_fetch(frame) else 1
        return (self._task_ms(self._task) - before) / self.factor / pieces

    def _answered(self, server: Server, frame: bytes) -> int:
        """Send a frame and receive its answer. Return the answer's size."""
        left = answer_bytes = 0
        with socket.create_connection((HOST, server.port), WAITS_S) as sock, contextlib.suppress(OSError):
            sock.sendall(struct.pack(">i", len(frame)) + frame)
            head = sock.recv(4, socket.MSG_WAITALL)
            left = answer_bytes = struct.unpack(">i", head)[0] if len(head) == 4 else 0
            while left and (received := len(sock.recv(min(left, 1 << 20)))):
                left -= received
        return answer_bytes

    def peak_bytes(self, server: Server, frame: bytes) -> int:
        """Return the peak resident memory that one frame and its answer take in addition to the memory of the
        process.
        """
        self.turn()
        # From here on Linux counts a new peak.
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")
        before = server.rss_bytes()
        self._answered(server, frame)
        self.turn()
        (line,) = (
            one for one in Path(f"/proc/{server.pid}/status").read_text().splitlines() if one.startswith("VmHWM")
        )
        return int(line.split()[1]) * 1024 - before


def _is_fetch(frame: bytes) -> bool:
    return frame[:2] == struct.pack(">h", ApiKey.FETCH)


@pytest.fixture(scope="module", params=[(), *alone_and_stacked()[-2:-1]], ids=lambda names: "-".join(names) or "none")
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with guarded_gateway(tmp_path_factory.mktemp("servers"), request.param) as running:
        yield running


@pytest.fixture(scope="module")
def thread(gateway: Server) -> NetworkThread:
    return NetworkThread(gateway)


def too_slow(gateway: Server, thread: NetworkThread, frames: Iterator[CostlyFrame]) -> list[str]:
    found = []
    count = 0
    for made in frames:
        count += 1
        # Measured again: a first request connects and imports its modules, and the garbage collector may have run in
        # it.
        cost_ms = min(thread.cost_ms(gateway, made.frame) for _ in range(2))
        if cost_ms > NETWORK_BUDGET_MS:
            found.append(f"{made.api} v{made.version}, {made.kind}: {cost_ms:.0f} ms")
            print(found[-1])
    assert count > 50
    return found


def frames_by_last_version(server: Server, limits: dict[str, int], values: Sequence[str]) -> Iterator[CostlyFrame]:
    served = [(key, versions[-1:]) for key, versions in served_by(server)]
    return frames_of(served, **limits, every_version=True, values=values)


def test_no_small_frame_holds_the_network_thread(gateway: Server, thread: NetworkThread) -> None:
    assert too_slow(gateway, thread, frames_by_last_version(gateway, INLINE, ("existing",))) == []


@pytest.mark.slow
@pytest.mark.parametrize("values", ["alike", "different", "existing"])
def test_no_large_frame_holds_the_network_thread(gateway: Server, thread: NetworkThread, values: str) -> None:
    assert too_slow(gateway, thread, frames_by_last_version(gateway, ALLOWED, (values,))) == []


@pytest.mark.slow
def test_no_frame_takes_more_memory_than_its_budget(gateway: Server, thread: NetworkThread) -> None:
    """Measure the memory of the gateway's process while it reads, decodes, forwards and answers a frame."""
    # Measured again if it is much, because a first request imports its modules.
    beyond = [
        f"{made.api} v{made.version}, {made.kind}: over {MEMORY_BUDGET_BYTES >> 20} MiB"
        for made in frames_by_last_version(gateway, ALLOWED, ("existing",))
        if all(thread.peak_bytes(gateway, made.frame) > MEMORY_BUDGET_BYTES for _ in range(2))
    ]
    assert beyond == []
