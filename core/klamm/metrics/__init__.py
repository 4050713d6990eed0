"""Counters and histograms, and the registry that exporters read. The names listed here are public."""

from klamm.metrics.metrics_registry import Counter, Family, Histogram, HistogramValue, MetricsRegistry, Sample
from klamm.metrics.windows import RatePerMinute

__all__ = [
    "Counter",
    "Family",
    "Histogram",
    "HistogramValue",
    "MetricsRegistry",
    "RatePerMinute",
    "Sample",
]
