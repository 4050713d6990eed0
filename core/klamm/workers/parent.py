"""The command `klamm serve` with `[server] workers`: a parent that serves no clients, and its worker processes."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from klamm.config.differences import LeftKeys, needs_parent
from klamm.config.plan import ServerPlan
from klamm.logs.output import log_file_descriptors, set_log_levels
from klamm.runtime.clock import SystemClock
from klamm.runtime.platform.processes import raise_descriptor_limit, received_signals
from klamm.server.listening import BindError
from klamm.server.parts import StartError
from klamm.server.service_manager import ServiceManager
from klamm.server.serving import (
    RELOAD_DONE,
    at_next_start,
    nothing_changed,
    prepare_ready_file,
    ready_file_entries,
    ready_file_problem,
    start_message,
    write_ready_file,
)
from klamm.shared.shared_counts import BYTES_PER_WORKER, SharedCounts
from klamm.shared.worker_share import WorkerShare
from klamm.workers.child import Child
from klamm.workers.messages import Message
from klamm.workers.once import OnceParts
from klamm.workers.parent_sockets import ParentSockets
from klamm.workers.processes import Processes
from klamm.workers.reloading import Reloading
from klamm.workers.supervisor import Supervisor, describe_status

log = logging.getLogger("klamm.workers")

_EXIT_USAGE: Final = 2
_SERVING: Final = "serving"
_SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGCHLD")


def run(
    plan: ServerPlan, *, ready_file: Path | None = None, reload_plan: Callable[[], ServerPlan] | None = None
) -> int:
    """Serve with several workers until SIGTERM or SIGINT; return the exit code. SIGHUP reloads files and settings."""
    if ready_file is not None:
        try:
            prepare_ready_file(ready_file)
        except OSError as error:
            print(f"klamm: ready file {ready_file}: {error.strerror or error}", file=sys.stderr)
            return _EXIT_USAGE
    raise_descriptor_limit()
    parent = Parent(plan, ready_file, reload_plan)
    try:
        with contextlib.ExitStack() as opened:
            parent.open(opened)
            return parent.serve()
    except (BindError, StartError) as error:
        print(f"klamm: {error}", file=sys.stderr)
        return 1


class Parent:
    """The parent process, which binds the sockets, starts the workers, and carries out the supervisor's decisions.

    It also carries out reloads. `serve` runs on the main thread. Only extensions have further threads.
    """

    def __init__(self, plan: ServerPlan, ready_file: Path | None, reload_plan: Callable[[], ServerPlan] | None) -> None:
        self.plan = plan
        self._ready_file = ready_file
        self._reload_plan = reload_plan
        self._started_ns = time.monotonic_ns()
        self._clock = SystemClock()
        self._selector = selectors.DefaultSelector()
        self._manager = ServiceManager()
        self._alive_due_ns: int | None = None if self._manager.watchdog_ms is None else 0
        self._count = plan.server.worker_count
        self._supervisor = Supervisor(self._count, self, self._clock, plan.server.shutdown_deadline_ms)
        self._once = OnceParts(
            plan,
            self._clock,
            self._supervisor,
            lambda: self._processes.refresh(),
            lambda *arguments, **options: self._processes.ask(*arguments, **options),
        )
        self._processes = Processes(self, self._selector, self._once.joined)
        self._reloading = Reloading(self, self._clock)
        self._sockets = ParentSockets()
        self._addresses: dict[str, str] = {}
        # Memory that all workers share; see `AcceptTurns` and `SharedCounts`.
        self._connections = memoryview(mmap.mmap(-1, 4 * self._count)).cast("I")
        self._counts = memoryview(mmap.mmap(-1, BYTES_PER_WORKER * self._count))
        self._key = os.urandom(16)
        self._temporary: Path | None = None
        self._details: Any = None
        self._errors: dict[int, str] = {}
        # The plan with which the process of each worker was started.
        self._plans: dict[int, ServerPlan] = {}
        self._earlier_plan: ServerPlan | None = None
        self._plan_is_older = False
        self._reload_again = False
        # The levels of the loggers of this process, which the workers inherit.
        self._levels = plan.server.levels_of_loggers

    def open(self, opened: contextlib.ExitStack) -> None:
        """Bind every listener, and open the extensions that run once. Raises BindError, StartError."""
        opened.callback(self._selector.close)
        opened.callback(self._sockets.close)
        self._sockets.open(self.plan)
        if self.plan.server.data_dir is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="klamm-"))
            opened.callback(shutil.rmtree, self._temporary, ignore_errors=True)
        opened.callback(self._once.close)
        self._once.open()

    def serve(self) -> int:
        """Run the loop: signals, messages of workers, and due actions. Return the exit code."""
        with received_signals(*_SIGNALS) as received:
            self._selector.register(received, selectors.EVENT_READ, None)
            self._supervisor.start()
            while not self._supervisor.ended:
                for key, _ in self._selector.select(self._timeout_s()):
                    if key.data is not None:
                        self._processes.read(key.data)
                        continue
                    for number in received.recv(4096):
                        self._signalled(signal.Signals(number))
                self._processes.reap()
                self._supervisor.due()
                self._reloading.due()
                self._report_alive()
        return self._supervisor.exit_code

    def _report_alive(self) -> None:
        """Report to the watchdog that this process works. The supervisor replaces workers that end."""
        now_ns = self._clock.monotonic_ns()
        if self._manager.watchdog_ms is not None and self._alive_due_ns is not None and now_ns >= self._alive_due_ns:
            self._manager.alive()
            self._alive_due_ns = now_ns + self._manager.watchdog_ms * 500_000

    def _timeout_s(self) -> float | None:
        moments = self._supervisor.next_due_ns(), self._reloading.next_due_ns(), self._alive_due_ns
        due_ns = min((moment for moment in moments if moment is not None), default=None)
        return None if due_ns is None else max(0.0, (due_ns - self._clock.monotonic_ns()) / 1e9)

    def _signalled(self, received: signal.Signals) -> None:
        if received is signal.SIGHUP:
            self.reload()
        elif received in (signal.SIGTERM, signal.SIGINT) and not self._supervisor.stopping:
            self.say(f"{received.name}: stopping")
            self._manager.stopping()
            self._remove_ready_file()
            self._once.stopping()
            self._sockets.close()
            self._supervisor.stop()

    def _remove_ready_file(self) -> None:
        if self._ready_file is not None:
            with contextlib.suppress(OSError):
                self._ready_file.unlink()

    # ---- messages of workers

    def received(self, number: int, message: Message) -> None:
        """Handle a message of a worker."""
        if message["type"] == "ready":
            self._details = message
            self._once.set_listeners(message.get("listeners", ()))
            self._supervisor.answers(number)
            if self._plan_is_older or self._plans[number] is not self.plan:
                self._processes.send(number, "reload")
        elif message["type"] == "reloaded":
            left = [(keys, why) for keys, why in message["left"]]
            self._reloading.worker_reloaded(number, message["lines"], left)
        elif message["type"] == "failed":
            self._errors[number] = message["error"]

    def exited(self, number: int, status: int) -> None:
        """Handle the end of a worker."""
        self._connections[number - 1] = 0
        start = BYTES_PER_WORKER * (number - 1)
        self._counts[start : start + BYTES_PER_WORKER] = bytes(BYTES_PER_WORKER)
        supervisor, reason = self._supervisor, self._errors.pop(number, "")
        if not supervisor.served and not supervisor.stopping:
            pid = supervisor.workers[number].pid
            ended = f"worker {number} (process {pid}) ended {describe_status(status)} before it was ready"
            print(f"klamm: {reason or ended}", file=sys.stderr, flush=True)
        elif reason and not supervisor.stopping:
            log.error("worker %d cannot start: %s", number, reason)
        del self._plans[number]
        supervisor.exited(number, status)
        self._reloading.worker_ended(number)
        if supervisor.stopping:
            self._remove_ready_file()
            self._sockets.close()

    # ---- actions of the supervisor

    def fork(self, number: int) -> int:
        """Start the process of a worker with the configuration in use."""
        share = WorkerShare(number, self._count, SharedCounts(self._counts.cast("I"), number, self._key))
        self._plans[number] = self.plan
        sockets = self._sockets.of(self.plan)
        child = Child(self.plan, share, sockets, self._connections, self._temporary, self._reload_plan, self._levels)
        keep = [one.socket.fileno() for listening in sockets.values() for one in listening]
        return self._processes.fork(number, child.run, [*keep, *log_file_descriptors()])

    def stop(self, number: int) -> None:
        """Make a worker drain its connections and end."""
        self._processes.send(number, "stop")

    def kill(self, number: int) -> None:
        """Kill the process of a worker."""
        self._processes.kill(number)

    def report(self, line: str) -> None:
        """Write a line to the log."""
        log.error("%s", line)

    def all_ready(self) -> None:
        """Write the start message and the ready file."""
        self._once.ready()
        extensions = {**self._details["extensions"], **self._once.described()}
        details = {**self._details, "extensions": extensions}
        milliseconds = (time.monotonic_ns() - self._started_ns) / 1e6
        print(start_message(self.plan, details, milliseconds), flush=True)  # type: ignore[arg-type]
        self._write_ready_file()
        self._manager.ready(_SERVING)
        if self._reload_again:
            self._reload_again = False
            self.reload()

    @property
    def addresses(self) -> dict[str, str]:
        """Return the address of each listener whose sockets are open."""
        return self._sockets.addresses

    def _write_ready_file(self) -> None:
        addresses = self.addresses
        if self._ready_file is not None and addresses != self._addresses:
            write_ready_file(self._ready_file, addresses, ready_file_entries(self._once.extensions))
        self._addresses = addresses

    def replaced_all(self) -> None:
        """Note that all workers have the configuration in use."""
        self._reloading.end()

    def replacement_failed(self, number: int) -> None:
        """Use the earlier configuration again, also in the workers that already have the new one."""
        if self._earlier_plan is not None:
            self.say(f"reload: worker {number} does not start with the new configuration; all return to the old one")
            self.plan, self._earlier_plan = self._earlier_plan, None
            self._plan_is_older = True
            self._set_log_levels(self.plan)
        self._replace_outdated()

    def _replace_outdated(self) -> None:
        self._supervisor.replace(sorted(number for number, plan in self._plans.items() if plan is not self.plan))

    # ---- actions of a reload

    def reload(self) -> None:
        """Reload the configuration in all workers, at SIGHUP, or after the end of a running start or reload."""
        if self._reloading.under_way or not self._supervisor.served or self._supervisor.stopping:
            self._reload_again = True
            return
        self._manager.reloading()
        if self._reload_plan is not None:
            try:
                plan = self._reload_plan()
                self._sockets.add(self.plan, plan)
            except Exception as error:
                self.say(nothing_changed(error))
                self._manager.ready(_SERVING)
                return
            # These are the levels of this process, and of the workers that it starts.
            self._set_log_levels(plan)
            for line in self._once.reconfigure(plan):
                self.say(line)
            self._plan_is_older = needs_parent(self.plan, plan)
            if not self._plan_is_older:
                self._earlier_plan, self.plan = self.plan, plan
        self._reloading.start()

    def _set_log_levels(self, plan: ServerPlan) -> None:
        levels, self._levels = self._levels, plan.server.levels_of_loggers
        set_log_levels(self._levels, levels)

    def ready_numbers(self) -> Sequence[int]:
        """Return the numbers of the workers that serve clients."""
        return self._supervisor.ready_numbers

    def reload_worker(self, number: int) -> None:
        """Make a worker reload."""
        self._processes.send(number, "reload")

    def say(self, line: str) -> None:
        """Write a line on the terminal."""
        print(f"klamm: {line}", flush=True)

    def replace_workers(self, left: Sequence[LeftKeys]) -> bool:
        """Replace all workers and return True, unless the parent's own settings have changed.

        If they have, return False: the changes take effect at the next start.
        """
        if self._plan_is_older:
            for keys, why in left:
                self.say(at_next_start(keys, why))
            return False
        for keys, _ in left:
            self.say(f"reload: {keys} has changed; the workers are replaced one after another")
        self._replace_outdated()
        return True

    def reloaded(self) -> None:
        """Note that the reload has ended."""
        self._earlier_plan = None
        self._plans.update(dict.fromkeys(self._supervisor.ready_numbers, self.plan))
        self._sockets.keep(self.plan)
        try:
            self._write_ready_file()
        except OSError as error:
            self.say(ready_file_problem(error))
        self.say(RELOAD_DONE)
        self._manager.ready(_SERVING)
        if self._reload_again:
            self._reload_again = False
            self.reload()
