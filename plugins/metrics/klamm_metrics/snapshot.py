"""`Snapshot`: the metrics of an exporter at one moment. `Difference`: their change between two moments.

The commands `klamm top` and `klamm explain` make them from an exporter's text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Samples by name and labels, which do not change.

    `time_s` may come from any clock, because only differences are used.
    """

    time_s: float
    samples: dict[str, dict[Labels, float]]

    @classmethod
    def parse(cls, text: str, time_s: float) -> Snapshot:
        """Parse the text format. Raises ValueError for other text."""
        from prometheus_client.parser import text_string_to_metric_families

        samples: dict[str, dict[Labels, float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                samples.setdefault(sample.name, {})[labels] = sample.value
        return cls(time_s, samples)

    def rows(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """Yield the labels and values of all samples of a name."""
        for labels, value in self.samples.get(name, {}).items():
            yield dict(labels), value

    def value(self, name: str) -> float | None:
        """Return the sum of all samples of a name; None if there is none."""
        found = self.samples.get(name)
        return sum(found.values()) if found else None


class Difference:
    """Two snapshots of one server. Without the earlier snapshot there are no rates."""

    def __init__(self, now: Snapshot, before: Snapshot | None) -> None:
        self.now = now
        self.before = before
        self.seconds = now.time_s - before.time_s if before is not None else 0.0

    @property
    def workers(self) -> float:
        """Return the number of processes whose counters are added up: the ready workers, at least 1."""
        return max(1.0, self.now.value("klamm_workers_ready") or 1.0)

    def rates(self, name: str, *by: str, new: bool = True) -> dict[tuple[str, ...], float]:
        """Return the growth of each counter per second, summed up by labels.

        A counter that fell was reset. A new counter counts from 0; without `new`, it is left out.
        """
        sums: dict[tuple[str, ...], float] = {}
        if self.before is None or self.seconds <= 0:
            return sums
        old = self.before.samples.get(name, {})
        for labels, value in self.now.samples.get(name, {}).items():
            if not new and labels not in old:
                continue
            grown = value - old.get(labels, 0.0)
            named = dict(labels)
            key = tuple(named.get(label, "") for label in by)
            sums[key] = sums.get(key, 0.0) + (grown if grown >= 0 else value) / self.seconds
        return sums

    def rate(self, name: str) -> float:
        """Return the sum of `rates` over all labels."""
        return sum(self.rates(name).values())

    def means(self, histogram: str, by: str) -> dict[str, float]:
        """Return the mean of a histogram's observations between the snapshots, by a label.

        Without an earlier snapshot, it is the mean since the server's start.
        """
        if self.before is None:
            counts = {dict(labels).get(by, ""): value for labels, value in self._all(f"{histogram}_count")}
            totals = {dict(labels).get(by, ""): value for labels, value in self._all(f"{histogram}_sum")}
        else:
            counts = {key[0]: value for key, value in self.rates(f"{histogram}_count", by).items()}
            totals = {key[0]: value for key, value in self.rates(f"{histogram}_sum", by).items()}
        return {key: totals.get(key, 0.0) / count for key, count in counts.items() if count > 0}

    def _all(self, name: str) -> Iterator[tuple[Labels, float]]:
        yield from self.now.samples.get(name, {}).items()
