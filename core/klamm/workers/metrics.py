"""Metrics of workers: by the parent, and by each worker of its process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from klamm.metrics.metrics_registry import MetricsRegistry
    from klamm.workers.supervisor import Supervisor

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


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
    """Register a worker's metrics of its own process."""
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
