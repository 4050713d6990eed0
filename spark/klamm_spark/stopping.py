"""The end of commands that run until a signal."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from klamm.runtime import received_signals

Stopped = Callable[[float], bool]
"""Waits for at most that many seconds, and returns True if the command must end."""
_SIGNALS: Final = ("SIGINT", "SIGTERM")


@contextmanager
def until_a_signal() -> Iterator[Stopped]:
    """Let SIGINT and SIGTERM only end a wait, and every later one, instead of the process.

    Only the main thread gets signals: on any other thread, no wait ends early.
    """
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event().wait
        return
    with received_signals(*_SIGNALS) as received:
        # A byte stays in it.
        yield lambda seconds: bool(select.select([received], [], [], seconds)[0])
