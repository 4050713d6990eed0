"""`MetricsRegistry`: the metrics of the server and its plugins, by Kafka's names. They are collected only on demand.

- A counter is a plain attribute to which its owner adds.
- A histogram is a list of counters.
- A gauge is a function that is called at each collection.

A metric has the name of Kafka's MBean without labels, e.g. `kafka.network:type=RequestChannel,name=RequestQueueSize`.
Some numbers of Kafka are attributes of an MBean without `name`. Here the attribute stands in the place of the name,
e.g. `kafka.server:type=socket-server-metrics,name=connection-count`. The names of klamm's own metrics begin with
`klamm:type=…`.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

log = logging.getLogger("klamm.metrics")

_NAME: Final = re.compile(r"[A-Za-z][\w.]*:type=[\w-]+,name=[\w-]+", re.ASCII)
_LABEL: Final = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = Mapping[str, str]


class Counter:
    """A number that only grows. One thread may use `value += n`; several threads must use `add`."""

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self.value = 0
        # Protects the value.
        self._lock = threading.Lock()

    def add(self, amount: int = 1) -> None:
        """Add to the value. Any thread may call this."""
        with self._lock:
            self.value += amount


_BITS: Final = 64


class Histogram:
    """The counts of non-negative integers in buckets bounded by powers of two. Only one thread may add.

    The bucket of a value is its bit length, so `add` takes two integer additions and no search. `counts` has the number
    of values in each bucket, `total` is the sum of the values.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * _BITS
        self.total = 0

    def add(self, value: int, weight: int = 1) -> None:
        """Count a value `weight` times."""
        self.counts[value.bit_length()] += weight
        self.total += value * weight

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        for index, count in enumerate(other.counts):
            self.counts[index] += count
        self.total += other.total

    def snapshot(self, scale: float, bits: range) -> HistogramValue:
        """Return the counts, in a unit that is `scale` times the unit of `add`.

        `bits` are the exponents of the bounds. Values above the last bound are only in the total count.
        """
        counts = list(self.counts)
        below, bounds = sum(counts[: bits.start]), []
        for bit in bits:
            below += counts[bit]
            bounds.append((2**bit * scale, below))
        return HistogramValue(tuple(bounds), sum(counts), self.total * scale)


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """A histogram at one moment: upper bounds, each with the count of all values below, the total count and the sum."""

    bounds: tuple[tuple[float, int], ...]
    count: int
    total: float


class Sample(NamedTuple):
    """One number or histogram, with its labels."""

    labels: Labels
    value: float | HistogramValue


class Family(NamedTuple):
    """All samples of one metric name at one moment."""

    name: str
    kind: Kind
    doc: str
    samples: tuple[Sample, ...]


Read: TypeAlias = Callable[[], Iterable[tuple[Labels, float | HistogramValue]]]


class MetricsRegistry:
    """All metrics of one server. Any thread may register, remove and collect metrics."""

    def __init__(self) -> None:
        # Protects `_families` and `_removals`.
        self._lock = threading.Lock()
        self._families: dict[str, tuple[Kind, str, list[Read]]] = {}
        self._removals: dict[str, list[Callable[[], None]]] = {}
        self._failed: set[str] = set()

    def counter(self, name: str, doc: str, **labels: str) -> Counter:
        """Return a new counter. Raises ValueError like `register`."""
        _check_labels(name, labels)
        counter = Counter()
        self.register(name, "counter", doc, lambda: ((labels, counter.value),), labels.get("listener", ""))
        return counter

    def gauge(self, name: str, doc: str, read: Callable[[], float], **labels: str) -> Callable[[], None]:
        """Register a number that `read` returns; return a function that removes the gauge.

        Raises ValueError like `register`.
        """
        _check_labels(name, labels)
        return self.register(name, "gauge", doc, lambda: ((labels, read()),), labels.get("listener", ""))

    def register(self, name: str, kind: Kind, doc: str, read: Read, listener: str = "") -> Callable[[], None]:
        """Register samples whose labels are known only when `read` is called; return a function that removes them.

        If all samples belong to one `listener`, they are removed with the listener. `counter` and `gauge` take this
        name from the label `listener`. Raises ValueError for a name that does not have the form
        `DOMAIN:type=TYPE,name=NAME`, or that is registered with another kind.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f'the metric name "{name}" is not of the form DOMAIN:type=TYPE,name=NAME')
        with self._lock:
            known, _, reads = self._families.setdefault(name, (kind, doc, []))
            if known != kind:
                raise ValueError(f"the metric {name} is a {known}, it cannot be a {kind} as well")
            reads.append(read)

        def remove() -> None:
            with self._lock:
                if read in reads:
                    reads.remove(read)

        if listener:
            with self._lock:
                self._removals.setdefault(listener, []).append(remove)
        return remove

    def remove_listener(self, listener: str) -> None:
        """Remove the samples of a listener that has been removed."""
        with self._lock:
            removals = self._removals.pop(listener, ())
        for remove in removals:
            remove()

    def collect(self, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Family]:
        """Collect the metrics whose names are wanted, ordered by name. A source that raises is logged and left out."""
        with self._lock:
            families = [
                (name, *self._families[name][:2], tuple(self._families[name][2]))
                for name in sorted(self._families)
                if wanted(name)
            ]
        for name, kind, doc, reads in families:
            samples: list[Sample] = []
            for read in reads:
                try:
                    samples += [Sample(labels, value) for labels, value in read()]
                except Exception:
                    self._note_failure(name)
            yield Family(name, kind, doc, tuple(samples))

    def _note_failure(self, name: str) -> None:
        if name in self._failed:
            log.debug("metric %s cannot be read", name, exc_info=True)
        else:
            # Logged once, because a scraper collects metrics every few seconds.
            self._failed.add(name)
            log.exception("metric %s cannot be read", name)


def _check_labels(name: str, labels: Labels) -> None:
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise ValueError(f'the metric {name} cannot have a label "{label}"')
