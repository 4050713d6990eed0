"""Histories of a server whose disk is full now and then: writes of logs and of the store fail meanwhile."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

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


class Disk:
    """A disk that is full at times, which are drawn from the seed."""

    def __init__(self, seed: int) -> None:
        self._choose = Random(f"disk {seed}")
        self.is_full = False
        self.refused = 0

    def turn(self) -> None:
        """Let time pass."""
        if self._choose.random() < (_EMPTIES if self.is_full else _FILLS):
            self.is_full = not self.is_full

    def refuses(self) -> bool:
        """Count a write, if there is no room for it."""
        self.refused += self.is_full
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
    disk: Disk

    def turn(self) -> bool:
        self.disk.turn()
        return super().turn()

    def restart(self, *, kill: bool = False) -> None:
        """Start again, with room: a start on a full disk is refused."""
        self.disk.is_full = False
        super().restart(kill=kill)


def anomalies_of(seed: int, operations: int = 8, cuts: float = 0.01, restarts: float = 0.001) -> list[Anomaly]:
    """Record the history of a seed, and check it."""
    return recorded(seed, operations, cuts, restarts)[0]


def recorded(seed: int, operations: int, cuts: float, restarts: float) -> tuple[list[Anomaly], int]:
    """Return the anomalies of a seed, and the number of writes that the disk refused."""
    disk = Disk(seed)
    with disk.below_klamm(), _Server(groups.SETTINGS, seed=seed) as server:
        server.disk = disk
        work = prepared(server)
        record(server, work, operations, cuts, restarts, 3 * TIMEOUT_MS)
        return work.anomalies(), disk.refused
