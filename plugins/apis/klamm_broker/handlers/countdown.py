"""A call that is made when the last of several outcomes is there."""

from __future__ import annotations

import threading
from collections.abc import Callable


def call_after(count: int, then: Callable[[], None]) -> Callable[[], None]:
    """Return a function for any thread; its call number `count` calls `then`."""
    # Protects the count of calls that are missing.
    lock = threading.Lock()
    missing = count

    def done() -> None:
        nonlocal missing
        with lock:
            missing -= 1
            is_last = missing == 0
        if is_last:
            then()

    return done
