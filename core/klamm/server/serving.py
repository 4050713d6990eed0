"""The command `klamm serve`: one server in one process, its signals and its terminal output."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypedDict

from klamm.api.api_set import ApiSet
from klamm.api.extension import ServerExtension
from klamm.config.differences import LeftKeys, differences
from klamm.config.plan import PartPlan, ServerPlan
from klamm.logs.output import set_log_levels
from klamm.runtime.chance import Chance
from klamm.runtime.clock import Clock
from klamm.runtime.files import check_replaceable, replace_file
from klamm.runtime.platform.processes import raise_descriptor_limit, received_signals
from klamm.server.activation import passed_sockets
from klamm.server.server import SocketServer, StartError
from klamm.server.service_manager import ServiceManager
from klamm.shared.version import __version__

log = logging.getLogger("klamm.server")

_SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK")
"""On Windows, SIGBREAK has the role of SIGTERM."""


def run(
    plan: ServerPlan,
    *,
    ready_file: Path | None = None,
    reload_plan: Callable[[], ServerPlan] | None = None,
    clock: Clock | None = None,
    seed: int | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. SIGHUP reloads files and settings. A seed is for tests.

    `ready_file` exists exactly as long as every listener answers, unless the process is killed.
    """
    started_ns = time.monotonic_ns()
    if ready_file is not None:
        try:
            prepare_ready_file(ready_file)
        except OSError as error:
            print(f"klamm: ready file {ready_file}: {error.strerror or error}", file=sys.stderr)
            return 2
    raise_descriptor_limit()
    with received_signals(*_SIGNALS) as received:
        return _serve(lambda: _made(plan, clock, Chance(seed)), received, started_ns, ready_file, reload_plan)


def _made(plan: ServerPlan, clock: Clock | None, chance: Chance) -> SocketServer:
    return SocketServer(
        plan,
        clock=clock,
        tune_interpreter=True,
        sockets=passed_sockets(plan),
        threads=chance.threads,
        random_bytes=chance.random_bytes,
    )


def _serve(
    make: Callable[[], SocketServer],
    received: socket.socket,
    started_ns: int,
    ready_file: Path | None,
    reload_plan: Callable[[], ServerPlan] | None,
) -> int:
    manager = ServiceManager()
    try:
        server = make()
        with no_collections():
            server.start()
    except StartError as error:
        print(f"klamm: {error}", file=sys.stderr)
        return 1
    print(banner(server, (time.monotonic_ns() - started_ns) / 1e6), flush=True)
    written = server.addresses()
    if ready_file is not None:
        write_ready_file(ready_file, written, ready_file_entries(server.extensions))
    report_to(manager, server)
    while True:
        name = signal.Signals(received.recv(1)[0]).name
        if name == "SIGHUP":
            manager.reloading()
            lines = reload(server, reload_plan)
            if ready_file is not None and server.addresses() != written:
                try:
                    write_ready_file(ready_file, server.addresses(), ready_file_entries(server.extensions))
                    written = server.addresses()
                except OSError as error:
                    lines.insert(0, ready_file_problem(error))
            for line in lines:
                print(f"klamm: {line}", flush=True)
            manager.ready("serving")
        elif name in _SIGNALS:
            print(f"klamm: {name}: stopping", flush=True)
            manager.stopping()
            if ready_file is not None:
                with contextlib.suppress(OSError):
                    ready_file.unlink()
            server.stop()
            return 0


