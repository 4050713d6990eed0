"""The limits of one produced batch: its records and its decompressed bytes. Handler sets and filters share them."""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES
from klamm.wire.errors import ErrorCode, KafkaError

ANY_RATIO_BYTES: Final = 32 * 1024 * 1024
"""Batches up to this decompressed size may have any compression ratio."""
SMALLEST_RECORD_BYTES: Final = 7


class BatchLimits(NamedTuple):
    """The limits of one batch: records, decompressed bytes, and their ratio to the compressed bytes.

    The limit of the ratio applies above `ANY_RATIO_BYTES`.
    """

    max_records: int = 500_000
    max_unpacked_bytes: int = MAX_UNCOMPRESSED_BYTES
    max_ratio: int = 20_000

    def unpacked_bytes(self, packed_bytes: int) -> int:
        """Return the maximum number of bytes to which `packed_bytes` may decompress."""
        return min(self.max_unpacked_bytes, max(ANY_RATIO_BYTES, packed_bytes * self.max_ratio))


DEFAULT_LIMITS: Final = BatchLimits()


def check_room(records_count: int, body_bytes: int) -> None:
    """Check that this number of records fits into this number of bytes. Raises KafkaError(INVALID_RECORD)."""
    if records_count * SMALLEST_RECORD_BYTES > body_bytes:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{records_count} records do not fit in {body_bytes} bytes.")
