"""`EmbeddedServer`: a server on free ports inside this process. It answers when `start` returns."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.config.problems import did_you_mean
from klamm.config.tables import blocked_plugins
from klamm.runtime.chance import Chance
from klamm.runtime.clock import Clock
from klamm.server.listener import Listener
from klamm.server.server import SocketServer
from klamm.testing.acls import Acls
from klamm.testing.admin import HELPER_CLIENT_ID, Admin, ConsumedRecord, Isolation
from klamm.testing.client_settings import settings_for
from klamm.testing.cluster_admin import ClusterAdmin
from klamm.testing.groups import Group
from klamm.testing.outcomes import wait_until
from klamm.testing.raw_client import RawClient

if TYPE_CHECKING:
    from klamm.testing.timeline.moments import Moment
    from klamm.testing.timeline.timeline import Timeline


def _connect_to(address: tuple[str, int]) -> RawClient:
    return RawClient(address, client_id=HELPER_CLIENT_ID)


def _registry(block: Sequence[str], plugins: Sequence[object]) -> PluginRegistry:
    """Return a registry of the installed plugins, without the blocked ones, and of `plugins`.

    All servers that pass neither argument share one registry.
    """
    if not block and not plugins:
        return _installed(tuple(sys.path), os.environ.get("KLAMM_LOAD_PLUGINS"))
    registry = PluginRegistry(block)
    for number, plugin in enumerate(plugins):
        registry.add(plugin, f"embedded-{number}")
    return registry


@functools.lru_cache(maxsize=1)
def _installed(_path: tuple[str, ...], _only: str | None) -> PluginRegistry:
    """Return all installed plugins. The result is cached, because finding them takes a third of a start."""
    return PluginRegistry()


# By default a broker waits 3 s for further members of a new group, which a test does not have. librdkafka prints a line
# if a broker accepts its metrics.
TEST_DEFAULTS: Final = {"group.initial.rebalance.delay.ms": 0, "client.telemetry.enable": False}

_MISSING: Final = 'no listener has the part "{0}": make the server with {0}=True, or {1}=["{0}"]'


class _StartedInBlock:
    """The base class of servers that run during a `with` or `async with` block."""

    def start(self) -> Self:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        # Imported here, because most tests do not need it.
        import asyncio

        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.stop)


class EmbeddedServer(_StartedInBlock):
    """A server in this process: `with EmbeddedServer() as server: ... server.bootstrap ...`, or `async with`.

    - `settings` are those of `klamm serve --set`: a list of `KEY=VALUE`.
    - `file` is a TOML file. Without it the server has one plaintext listener, `default`, with the embedded broker.
    - `plugins` are plugin objects in addition to the installed ones, e.g. a module with hooks. A plugin may be
      installed as well.
    - `data_dir` is the data directory; by default a temporary one.
    - `clock` is the server's time, e.g. a `MovingClock`.
    - `faults` adds the filter `faults` to every listener, `recording` the observer `recording`.
    - `nodes` is the number of the broker's nodes. Each has its own ports; `server.nodes` stops and starts them.
    - `schema_registry` starts a Schema Registry with the server, at `server.schema_registry_url`.
    - `tune_interpreter` lets klamm change the switch interval and the garbage collector of this process while large
      requests run, as in `klamm serve`; `stop` restores them. By default it does not change them, because the process
      does not belong to the server.
    - With a `seed`, the same requests in the same order get the same ids, salts and other random numbers. A server with
      a `data_dir` needs another seed at each start.

    An instance starts only once; `restart` stops the server and starts it again.

    Two defaults differ from those of a broker: `group.initial.rebalance.delay.ms` is 0, because a test has no further
    members to wait for, and `client.telemetry.enable` is false. The helpers, e.g. `create_topic`, use the first
    listener, which must be open to every client.

    `plan` is the configuration that was made of the settings, `admin` an `Admin` for the cluster, and `wait_until` the
    function of `klamm.testing`. `server` is the server itself.
    """

    # There are 11 parameters, because a test names only those that it needs.
    def __init__(
        self,
        settings: Sequence[str] = (),
        *,
        file: Path | str | None = None,
        data_dir: Path | str | None = None,
        plugins: Sequence[object] = (),
        clock: Clock | None = None,
        faults: bool = False,
        recording: bool = False,
        nodes: int = 1,
        schema_registry: bool = False,
        tune_interpreter: bool = False,
        seed: int | None = None,
    ) -> None:
        if isinstance(settings, str):
            raise TypeError(f"settings must be a list of KEY=VALUE: [{settings!r}], not {settings!r}")
        if nodes > 1:
            settings = [*settings, f"nodes={nodes}"]
        registry = _registry(() if file is None else blocked_plugins(Path(file)), plugins)
        keys = {setting.partition("=")[0].strip() for setting in settings}
        bind = None if file is not None or "listeners.default.bind" in keys else "127.0.0.1:0"
        self.plan = load_plan(
            None if file is None else Path(file),
            registry,
            settings,
            bind=bind,
            data_dir=None if data_dir is None else str(data_dir),
            defaults=TEST_DEFAULTS,
            more_parts={
                "filters": ["faults"] * faults,
                "observers": ["recording"] * recording,
                "extensions": ["schema_registry"] * schema_registry,
            },
        )
        self.clock = clock
        self._tune_interpreter = tune_interpreter
        # A restart continues with these random numbers, because ids must not repeat.
        self._chance = Chance(seed)
        self.server = self._made(None)
        time_of = self.server.clock
        self.admin = Admin(self._connect, time_of) if nodes == 1 else ClusterAdmin(self._connect, _connect_to, time_of)
        self._state = "not started"
        self._earlier: list[Moment] = []
        self._forgotten_ns = 0

    # ---- start and stop

    def start(self) -> Self:
        """Start the server. Raises `klamm.server.server.StartError`, and RuntimeError if it has been started before."""
        if self._state != "not started":
            raise RuntimeError(f"the server is {self._state}; an EmbeddedServer can start only once, make another one")
        self._state = "stopped"
        self.server.start()
        self._state = "running"
        return self

    def stop(self) -> None:
        """Drain requests and stop the server. Does nothing if the server does not run."""
        self._state = "stopped"
        self.admin.close()
        self.server.stop()

    def _made(self, temporary: Path | None) -> SocketServer:
        return SocketServer(
            self.plan,
            clock=self.clock,
            temporary=temporary,
            tune_interpreter=self._tune_interpreter,
            threads=self._chance.threads,
            random_bytes=self._chance.random_bytes,
        )

    def restart(self, between: Callable[[], object] = lambda: None) -> None:
        """Stop the server, call `between`, and start it again with the same ports and data. Clients reconnect.

        Raises RuntimeError unless the server is running. Rules of `faults` and recorded requests are lost.
        """
        if self._state != "running":
            raise RuntimeError(f"the server is {self._state}: it cannot restart")
        bound = [listener.context.bound for listener in self.server.listeners]
        listeners = tuple(
            replace(plan, bind=(plan.bind[0], at.port))
            for plan, at in zip(self.server.plan.listeners, bound, strict=True)
        )
        self.plan = replace(self.plan, listeners=listeners)
        data_dir = self.server.data_dir
        self._remember()
        self._state = "stopped"
        self.admin.close()
        self.server.stop(keep_data=True)
        try:
            between()
            temporary = data_dir if self.plan.server.data_dir is None else None
            self.server = self._made(temporary)
            self.server.start()
        except BaseException:
            if self.plan.server.data_dir is None:
                shutil.rmtree(data_dir, ignore_errors=True)
            raise
        self._state = "running"
        self._earlier.append(self._change("server started"))

    # ---- addresses

    def address(self, listener: str | None = None) -> tuple[str, int]:
        """Return host and port of a listener, by default of the first; `("unix:/PATH", 0)` for a Unix domain socket.

        Raises KeyError for an unknown name, RuntimeError before `start`.
        """
        bound = self._listener(listener).context.bound
        return bound.host, bound.port

    @property
    def bootstrap(self) -> str:
        """Return `HOST:PORT` of the first listener, for clients; with several nodes, of each node, separated by commas.

        Raises RuntimeError before `start`.
        """
        name = self._listener(None).context.configured_as
        found = [each.context for each in self.server.listeners if each.context.configured_as == name]
        return ",".join(str(each.bound) for each in found)

    @property
    def nodes(self) -> Any:
        """Return the nodes of the broker, e.g. for `nodes.stop(2)`, `nodes.start(2)`, `nodes.move_leader("t", 0, 3)`.

        They are a `klamm_broker.cluster.nodes.Nodes`.
        """
        return self._shared("nodes", "there is no broker, or it has not been started")

    def _listener(self, name: str | None) -> Listener:
        names = [plan.name for plan in self.server.plan.listeners]
        if name is not None and name not in names:
            hint = did_you_mean(name, names)
            raise KeyError(f'there is no listener "{name}"{hint}; there is {", ".join(names)}')
        index = 0 if name is None else names.index(name)
        if index >= len(self.server.listeners):
            raise RuntimeError("the server has not been started: it has no address yet")
        return self.server.listeners[index]

    def _connect(self) -> RawClient:
        # The first node may be stopped.
        first = self.server.listeners[0].context.configured_as
        others = [each.context for each in self.server.listeners if each.context.configured_as == first]
        for other in others[:-1]:
            with contextlib.suppress(ConnectionError):
                return _connect_to(other.bound)
        return _connect_to(others[-1].bound)

    # ---- parts

    def api_set(self, name: str | None = None) -> Any:
        """Return the handler set of that name, by default that of the first listener.

        Raises KeyError for an unknown name, RuntimeError before `start`.
        """
        if name is None:
            name = self.plan.listeners[0].api_set
        if name not in self.plan.api_sets:
            names = ", ".join(self.plan.api_sets)
            raise KeyError(f'there is no api set "{name}"{did_you_mean(name, self.plan.api_sets)}; there is {names}')
        if name not in self.server.api_sets:
            raise RuntimeError("the server has not been started: its handler sets are not open")
        return self.server.api_sets[name]

    def part(self, listener: str, name: str) -> Any:
        """Return a listener's part by the name of its provider, e.g. `part("default", "faults")`. Raises KeyError."""
        found = self._listener(listener).part(name)
        if found is None:
            plan = next(plan for plan in self.plan.listeners if plan.name == listener)
            names = [part.name for part in plan.all_parts]
            hint = did_you_mean(name, names)
            raise KeyError(f'the listener "{listener}" has no part "{name}"{hint}; it has {", ".join(names)}')
        return found

    @property
    def faults(self) -> Any:
        """Return the rules of the filter `faults`, which all listeners share. Raises LookupError without it."""
        return self._shared("faults", _MISSING.format("faults", "filters"))

    def requests(self, api: str | None = None, *, count: int | None = None, timeout_s: float = 10.0) -> list[Any]:
        """Return the requests that the observer `recording` has recorded, oldest first: all, or those of one API.

        When a client has read the answer to a request, the request is among them. With `count`, wait until there are
        that many; raises TimeoutError. Requests of the helpers are left out. Raises LookupError if no listener records,
        ValueError for an unknown API.
        """
        found: list[Any] = self.recording.requests(api, count=count, timeout_s=timeout_s)
        return found

    @property
    def recording(self) -> Any:
        """Return the recording of the observer `recording`; its `save(file)` writes a file.

        Raises LookupError if no listener records.
        """
        return self._shared("recording", _MISSING.format("recording", "observers"))

    @property
    def schema_registry_url(self) -> str:
        """Return the URL of the Schema Registry, for `schema.registry.url`. Raises LookupError if there is none."""
        url: str = self._schema_registry().url
        return url

    def _schema_registry(self) -> Any:
        problem = "there is no Schema Registry: make the server with schema_registry=True, and start it"
        return self._shared("schema_registry", problem)

    def timeline(self, title: str = "", *, failure: str = "") -> Timeline:
        """Return the timeline of all events so far: `print(server.timeline().text())`, or `.html()` for a file.

        Requests come from the observer `recording`, faults from the filter `faults`, nodes and leaders from the broker.
        A request that still waits for its answer is not included. `failure` is the reason why the test has failed; it
        becomes the last line.
        """
        from klamm.testing.timeline.timeline import Timeline

        return Timeline.of(self._moments(), self.server.clock.monotonic_ns(), title=title, failure=failure)

    def _moments(self) -> list[Moment]:
        from klamm.testing.timeline.timeline import moments_of, read_sources

        found = [*self._earlier, *moments_of(read_sources(self.server.services.shared))]
        return [each for each in found if each.started_ns >= self._forgotten_ns]

    def _change(self, text: str) -> Moment:
        from klamm.testing.timeline.timeline import change_of

        return change_of(self.server.clock.monotonic_ns(), text)

    def _remember(self) -> None:
        """Keep the latest lines of the timeline, because their sources end when the server stops."""
        from klamm.testing.timeline.timeline import latest

        self._earlier = [*latest(self._moments()), self._change("server stopped")]

    def forget(self) -> None:
        """Remove all events so far: recorded requests, and the lines of a timeline."""
        self._forgotten_ns = self.server.clock.monotonic_ns()
        self._earlier = []
        with contextlib.suppress(LookupError):
            self.recording.clear()

    def _shared(self, name: str, problem: str) -> Any:
        return self.server.services.shared.needed(f"klamm.{name}", problem)

    # ---- operations for tests

    def create_topic(
        self, name: str | None = None, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic and return its name, which is generated if none is given. Raises KafkaError."""
        name = name or f"topic-{self.server.services.random_bytes(6).hex()}"
        self.admin.create_topic(name, partitions, configs)
        return name

    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int = 0,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append a record for each value, in one batch; return the offset of the first record. Raises KafkaError."""
        return self.admin.produce(
            topic, *values, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )

    def consume(
        self,
        topic: str,
        count: int | None = None,
        *,
        partition: int | None = None,
        offset: int | None = None,
        isolation: Isolation = "read_committed",
        timeout_s: float = 10.0,
    ) -> list[ConsumedRecord]:
        """Return the records of a topic, or `count` of them as soon as they exist; see `Admin.consume`."""
        return self.admin.consume(
            topic, count, partition=partition, offset=offset, isolation=isolation, timeout_s=timeout_s
        )

    def group(self, name: str) -> Group:
        """Return a consumer group, e.g. for `group("readers").wait(members=2)`, `.lag()`, `.committed()`."""
        return self.admin.group(name)

    @property
    def acls(self) -> Acls:
        """Return the access control lists, e.g. for `acls.allow("alice", "READ", "TOPIC", "orders")`."""
        return Acls(self.admin)

    def client_settings(self, client: str) -> dict[str, Any]:
        """Return the settings with which a client library connects, by the names of this library.

        `client` is `confluent-kafka`, `kafka-python`, `aiokafka`, `java`, `kafkajs`, `confluent-kafka-javascript` or
        `go`. Raises ValueError for any other.
        """
        return settings_for(client, self.bootstrap)

    def reset(self) -> None:
        """Delete all topics and all groups without members, remove all faults, and forget recorded requests."""
        self.admin.delete_topics(*self.admin.topics())
        self.admin.delete_groups(*(name for name, state in self.admin.groups().items() if state in ("Empty", "Dead")))
        with contextlib.suppress(LookupError):
            self.faults.clear()
        with contextlib.suppress(LookupError):
            self._schema_registry().clear()
        self.forget()

    def advance_ms(self, ms: float) -> None:
        """Move the server's time forward. Raises TypeError if its `clock` cannot be moved."""
        advance = getattr(self.clock, "advance_ms", None)
        if advance is None:
            raise TypeError("the server has the machine's time: make it with clock=MovingClock()")
        advance(ms)
        self.server.scheduler.wake()

    wait_until = staticmethod(wait_until)
