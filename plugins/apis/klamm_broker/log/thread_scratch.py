"""The memory into which each thread unpacks batches.

It has a module of its own, because a compiled class cannot be a `threading.local`.
"""

from __future__ import annotations

import threading
from typing import Final

from klamm.wire.scratch import Scratch


class _OfThisThread(threading.local):
    def __init__(self) -> None:
        self.scratch = Scratch()


OF_THIS_THREAD: Final = _OfThisThread()
