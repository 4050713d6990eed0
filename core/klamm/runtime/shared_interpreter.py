"""`SharedInterpreter`, which lets network threads use the interpreter while large requests run.

CPython has one lock for all threads. A network thread that wakes up waits for the lock up to the switch interval, 5 ms
by default, and again after each system call. No thread gets the lock while a full garbage collection examines the
objects of a large request, or while one call frees all of them.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from klamm.wire.struct_base import WireStruct

Schedule: TypeAlias = Callable[[float, Callable[[], None]], object]
SWITCH_INTERVAL_S: Final = 0.0001
AT_ONCE: Final = {False: 1, True: 2}
"""The most large requests that run at the same time. The key is `may_wait`: the API may wait for a disk.

More requests would not be faster, because they share the interpreter.
"""
_CALM_AFTER_MS: Final = 1000.0
_COLLECTS_AFTER_S: Final = 10
_COLLECTS_BESIDE_OTHERS_AFTER_S: Final = 20
_NO_FULL_COLLECTION: Final = 1 << 30
_PIECE: Final = 200
_LIST_FIELDS: Final[dict[type[WireStruct], tuple[str, ...]]] = {}


class SharedInterpreter:
    """The turns of large requests, and two settings of the interpreter. A process has one. Any thread may call it.

    A large request has more elements than a network thread decodes (`requests/limits.py`). The large requests of all
    servers in the process take turns.

    The two settings are the switch interval and the threshold of full garbage collections. They change only for servers
    passed to `tune_for`: `klamm serve` owns its process, but an `EmbeddedServer` runs in the process of another
    program. While large requests of such a server run, and for a second afterwards, threads switch more often, and no
    full collection starts by itself. A collection stops all threads, for 30 ms if clients have 1,000 fetch sessions,
    and frees little, because requests have no cycles. After ten busy seconds, a large request that starts while no
    other runs collects first, because there are then fewer objects to examine. After twenty, the next large request
    does so in any case.
    """

    def __init__(self) -> None:
        # Protects the following fields; notified when a turn ends.
        self._changed = threading.Condition()
        self._running = {False: 0, True: 0}
        self._of_this_thread = threading.local()
        self._turns = 0
        self._turns_before = 0
        self._busy_s = 0
        self._normal: tuple[float, tuple[int, int, int]] | None = None
        self._schedule: Schedule | None = None
        self._tuned: set[Schedule] = set()

    def tune_for(self, schedule: Schedule) -> None:
        """Change the interpreter's settings for the server with this scheduler, until `stopped` is called for it."""
        with self._changed:
            self._tuned.add(schedule)

    @property
    def running(self) -> int:
        """Return the number of running large requests."""
        return sum(self._running.values())

    @contextmanager
    def turn(self, schedule: Schedule, *, may_wait: bool) -> Iterator[None]:
        """Wait for the turn, and run the block as a large request. `may_wait` is True if its API may wait for a disk.

        `schedule` is the method of the server's `Scheduler`. It runs a timer that restores the settings after a second
        without a large request. A thread that has a turn already does not wait.
        """
        if getattr(self._of_this_thread, "has_turn", False):
            yield
            return
        with self._changed:
            while self._running[may_wait] >= AT_ONCE[may_wait]:
                self._changed.wait()
            self._collect_if_due()
            self._running[may_wait] += 1
            self._switch_often(schedule)
        self._of_this_thread.has_turn = True
        try:
            yield
        finally:
            self._of_this_thread.has_turn = False
            with self._changed:
                self._running[may_wait] -= 1
                if self._schedule is None and not self.running:
                    # The server of this request has stopped without waiting for the request.
                    self._restore()
                self._changed.notify_all()

    def switch_often(self, schedule: Schedule) -> None:
        """Let threads switch often for a second, as during a turn, but without waiting for a turn."""
        with self._changed:
            self._collect_if_due()
            self._switch_often(schedule)

    def _switch_often(self, schedule: Schedule) -> None:
        if schedule not in self._tuned:
            return
        if self._normal is None:
            self._normal = sys.getswitchinterval(), gc.get_threshold()
            sys.setswitchinterval(min(SWITCH_INTERVAL_S, self._normal[0]))
            gc.set_threshold(*self._normal[1][:2], _NO_FULL_COLLECTION)
        if self._schedule != schedule:
            # This is the first call, or the server whose timer would restore the settings has stopped.
            self._schedule = schedule
            schedule(_CALM_AFTER_MS, lambda: self._calm_down(schedule))

    def stopped(self, schedule: Schedule) -> None:
        """Restore the interpreter's settings when a server has stopped, because its timer does not run any more.

        If large requests still run, the last one restores them.
        """
        with self._changed:
            self._tuned.discard(schedule)
            if self._schedule == schedule:
                self._schedule = None
                if not self.running:
                    self._restore()

    def _collect_if_due(self) -> None:
        self._turns += 1
        if self._busy_s >= (_COLLECTS_BESIDE_OTHERS_AFTER_S if self.running else _COLLECTS_AFTER_S):
            self._busy_s = 0
            gc.collect()

    def _calm_down(self, schedule: Schedule) -> None:
        with self._changed:
            if self._schedule != schedule:
                return
            if self._turns != self._turns_before or self.running:
                self._turns_before = self._turns
                self._busy_s += 1
                schedule(_CALM_AFTER_MS, lambda: self._calm_down(schedule))
            else:
                self._schedule = None
                self._restore()

    def _restore(self) -> None:
        if self._normal is not None:
            interval_s, thresholds = self._normal
            self._normal = None
            sys.setswitchinterval(interval_s)
            gc.set_threshold(*thresholds)


SHARED_INTERPRETER: Final = SharedInterpreter()


def switch_threads_often(schedule: Schedule) -> None:
    """Let threads switch often for a second. Call this before a thread computes for a millisecond or longer.

    Network threads then run in between. Has no effect in a process that klamm does not own, see
    `EmbeddedServer(tune_interpreter=True)`. `schedule` is the method of the server's `Scheduler`.
    """
    SHARED_INTERPRETER.switch_often(schedule)


def free_in_pieces(message: list[Any]) -> None:
    """Free messages piece by piece, so that other threads run in between. The list is empty afterwards.

    Objects that are also used elsewhere stay unchanged, because lists are copied before their elements are released.
    """
    open_lists: list[list[Any]] = [message]
    while open_lists:
        elements = open_lists[-1]
        if not elements:
            open_lists.pop()
        elif not isinstance(elements[-1], WireStruct) or not (names := _list_fields(type(elements[-1]))):
            del elements[-_PIECE:]
        else:
            struct = elements.pop()
            for name in names:
                inner = getattr(struct, name)
                if isinstance(inner, list) and inner:
                    open_lists.append(inner.copy())
            del struct


def _list_fields(kind: type[WireStruct]) -> tuple[str, ...]:
    """Return the fields of a message class that may be lists."""
    names = _LIST_FIELDS.get(kind)
    if names is None:
        annotations = getattr(vars(kind).get("__init__"), "__annotations__", {})
        names = tuple(name for name in kind.__slots__ if "list[" in annotations.get(name, "list["))
        _LIST_FIELDS[kind] = names
    return names
