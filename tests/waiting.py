"""Waiting for what another thread or process is about to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], what: str = "waited in vain", *, within_s: float = 120.0) -> None:
    """Return once the condition holds; AssertionError with `what` if it does not in that time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def klamm_threads() -> list[str]:
    """The names of the threads of klamm that there are now."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("klamm-"))
