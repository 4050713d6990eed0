"""`SocketServer`, which starts listeners, handler sets and threads in two phases, and drains requests when it stops."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from klamm.api.api_set import ApiSet
from klamm.api.context import ServerContext, ServerServices
from klamm.api.dispatch import RequestScheduler
from klamm.api.extension import ServerExtension
from klamm.config.plan import PartPlan, ServerPlan
from klamm.config.plugin_registry import PluginError
from klamm.metrics.requests import RequestMetrics
from klamm.network.listening_sockets import AcceptTurns
from klamm.network.memory_pool import MemoryPool
from klamm.requests.handler_pool import KafkaRequestHandlerPool
from klamm.requests.request_channel import RequestChannel
from klamm.runtime.clock import Clock, SystemClock
from klamm.runtime.files import make_folder
from klamm.runtime.scheduler import Scheduler
from klamm.runtime.shared_interpreter import SHARED_INTERPRETER
from klamm.runtime.threads import SYSTEM_THREADS, Threads
from klamm.server.dynamic_configs import DynamicConfigs
from klamm.server.listener import Listener
from klamm.server.listener_parts import PartError
from klamm.server.listening import BindError, ListeningSocket
from klamm.server.live_listeners import PARKED_GRACE_NS, ListenerChange, LiveListeners
from klamm.server.open_connections import OpenConnections
from klamm.server.parts import ServerParts, StartError
from klamm.server.resizing import Resize, resizing
from klamm.server.served_until import ServedUntil
from klamm.server.server_metrics import register_server_metrics
from klamm.shared.features import Features
from klamm.shared.version import __version__
from klamm.shared.worker_share import WorkerShare
from klamm.wire.api_keys import find_spec

log = logging.getLogger("klamm.server")

__all__ = ["SocketServer", "StartError"]


@dataclass(frozen=True, slots=True)
class Inherited:
    """The values that a worker process gets from its parent.

    They are its share of the limits, the listening sockets by listener, and the table of `AcceptTurns`.
    """

    share: WorkerShare
    sockets: Mapping[str, tuple[ListeningSocket, ...]]
    connections: memoryview


class SocketServer:
    """A server of one process. `klamm serve`, a worker process and `EmbeddedServer` make it.

    `start` returns when every listener answers, `stop` when everything is closed. The start has Kafka's two phases:
    bind every listener and open the handler sets; then start the processors and accept.

    - `temporary` is an existing data directory, for a plan that names none. `stop` deletes it.
    - `inherited` is set in a worker process, which binds nothing.
    - `tune_interpreter` lets large requests change the interpreter's switch interval and the thresholds of the garbage
      collector while they run. Set it only if the process belongs to the server.
    - `sockets` are the sockets that a service manager has bound, by listener.
    - `threads` and `random_bytes` are replaced in a simulation.
    """

    def __init__(
        self,
        plan: ServerPlan,
        *,
        clock: Clock | None = None,
        temporary: Path | None = None,
        inherited: Inherited | None = None,
        tune_interpreter: bool = False,
        sockets: Mapping[str, tuple[ListeningSocket, ...]] | None = None,
        threads: Threads = SYSTEM_THREADS,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.plan = plan
        self.clock = clock or SystemClock()
        self.scheduler = Scheduler(self.clock, threads)
        self.services = ServerServices(self.clock, self.scheduler, random_bytes, threads)
        self._tune_interpreter = tune_interpreter
        self.services.log_levels = lambda: self.plan.server.log_levels
        self._sockets = sockets or {}
        self._turns: AcceptTurns | None = None
        if inherited is not None:
            self.services.worker = inherited.share
            self._sockets = inherited.sockets
            self._turns = AcceptTurns(inherited.connections, inherited.share.number - 1, self._connection_count)
        self.extensions: list[ServerExtension] = []
        self.api_sets: dict[str, ApiSet] = {}
        self._features: dict[str, Features] = {}
        self._request_metrics: RequestMetrics | None = None
        self.changing = threading.Lock()
        """Held while the settings of a running server change."""
        self._live = LiveListeners(self.services, self.changing, inherited is not None)
        self.listeners = self._live.all
        self.dynamic = DynamicConfigs(
            plan, self.scheduler, current=lambda: self.plan, adopt=self._adopt, apply=self._apply
        )
        self._parts = ServerParts(self.services)
        self._temporary = temporary
        self.data_dir = Path()
        self.pool: MemoryPool | None = None
        self.request_channel: RequestChannel
        self.handler_pool: KafkaRequestHandlerPool
        self._handlers_started = False
        self._stopped = False

    def start(self) -> None:
        """Start the server. Raises StartError on failure, after closing everything that was opened."""
        try:
            self._start()
        except StartError:
            self.stop(deadline_ms=0)
            raise
        except PluginError as error:
            self.services.emit_admin_event("plugin_failed", str(error), failed=True)
            self.stop(deadline_ms=0)
            raise StartError(str(error)) from error
        except (BindError, PartError) as error:
            self.stop(deadline_ms=0)
            raise StartError(str(error)) from error
        except BaseException:
            self.stop(deadline_ms=0)
            raise

    def _start(self) -> None:
        settings = self.plan.server
        if self._tune_interpreter:
            SHARED_INTERPRETER.tune_for(self.scheduler.schedule)
        for listener_plan in self.plan.listeners:
            listener = Listener(listener_plan, settings.as_version)
            self.listeners.append(listener)
            more_ports, inherited = self.plan.more_ports(listener_plan.api_set), self._sockets.get(listener.name, ())
            listener.bind(self.services, more_ports, inherited)
            self.services.listeners[listener.name] = listener.context
        self._prepare_data_dir()
        if settings.queued_max_request_bytes > 0:
            self.pool = MemoryPool(
                max(1, self.services.worker.of(settings.queued_max_request_bytes)),
                strict=settings.queued_max_request_bytes_strict,
                clock=self.clock,
            )
        scheduler_plan = self.plan.request_scheduler
        scheduler: RequestScheduler = scheduler_plan.build(settings.queued_max_requests)
        name = scheduler_plan.name
        self._parts.open(f"request scheduler {name}", f"server.{name}", scheduler_plan, scheduler, self.services)
        self.request_channel = RequestChannel(scheduler)
        self.handler_pool = KafkaRequestHandlerPool(self.request_channel, self.clock, self.services.threads)
        self._open_api_sets()
        if settings.metrics:
            self._request_metrics = RequestMetrics(self.services.metrics, _api_name)
        for listener in self.listeners:
            self._open_listener(listener)
        register_server_metrics(
            self.services.metrics,
            listeners=self.listeners,
            request_channel=self.request_channel,
            handler_pool=self.handler_pool,
            pool=self.pool,
            max_clients=settings.metrics_max_clients,
            clock=self.clock,
            worker=self.services.worker,
            queue_capacity=settings.queued_max_requests,
        )
        self.services.connections = OpenConnections(self.listeners, self.clock)
        self.services.served_until_ns = ServedUntil(self.clock, self.listeners, self.request_channel)
        for part in self.plan.extensions:
            self._open_extension(part)
        self.scheduler.start()
        self.handler_pool.resize(self.plan.server.io_threads)
        self._handlers_started = True
        for listener in self.listeners:
            listener.start()
        self.dynamic.started()
        self._report_parts()
        self.services.emit_admin_event("server_started", f"klamm {__version__}")
        for part, extension in zip(self.plan.extensions, self.extensions, strict=True):
            with self._parts.needed(f"extension {part.name}", part):
                extension.ready()

    def _open_listener(self, listener: Listener) -> None:
        name = listener.plan.api_set
        part, api_set = self.plan.api_sets[name], self.api_sets[name]
        with self._parts.needed(f"api set {name}", part):
            handlers = list(api_set.handlers_of(listener.context))
            listener.topic_names = api_set.topic_names()
        listener.open_parts(
            handlers,
            self._features[name],
            api_set,
            clock=self.clock,
            scheduler=self.scheduler,
            request_channel=self.request_channel,
            pool=self.pool,
            request_metrics=self._request_metrics,
            described_api_set=part.describe(),
            turns=self._turns,
        )
        with self._parts.needed(f"api set {name}", part):
            api_set.listener_opened(listener.context)

    def _connection_count(self) -> int:
        return sum(one.counts.created.value - one.counts.closed.value for one in list(self.listeners))

    def _report_parts(self) -> None:
        plan = self.plan
        for part in (plan.request_scheduler, *plan.api_sets.values(), *plan.extensions):
            self.services.emit_admin_event("plugin_loaded", part.describe())
        for listener in self.listeners:
            self._report_parts_of(listener)

    def _report_parts_of(self, listener: Listener) -> None:
        for used in listener.plan.all_parts:
            self.services.emit_admin_event("plugin_loaded", used.describe(), listener=listener.name)

    def _open_extension(self, part: PartPlan) -> None:
        extension: ServerExtension = part.build()
        self._parts.open(f"extension {part.name}", part.name, part, extension, self.services)
        self.extensions.append(extension)

    def _prepare_data_dir(self) -> None:
        if self.plan.server.data_dir is None:
            if self._temporary is None:
                # Imported here, because servers with a data directory start faster without the import.
                import tempfile

                self._temporary = Path(tempfile.mkdtemp(prefix="klamm-"))
            self.data_dir = self._temporary
            return
        self.data_dir = self.plan.server.data_dir
        try:
            make_folder(self.data_dir)
        except OSError as error:
            cause = "is not a directory" if isinstance(error, FileExistsError) else error.strerror
            raise StartError(f"data directory {self.data_dir}: {cause}") from error

    def _open_api_sets(self) -> None:
        for name, part in self.plan.api_sets.items():
            # The first handler set gets the data directory itself, so that its layout is that of a Kafka log directory.
            data_dir = self.data_dir if not self.api_sets else self.data_dir / f"api-set-{name}"
            make_folder(data_dir)
            api_set: ApiSet = part.build()
            self.api_sets[name] = api_set
            context = ServerContext(
                data_dir,
                self.clock,
                self.scheduler,
                self.services.listeners,
                self.services.random_bytes,
                temporary_data=self._temporary is not None,
                services=self.services,
                configs=self.dynamic.configs,
                change_configs=self.dynamic.change,
                name=name,
            )
            self._parts.open(f"api set {name}", name, part, api_set, context)
            with self._parts.needed(f"api set {name}", part):
                self._features[name] = api_set.features()

    def stop(self, deadline_ms: int | None = None, *, keep_data: bool = False) -> None:
        """Stop accepting, finish requests in flight within the deadline, and close everything. May be called twice.

        With `keep_data`, a temporary data directory is not deleted, so that another server can use it.
        """
        if self._stopped:
            return
        self._stopped = True
        if deadline_ms is None:
            deadline_ms = self.plan.server.shutdown_deadline_ms
        self.services.emit_admin_event("server_stopping")
        for extension in self.extensions:
            self._parts.attempt(extension, extension.stopping)
        # If a change is being made, this waits until that has ended. Later changes have no effect.
        with self.changing:
            for listener in self.listeners:
                listener.stop_accepting()
        now_ns = self.clock.monotonic_ns()
        deadline_ns = now_ns + deadline_ms * 1_000_000
        grace_end_ns = min(deadline_ns, now_ns + PARKED_GRACE_NS)
        started = self.listeners if self._handlers_started else ()
        for listener in started:
            listener.drain(deadline_ns, grace_end_ns)
        for listener in started:
            listener.join()
        self._live.stop(deadline_ns, grace_end_ns)
        if self._handlers_started and not self.handler_pool.shutdown(timeout_s=max(0.1, deadline_ms / 1000)):
            log.warning("request handlers were still busy after the shutdown deadline of %d ms", deadline_ms)
        self._parts.close(lambda part: not isinstance(part, ServerExtension))
        self.scheduler.stop()
        SHARED_INTERPRETER.stopped(self.scheduler.schedule)
        self._parts.close(lambda part: True)
        for listener in self.listeners:
            listener.close()
        if self._temporary is not None and not keep_data:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _adopt(self, plan: ServerPlan) -> None:
        """Use another plan before the parts of the listeners are made; only dynamic settings may differ."""
        self.plan = plan
        for listener, listener_plan in zip(self.listeners, plan.listeners, strict=True):
            listener.adopt(listener_plan)

    def _apply(self, planned: Callable[[], ServerPlan]) -> bool:
        """Apply another plan that clients have requested; return False if the same change must be tried again."""
        changes: list[str] = []
        failures: list[str] = []
        with self.changing:
            if self._stopped:
                return True
            # Not earlier, because a reload that has just ended may have changed the file's values.
            plan = planned()
            try:
                changes = self.resize(plan)
            except RuntimeError as error:
                failures.append(str(error))
            taken, problems = self.reconfigure(plan)
        for change in [*changes, *taken]:
            log.info("changed by a client: %s", change)
        for problem in (*failures, *problems):
            log.error("cannot be changed by a client: %s", problem)
        return not failures

    def prepare_listeners(self, plan: ServerPlan) -> ListenerChange:
        """Open the listeners that another plan adds. Raises ConfigError, and then nothing has changed."""
        return self._live.prepare(self.plan, plan, self._open_listener)

    def undo_listeners(self, change: ListenerChange) -> None:
        """Close the listeners that `prepare_listeners` has opened, because the change is not made."""
        self._live.undo(change)

    def change_listeners(self, change: ListenerChange) -> list[str]:
        """Add and remove listeners; return one line for each. If it raises, the caller calls `undo_listeners`."""
        lines = self._live.apply(change, self.plan.server.shutdown_deadline_ms)
        self.plan = replace(self.plan, listeners=tuple(listener.plan for listener in self.listeners))
        for listener in change.added:
            self._report_parts_of(listener)
        for line in lines:
            self.services.emit_admin_event("config_reloaded", line)
        return lines

    @property
    def stopped(self) -> bool:
        """Return True from the beginning of `stop` on."""
        return self._stopped

    def reconfigure(self, plan: ServerPlan) -> tuple[list[str], list[str]]:
        """Apply the settings of a new plan that parts accept; return their tables with keys, and the problems.

        `self.plan` then has the settings in use. The other differences of the new plan take effect at the next start.
        """
        changed, taken, problems = self._parts.reconfigure(plan.counterpart)
        for old, new in changed:
            self.plan = self.plan.with_part(old, new)
        wanted = {listener_plan.name: listener_plan for listener_plan in plan.listeners}
        for listener in self.listeners:
            if listener.name in wanted:
                taken_here, problems_here = listener.reconfigure(wanted[listener.name])
                taken += taken_here
                problems += problems_here
        self.plan = replace(self.plan, listeners=tuple(listener.plan for listener in self.listeners))
        return taken, problems

    def resize(self, plan: ServerPlan) -> list[str]:
        """Apply the numbers of handlers and processors of another plan; return the changes, one line each.

        `self.plan` then has the new numbers; everything else is unchanged. Raises RuntimeError if a thread cannot
        start, and then nothing has changed.
        """
        with self.resizing(plan) as changes:
            return changes

    @contextlib.contextmanager
    def resizing(self, plan: ServerPlan) -> Iterator[list[str]]:
        """Resize like `resize`, around a block that gets the lines. If the block fails, nothing has changed."""
        with resizing(self._resizes(plan)) as changes:
            yield changes
        self.plan = replace(
            self.plan,
            server=replace(self.plan.server, io_threads=plan.server.io_threads),
            listeners=tuple(listener.plan for listener in self.listeners),
        )

    def _resizes(self, plan: ServerPlan) -> list[Resize]:
        before, after = self.plan.server.io_threads, plan.server.io_threads
        found = [Resize("[server] io_threads", before, after, self.handler_pool.resize)]
        wanted = {one.name: one.settings.processors for one in plan.listeners}
        for listener in self.listeners:
            before = listener.plan.settings.processors
            after = wanted.get(listener.name, before)
            found.append(Resize(f"[listeners.{listener.name}] processors", before, after, listener.resize))
        return [one for one in found if one.after != one.before]

    def reload(self) -> list[str]:
        """Let all parts read their files again; return the problems, one line each."""
        problems = [problem for listener in self.listeners for problem in listener.reload()]
        problems += self._parts.reload()
        self.services.emit_admin_event("config_reloaded", "; ".join(problems), failed=bool(problems))
        return problems

    def longest_turn_ms(self) -> float:
        """Return the milliseconds since the slowest processor last looked for work; 0 while the server stops."""
        now_ns = self.clock.monotonic_ns()
        turns_ns = [processor.turn_ns for listener in self.listeners for processor in listener.all_processors]
        return 0.0 if self._stopped or not turns_ns else (now_ns - min(turns_ns)) / 1e6

    def addresses(self) -> dict[str, str]:
        """Return the bound address of each listener by its name."""
        return {listener.name: str(listener.context.bound) for listener in self.listeners}


def _api_name(api_key: int) -> str:
    """Return the name of an API for metrics. A handler set may serve APIs that klamm does not know."""
    spec = find_spec(api_key)
    return spec.name if spec is not None else f"Api{api_key}"
