"""The extension `otlp_metrics`: exports all metrics of the server to an OpenTelemetry collector, on its own thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klamm import ServerExtension, ServerServices
from klamm.metrics import Family, HistogramValue, Sample
from klamm_metrics.collector import RegistryCollector
from klamm_metrics.otlp import SCOPE, ExportLoop, resource
from klamm_metrics.otlp_settings import OtlpMetricsSettings

# klamm_metrics.otlp comes first: if the extra is missing, its import raises an error that names the extra.
# isort: split
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)


class MetricsExporter(ServerExtension):
    """The extension `otlp_metrics`. The metrics have the same names as in the extension `prometheus`."""

    def open(self, server: ServerServices) -> None:
        settings: OtlpMetricsSettings = self.settings
        self._clock = server.clock
        self._resource = resource()
        self._collector = RegistryCollector(server.metrics, settings.include, settings.exclude)
        self._start_ns = server.clock.wall_us() * 1_000
        self._exporter = OTLPMetricExporter(settings.endpoint or None)
        self._loop = ExportLoop(server, "klamm-otlp-metrics", settings.interval_ms, self._export, self._exporter)

    def close(self) -> None:
        self._loop.close()

    def _export(self) -> None:
        now_ns = self._clock.wall_us() * 1_000
        scope = ScopeMetrics(SCOPE, list(self._metrics(now_ns)), "")
        self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))

    def _metrics(self, now_ns: int) -> Iterator[Metric]:
        for name, family in self._collector.families():
            try:
                yield Metric(name, str(family.doc), "", self._data(family, now_ns))
            except Exception as error:
                self._collector.leave_out(family, error)

    def _data(self, family: Family, now_ns: int) -> Sum | Gauge | Histogram:
        if family.kind == "histogram":
            return Histogram(list(self._histograms(family, now_ns)), AggregationTemporality.CUMULATIVE)
        points = [
            NumberDataPoint(_labels(sample), self._start_ns, now_ns, float(sample.value))
            for sample in family.samples
            if not isinstance(sample.value, HistogramValue)
        ]
        if family.kind == "counter":
            return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        return Gauge(points)

    def _histograms(self, family: Family, now_ns: int) -> Iterator[HistogramDataPoint]:
        # klamm's histograms have no smallest and largest value, and the protocol does not require them.
        unknown: Any = None
        for sample in family.samples:
            value = sample.value
            if isinstance(value, HistogramValue):
                below = [0, *(count for _, count in value.bounds), value.count]
                yield HistogramDataPoint(
                    _labels(sample),
                    self._start_ns,
                    now_ns,
                    value.count,
                    value.total,
                    [after - before for before, after in zip(below, below[1:], strict=False)],
                    [bound for bound, _ in value.bounds],
                    unknown,
                    unknown,
                )


def _labels(sample: Sample) -> dict[str, str]:
    return {name: str(value) for name, value in sample.labels.items()}
