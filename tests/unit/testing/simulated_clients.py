"""Clients that take turns with a simulated server, and what they share: all that they do comes from a seed."""

from __future__ import annotations

import io
from collections.abc import Generator
from itertools import count
from random import Random
from typing import Any, Final, TypeAlias

from klamm.testing import SimulatedClient, SimulatedServer
from klamm.testing.histories import Anomaly, Recorder, check_history, read_history
from tests.unit.testing.simulated_script import create

Ask: TypeAlias = Generator[Any, Any, None]
"""Yields a request and its version, or milliseconds to wait; gets the response, or True after the time.

It gets None if the connection was cut.
"""


KILLED: Final = 0.7
"""The share of the restarts that are kills."""


class Workload:
    """What the clients of one history share."""

    def __init__(self, server: SimulatedServer, seed: int) -> None:
        self.choose = Random(seed)
        self.file = io.StringIO()
        self.record = Recorder(self.file, server.clock)
        self.values = count(1)
        self.topic_ids: dict[str, bytes] = {}

    def create(self, client: SimulatedClient, topic: str, partitions: int) -> None:
        """Create a topic, and remember its id."""
        (created,) = create(client, partitions, [topic]).topics
        self.topic_ids[topic] = created.topic_id

    def anomalies(self) -> list[Anomaly]:
        """Check the history."""
        return check_history(read_history(io.StringIO(self.file.getvalue())))


def partition_name(topic: str, partition: int) -> str:
    """Return the name of a partition in a history."""
    return f"{topic}-{partition}"


class _Actor:
    """One client, and what it waits for."""

    def __init__(self, server: SimulatedServer, script: Ask) -> None:
        self._server = server
        self._script = script
        self._client: SimulatedClient = server.connect()
        self._asked: tuple[int, int, int] | None = None
        self._wakes_ns = 0
        self.ended = False
        self._go_on(None)

    def _go_on(self, response: Any) -> None:
        self._asked = None
        try:
            wanted = self._script.send(response)
        except StopIteration:
            self.ended = True
            self._client.close()
            return
        if isinstance(wanted, int):
            self._wakes_ns = self._server.clock.monotonic_ns() + wanted * 1_000_000
            return
        request, version = wanted
        self._asked = request.API_KEY, version, self._client.send(request, version)

    @property
    def waits(self) -> bool:
        """True if it has asked, and has no answer yet."""
        return self._asked is not None

    def step(self) -> bool:
        """Go on if the answer has come, or the time."""
        if self._asked is None:
            ready = self._server.clock.monotonic_ns() >= self._wakes_ns
            response: Any = True
        else:
            ready = self._client.has_frame()
            response = self._client.receive(*self._asked) if ready else None
        if ready:
            self._go_on(response)
        return ready

    def sleeps_ms(self) -> float:
        """Return for how long it waits; at most a second for an answer."""
        waits_ms = (self._wakes_ns - self._server.clock.monotonic_ns()) / 1e6
        return 1000 if self._asked is not None or self.ended else max(0.0, waits_ms)

    def cut(self) -> None:
        """Cut the connection: what was asked may have happened or not. A client that sleeps wakes."""
        self._client.close()
        self._client = self._server.connect()
        self._go_on(None)


def drive(
    server: SimulatedServer, scripts: list[Ask], choose: Random, cuts: float = 0.0, restarts: float = 0.0
) -> None:
    """Run these clients to their end; each turn cuts a connection, and stops or kills the server, with this
    probability.
    """
    actors = [_Actor(server, script) for script in scripts]
    while actors := [one for one in actors if not one.ended]:
        choose.shuffle(actors)
        busy = True in [one.step() for one in actors]
        if choose.random() < cuts:
            # Of a client that sleeps, a cut takes little.
            choose.choice([one for one in actors if one.waits or choose.random() < 0.1] or actors).cut()
        if restarts and choose.random() < restarts:
            server.restart(kill=choose.random() < KILLED)
            for one in actors:
                one.cut()
        if not server.turn() and not busy:
            server.jump_ms(min(one.sleeps_ms() for one in actors))
