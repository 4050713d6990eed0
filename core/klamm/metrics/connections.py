"""Counts of a listener's connections: their events, like the metrics of Kafka's `Selector`, and their failures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klamm.api.context import ConnectionContext
from klamm.metrics.client_usage import ClosedConnectionUsage
from klamm.metrics.metrics_registry import Counter, Labels

NAME: Final = "klamm:type=Listener,name=ConnectionFailures"
DOC: Final = "Connections that failed through a fault of the peer, e.g. in the handshake, by reason."
_MOST_REASONS: Final = 50


class ConnectionCounts:
    """The counts of one listener, to which all of its processors add. Metrics read them, on any thread.

    The events are rare compared to requests, so the locks of these counters cost little.
    """

    def __init__(self) -> None:
        self.created = Counter()
        self.closed = Counter()
        self.closed_received_bytes = Counter()
        self.closed_sent_bytes = Counter()
        self.idle_closed = Counter()
        self.authenticated = Counter()
        self.failed_authentication = Counter()
        self.reauthenticated = Counter()
        self.failed_reauthentication = Counter()
        self.expired = Counter()
        self.usage = ClosedConnectionUsage()
        self._ended: dict[str, Counter] = {}

    def note_closed(self, connection: ConnectionContext) -> None:
        """Count a closed connection. Its bytes stay in the sums."""
        self.closed_received_bytes.add(connection.received_bytes)
        self.closed_sent_bytes.add(connection.sent_bytes)
        self.closed.add()

    def note_ended(self, reason: str) -> None:
        """Count a session that a part has ended. After the first 50 reasons, further reasons count as `other`."""
        counters = self._ended
        if reason not in counters and len(counters) >= _MOST_REASONS:
            reason = "other"
        counters.setdefault(reason, Counter()).add()

    def ended(self) -> dict[str, int]:
        """Return the numbers of ended sessions, by reason."""
        return {reason: counter.value for reason, counter in list(self._ended.items())}


class ConnectionFailures:
    """The numbers of failures by reason. Any thread may call it. Reasons are metric labels: few, lower_snake_case."""

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._counters: dict[str, Counter] = {}

    def count(self, reason: str) -> None:
        """Count one failure."""
        self._counters.setdefault(reason, Counter()).add()

    def of(self, reason: str) -> int:
        """Return the count of a reason."""
        counter = self._counters.get(reason)
        return counter.value if counter is not None else 0

    def read(self) -> Iterable[tuple[Labels, float]]:
        """Return the samples of a metric."""
        return [
            ({"listener": self._listener, "reason": reason}, counter.value)
            for reason, counter in list(self._counters.items())
        ]
