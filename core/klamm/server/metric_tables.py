"""Helpers that the metrics of a server share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from klamm.metrics.metrics_registry import Kind, Labels, MetricsRegistry
from klamm.metrics.windows import WindowedShare
from klamm.network.acceptor import Acceptor
from klamm.network.processor import Processor
from klamm.runtime.clock import Clock
from klamm.server.listener import Listener

Samples: TypeAlias = Iterable[tuple[Labels, float]]
MetricTable: TypeAlias = Mapping[str, tuple[str, Callable[[], Samples]]]
"""Maps a metric name to its documentation and the function that reads it."""

SOCKET_SERVER: Final = "kafka.server:type=socket-server-metrics,name="


def register_all(registry: MetricsRegistry, kind: Kind, table: MetricTable) -> None:
    """Register every metric of a table."""
    for name, (doc, read) in table.items():
        registry.register(name, kind, doc, read)


def single(read: Callable[[], float]) -> Callable[[], Samples]:
    """Return a function that reads one sample without labels."""
    return lambda: [({}, read())]


def acceptors_of(listeners: Sequence[Listener]) -> Iterator[tuple[str, Acceptor]]:
    """Yield the existing acceptors with the names of their listeners."""
    for listener in list(listeners):
        if listener.acceptor is not None:
            yield listener.name, listener.acceptor


def processors_of(listeners: Sequence[Listener]) -> Iterator[tuple[Labels, Processor]]:
    """Yield all processors with their labels."""
    for listener in list(listeners):
        for processor in listener.all_processors:
            yield {"listener": listener.name, "networkProcessor": str(processor.index)}, processor


class TimeShares:
    """The shares of time that e.g. processors have spent, over a window. Metrics read them, on any thread."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._created_ns = clock.monotonic_ns()
        self._shares: WeakKeyDictionary[object, WindowedShare] = WeakKeyDictionary()

    def read(self, key: object, total_ns: int, capacity: int = 1) -> float:
        """Return the share, 0 to 1, that `key` has spent of the time of `capacity` threads.

        `total_ns` is the key's total.
        """
        now_ns = self.clock.monotonic_ns()
        share = self._shares.get(key)
        if share is None:
            share = self._shares.setdefault(key, WindowedShare(getattr(key, "created_ns", self._created_ns)))
        return share.read(now_ns, total_ns, capacity)
