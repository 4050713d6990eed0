"""The observer `request_log`: writes a line of JSON for each request."""

from __future__ import annotations

import json
import queue
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klamm import ErrorCode, ListenerContext, RequestEvent, RequestObserver, setting


@dataclass(frozen=True, slots=True)
class RequestLogSettings:
    """The table `request_log` of a listener."""

    file: Path = setting(doc="The file to which the lines are appended.")
    max_waiting: int = setting(10_000, doc="Lines that may wait for the disk; further ones are dropped.", minimum=1)


class RequestLog(RequestObserver):
    """Gives lines to a thread of its own, which writes the file.

    klamm calls `completed` on the processors' threads, where it must not wait for the disk.
    """

    settings: RequestLogSettings

    def open(self, listener: ListenerContext) -> None:
        self._clock = listener.services.clock
        self._dropped = listener.services.metrics.counter(
            "klamm:type=request-log,name=dropped-lines-total",
            "Lines that were dropped, as too many waited for the disk.",
            listener=listener.name,
        )
        self._file = self.settings.file.open("a", encoding="utf-8")
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(self.settings.max_waiting)
        self._writer = threading.Thread(target=self._write, name=f"request-log-{listener.name}")
        self._writer.start()

    def close(self) -> None:
        self._waiting.put(None)
        self._writer.join()
        self._file.close()

    def completed(self, event: RequestEvent) -> None:
        context = event.context
        line = {
            "time_ms": self._clock.wall_ms(),
            "listener": context.listener.name,
            "client": str(context.client_address),
            "client_id": context.client_id,
            "principal": str(context.principal),
            "api": context.api_name,
            "version": context.api_version,
            "outcome": event.outcome.name,
            "error": ErrorCode(event.error_code).name,
        }
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._dropped.add()

    def _write(self) -> None:
        while (line := self._waiting.get()) is not None:
            self._file.write(json.dumps(line) + "\n")
            if self._waiting.empty():
                self._file.flush()
