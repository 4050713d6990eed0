"""`Recorder`, which writes a history while clients work."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from klamm.runtime.clock import Clock, SystemClock
from klamm.testing.histories.format import FUNCTIONS, Kind


class Call:
    """An operation that a process has invoked. It is recorded as unknown unless `ok` or `fail` is called.

    `kind` is the outcome so far, `value` the operation's value or its results.
    """

    def __init__(self, value: Any) -> None:
        self.kind = Kind.INFO
        self.value = value

    def ok(self, value: Any = None) -> None:
        """Record that the operation took effect, with its value and its results."""
        self.kind = Kind.OK
        if value is not None:
            self.value = value

    def fail(self) -> None:
        """Record that the operation certainly had no effect."""
        self.kind = Kind.FAIL

    def unknown(self, value: Any = None) -> None:
        """Record that the operation may have had an effect. `value` may have known results, e.g. offsets of sends."""
        self.kind = Kind.INFO
        if value is not None:
            self.value = value


class Recorder:
    """The writer of a history. Any number of threads may record operations; their events are written in order.

    A process has one operation at a time. If the block of an operation raises, the operation is recorded as unknown,
    unless `fail` was called before.
    """

    def __init__(self, file: IO[str], clock: Clock | None = None) -> None:
        self._file = file
        self._clock = clock or SystemClock()
        # Protects the file, so that lines are complete and in the order of the events.
        self._lock = threading.Lock()

    @contextmanager
    def operation(
        self, process: str, function: str, value: Any = None, *, isolation: str = "read_committed"
    ) -> Iterator[Call]:
        """Record the block as one operation. Raises ValueError for an unknown function."""
        if function not in FUNCTIONS:
            raise ValueError(f'no function "{function}": one of {", ".join(FUNCTIONS)}')
        self._write(process, Kind.INVOKE, function, value, isolation)
        call = Call(value)
        try:
            yield call
        finally:
            self._write(process, call.kind, function, call.value, isolation)

    def _write(self, process: str, kind: Kind, function: str, value: Any, isolation: str) -> None:
        with self._lock:
            event = {
                "process": process,
                "type": kind.value,
                "f": function,
                "value": value,
                "time_ns": self._clock.monotonic_ns(),
            }
            if isolation != "read_committed":
                event["isolation"] = isolation
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()
