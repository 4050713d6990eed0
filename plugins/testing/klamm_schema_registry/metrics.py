"""`RegistryMetrics`: the registry's answers by status, their times, and the numbers of schemas and subjects."""

from __future__ import annotations

import threading
from typing import Final

from klamm.metrics import Counter, Histogram, MetricsRegistry
from klamm_schema_registry.registry import Registry

_TYPE: Final = "klamm:type=SchemaRegistry,name="
_MS_PER_US: Final = 0.001
_TIME_BITS: Final = range(4, 26)


class RegistryMetrics:
    """The metrics of the registry. The threads of the HTTP server call `answered`."""

    def __init__(self, metrics: MetricsRegistry, registry: Registry) -> None:
        # Protects the counters and the histogram.
        self._lock = threading.Lock()
        self._answers: dict[int, Counter] = {}
        self._times_us = Histogram()
        metrics.register(
            f"{_TYPE}RequestsPerSec",
            "counter",
            "Requests to the Schema Registry, by the HTTP status of the answer: 409 and 422 are refused schemas.",
            lambda: [({"status": str(status)}, count.value) for status, count in sorted(self._answers.copy().items())],
        )
        metrics.register(
            f"{_TYPE}TotalTimeMs",
            "histogram",
            "Milliseconds from the end of a request's head until its answer is made.",
            lambda: [({}, self._times_us.snapshot(_MS_PER_US, _TIME_BITS))],
        )
        metrics.gauge(f"{_TYPE}Schemas", "Schemas of all subjects and versions.", lambda: registry.sizes()[0])
        metrics.gauge(
            f"{_TYPE}Subjects", "Subjects that have a version, be it soft-deleted.", lambda: registry.sizes()[1]
        )

    def answered(self, status: int, time_us: int) -> None:
        """Count an answer."""
        with self._lock:
            self._answers.setdefault(status, Counter()).value += 1
            self._times_us.add(time_us)
