"""Clients that take turns with a simulated server, and their shared data. A seed determines everything that they do."""

from __future__ import annotations

import io
from collections.abc import Generator, Mapping
from itertools import count
from random import Random
from types import GeneratorType
from typing import Any, Final, Protocol, TypeAlias

from klamm.runtime.clock import Clock
from klamm.testing.histories import Anomaly, Recorder, check_history, read_history
from klamm.wire.api_keys import load
from klamm.wire.struct_base import Message
from tests.unit.testing.simulated_script import create

Ask: TypeAlias = Generator[Any, Any, None]
"""A generator that yields a request and its version, or milliseconds to wait.

It gets the response, or True after the wait. It gets None if the connection was cut.
"""


KILLED: Final = 0.7
"""The share of the restarts that are kills."""
LIMIT_S: Final = 600
"""Clients that have not ended after so much simulated time do not end: a history takes one minute or two."""
MAX_TURNS: Final = 2_000
"""The number of turns after which the time has to have moved."""


class NoEndError(RuntimeError):
    """Clients do not come to their end. The message has what each of them waits for."""


class Client(Protocol):
    """A connection of a client that takes turns."""

    def send(self, request: Message, version: int) -> int: ...
    def has_frame(self) -> bool: ...
    def receive(self, api_key: int, version: int, correlation_id: int) -> Any: ...
    def call(self, request: Message, version: int) -> Any: ...
    def close(self) -> None: ...


class Driven(Protocol):
    """A server that `drive` lets go on: a `SimulatedServer`, or one behind sockets."""

    @property
    def seed(self) -> int: ...
    @property
    def clock(self) -> Clock: ...
    def connect(self) -> Client: ...
    def turn(self) -> bool: ...
    def jump_ms(self, ms: float) -> None: ...
    def restart(self, *, kill: bool) -> None: ...


class Workload:
    """The data that the clients of one history share."""

    def __init__(self, server: Driven) -> None:
        self._seed = server.seed
        self.choose = Random(self._seed)
        self.file = io.StringIO()
        self.record = Recorder(self.file, server.clock)
        self.values = count(1)
        self.topic_ids: dict[str, bytes] = {}
        self.hanging: list[str] = []

    def create(self, client: Client, topic: str, partitions: int) -> None:
        """Create a topic, and remember its id."""
        (created,) = create(client, partitions, [topic]).topics
        self.topic_ids[topic] = created.topic_id

    def anomalies(self) -> list[Anomaly]:
        """Check the history. Raises NoEndError if all is well but for transactions that stay open."""
        found = check_history(read_history(io.StringIO(self.file.getvalue())))
        if self.hanging and not found:
            raise NoEndError(f"transactions in {', '.join(self.hanging)} stay open (seed {self._seed})")
        return found


def partition_name(topic: str, partition: int) -> str:
    """Return the name of a partition in a history."""
    return f"{topic}-{partition}"


class _Actor:
    """One client, and its pending request or wait."""

    def __init__(self, server: Driven, name: str, script: Ask) -> None:
        self.name = name
        self._server = server
        self._script = script
        self._client = server.connect()
        self._asked: tuple[int, int, int] | None = None
        self._since_ns = self._wakes_ns = 0
        self.ended = False
        self._go_on(None)

    def _go_on(self, response: Any) -> None:
        self._asked, self._since_ns = None, self._server.clock.monotonic_ns()
        try:
            wanted = self._script.send(response)
        except StopIteration:
            self.ended = True
            self._client.close()
            return
        if isinstance(wanted, int):
            self._wakes_ns = self._since_ns + wanted * 1_000_000
            return
        request, version = wanted
        self._asked = request.API_KEY, version, self._client.send(request, version)

    @property
    def waits(self) -> bool:
        """True if the client has sent a request and has no answer yet."""
        return self._asked is not None

    def step(self) -> bool:
        """Continue if the answer has arrived, or the time has passed."""
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
        """Return how long the client waits: at most a second for an answer."""
        waits_ms = (self._wakes_ns - self._server.clock.monotonic_ns()) / 1e6
        return 1000 if self._asked is not None or self.ended else max(0.0, waits_ms)

    def __str__(self) -> str:
        now_ns = self._server.clock.monotonic_ns()
        if self._asked is None:
            does = f"sleeps for {(self._wakes_ns - now_ns) / 1e9:.1f} s more"
        else:
            api_key, version, _ = self._asked
            does = f"waits for {load(api_key).NAME} {version} since {(now_ns - self._since_ns) / 1e9:.1f} s"
        script = self._script
        while isinstance(script.gi_yieldfrom, GeneratorType):
            script = script.gi_yieldfrom
        return f"{self.name} {does}, in {script.gi_code.co_name}"

    def cut(self) -> None:
        """Cut the connection. The open request may or may not have taken effect. A client that sleeps wakes up."""
        self._client.close()
        self._client = self._server.connect()
        self._go_on(None)


class _Limit:
    """Raises NoEndError for clients that do not end, by the time or by the number of turns at one moment."""

    def __init__(self, server: Driven, limit_s: float) -> None:
        self._server = server
        self._until_ns = server.clock.monotonic_ns() + int(limit_s * 1e9)
        self._limit_s = limit_s
        self._turns, self._moment_ns = 0, -1

    def check(self, actors: list[_Actor]) -> None:
        """Count a turn of these clients."""
        now_ns = self._server.clock.monotonic_ns()
        self._turns = 0 if now_ns != self._moment_ns else self._turns + 1
        self._moment_ns = now_ns
        if now_ns >= self._until_ns:
            passed = f"{self._limit_s:g} simulated seconds"
        elif self._turns >= MAX_TURNS:
            passed = f"{self._turns} turns at one moment"
        else:
            return
        clients = "; ".join(sorted(str(each) for each in actors))
        raise NoEndError(f"clients do not end after {passed} (seed {self._server.seed}): {clients}")


def drive(
    server: Driven,
    scripts: Mapping[str, Ask],
    choose: Random,
    cuts: float = 0.0,
    restarts: float = 0.0,
    limit_s: float = LIMIT_S,
) -> None:
    """Run these clients, by their names, to their end; each turn cuts a connection, and stops or kills the server,
    with this probability.

    Raises NoEndError if there is a client after `limit_s` simulated seconds, or if the time stands still.
    """
    actors = [_Actor(server, *each) for each in scripts.items()]
    limit = _Limit(server, limit_s)
    while actors := [one for one in actors if not one.ended]:
        limit.check(actors)
        choose.shuffle(actors)
        busy = True in [one.step() for one in actors]
        if choose.random() < cuts:
            # A cut affects a client that sleeps only little.
            choose.choice([one for one in actors if one.waits or choose.random() < 0.1] or actors).cut()
        if restarts and choose.random() < restarts:
            server.restart(kill=choose.random() < KILLED)
            for one in actors:
                one.cut()
        if not server.turn() and not busy:
            server.jump_ms(min(one.sleeps_ms() for one in actors))
