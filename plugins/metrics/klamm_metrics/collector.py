"""`RegistryCollector`: converts the metrics of klamm's registry for the Prometheus client library."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from prometheus_client import Metric
from prometheus_client.registry import Collector

from klamm.metrics import Family, HistogramValue, MetricsRegistry

_MBEAN: Final = re.compile(r"([\w.]+):type=([\w-]+),name=([\w-]+)")
_OTHER: Final = re.compile(r"[^a-z0-9]+")


def prometheus_name(mbean: str, kind: str) -> str:
    """Return the Prometheus name of an MBean. A counter's name lacks the `_total` that its samples have.

    Raises ValueError if the text is not the name of an MBean.
    """
    match = _MBEAN.fullmatch(mbean)
    if match is None:
        raise ValueError(f'"{mbean}" is not of the form DOMAIN:type=TYPE,name=NAME')
    domain, type_, name = match.groups()
    if kind == "counter":
        name = name.removesuffix("PerSec").removesuffix("-total").removesuffix("Total")
    elif name.endswith("Percent"):
        name = name.removesuffix("Percent") + "_percent"
    return _OTHER.sub("_", f"{domain}_{type_}_{name}".lower())


def exposed_name(mbean: str, kind: str) -> str:
    """Return the name in Prometheus queries. The samples of a histogram add `_bucket`, `_sum` or `_count`."""
    return prometheus_name(mbean, kind) + ("_total" if kind == "counter" else "")


def label_name(label: str) -> str:
    """Return a label's name in Kafka's spelling, with underscores for characters that Prometheus does not allow."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", label)
    return f"_{name}" if name[:1].isdigit() or not name else name


log = logging.getLogger("klamm.prometheus")


class RegistryCollector(Collector):
    """A collector of the metrics in a `MetricsRegistry` whose names match a pattern of `include` and none of `exclude`.

    An exporter creates it and calls it on its own threads, several at once if several scrapers send requests. If
    Prometheus does not allow a family, the collector logs this once and exports the others.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._registry = registry
        self._include = include
        self._exclude = exclude
        self._labels = dict(labels or {})
        self._left_out: set[str] = set()

    def collect(self) -> Iterator[Metric]:
        for _, family in self.families():
            try:
                metric = self._metric(family)
            except Exception as error:
                self.leave_out(family, error)
                continue
            yield metric

    def families(self) -> Iterator[tuple[str, Family]]:
        """Yield the wanted families, each with its name in Prometheus, which is unique."""
        mbeans: dict[str, str] = {}
        for family in self._registry.collect():
            try:
                name = exposed_name(family.name, family.kind)
                if not self._wanted(name):
                    continue
                if name in mbeans:
                    raise ValueError(f"{mbeans[name]} has the same name in Prometheus, {name}")
            except ValueError as error:
                self.leave_out(family, error)
                continue
            mbeans[name] = family.name
            # Collecting all metrics without a pause would hold the interpreter too long. Let waiting processors run.
            time.sleep(0)
            yield name, family

    def leave_out(self, family: Family, error: Exception) -> None:
        """Log once that a family is left out."""
        if family.name not in self._left_out:
            self._left_out.add(family.name)
            log.error("metric %s is left out: %s", family.name, error)

    def _wanted(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._include) and not any(
            fnmatchcase(name, pattern) for pattern in self._exclude
        )

    def _metric(self, family: Family) -> Metric:
        name = prometheus_name(family.name, family.kind)
        metric = Metric(name, str(family.doc), family.kind)
        for sample in family.samples:
            labels = {label_name(key): str(value) for key, value in sample.labels.items()} | self._labels
            if isinstance(sample.value, HistogramValue):
                self._add_histogram(metric, name, labels, sample.value)
            else:
                metric.add_sample(exposed_name(family.name, family.kind), labels, float(sample.value))
        return metric

    @staticmethod
    def _add_histogram(metric: Metric, name: str, labels: dict[str, str], value: HistogramValue) -> None:
        for bound, count in value.bounds:
            metric.add_sample(f"{name}_bucket", {**labels, "le": f"{bound:.12g}"}, count)
        metric.add_sample(f"{name}_bucket", {**labels, "le": "+Inf"}, value.count)
        metric.add_sample(f"{name}_count", labels, value.count)
        metric.add_sample(f"{name}_sum", labels, value.total)
