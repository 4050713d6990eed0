"""`Child`: a worker process, which serves clients of the parent's listening sockets and obeys the parent's messages."""

from __future__ import annotations

import logging
import pkgutil
import queue
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from klamm.config.plan import ServerPlan
from klamm.logs.output import log_as_worker, set_log_levels
from klamm.server.listening import ListeningSocket
from klamm.server.server import Inherited, SocketServer, StartError
from klamm.server.serving import no_collections, nothing_changed, reload_parts, start_details
from klamm.shared.worker_share import WorkerShare
from klamm.workers.joined_metrics import register_process
from klamm.workers.listener_facts import facts_of
from klamm.workers.messages import Message, MessageReader, encode, families_to_json

log = logging.getLogger("klamm.workers")

_STOP: Final = "stop"
_RELOAD: Final = "reload"
_PARENT_ENDED: Final = "parent ended"
_READ_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Child:
    """The arguments with which a worker is started, and its main function.

    `connections` is shared memory with a place for each worker (`AcceptTurns`). `temporary` is the parent's temporary
    data directory, if it has one. `levels` are the levels of loggers in the parent, which the worker inherits.
    """

    plan: ServerPlan
    share: WorkerShare
    sockets: Mapping[str, tuple[ListeningSocket, ...]]
    connections: memoryview
    temporary: Path | None
    reload_plan: Callable[[], ServerPlan] | None
    levels: Mapping[str, str]

    def run(self, channel: socket.socket) -> int:
        """Serve until the parent requests the end, or until the parent has ended; return the exit code."""
        wanted: queue.SimpleQueue[str] = queue.SimpleQueue()
        signal.signal(signal.SIGTERM, lambda _number, _frame: wanted.put(_STOP))
        log_as_worker(self.plan.server.log_format, self.share.number)
        set_log_levels(self.plan.server.levels_of_loggers, self.levels)
        server = SocketServer(
            _of_worker(self.plan),
            temporary=self.temporary,
            inherited=Inherited(self.share, self.sockets, self.connections),
            tune_interpreter=True,
        )
        link = ParentLink(channel, server, wanted)
        try:
            with no_collections():
                server.start()
        except StartError as error:
            link.send(encode("failed", error=str(error)))
            return 1
        register_process(server.services.metrics)
        listeners = [facts_of(listener) for listener in server.services.listeners.values()]
        link.send(encode("ready", **start_details(server), listeners=listeners))
        link.start()
        while (what := wanted.get()) == _RELOAD:
            link.send(self._reload(server))
        if what == _PARENT_ENDED:
            log.error("the parent process has ended: this worker stops")
        # The other workers need not wait for this worker any more.
        self.connections[self.share.number - 1] = 0
        server.stop(keep_data=True)
        link.report_metrics()
        return 0

    def _reload(self, server: SocketServer) -> bytes:
        try:
            plan = self.reload_plan
            done = reload_parts(server, None if plan is None else lambda: _of_worker(plan()))
        except Exception as error:
            return encode("reloaded", lines=[nothing_changed(error)], left=[])
        return encode("reloaded", lines=[*done.applied, *done.problems], left=done.left)


def _of_worker(plan: ServerPlan) -> ServerPlan:
    """Return the plan without the extensions that run once, because the parent runs them."""
    own = tuple(part for part in plan.extensions if part.found.provider.workers == "each")
    return replace(plan, extensions=own)


class ParentLink:
    """The channel to the parent. Two threads read and answer messages, even during a reload or a stop."""

    def __init__(self, channel: socket.socket, server: SocketServer, wanted: queue.SimpleQueue[str]) -> None:
        self._channel = channel
        self._server = server
        self._wanted = wanted
        # Protects the channel, so that messages do not mix.
        self._sending = threading.Lock()
        self._asked: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def send(self, message: bytes) -> None:
        """Send a message. Does nothing if the parent has ended. Any thread may call this."""
        try:
            with self._sending:
                self._channel.sendall(message)
        except OSError:
            self._wanted.put(_PARENT_ENDED)

    def report_metrics(self) -> None:
        """Send all metrics."""
        self.send(encode("metrics", families=families_to_json(self._server.services.metrics.collect())))

    def start(self) -> None:
        """Start two threads: one reads messages, the other answers the messages that may take long."""
        for name, run in (("klamm-parent", self._read), ("klamm-looks", self._answer)):
            threading.Thread(target=run, name=name, daemon=True).start()

    def _answer(self) -> None:
        while True:
            message = self._asked.get()
            try:
                answer = self._done(message["action"], message["arguments"])
                encoded = encode("connections", ask=message["ask"], answer=answer)
            except Exception:
                log.exception("the action %s failed", message["action"])
                encoded = encode("connections", ask=message["ask"], answer=None)
            self.send(encoded)

    def _done(self, action: str, arguments: Sequence[Any]) -> Any:
        if ":" in action:
            return pkgutil.resolve_name(action)(self._server.services, *arguments)
        return getattr(self._server.services.connections, action)(*arguments)

    def _read(self) -> None:
        reader = MessageReader()
        while data := self._receive():
            for message in reader.feed(data):
                if message["type"] == "metrics":
                    self.report_metrics()
                elif message["type"] == "connections":
                    self._asked.put(message)
                else:
                    self._wanted.put(message["type"])
        self._wanted.put(_PARENT_ENDED)

    def _receive(self) -> bytes:
        try:
            return self._channel.recv(_READ_BYTES)
        except OSError:
            return b""
