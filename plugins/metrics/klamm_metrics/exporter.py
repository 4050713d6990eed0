"""The extension `prometheus`: /metrics, /live, /ready and /started over HTTP.

`PageServer` calls the functions of the pages, with a thread for each request.
"""

from __future__ import annotations

import enum
import threading
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector

from klamm import ServerExtension, ServerServices
from klamm.config import format_host_port, parse_host_port
from klamm_metrics.collector import RegistryCollector
from klamm_metrics.connection_pages import ConnectionPages
from klamm_metrics.explainer import EXPLAINER, Explainer
from klamm_metrics.http import Page, PageServer, Request, render
from klamm_metrics.metrics_settings import PrometheusSettings

_TURN_AGE: Final = "klamm:type=Processor,name=TurnAgeMs"
_WORKERS_READY: Final = "klamm:type=Workers,name=Ready"
_OBSTACLES: Final = "klamm:type=Server,name=Obstacles"
_STUCK_AFTER_MS: Final = 10_000


class ServerState(enum.Enum):
    """The state of the server that /ready and /started report."""

    STARTING = enum.auto()
    READY = enum.auto()
    STOPPING = enum.auto()


class PrometheusExporter(ServerExtension):
    """The extension `prometheus`. It answers before the listeners open and until they are closed.

    So a slow start or stop can be observed.
    """

    live_keys = frozenset({"token_file", "include", "exclude", "labels", "process"})

    def __init__(self, settings: PrometheusSettings) -> None:
        super().__init__(settings)
        self._state = ServerState.STARTING
        self._services: ServerServices
        self._registry: CollectorRegistry
        # Held while a page of metrics is rendered, one at a time.
        self._rendering = threading.Lock()
        self._http: PageServer
        self._connections: ConnectionPages

    def open(self, server: ServerServices) -> None:
        """Bind the address and start to answer.

        Raises OSError if the address cannot be bound, or the token cannot be read.
        """
        settings: PrometheusSettings = self.settings
        self._services = server
        self._registry = self._registry_of(settings)
        connections = self._connections = ConnectionPages(server, settings.token_file)
        pages = {
            "/metrics": self._metrics,
            **connections.pages,
            "/live": lambda _: Page(200, b"alive\n"),
            "/ready": lambda _: _page("ready", self.obstacles()),
            "/started": lambda _: _page("started", self._obstacles_of_start()),
        }
        self._http = PageServer(parse_host_port(settings.bind), pages, server.clock, connections.actions)
        self._http.start()
        # Extensions open in the order of the file, so others look for it when they are asked.
        server.shared.once(EXPLAINER, lambda: Explainer(server))

    def _registry_of(self, settings: PrometheusSettings) -> CollectorRegistry:
        registry = CollectorRegistry()
        metrics = self._services.metrics
        registry.register(RegistryCollector(metrics, settings.include, settings.exclude, settings.labels))
        if settings.process:
            ProcessCollector(registry=registry)
        return registry

    def reload(self) -> None:
        """Read the token again."""
        self._connections.reload()

    def reconfigure(self, settings: PrometheusSettings) -> bool:
        """Use all settings but the address from the next page on. Raises OSError if the token cannot be read."""
        self._connections.use(settings.token_file)
        self.settings, self._registry = settings, self._registry_of(settings)
        return True

    def _metrics(self, request: Request) -> Page:
        # Render the whole text before sending any of it, so that a slow reader does not hold the lock.
        with self._rendering:
            return render(self._registry, request.accept)

    def _obstacles_of_start(self) -> list[str]:
        return ["the server is starting"] if self._state is ServerState.STARTING else []

    def ready(self) -> None:
        self._state = ServerState.READY

    def describe(self) -> str:
        return format_host_port(*self.address)

    def stopping(self) -> None:
        self._state = ServerState.STOPPING

    def close(self) -> None:
        self._http.close()

    @property
    def address(self) -> tuple[str, int]:
        """The address on which the exporter listens, with the real port if 0 was configured."""
        return self._http.address

    def obstacles(self) -> list[str]:
        """Return the reasons why clients cannot be served now; empty if they can."""
        if self._state is not ServerState.READY:
            return [f"the server is {self._state.name.lower()}"]
        found = []
        for family in self._services.metrics.collect(lambda name: name in (_TURN_AGE, _WORKERS_READY, _OBSTACLES)):
            for sample in family.samples:
                if family.name == _WORKERS_READY:
                    found += [] if sample.value else ["no worker is serving"]
                elif family.name == _OBSTACLES:
                    found += [f"{sample.labels['part']}: {sample.labels['reason']}"] if sample.value else []
                elif isinstance(sample.value, (int, float)) and sample.value > _STUCK_AFTER_MS:
                    where = " ".join(f"{key}={value}" for key, value in sample.labels.items())
                    found.append(f"{where} has not finished a turn of its loop for {sample.value / 1000:.0f} s")
        # Several workers may have the same obstacle.
        return list(dict.fromkeys(found))


def _page(state: str, obstacles: list[str]) -> Page:
    text = "\n".join(obstacles) or state
    return Page(503 if obstacles else 200, f"{text}\n".encode())
