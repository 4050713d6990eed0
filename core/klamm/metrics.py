"""`MetricsRegistry`: what the server and its plugins measure, by Kafka's names. Collected only when somebody asks.

A counter is a plain attribute that its owner adds to; a gauge is a function that is called at collection. Nothing here
runs per request. A name is Kafka's MBean without labels, `kafka.network:type=RequestChannel,name=RequestQueueSize`;
klamm's own metrics are under `klamm:type=…`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

log = logging.getLogger("klamm.metrics")

Kind: TypeAlias = Literal["counter", "gauge"]
Labels: TypeAlias = Mapping[str, str]


class Counter:
    """A number that only grows. `value += n` by one thread, or `add` by several."""

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def add(self, amount: int = 1) -> None:
        """Count; from any thread."""
        with self._lock:
            self.value += amount


@dataclass(frozen=True, slots=True)
class Sample:
    """One number with its labels."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name at one moment."""

    name: str
    kind: Kind
    doc: str
    samples: tuple[Sample, ...]


Read: TypeAlias = Callable[[], Iterable[tuple[Labels, float]]]


class MetricsRegistry:
    """All metrics of one server. Any thread may register, remove and collect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: dict[str, tuple[Kind, str, list[Read]]] = {}

    def counter(self, name: str, doc: str, **labels: str) -> Counter:
        """A new counter."""
        counter = Counter()
        self.register(name, "counter", doc, lambda: ((labels, counter.value),))
        return counter

    def gauge(self, name: str, doc: str, read: Callable[[], float], **labels: str) -> Callable[[], None]:
        """A number that `read` gives; the function returned takes it away again."""
        return self.register(name, "gauge", doc, lambda: ((labels, read()),))

    def register(self, name: str, kind: Kind, doc: str, read: Read) -> Callable[[], None]:
        """Samples whose labels are not known before, given by `read`; the function returned takes them away again."""
        with self._lock:
            reads = self._families.setdefault(name, (kind, doc, []))[2]
            reads.append(read)

        def remove() -> None:
            with self._lock:
                if read in reads:
                    reads.remove(read)

        return remove

    def collect(self) -> Iterator[Family]:
        """Everything, now, ordered by name. A source that raises is logged and left out."""
        with self._lock:
            families = [
                (name, *self._families[name][:2], tuple(self._families[name][2])) for name in sorted(self._families)
            ]
        for name, kind, doc, reads in families:
            samples: list[Sample] = []
            for read in reads:
                try:
                    samples += [Sample(labels, value) for labels, value in read()]
                except Exception:
                    log.exception("metric %s cannot be read", name)
            yield Family(name, kind, doc, tuple(samples))
