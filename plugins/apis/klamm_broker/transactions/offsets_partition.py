"""The partition of `__consumer_offsets` that represents a group in a transaction."""

from __future__ import annotations

import sys
from typing import Final

from klamm_broker.transactions.transaction import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Kafka's name of the topic. Its partitions stand for the offsets of groups, because Kafka's tools show them that
way.
"""

_PARTITIONS: Final = 50
_MIN_INT: Final = -(2**31)


def offsets_partition(group_id: str) -> TopicPartition:
    """Return a group's partition, as Kafka's `GroupCoordinator.partitionFor` with the default number of partitions."""
    code = 0
    native = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
    for unit in memoryview(group_id.encode(native, "surrogatepass")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    signed = code - 2**32 if code >= 2**31 else code
    return OFFSETS_TOPIC, 0 if signed == _MIN_INT else abs(signed) % _PARTITIONS
