"""The extension `prometheus`: /metrics, /health and /ready over HTTP."""

from __future__ import annotations

import enum
import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from klamm import ServerExtension, ServerServices
from klamm_metrics.collector import RegistryCollector
from klamm_metrics.settings import PrometheusSettings, endpoint

log = logging.getLogger("klamm.prometheus")

_TURN_AGE: Final = "klamm:type=Processor,name=TurnAgeMs"
_STUCK_AFTER_MS: Final = 10_000
_CONNECTIONS: Final = 16
_TIMEOUT_S: Final = 10.0


class ServerState(enum.Enum):
    """What /ready answers from."""

    STARTING = enum.auto()
    READY = enum.auto()
    STOPPING = enum.auto()


class PrometheusExporter(ServerExtension):
    """Up before the listeners are, and until they are closed: a start or stop that takes long can be watched."""

    def __init__(self, settings: PrometheusSettings) -> None:
        super().__init__(settings)
        self._state = ServerState.STARTING
        self._services: ServerServices
        self._http: _HttpServer
        self._thread: threading.Thread

    def open(self, server: ServerServices) -> None:
        """Bind and answer; OSError if the address cannot be had."""
        settings: PrometheusSettings = self.settings
        self._services = server
        registry = CollectorRegistry()
        registry.register(RegistryCollector(server.metrics, settings.include, settings.exclude, settings.labels))
        if settings.process:
            ProcessCollector(registry=registry)
        self._http = _HttpServer(endpoint(settings.bind), self, registry)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.2}, name="klamm-prometheus", daemon=True
        )
        self._thread.start()

    def ready(self) -> None:
        self._state = ServerState.READY

    def describe(self) -> str:
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def stopping(self) -> None:
        self._state = ServerState.STOPPING

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, port 0 resolved."""
        host, port = self._http.server_address[:2]
        return str(host), int(port)

    def obstacles(self) -> list[str]:
        """Why clients cannot be served now; empty if they can."""
        if self._state is not ServerState.READY:
            return [f"the server is {self._state.name.lower()}"]
        found = []
        for family in self._services.metrics.collect(lambda name: name == _TURN_AGE):
            for sample in family.samples:
                if isinstance(sample.value, (int, float)) and sample.value > _STUCK_AFTER_MS:
                    where = " ".join(f"{key}={value}" for key, value in sample.labels.items())
                    found.append(f"{where} has been at one thing for {sample.value / 1000:.0f} s")
        return found


class _HttpServer(ThreadingHTTPServer):
    """A thread for each connection, of which there are few: a slow reader holds up nobody, and many cannot pile up."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], exporter: PrometheusExporter, registry: CollectorRegistry) -> None:
        family, _, _, _, resolved = socket.getaddrinfo(
            address[0] or None, address[1], type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self.address_family = family
        self.exporter = exporter
        self._registry = registry
        self._rendering = threading.Lock()
        self._places = threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__((str(resolved[0]), int(resolved[1])), _Handler)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The metrics, in the form that is accepted, and its content type."""
        encode, content_type = choose_encoder(accept)
        # The whole text is there before any of it is sent: whoever reads slowly holds no lock.
        with self._rendering:
            return encode(self._registry), content_type

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.info("peer=%s: answer failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    timeout = _TIMEOUT_S
    server_version = "klamm"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            body, content_type = self.server.render(self.headers.get("Accept", ""))
            self._answer(200, body, content_type)
        elif path == "/health":
            self._answer(200, b"alive\n")
        elif path == "/ready":
            obstacles = self.server.exporter.obstacles()
            text = "\n".join(obstacles) or "ready"
            self._answer(503 if obstacles else 200, f"{text}\n".encode())
        else:
            self._answer(404, b"there are /metrics, /health and /ready\n")

    do_HEAD = do_GET

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        log.debug(format, *arguments)
