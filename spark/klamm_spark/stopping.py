"""Ends commands that run until a signal: `ship` and `watch`. They call it on the main thread."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from klamm.runtime import received_signals

Stopped = Callable[[float], bool]
"""A function that waits for at most this many seconds, and returns True if the command must end."""
_SIGNALS: Final = ("SIGINT", "SIGTERM")


@contextmanager
def until_a_signal() -> Iterator[Stopped]:
    """Let SIGINT and SIGTERM end the current wait and every later one, but not the process.

    Only the main thread gets signals: on any other thread, no wait ends early.
    """
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event().wait
        return
    with received_signals(*_SIGNALS) as received:
        # The byte of the signal is never read, so every later wait ends at once.
        yield lambda seconds: bool(select.select([received], [], [], seconds)[0])
