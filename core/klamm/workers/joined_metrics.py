"""The metrics of several workers, which the parent joins into those of one server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from klamm.metrics.metrics_registry import Family, HistogramValue, Kind, MetricsRegistry, Sample
from klamm.workers.supervisor import Supervisor

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
LabelKey: TypeAlias = tuple[tuple[str, str], ...]
_OF_OPEN_CONNECTIONS: Final = "klamm:type=Client,"
Value: TypeAlias = "float | HistogramValue"


class JoinedMetrics:
    """The joined metrics of all workers. The parent's loop adds reports; any thread may collect.

    Counters and histograms are summed. Each gauge gets the label `worker`, because not all gauges can be summed. When a
    worker's process ends, its counts stay in the sums, so that no sum falls. The counts of a killed worker are those of
    its last report; they may be too low, but never too high. Counts of clients are dropped when their worker ends, so
    their sums may fall.
    """

    def __init__(self) -> None:
        # Protects the reports, because the parent's loop writes them and the threads of exporters read them.
        self._lock = threading.Lock()
        self._reports: dict[int, list[Family]] = {}
        self._ended: dict[str, tuple[Kind, str, dict[LabelKey, Value]]] = {}

    def update(self, number: int, families: list[Family]) -> None:
        """Replace a worker's last report by a new report."""
        with self._lock:
            self._reports[number] = families

    def worker_ended(self, number: int) -> None:
        """Keep the counts of a worker whose process has ended, and drop its gauges."""
        with self._lock:
            for family in self._reports.pop(number, ()):
                if family.kind != "gauge" and not family.name.startswith(_OF_OPEN_CONNECTIONS):
                    _add(self._ended, family)

    def families(self) -> Iterator[Family]:
        """Yield all families, ordered by name."""
        with self._lock:
            sums = {name: (kind, doc, dict(values)) for name, (kind, doc, values) in self._ended.items()}
            reports = sorted(self._reports.items())
        gauges: dict[str, tuple[str, list[Sample]]] = {}
        for number, families in reports:
            for family in families:
                if family.kind == "gauge":
                    samples = gauges.setdefault(family.name, (family.doc, []))[1]
                    samples += [Sample({**one.labels, "worker": str(number)}, one.value) for one in family.samples]
                else:
                    _add(sums, family)
        for name in sorted({*sums, *gauges}):
            if name in sums:
                kind, doc, values = sums[name]
                yield Family(name, kind, doc, tuple(Sample(dict(key), value) for key, value in values.items()))
            else:
                yield Family(name, "gauge", gauges[name][0], tuple(gauges[name][1]))


def _add(sums: dict[str, tuple[Kind, str, dict[LabelKey, Value]]], family: Family) -> None:
    values = sums.setdefault(family.name, (family.kind, family.doc, {}))[2]
    for sample in family.samples:
        key = tuple(sorted(sample.labels.items()))
        values[key] = _plus(values[key], sample.value) if key in values else sample.value


def _plus(one: Value, other: Value) -> Value:
    if isinstance(one, HistogramValue) and isinstance(other, HistogramValue):
        bounds = tuple(
            (bound, count + more) for (bound, count), (_, more) in zip(one.bounds, other.bounds, strict=True)
        )
        return HistogramValue(bounds, one.count + other.count, one.total + other.total)
    assert not isinstance(one, HistogramValue)
    assert not isinstance(other, HistogramValue)
    return one + other


class JoinedRegistry(MetricsRegistry):
    """The registry of the parent: its own metrics, and those of its workers.

    `refresh` requests reports from the workers, and waits for them.
    """

    def __init__(self, joined: JoinedMetrics, refresh: Callable[[], None]) -> None:
        super().__init__()
        self._joined = joined
        self._refresh = refresh

    def collect(self, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Family]:
        """Collect the metrics whose names are wanted, ordered by name."""
        own = list(super().collect(wanted))
        self._refresh()
        of_workers = (family for family in self._joined.families() if wanted(family.name))
        yield from sorted(_once([*own, *of_workers]), key=lambda family: family.name)


def _once(families: Iterable[Family]) -> Iterable[Family]:
    """Return the first family of each name. The parent's own families come first."""
    found: dict[str, Family] = {}
    for family in families:
        found.setdefault(family.name, family)
    return found.values()


def register_supervision(metrics: MetricsRegistry, supervisor: Supervisor) -> None:
    """Register the parent's own metrics."""
    metrics.gauge("klamm:type=Workers,name=Count", "Worker processes.", lambda: len(supervisor.workers))
    metrics.gauge("klamm:type=Workers,name=Ready", "Worker processes that serve.", lambda: supervisor.ready_count)
    metrics.register(
        "klamm:type=Workers,name=Restarts",
        "counter",
        "Worker processes that failed and were started again.",
        lambda: (({}, supervisor.restarted),),
    )


def register_process(metrics: MetricsRegistry) -> None:
    """Register the metrics of a worker's process."""
    metrics.gauge("klamm:type=Workers,name=ResidentMemoryBytes", "Memory of a worker process.", _resident_bytes)
    metrics.register(
        "klamm:type=Workers,name=CpuSeconds",
        "counter",
        "Processor time of all worker processes.",
        lambda: (({}, sum(os.times()[:2])),),
    )


def _resident_bytes() -> float:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0.0
