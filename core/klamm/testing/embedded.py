"""`EmbeddedServer`: a server on free ports inside this process, up before `start` returns, gone after `stop`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.server.server import SocketServer


class EmbeddedServer:
    """`with EmbeddedServer() as server: ... server.bootstrap ...`

    `settings` are as for `klamm serve --set`; `file` is a TOML file. Without one there is a single plaintext listener
    `default` with the embedded broker. `plugins` are plugin objects beside the installed ones, e.g. a module with
    hooks. `data_dir` unset is a temporary directory.
    """

    def __init__(
        self,
        settings: Sequence[str] = (),
        *,
        file: Path | None = None,
        data_dir: Path | None = None,
        plugins: Sequence[object] = (),
    ) -> None:
        registry = PluginRegistry()
        for number, plugin in enumerate(plugins):
            registry.add(plugin, f"embedded-{number}")
        bind = None if file is not None else "127.0.0.1:0"
        self.plan = load_plan(file, registry, settings, bind=bind, data_dir=str(data_dir) if data_dir else None)
        self.server = SocketServer(self.plan)

    def start(self) -> EmbeddedServer:
        """Raises `klamm.server.server.StartError`."""
        self.server.start()
        return self

    def stop(self) -> None:
        """Drain and close."""
        self.server.stop()

    def address(self, listener: str = "default") -> tuple[str, int]:
        """Host and port of a listener."""
        context = next(one.context for one in self.server.listeners if one.name == listener)
        return context.bound.host, context.bound.port

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT` of the first listener, as clients take it."""
        return str(self.server.listeners[0].context.bound)

    def api_set(self, name: str = "broker") -> Any:
        """The handler set of that name, to look into."""
        return self.server.api_sets[name]

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
