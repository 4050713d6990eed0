"""The end of commands that go on until a signal."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from klamm.runtime import received_signals

Stopped = Callable[[float], bool]
"""Waits so many seconds, or less: returns True if the command is to end."""
_SIGNALS: Final = ("SIGINT", "SIGTERM")


@contextmanager
def until_a_signal() -> Iterator[Stopped]:
    """Within it, SIGINT and SIGTERM only end a wait, and every later one. In another thread than the main one none
    comes."""
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event().wait
        return
    with received_signals(*_SIGNALS) as received:
        # A byte stays in it.
        yield lambda seconds: bool(select.select([received], [], [], seconds)[0])