def report_to(manager: ServiceManager, server: SocketServer) -> None:
    """Notify the service manager that the server is ready, and from now on repeatedly that its processors work."""
    manager.ready("serving")
    watchdog_ms = manager.watchdog_ms
    if watchdog_ms is None:
        return

    def look() -> None:
        if server.longest_turn_ms() < watchdog_ms:
            manager.alive()

    look()
    server.scheduler.every(watchdog_ms / 2, look)


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Disable garbage collection in the block. Objects that exist at the end of the block are never examined again.

    These are the modules and parts of the server, which stay alive. Examining them would take a tenth of the start, and
    would later interrupt requests for milliseconds.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def apply_log_levels(server: SocketServer, plan: ServerPlan) -> list[str]:
    """Set the log levels of another plan in this process; return a line of the report for each changed key."""
    before, now = server.plan.server, plan.server
    lines = []
    if before.log_level != now.log_level:
        lines.append(f"[server] log_level: {before.log_level} before, {now.log_level} now")
    if before.log_levels != now.log_levels:
        lines.append("[server] log_levels has changed and is applied")
    if lines:
        set_log_levels(now.levels_of_loggers, before.levels_of_loggers)
        server.plan = replace(server.plan, server=replace(before, log_level=now.log_level, log_levels=now.log_levels))
    return lines


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The result of a reload: the applied settings, the keys that it has not applied with the reasons, and files with
    problems.
    """

    applied: Sequence[str]
    left: Sequence[LeftKeys] = ()
    problems: Sequence[str] = ()


def reload(server: SocketServer, reload_plan: Callable[[], ServerPlan] | None) -> list[str]:
    """Reload the files of parts and apply the settings that parts accept; return a report, line by line."""
    try:
        done = reload_parts(server, reload_plan)
    except Exception as error:
        return [nothing_changed(error)]
    return [*done.applied, *(at_next_start(*one) for one in done.left), *done.problems, RELOAD_DONE]


RELOAD_DONE: Final = "reload: done"
STOPS: Final = "reload: nothing changed: the server stops"


def nothing_changed(error: Exception) -> str:
    """Return the report of a reload whose configuration is wrong."""
    return f"reload: nothing changed: {error}"


def is_applied(keys: str) -> str:
    """Return the report of keys that have taken effect."""
    return f"reload: {keys} has changed and is applied"


def at_next_start(keys: str, why: str) -> str:
    """Return the report of keys that only a new process reads."""
    return f"reload: {keys} has changed; this takes effect at the next start: {why}"


def reload_parts(server: SocketServer, reload_plan: Callable[[], ServerPlan] | None) -> Reloaded:
    """Do what `reload` does, and return the result as data.

    Raises the exceptions of `reload_plan`; nothing is changed in that case.
    """
    applied: list[str] = []
    left: list[LeftKeys] = []
    if reload_plan is not None:
        of_file = reload_plan()
        with server.changing:
            if server.stopped:
                return Reloaded((), problems=[STOPS])
            plan, lines = _change(server, of_file)
            taken, problems = server.reconfigure(plan)
        applied += [f"reload: {what}" for what in lines]
        applied += map(is_applied, taken)
        applied += [f"reload: {problem}" for problem in problems]
        left = [(str(one), one.why_left) for one in differences(server.plan, plan)]
    return Reloaded(applied, left, [f"reload: {problem}" for problem in server.reload()])


def _change(server: SocketServer, of_file: ServerPlan) -> tuple[ServerPlan, list[str]]:
    """Make the changes of a reload that may fail; return the plan with dynamic values, and one line for each change.

    If it raises, nothing has changed.
    """
    plan, before = server.dynamic.over(of_file), server.plan
    with contextlib.ExitStack() as undo:
        change = server.prepare_listeners(plan)
        undo.callback(server.undo_listeners, change)
        # From now on, clients change the new plan, so that no key of a removed listener is accepted.
        undo.callback(_follow_again, server, server.dynamic.follow(of_file))
        undo.callback(apply_log_levels, server, before)
        with server.resizing(plan) as resized:
            lines = [*apply_log_levels(server, plan), *resized, *server.change_listeners(change)]
            # From here on nothing is undone, because the end of the block ends threads.
            undo.pop_all()
    return plan, lines


def _follow_again(server: SocketServer, of_file: ServerPlan) -> None:
    # A client may have set configs of an added listener meanwhile. They fit only the new plan.
    with contextlib.suppress(ValueError):
        server.dynamic.follow(of_file)


class StartDetails(TypedDict):
    """Facts for the start message that are known only when the server has started."""

    data: str
    described: str
    addresses: dict[str, str]
    extensions: dict[str, str]


def start_details(server: SocketServer) -> StartDetails:
    """Return the data directory, the descriptions of handler sets and extensions, and the bound addresses."""
    pairs = zip(server.plan.extensions, server.extensions, strict=True)
    return {
        "data": f"{server.data_dir} (temporary)" if server.plan.server.data_dir is None else str(server.data_dir),
        "described": "; ".join(text for text in map(describe, server.api_sets.values()) if text),
        "addresses": server.addresses(),
        "extensions": {part.name: describe(extension) for part, extension in pairs},
    }


def banner(server: SocketServer, milliseconds: float) -> str:
    """Return the start message of a server in this process."""
    return start_message(server.plan, start_details(server), milliseconds)


def start_message(server: ServerPlan, details: StartDetails, milliseconds: float) -> str:
    """Return the start message: version, data directory, and each listener with its address and parts."""
    described = details["described"]
    lines = [f"klamm {__version__}  data {details['data']}" + (f"  {described}" if described else "")]
    rows = []
    for plan in server.listeners:
        channel = " + ".join(_origin(part) for part in (plan.transport, plan.authenticator) if part is not None)
        extras = [_origin(part) for part in (plan.authorizer, *plan.many) if part]
        extras.append(f"assigner {_origin(plan.assigner)}")
        api_set = _origin(server.api_sets[plan.api_set], plan.api_set)
        rows.append((plan.name, details["addresses"][plan.name], channel, api_set, ", ".join(extras)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = "   ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True))
        lines.append(f"  {cells}".rstrip())
    beside = [f"request scheduler {_origin(server.request_scheduler)}"]
    beside += [f"{_origin(part)} {details['extensions'].get(part.name, '')}".rstrip() for part in server.extensions]
    if server.server.worker_count > 1:
        beside.append(f"{server.server.worker_count} workers")
    lines.append("  " + ", ".join(beside))
    lines.append(f"ready in {milliseconds:.0f} ms")
    return "\n".join(lines)


def _origin(part: PartPlan, name: str = "") -> str:
    own = part.distribution == "klamm"
    return (name or part.name) + ("" if own else f" ({part.distribution})")


def describe(part: ApiSet | ServerExtension) -> str:
    """Return a part's description of itself; empty, with a log line, if that fails."""
    try:
        return part.describe()
    except Exception:
        log.exception("%r: describe() failed", part)
        return ""


def prepare_ready_file(path: Path) -> None:
    """Remove the file of a killed server, and check that a file can be written there. Raises OSError."""
    path.unlink(missing_ok=True)
    check_replaceable(path)


def write_ready_file(path: Path, addresses: Mapping[str, str], entries: Mapping[str, object]) -> None:
    """Write the file in one step, so that a reader never sees half of it."""
    content = json.dumps({"pid": os.getpid(), "listeners": addresses, **entries})
    # Other users may read the file, e.g. for health checks, unless it has entries of extensions, which may be secret.
    replace_file(path, f"{content}\n".encode(), 0o600 if entries else 0o644, sync=False)


def ready_file_problem(error: OSError) -> str:
    """Return the report of a reload that cannot write the ready file; the next reload tries again."""
    return f"reload: the ready file cannot be written: {error.strerror or error}"


def ready_file_entries(extensions: Sequence[ServerExtension]) -> dict[str, object]:
    """Return the extensions' entries for the ready file; an extension that raises is logged and has none."""
    entries: dict[str, object] = {}
    for extension in extensions:
        try:
            entries |= extension.ready_file_entries()
        except Exception:
            log.exception("%r: ready_file_entries() failed", extension)
    return entries
