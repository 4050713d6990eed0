"""Checks and changes of a produced batch that a topic's settings require, beyond its header: Kafka's `LogValidator`.

Batches are decompressed only if the settings concern their records. A compacted topic needs keys, a lower bound of
timestamps needs each timestamp, and records are compressed again with the topic's own codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from klamm import ErrorCode, KafkaError
from klamm.wire.compression import Codec
from klamm.wire.records import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    Record,
    RecordBatchHeader,
    decode_records,
    encode_batch,
    read_header,
    set_max_timestamp,
)
from klamm_broker.log.config import LogConfig
from klamm_broker.numbers import INT64_MAX

_ERRORS_IN_MESSAGE: Final = 3
_MAX_ERRORS: Final = 1000
_UNBOUNDED_MS: Final = 2**66
_CHEAP_BYTES: Final = 1024
"""Size of a small batch in bytes: its records are so few that reading them does not delay the thread's other
requests.
"""


class RecordValidationError(KafkaError):
    """Raised if records of a batch are not acceptable. `record_errors` are pairs of the index in the batch and the
    reason.
    """

    def __init__(self, error_code: ErrorCode, message: str, record_errors: list[tuple[int, str | None]]) -> None:
        super().__init__(error_code, message)
        self.record_errors = record_errors


def prepare(
    batch: bytearray | memoryview, header: RecordBatchHeader, config: LogConfig, now_ms: int
) -> tuple[bytearray | memoryview, RecordBatchHeader]:
    """Return the batch to store, and its header. The given batch may be changed in place.

    Unless the settings require a check of every batch, only batches with a timestamp in the future or before 1970 need
    this call.

    Raises KafkaError: INVALID_TIMESTAMP, INVALID_RECORD (no key in a compacted topic), MESSAGE_TOO_LARGE after a change
    of codec, and the errors of decompression.
    """
    if _needs_records(header, config, now_ms):
        recompress = config.codec is not None and config.codec is not header.codec
        check = _RecordCheck(config, now_ms, is_recompressed=recompress)
        records = check.checked(decode_records(batch))
        if recompress:
            return _recompress(records, header, config, now_ms)
        # The header may contain a timestamp that none of the records has.
        max_timestamp_ms = max((record.timestamp_ms for record in records), default=NO_TIMESTAMP)
        if not config.log_append_time and max_timestamp_ms != header.max_timestamp_ms:
            return _with_timestamp(batch, header, header.attributes, max_timestamp_ms)
    if config.log_append_time:
        return _with_timestamp(batch, header, header.attributes | LOG_APPEND_TIME, now_ms)
    return batch, header


def is_costly_to_prepare(header: RecordBatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Return True if `prepare` must read the records, and the batch is compressed or not small."""
    if not _needs_records(header, config, now_ms):
        return False
    return header.codec is not Codec.NONE or header.size_bytes > _CHEAP_BYTES or config.codec is not None


def _needs_records(header: RecordBatchHeader, config: LogConfig, now_ms: int) -> bool:
    too_late_ms = now_ms + config.message_timestamp_after_max_ms
    has_bound = not config.log_append_time
    is_late = has_bound and (header.max_timestamp_ms > too_late_ms or header.base_timestamp_ms < NO_TIMESTAMP)
    recompress = config.codec is not None and config.codec is not header.codec
    return is_late or recompress or config.compact or config.has_earliest_timestamp


class _RecordCheck:
    """The check of a batch's records, one by one. It keeps no record, because a small batch may decompress to many."""

    def __init__(self, config: LogConfig, now_ms: int, *, is_recompressed: bool) -> None:
        self._config = config
        self._now_ms = now_ms
        # If the batch is compressed again, the difference of any two timestamps must fit into 64 bits.
        lowest_ms, self._highest_ms = (0, INT64_MAX - 1) if is_recompressed else (-_UNBOUNDED_MS, INT64_MAX)
        self._earliest_ms, self._latest_ms = lowest_ms, _UNBOUNDED_MS
        if not config.log_append_time:
            self._earliest_ms = max(lowest_ms, now_ms - config.message_timestamp_before_max_ms)
            self._latest_ms = min(self._highest_ms, now_ms + config.message_timestamp_after_max_ms)

    def checked(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records. Raises RecordValidationError after the last one if any record is not acceptable."""
        errors: list[tuple[int, str | None]] = []
        code = ErrorCode.INVALID_RECORD
        for index, record in enumerate(records):
            if self._config.compact and record.key is None:
                errors.append((index, "A compacted topic does not accept a record without a key."))
            elif self._is_out_of_time(record.timestamp_ms):
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append(
                    (
                        index,
                        f"Timestamp {record.timestamp_ms} is not between {self._earliest_ms} and {self._latest_ms}.",
                    )
                )
            elif record.timestamp_ms > self._highest_ms:
                # Clients do not read this field, because all records have the timestamp of the batch.
                record = record._replace(timestamp_ms=self._now_ms)  # noqa: PLW2901
            if len(errors) == _MAX_ERRORS:
                break
            yield record
        if errors:
            shown = " ".join(f"{index}: {message}" for index, message in errors[:_ERRORS_IN_MESSAGE])
            raise RecordValidationError(code, f"{len(errors)} records are invalid. {shown}", errors)

    def _is_out_of_time(self, timestamp_ms: int) -> bool:
        return timestamp_ms != NO_TIMESTAMP and not self._earliest_ms <= timestamp_ms <= self._latest_ms


def _recompress(
    records: Iterable[Record], header: RecordBatchHeader, config: LogConfig, now_ms: int
) -> tuple[bytearray, RecordBatchHeader]:
    assert config.codec is not None
    batch = encode_batch(
        records,
        codec=config.codec,
        level=config.codec_level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=header.attributes & TRANSACTIONAL,
        log_append_time_ms=now_ms if config.log_append_time else None,
    )
    if len(batch) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {len(batch)} bytes in the topic's codec, but the topic accepts at most "
            f"{config.max_message_bytes}.",
        )
    return batch, read_header(batch)


def _with_timestamp(
    batch: bytearray | memoryview, header: RecordBatchHeader, attributes: int, max_timestamp_ms: int
) -> tuple[bytearray | memoryview, RecordBatchHeader]:
    set_max_timestamp(batch, attributes, max_timestamp_ms)
    return batch, read_header(batch)
