"""`Explainer`: what `klamm explain` finds, for other parts of the same server, e.g. the console."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from klamm import ServerServices
from klamm.metrics import Family, HistogramValue
from klamm_metrics.collector import RegistryCollector, exposed_name, label_name
from klamm_metrics.limiting_stages import findings
from klamm_metrics.rates import Row, with_rates
from klamm_metrics.snapshot import Difference, Labels, Snapshot

EXPLAINER: Final = "klamm.explainer"
"""The key of the explainer in `ServerServices.shared`."""
_LOOK_WITHIN_S: Final = 2.0
_SHORTEST_S: Final = 1.0
_LONGEST_S: Final = 30.0


class Explainer:
    """The findings over the time since the last call, for all callers together. Any thread may call it."""

    def __init__(self, server: ServerServices) -> None:
        self._server = server
        self._collector = RegistryCollector(server.metrics)
        # Protects the samples and the findings: one caller at a time takes a sample.
        self._lock = threading.Lock()
        self._last: tuple[Snapshot, Row] | None = None
        self._found: list[dict[str, Any]] | None = None

    def findings(self) -> list[dict[str, Any]] | None:
        """Return the findings, the worst first, each with `stage`, `weight`, `text` and `look_at`.

        They rest on the time since the last sample, at least a second: until then, the last ones are returned. After
        half a minute without a call, there is no earlier sample to compare with, and the result is None. Raises
        TimeoutError if another caller takes too long.
        """
        if not self._lock.acquire(timeout=_LOOK_WITHIN_S):
            raise TimeoutError("another look at the server takes too long")
        try:
            return self._findings(self._server.clock.monotonic_ns() / 1e9)
        finally:
            self._lock.release()

    def _findings(self, now_s: float) -> list[dict[str, Any]] | None:
        passed_s = _LONGEST_S if self._last is None else now_s - self._last[0].time_s
        if passed_s < _SHORTEST_S:
            return self._found
        last, self._last = self._last, self._sample(now_s)
        if last is None or passed_s >= _LONGEST_S:
            self._found = None
        else:
            seen, looked = Difference(self._last[0], last[0]), with_rates(self._last[1], last[1], passed_s)
            self._found = [asdict(one) for one in findings(seen, looked)]
        return self._found

    def _sample(self, now_s: float) -> tuple[Snapshot, Row]:
        connections = self._server.connections
        looked = connections.look(_LOOK_WITHIN_S) if connections is not None else {"connections": [], "unanswered": []}
        samples = samples_of(family for _, family in self._collector.families())
        # In the text of an exporter, this is a metric of the client library.
        samples["process_cpu_seconds_total"] = {(): time.process_time()}
        return Snapshot(now_s, samples), looked


def samples_of(families: Iterable[Family]) -> dict[str, dict[Labels, float]]:
    """Return the samples by their names in Prometheus; of histograms, the sums and counts."""
    samples: dict[str, dict[Labels, float]] = {}
    for family in families:
        name = exposed_name(family.name, family.kind)
        for sample in family.samples:
            labels = tuple(sorted((label_name(key), str(value)) for key, value in sample.labels.items()))
            if isinstance(sample.value, HistogramValue):
                samples.setdefault(f"{name}_sum", {})[labels] = sample.value.total
                samples.setdefault(f"{name}_count", {})[labels] = sample.value.count
            else:
                samples.setdefault(name, {})[labels] = float(sample.value)
    return samples
