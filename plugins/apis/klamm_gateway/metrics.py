"""The metrics of one gateway."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

from klamm.metrics import MetricsRegistry

_PREFIX: Final = "klamm:type=Gateway,name="


class GatewayMetrics:
    """The counters of one gateway. Its name `gateway` is the label of its metrics. Several threads change them."""

    def __init__(self) -> None:
        self.gateway = "gateway"
        # Protects all numbers, because connections are opened and closed on several loops.
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._connections = 0
        self._opened = 0

    def opened(self) -> None:
        """Count a connection to a node that was opened."""
        with self._lock:
            self._connections += 1
            self._opened += 1

    def closed(self) -> None:
        """Count a connection to a node that was closed."""
        with self._lock:
            self._connections -= 1

    def failed(self, reason: str) -> None:
        """Count a failed connection to a node. `reason` becomes a label, so it must come from a small fixed set."""
        with self._lock:
            self._failures[reason] = self._failures.get(reason, 0) + 1

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return self._connections

    def register(self, registry: MetricsRegistry, nodes: Callable[[], int]) -> None:
        """Register the metrics."""
        labels = {"gateway": self.gateway}
        registry.gauge(
            _PREFIX + "UpstreamConnections", "Connections to nodes of the cluster.", lambda: self._connections, **labels
        )
        registry.gauge(_PREFIX + "UpstreamNodes", "Nodes of the cluster that are known.", nodes, **labels)
        registry.register(
            _PREFIX + "UpstreamConnectionsOpened",
            "counter",
            "Connections to nodes that were opened.",
            lambda: ((labels, self._opened),),
        )
        registry.register(
            _PREFIX + "UpstreamConnectionFailures",
            "counter",
            "Connections to nodes that failed, by reason.",
            self._read_failures,
        )

    def _read_failures(self) -> Iterator[tuple[dict[str, str], float]]:
        with self._lock:
            failures = dict(self._failures)
        for reason, count in failures.items():
            yield {"gateway": self.gateway, "reason": reason}, count
