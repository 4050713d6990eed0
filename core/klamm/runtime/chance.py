"""`Chance`: the source of a server's random numbers, which is the system or a seed."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

from klamm.runtime.threads import SYSTEM_THREADS, SystemThreads


class Chance:
    """The random numbers of one server:

    `random_bytes` makes ids, salts and keys; `threads.shuffle` orders items at random. The program that starts a server
    creates it. A seed is for tests only, because it makes all these numbers guessable.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.threads = SYSTEM_THREADS if seed is None else SystemThreads(seed)
        self.random_bytes: Callable[[int], bytes] = os.urandom if seed is None else Random(seed).randbytes
