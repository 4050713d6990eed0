"""The OpenTelemetry resource of klamm's traces and metrics, and the thread that exports them.

The observer `otlp_traces` and the extension `otlp_metrics` use it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol

try:
    import opentelemetry.exporter.otlp.proto.http  # noqa: F401
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
except ImportError as missing:
    raise ImportError(f"otlp_traces and otlp_metrics need klamm[otlp]: {missing}") from missing

from klamm import RateLimitedLog, ServerServices, __version__

log = logging.getLogger("klamm.otlp")

SCOPE: Final = InstrumentationScope("klamm", __version__)
"""The instrumentation scope of all traces and metrics."""
_END_WITHIN_S: Final = 2.0


class _Exporter(Protocol):
    def shutdown(self) -> None: ...


def resource() -> Resource:
    """Return the resource. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence."""
    found = Resource.create()
    named = str(found.attributes.get("service.name", ""))
    if named and not named.startswith("unknown_service"):
        return found
    return found.merge(Resource({"service.name": "klamm", "service.version": __version__}))


class ExportLoop:
    """A thread that calls `export` every `interval_ms`, and once at the end.

    `export` waits for the collector. OpenTelemetry's library logs if the collector does not take an export.
    """

    def __init__(
        self, server: ServerServices, name: str, interval_ms: int, export: Callable[[], None], exporter: _Exporter
    ) -> None:
        self._interval_s = interval_ms / 1000
        self._export = export
        self._exporter = exporter
        self._failures = RateLimitedLog(log, server.scheduler.schedule)
        self._ends = threading.Event()
        self._thread = server.threads.start(self._run, name)

    def close(self) -> None:
        """Export for the last time. Give up if the collector does not answer within two seconds."""
        self._ends.set()
        self._thread.join(_END_WITHIN_S)
        self._exporter.shutdown()

    def _run(self) -> None:
        ends = False
        while not ends:
            ends = self._ends.wait(self._interval_s)
            try:
                self._export()
            except Exception as error:
                self._failures.log("export", logging.ERROR, "an export has failed: %s: %s", type(error).__name__, error)
