"""`Pulse`: a well-behaved client that notes how long it has to wait while other clients work."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from klamm.wire.messages.metadata import MetadataRequest
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient

MEDIAN_S = 0.05
WORST_S = 2.0
"""A time far above what a server needs, and far below what a client notices as a stall."""
SLOWER_THAN_AN_ECHO = 20
"""On a shared machine, a server may take this many times as long as a process that only echoes."""
_ECHO = [
    sys.executable,
    "-S",
    "-c",
    "import socket\n"
    "listener = socket.create_server(('127.0.0.1', 0))\n"
    "print(listener.getsockname()[1], flush=True)\n"
    "peer, _ = listener.accept()\n"
    "while data := peer.recv(64): peer.sendall(data)",
]


class Pulse:
    """A thread that calls a function every few milliseconds, and notes how long each call takes."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.latencies_s: list[float] = []
        self._call = call
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.002):
            begin = time.monotonic()
            self._call()
            self.latencies_s.append(time.monotonic() - begin)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@contextmanager
def echo() -> Iterator[Pulse]:
    """Return a pulse that measures the machine itself: round trips to a process that only echoes."""
    with subprocess.Popen(_ECHO, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with socket.create_connection((HOST, int(process.stdout.readline())), 30) as peer:
            pulse = Pulse(lambda: (peer.sendall(b"."), peer.recv(64)))
            try:
                yield pulse
            finally:
                pulse.stop()


@contextmanager
def unharmed(server: Server, least_requests: int = 50) -> Iterator[Pulse]:
    """Fail if a bystander had to wait during the block, or if a new client is not served after it."""
    request = MetadataRequest([], allow_auto_topic_creation=False)
    with echo() as beside, WireClient(HOST, server.port, timeout_s=120.0) as client:
        bystander = Pulse(lambda: client.call(request, 12))
        try:
            yield bystander
            deadline = time.monotonic() + 300
            while len(bystander.latencies_s) < least_requests and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            bystander.stop()
    assert len(bystander.latencies_s) >= least_requests, f"{len(bystander.latencies_s)} requests were answered"
    worst_s = WORST_S + SLOWER_THAN_AN_ECHO * max(beside.latencies_s)
    assert median(bystander.latencies_s) < MEDIAN_S + SLOWER_THAN_AN_ECHO * median(beside.latencies_s)
    assert max(bystander.latencies_s) < worst_s
    with WireClient(HOST, server.port, timeout_s=worst_s) as new_client:
        new_client.call(request, 12)
