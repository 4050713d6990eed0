"""`Supervisor`, which decides when workers are started, stopped and replaced. It calls `Actions` and does no I/O."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from klamm.runtime.clock import Clock
from klamm.workers.states import TRANSITIONS, WorkerEvent, WorkerState

FIRST_DELAY_MS: Final = 500
LONGEST_DELAY_MS: Final = 30_000
STABLE_AFTER_MS: Final = 60_000
GIVE_UP_AFTER: Final = 5


class Restarts:
    """The restarts of one worker. The first failure causes no delay; each further failure doubles the delay.

    If a worker has run for a minute, it has recovered, and its earlier failures do not count. `in_a_row` is the number
    of failures that count.
    """

    def __init__(self) -> None:
        self.in_a_row = 0

    def failed(self, ran_ms: float) -> int:
        """Count a failure of a process that ran for `ran_ms`; return the delay of the restart in milliseconds."""
        if ran_ms >= STABLE_AFTER_MS:
            self.in_a_row = 0
        self.in_a_row += 1
        if self.in_a_row == 1:
            return 0
        doublings = min(self.in_a_row - 2, 16)
        return int(min(FIRST_DELAY_MS << doublings, LONGEST_DELAY_MS))

    @property
    def hopeless(self) -> bool:
        """Return True if the worker has failed so often in a row that the server stops unless another one serves."""
        return self.in_a_row >= GIVE_UP_AFTER


_MS_NS: Final = 1_000_000
KILL_GRACE_MS: Final = 5_000
"""The time by which a stopping worker may exceed its deadline before it is killed."""
EXIT_FAILED: Final = 1


class Actions(Protocol):
    """The actions of a supervisor."""

    def fork(self, number: int) -> int:
        """Start the process of a worker, and return the process id."""

    def stop(self, number: int) -> None:
        """Make a worker drain its connections and end."""

    def kill(self, number: int) -> None:
        """Kill the process of a worker."""

    def all_ready(self) -> None:
        """Note that all workers serve clients for the first time."""

    def replaced_all(self) -> None:
        """Note that `replace` has replaced the workers."""

    def replacement_failed(self, number: int) -> None:
        """Note that a worker has not started again during `replace`; no further worker is replaced."""

    def report(self, line: str) -> None:
        """Write a line to the log for the operator."""


class Worker:
    """One worker, by its number. `pid` is the id of its current process, 0 if it has none."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = WorkerState.WAITING
        self.pid = 0
        self.restarts = Restarts()
        self.started_ns = 0
        self.restart_at_ns = 0
        self.kill_at_ns = 0

    def take(self, event: WorkerEvent) -> None:
        """Change the state after an event. Raises IllegalTransitionError."""
        self.state = TRANSITIONS[self.state, event]


