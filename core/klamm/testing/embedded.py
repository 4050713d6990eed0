"""`EmbeddedServer`: a server on free ports inside this process, up before `start` returns, gone after `stop`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.config.problems import did_you_mean
from klamm.server.listener import Listener
from klamm.server.server import SocketServer


class EmbeddedServer:
    """`with EmbeddedServer() as server: ... server.bootstrap ...`

    `settings` are as for `klamm serve --set`: a list of `KEY=VALUE`. `file` is a TOML file; without one there is a
    single plaintext listener `default` with the embedded broker. `plugins` are plugin objects beside the installed
    ones, e.g. a module with hooks; it may be installed as well. `data_dir` unset is a temporary directory. An instance
    starts once.
    """

    def __init__(
        self,
        settings: Sequence[str] = (),
        *,
        file: Path | str | None = None,
        data_dir: Path | str | None = None,
        plugins: Sequence[object] = (),
    ) -> None:
        if isinstance(settings, str):
            raise TypeError(f"settings is a list of KEY=VALUE: [{settings!r}], not {settings!r}")
        registry = PluginRegistry()
        for number, plugin in enumerate(plugins):
            registry.add(plugin, f"embedded-{number}")
        bind = None if file is not None else "127.0.0.1:0"
        self.plan = load_plan(
            None if file is None else Path(file),
            registry,
            settings,
            bind=bind,
            data_dir=None if data_dir is None else str(data_dir),
        )
        self.server = SocketServer(self.plan)
        self._state = "not started"

    def start(self) -> EmbeddedServer:
        """Raises `klamm.server.server.StartError`, and RuntimeError if it has been started before."""
        if self._state != "not started":
            raise RuntimeError(f"the server is {self._state}; an EmbeddedServer starts once, make another one")
        self._state = "stopped"
        self.server.start()
        self._state = "running"
        return self

    def stop(self) -> None:
        """Drain and close; nothing happens if it has not been started or has stopped."""
        self._state = "stopped"
        self.server.stop()

    def address(self, listener: str = "default") -> tuple[str, int]:
        """Host and port of a listener. Raises KeyError if there is none of that name, RuntimeError before `start`."""
        names = [plan.name for plan in self.plan.listeners]
        if listener not in names:
            hint = did_you_mean(listener, names)
            raise KeyError(f'there is no listener "{listener}"{hint}; there is {", ".join(names)}')
        bound = self._listener(names.index(listener)).context.bound
        return bound.host, bound.port

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT` of the first listener, as clients take it. Raises RuntimeError before `start`."""
        return str(self._listener(0).context.bound)

    def _listener(self, index: int) -> Listener:
        if index >= len(self.server.listeners):
            raise RuntimeError("the server has not been started: it has no address yet")
        return self.server.listeners[index]

    def api_set(self, name: str | None = None) -> Any:
        """The handler set of that name, or of the first listener. Raises KeyError, RuntimeError before `start`."""
        if name is None:
            name = self.plan.listeners[0].api_set
        if name not in self.plan.api_sets:
            names = ", ".join(self.plan.api_sets)
            raise KeyError(f'there is no api set "{name}"{did_you_mean(name, self.plan.api_sets)}; there is {names}')
        if name not in self.server.api_sets:
            raise RuntimeError("the server has not been started: its handler sets are not open")
        return self.server.api_sets[name]

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
