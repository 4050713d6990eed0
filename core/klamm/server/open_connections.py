"""`OpenConnections`, which lists, closes and moves the open connections of a server."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

from klamm.network.channel import KafkaChannel
from klamm.network.connection_looks import OneAtATime, find_channel
from klamm.network.processor import Processor
from klamm.runtime.clock import Clock
from klamm.server.listener import Listener
from klamm.server.listener_looks import described_listener

log = logging.getLogger("klamm.server")

CLOSED_BY_OPERATOR = "closed by an operator"


class OpenConnections:
    """The object in `ServerServices.connections`. Any thread but a processor's may call its methods."""

    def __init__(self, listeners: Sequence[Listener], clock: Clock) -> None:
        self._listeners = listeners
        self._clock = clock
        self._looks = OneAtATime()

    def look(self, timeout_s: float) -> dict[str, Any]:
        """Return a description of all open connections and listeners.

        `connections` has the descriptions that the processors have made. `unanswered` has the processors that made none
        in time, each with the duration of its current turn. `listeners` describes the listeners.

        Raises TimeoutError if another caller's look does not end in time.
        """
        with self._looks.within(timeout_s):
            return self._look(timeout_s)

    def _look(self, timeout_s: float) -> dict[str, Any]:
        until_s = time.monotonic() + timeout_s
        looks = [(listener, one, one.look()) for listener, one in self._processors()]
        connections: list[dict[str, Any]] = []
        unanswered = []
        for listener, processor, look in looks:
            rows = look.wait(until_s)
            if rows is None:
                turn_ms = processor.turn_age_ns(self._clock.monotonic_ns()) / 1e6
                unanswered.append({"listener": listener.name, "processor": processor.index, "turn_ms": turn_ms})
            else:
                connections += rows
        now_ns = self._clock.monotonic_ns()
        described = [described_listener(one, now_ns) for one in list(self._listeners)]
        listeners = [one for one in described if one is not None]
        return {"connections": connections, "unanswered": unanswered, "listeners": listeners}

    def close(self, connection_id: str) -> str:
        """Close a connection soon; return a problem, or an empty text."""
        found = self._find(connection_id)
        if found is None:
            return f"there is no connection {connection_id}"
        _, processor, channel = found
        log.warning("connection_id=%s: %s", connection_id, CLOSED_BY_OPERATOR)
        processor.close_connection(channel, CLOSED_BY_OPERATOR)
        return ""

    def move(self, connection_id: str, index: int) -> str:
        """Move a connection to another processor of its listener; return a problem, or an empty text.

        The connection moves when no request or response is in flight.
        """
        found = self._find(connection_id)
        if found is None:
            return f"there is no connection {connection_id}"
        listener, source, channel = found
        target = next((one for one in listener.processors if one.index == index), None)
        if target is None:
            indexes = ", ".join(str(one.index) for one in listener.processors)
            return f"listener {listener.name} has no processor {index}, only {indexes}"
        if channel.answers is not None:
            return f"connection {connection_id} is bound to its processor, because its requests are forwarded"
        if target is not source:
            log.warning("connection_id=%s: moved to processor %d by an operator", connection_id, index)
            source.migrate(channel, target)
        return ""

    def _processors(self) -> Iterator[tuple[Listener, Processor]]:
        for listener in list(self._listeners):
            for processor in listener.all_processors:
                yield listener, processor

    def _find(self, connection_id: str) -> tuple[Listener, Processor, KafkaChannel] | None:
        for listener, processor in self._processors():
            channel = find_channel(processor.channels, connection_id)
            if channel is not None:
                return listener, processor, channel
        return None
