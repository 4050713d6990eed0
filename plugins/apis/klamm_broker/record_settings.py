"""The settings of a broker that limit produced batches."""

from __future__ import annotations

from dataclasses import dataclass

from klamm import setting
from klamm.wire.batch_limits import BatchLimits
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES
from klamm_broker.configs.topic_config import LARGEST_RECORD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """Part of `BrokerSettings`."""

    max_decompressed_message_bytes: int = setting(
        LARGEST_RECORD_BYTES,
        minimum=1,
        maximum=LARGEST_RECORD_BYTES,
        doc="Largest record of a compressed batch in bytes, decompressed; a larger one is refused with INVALID_RECORD.",
    )
    record_validation: str = setting(
        "records",
        choices=("records", "headers"),
        doc="Depth of the check of a produced batch: all its records, or only its header, which trusts producers. "
        "klamm's own key.",
    )
    record_max_count: int = setting(
        500_000,
        minimum=1,
        doc="Maximum number of records in a produced batch; more are refused with MESSAGE_TOO_LARGE. klamm's own key.",
    )
    record_max_unpacked_bytes: int = setting(
        MAX_UNCOMPRESSED_BYTES,
        minimum=1024 * 1024,
        maximum=MAX_UNCOMPRESSED_BYTES,
        doc="Maximum bytes of a compressed batch when it is decompressed. klamm's own key.",
    )
    record_max_unpacked_ratio: int = setting(
        20_000,
        minimum=1,
        doc="Maximum ratio of a batch's decompressed to its compressed size; checked above 32 MiB. klamm's own key.",
    )

    @property
    def batch_limits(self) -> BatchLimits:
        """Return the limits of one produced batch."""
        return BatchLimits(self.record_max_count, self.record_max_unpacked_bytes, self.record_max_unpacked_ratio)
