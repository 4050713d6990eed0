"""`SharedInterpreter`: prevents large requests from holding the interpreter while network threads wait for it.

CPython has one lock for all threads. A network thread that wakes up waits for it up to the switch interval, 5 ms by
default, and again after each system call. While a full garbage collection examines the objects of a large request, or
one call frees them all, no thread gets it.
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
"""Number of large requests that run at the same time, of APIs that never wait and of APIs that may wait for a disk.
More of them would not be faster, because they share the interpreter.
"""
_CALM_AFTER_MS: Final = 1000.0
_COLLECTS_AFTER_S: Final = 10
_COLLECTS_BESIDE_OTHERS_AFTER_S: Final = 20
_NO_FULL_COLLECTION: Final = 1 << 30
_PIECE: Final = 200
_LIST_FIELDS: Final[dict[type[WireStruct], tuple[str, ...]]] = {}


class SharedInterpreter:
    """One for the whole process, like the settings of the interpreter. Any thread may call it.

    Large requests of all servers take turns. The interpreter's settings change only for servers passed to `tune_for`:
    `klamm serve` owns its process, but an `EmbeddedServer` is a guest in another one. While their large requests run,
    and for a second afterwards, threads switch more often, and no full collection runs by itself. After ten seconds the
    next large request starts a collection, if possible while no other one runs, because there is then less to examine.
    A collection stops all threads, for 30 ms if clients have 1,000 fetch sessions; requests have no cycles, so they
    leave little to collect.
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
        """Allow the interpreter's settings to change for the server with this scheduler, until it has `stopped`."""
        with self._changed:
            self._tuned.add(schedule)

    @property
    def running(self) -> int:
        """Return the number of running large requests."""
        return sum(self._running.values())

    @contextmanager
    def turn(self, schedule: Schedule, *, may_wait: bool) -> Iterator[None]:
        """Run the block as a large request, of an API that may wait or of one that never does. Waits for its turn.

        `schedule(delay_ms, call)` ends the second. A thread that has its turn does not wait for another one.
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
                    # Its server has stopped without waiting for it.
                    self._restore()
                self._changed.notify_all()

    def switch_often(self, schedule: Schedule) -> None:
        """Let threads switch often for a second, as during a turn; no thread waits, and any number of threads may
        compute.
        """
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
            # The first one, or the timer of a server that has stopped does not run.
            self._schedule = schedule
            schedule(_CALM_AFTER_MS, lambda: self._calm_down(schedule))

    def stopped(self, schedule: Schedule) -> None:
        """Restore the interpreter's settings for a server that has stopped, and with it its timer, unless others
        run.
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
    """Let network threads run in between, for a second, while another thread computes for a millisecond or longer.

    Has no effect in a process that klamm does not own, see `EmbeddedServer(tune_interpreter=True)`. `schedule(delay_ms,
    call)` is that of the server's `Scheduler`.
    """
    SHARED_INTERPRETER.switch_often(schedule)


def free_in_pieces(message: list[Any]) -> None:
    """Free messages piece by piece, so that other threads run in between. Empties the list.

    Objects that others also hold stay unchanged: lists are copied before their elements are released.
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
    """The fields of a class of messages that may be lists."""
    names = _LIST_FIELDS.get(kind)
    if names is None:
        annotations = getattr(vars(kind).get("__init__"), "__annotations__", {})
        names = tuple(name for name in kind.__slots__ if "list[" in annotations.get(name, "list["))
        _LIST_FIELDS[kind] = names
    return names
