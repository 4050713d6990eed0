"""What is measured, and the registry that exporters read. The names listed here are public."""

from klamm.metrics.registry import Counter, Family, Histogram, HistogramValue, MetricsRegistry, Sample

__all__ = [
    "Counter",
    "Family",
    "Histogram",
    "HistogramValue",
    "MetricsRegistry",
    "Sample",
]
