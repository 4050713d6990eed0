"""Histories of a server on a bad machine: its disk is full or slow now and then, and its wall clock jumps.

While the disk is full, writes of logs and of the store fail.
"""

from __future__ import annotations

import errno
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from klamm.runtime.clock import ManualClock
from klamm.testing import SimulatedServer
from klamm.testing.histories import Anomaly
from klamm_broker.log.file_operations import UnsyncedFileOperations
from klamm_broker.storage import store
from tests.unit.testing import simulated_groups as groups
from tests.unit.testing.simulated_histories import TIMEOUT_MS
from tests.unit.testing.simulated_restarts import prepared, record

_FILLS: Final = 0.004
_EMPTIES: Final = 0.05
"""The share of the turns after which a disk is full, and after which it has room again."""
_SLOW: Final = 0.02
_SLOW_MS: Final = 3_000
"""The share of the writes that take long, and how long at most."""
_JUMPS: Final = 0.001
_JUMP_MS: Final = 3_600_000
"""The share of the turns after which the wall clock jumps, and how far at most."""


class Machine:
    """A machine whose faults are drawn from the seed. `events` counts them."""

    def __init__(self, seed: int) -> None:
        self._choose = Random(f"machine {seed}")
        self.clock: ManualClock | None = None
        self.is_full = False
        self.events: Counter[str] = Counter()

    def turn(self, clock: ManualClock) -> None:
        """Let time pass."""
        if self._choose.random() < (_EMPTIES if self.is_full else _FILLS):
            self.is_full = not self.is_full
        if self._choose.random() < _JUMPS:
            self.events["jumps"] += 1
            clock.jump_wall_ms(self._choose.randrange(-_JUMP_MS, _JUMP_MS))

    def refuses(self) -> bool:
        """Return True for a write for which there is no room; another one may take long."""
        if self.is_full:
            self.events["refused"] += 1
        elif self.clock is not None and self._choose.random() < _SLOW:
            self.events["slow"] += 1
            self.clock.advance_ms(self._choose.randrange(_SLOW_MS))
        return self.is_full

    @contextmanager
    def below_klamm(self) -> Iterator[None]:
        """Let the logs and the store of this process write to the disk."""
        pwrite, execute = UnsyncedFileOperations.pwrite, store._execute_in_runs

        def write(descriptor: int, data: Any, position: int) -> int:
            if not self.refuses():
                return pwrite(descriptor, data, position)
            if self._choose.random() < 0.5 and len(data) > 1:
                # A part of it finds room.
                pwrite(descriptor, data[: self._choose.randrange(1, len(data))], position)
            raise OSError(errno.ENOSPC, "No space left on device")

        def execute_in_runs(*given: Any) -> None:
            if self.refuses():
                raise sqlite3.OperationalError("database or disk is full")
            execute(*given)

        UnsyncedFileOperations.pwrite, store._execute_in_runs = staticmethod(write), execute_in_runs
        try:
            yield
        finally:
            self.is_full = False
            UnsyncedFileOperations.pwrite, store._execute_in_runs = staticmethod(pwrite), execute


class _Server(SimulatedServer):
    machine: Machine

    def turn(self) -> bool:
        self.machine.turn(self.clock)
        return super().turn()

    def restart(self, *, kill: bool = False) -> None:
        """Start again, with room: a start on a full disk is refused."""
        self.machine.is_full = False
        super().restart(kill=kill)


def anomalies_of(seed: int, operations: int = 8, cuts: float = 0.01, restarts: float = 0.001) -> list[Anomaly]:
    """Record the history of a seed, and check it."""
    return recorded(seed, operations, cuts, restarts)[0]


def recorded(seed: int, operations: int, cuts: float, restarts: float) -> tuple[list[Anomaly], Counter[str]]:
    """Return the anomalies of a seed, and how often the machine had each of its faults."""
    machine = Machine(seed)
    with machine.below_klamm(), _Server(groups.SETTINGS, seed=seed) as server:
        server.machine = machine
        work = prepared(server)
        machine.clock = server.clock
        record(server, work, operations, cuts, restarts, 3 * TIMEOUT_MS)
        return work.anomalies(), machine.events
