"""Limits of one produced batch: its records, and its bytes when unpacked. One limit for handler sets and filters."""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES
from klamm.wire.errors import ErrorCode, KafkaError

ANY_RATIO_BYTES: Final = 32 * 1024 * 1024
"""Up to this size, a batch may unpack to any multiple of its own."""
SMALLEST_RECORD_BYTES: Final = 7


class BatchLimits(NamedTuple):
    """Limits of one batch: records, bytes when unpacked, and these as a multiple of the packed ones.

    The multiple counts above `ANY_RATIO_BYTES`.
    """

    max_records: int = 500_000
    max_unpacked_bytes: int = MAX_UNCOMPRESSED_BYTES
    max_ratio: int = 20_000

    def unpacked_bytes(self, packed_bytes: int) -> int:
        """Return the bytes that so many packed ones may unpack to."""
        return min(self.max_unpacked_bytes, max(ANY_RATIO_BYTES, packed_bytes * self.max_ratio))


DEFAULT_LIMITS: Final = BatchLimits()


def check_room(records_count: int, body_bytes: int) -> None:
    """Check that so many records fit into so many bytes. Raises KafkaError(INVALID_RECORD)."""
    if records_count * SMALLEST_RECORD_BYTES > body_bytes:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{records_count} records do not fit in {body_bytes} bytes.")
