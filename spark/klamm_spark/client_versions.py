"""Which versions of client software are too old."""

from __future__ import annotations

import re
from typing import Final

BASELINE: Final = {
    "apache-kafka-java": (2, 1),
    "librdkafka": (1, 8, 2),
    "kafkajs": (1, 15, 0),
    "sarama": (1, 30, 1),
    "kafka-python": (2, 0, 2),
}
"""The oldest versions that Kafka 4.0 supports, by KIP-896."""


def is_deprecated(name: str | None, version: str | None) -> bool:
    """Whether a client is older than the baseline; False for unknown clients, and without a version number."""
    baseline = BASELINE.get((name or "").lower())
    numbers = re.match(r"v?(\d+(?:\.\d+)*)", version or "")
    return baseline is not None and numbers is not None and tuple(map(int, numbers[1].split("."))) < baseline