class Supervisor:
    """The supervisor of all workers. Only one thread may call it.

    Until all workers have answered once, the end of a worker stops the server. Later a worker that ends is started
    again, with a delay if it fails repeatedly. The server stops only if no worker serves and each has failed five times
    in a row. When `ended` is True, no process is left and none will be started; `exit_code` is valid then.
    """

    def __init__(self, count: int, actions: Actions, clock: Clock, stop_deadline_ms: int) -> None:
        self.workers = {number: Worker(number) for number in range(1, count + 1)}
        self.restarted = 0
        self.exit_code = 0
        self.stopping = False
        self.served = False
        self._actions = actions
        self._clock = clock
        self._kill_after_ns = (stop_deadline_ms + KILL_GRACE_MS) * _MS_NS
        self._to_replace: deque[Worker] = deque()
        self._replacing: Worker | None = None

    @property
    def ended(self) -> bool:
        """Return True if no process is left and none will be started, so that the parent may end."""
        return self.stopping and all(worker.state is WorkerState.WAITING for worker in self.workers.values())

    @property
    def ready_count(self) -> int:
        """Return the number of workers that serve clients."""
        return len(self.ready_numbers)

    @property
    def ready_numbers(self) -> Sequence[int]:
        """Return the numbers of the workers that serve clients."""
        return [worker.number for worker in self.workers.values() if worker.state is WorkerState.READY]

    def start(self) -> None:
        """Start all workers."""
        for worker in self.workers.values():
            self._fork(worker)

    def answers(self, number: int) -> None:
        """Note that a worker serves clients."""
        worker = self.workers[number]
        worker.take(WorkerEvent.ANSWERS)
        if worker is self._replacing and worker.state is WorkerState.READY:
            self._replacing = None
            self._replace_next()
        if not self.served and self.ready_count == len(self.workers):
            self.served = True
            self._actions.all_ready()

    def exited(self, number: int, status: int) -> None:
        """Handle the end of a worker's process; `status` is the result of `os.waitstatus_to_exitcode`."""
        worker = self.workers[number]
        before, pid, worker.pid = worker.state, worker.pid, 0
        worker.take(WorkerEvent.EXIT)
        if self.stopping:
            return
        if not self.served:
            self.exit_code = EXIT_FAILED
            self.stop()
            return
        if before is WorkerState.STOPPING or status == 0:
            self._fork(worker)
            return
        if worker is self._replacing:
            self._replacing = None
            self._to_replace.clear()
            self._actions.replacement_failed(number)
        self._failed(worker, pid, status)

    def _failed(self, worker: Worker, pid: int, status: int) -> None:
        now_ns = self._clock.monotonic_ns()
        delay_ms = worker.restarts.failed((now_ns - worker.started_ns) / _MS_NS)
        ended = f"worker {worker.number} (process {pid}) ended {describe_status(status)}"
        if not self.ready_count and all(one.restarts.hopeless for one in self.workers.values()):
            self._actions.report(f"{ended}; every worker failed at least five times in a row: stopping")
            self.exit_code = EXIT_FAILED
            self.stop()
            return
        self.restarted += 1
        when = f"in {delay_ms / 1000:g} s" if delay_ms else "now"
        self._actions.report(f"{ended}; {worker.restarts.in_a_row} in a row; it is started again {when}")
        worker.restart_at_ns = now_ns + delay_ms * _MS_NS
        if not delay_ms:
            self._fork(worker)

    def stop(self) -> None:
        """Make all workers drain their connections and end."""
        self.stopping = True
        self._to_replace.clear()
        for worker in self.workers.values():
            if worker.state in (WorkerState.STARTING, WorkerState.READY):
                self._stop(worker)

    def replace(self, numbers: Iterable[int]) -> None:
        """Replace workers by new processes, one after the other."""
        if not self.stopping:
            self._to_replace = deque(self.workers[number] for number in numbers)
            if self._replacing is None:
                self._replace_next()

    @property
    def replacing(self) -> bool:
        """Return True if workers are being replaced."""
        return self._replacing is not None or bool(self._to_replace)

    def _replace_next(self) -> None:
        while self._to_replace:
            worker = self._to_replace.popleft()
            # Workers in other states get a new process anyway.
            if worker.state in (WorkerState.STARTING, WorkerState.READY):
                self._replacing = worker
                self._stop(worker)
                return
        if not self.stopping:
            self._actions.replaced_all()

    def due(self) -> None:
        """Start workers whose delay is over, and kill workers that do not end in time."""
        now_ns = self._clock.monotonic_ns()
        for worker in self.workers.values():
            if worker.state is WorkerState.WAITING and not self.stopping and now_ns >= worker.restart_at_ns:
                self._fork(worker)
            elif worker.state is WorkerState.STOPPING and worker.kill_at_ns and now_ns >= worker.kill_at_ns:
                worker.kill_at_ns = 0
                self._actions.report(f"worker {worker.number} (process {worker.pid}) does not end; it is killed")
                self._actions.kill(worker.number)

    def next_due_ns(self) -> int | None:
        """Return the next time at which `due` must be called; None if there is none."""
        return min(self._moments(), default=None)

    def _moments(self) -> Iterable[int]:
        for worker in self.workers.values():
            if worker.state is WorkerState.WAITING and not self.stopping:
                yield worker.restart_at_ns
            elif worker.state is WorkerState.STOPPING and worker.kill_at_ns:
                yield worker.kill_at_ns

    def _fork(self, worker: Worker) -> None:
        worker.take(WorkerEvent.FORK)
        worker.started_ns = self._clock.monotonic_ns()
        worker.restart_at_ns = worker.kill_at_ns = 0
        worker.pid = self._actions.fork(worker.number)

    def _stop(self, worker: Worker) -> None:
        worker.take(WorkerEvent.STOP)
        worker.kill_at_ns = self._clock.monotonic_ns() + self._kill_after_ns
        self._actions.stop(worker.number)


def describe_status(status: int) -> str:
    """Return e.g. `by SIGKILL` or `with exit code 3`."""
    if status >= 0:
        return f"with exit code {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"
