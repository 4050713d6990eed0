"""Functions that wait for other threads and processes, and that count resources of this process."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def wait_until(
    condition: Callable[[], object], what: str = "the condition did not become true", *, within_s: float = 120.0
) -> None:
    """Return once the condition holds. Raises AssertionError with `what` if it does not hold within this time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def is_readable(sock: socket.socket, within_s: float = 0.0) -> bool:
    """Return True if the socket has bytes or is at its end within this time. It does not use `select`, which fails
    above descriptor 1023.
    """
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def klamm_threads() -> list[str]:
    """Return the names of klamm's present threads."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("klamm-"))


def open_below(folder: Path) -> int:
    """Return how many descriptors of this process are for files below the folder. Only these count, because other tests
    open and close files too.
    """
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{number}").startswith(f"{folder.resolve()}/")
    return count
