"""`call_after`: calls a function when the last of several results has arrived, for handlers that then answer."""

from __future__ import annotations

import threading
from collections.abc import Callable


def call_after(count: int, then: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `then` at its call number `count`. Any thread may call it."""
    # Protects the number of missing calls.
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
