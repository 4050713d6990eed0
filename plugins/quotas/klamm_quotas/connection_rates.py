"""`ConnectionRates`: the rates of a server's new connections, in total and for each source (KIP-612).

The gates `creation_rate` of all listeners share it, on any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from klamm import ServerServices
from klamm.runtime import Rate
from klamm.shared import CLIENT_QUOTAS, IpAddress, Row, ip_address_of, quotas_by_entity

_KEY: Final = "connection_creation_rate"
_PRUNE_FROM: Final = 1000
_MEAN_WINDOW_MS: Final = 30_000


class RecentMean:
    """The mean of recent values; 0 if there are none. The caller holds a lock.

    As in Kafka's `Avg` by default, recent are the current window of 30 s and the one before.
    """

    def __init__(self) -> None:
        self._windows: list[tuple[int, float, int]] = []

    def record(self, value: float, now_ms: int) -> None:
        """Add a value."""
        window = now_ms // _MEAN_WINDOW_MS
        if self._windows and self._windows[-1][0] == window:
            _, total, count = self._windows[-1]
            self._windows[-1] = (window, total + value, count + 1)
        else:
            self._windows = [*self._windows[-1:], (window, value, 1)]

    def measure(self, now_ms: int) -> float:
        """Return the present mean."""
        since = now_ms // _MEAN_WINDOW_MS - 1
        recent = [(total, count) for window, total, count in self._windows if window >= since]
        values = sum(count for _, count in recent)
        return sum(total for total, _ in recent) / values if values else 0.0


class ConnectionRates:
    """The rates of new connections. A gate holds `lock` while it reads or changes a rate.

    AlterClientQuotas sets limits for single addresses.
    """

    def __init__(self, services: ServerServices, samples: int, window_ms: int) -> None:
        self._clock = services.clock
        # Protects the rates, because all listeners record in them.
        self.lock = threading.Lock()
        self.samples = samples
        self.window_ms = window_ms
        self.broker = Rate(samples, window_ms)
        self._by_source: dict[str, tuple[Rate, int]] = {}
        self._prune_from = _PRUNE_FROM
        self._limits: dict[IpAddress, float] = {}
        self.default_limit: float | None = None
        self._table = services.shared.table(CLIENT_QUOTAS)
        self._take_limits({})
        self._table.watch(self._take_limits)

    def _take_limits(self, _changes: Mapping[str, Row | None]) -> None:
        limits: dict[IpAddress, float] = {}
        default = None
        for entity, quotas in quotas_by_entity(self._table.rows):
            if "ip" in entity and _KEY in quotas:
                address = entity["ip"]
                if address is None:
                    default = quotas[_KEY]
                else:
                    limits[ip_address_of(address)] = quotas[_KEY]
        self._limits, self.default_limit = limits, default

    def limit_of(self, host: str) -> float | None:
        """Return the quota that AlterClientQuotas has set for this address; None if there is only `default_limit`."""
        return self._limits.get(ip_address_of(host)) if self._limits else None

    def now_ms(self) -> int:
        """Return the time of the clock that all rates use."""
        return self._clock.monotonic_ns() // 1_000_000

    def configure(self, samples: int, window_ms: int) -> None:
        """Apply the number and the size of windows. If they change, all rates start at 0. The caller holds the lock."""
        if (samples, window_ms) != (self.samples, self.window_ms):
            self.samples, self.window_ms = samples, window_ms
            self.broker = Rate(samples, window_ms)
            self._by_source.clear()

    def of(self, source: str, now_ms: int) -> Rate:
        """Return the rate of a source. The caller holds the lock."""
        found = self._by_source.pop(source, None)
        rate = found[0] if found is not None else Rate(self.samples, self.window_ms)
        self._by_source[source] = (rate, now_ms)
        if len(self._by_source) >= self._prune_from:
            self._prune(now_ms)
        return rate

    def _prune(self, now_ms: int) -> None:
        # A source without a connection in any window has a rate of zero. The dictionary is in the order of last use.
        obsolete_ms = now_ms - (self.samples + 1) * self.window_ms
        for source in [source for source, (_rate, used_ms) in self._by_source.items() if used_ms <= obsolete_ms]:
            del self._by_source[source]
        self._prune_from = max(_PRUNE_FROM, 2 * len(self._by_source))

    @property
    def tracked(self) -> int:
        """Return the number of sources in memory."""
        return len(self._by_source)
