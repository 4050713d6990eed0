"""`ConnectionFailures`: counts the failed connections of a listener, by reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klamm.metrics.metrics_registry import Counter, Labels

NAME: Final = "klamm:type=Listener,name=ConnectionFailures"
DOC: Final = "Connections that failed through a fault of the peer, e.g. in the handshake, by reason."


class ConnectionFailures:
    """Counts by reason; from any thread. Reasons are metric labels: few values, lower_snake_case."""

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._counters: dict[str, Counter] = {}

    def count(self, reason: str) -> None:
        """Count one failure."""
        self._counters.setdefault(reason, Counter()).add()

    def of(self, reason: str) -> int:
        """The count of a reason."""
        counter = self._counters.get(reason)
        return counter.value if counter is not None else 0

    def read(self) -> Iterable[tuple[Labels, float]]:
        """For a MetricsRegistry."""
        return [
            ({"listener": self._listener, "reason": reason}, counter.value)
            for reason, counter in list(self._counters.items())
        ]
