"""A broker whose clock runs 50 times slower than the machine's, so that it treats no client as slow on a busy machine.

`python -m tests.faults.unhurried_server PORT POOL_BYTES` starts it; it ends at SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import time

from klamm.testing import EmbeddedServer

SLOWER = 50


class UnhurriedClock:
    """The machine's clocks, with a slower monotonic clock."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() // SLOWER

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wall_us(self) -> int:
        return time.time_ns() // 1_000


def serve(port: str, pool_bytes: str) -> None:
    """Serve until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    settings = [f"listeners.default.bind=127.0.0.1:{port}", f"server.queued_max_request_bytes={pool_bytes}"]
    with EmbeddedServer(settings, clock=UnhurriedClock(), tune_interpreter=True):
        signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    serve(*sys.argv[1:])
