"""The header of a record batch of magic 2 (KIP-98), and the validation of produced batches.

A batch is a header of 61 bytes and the records, which are compressed together. The CRC does not cover `base_offset` and
`partition_leader_epoch`, so a broker can set them without computing the CRC again. Source: Kafka's
`DefaultRecordBatch`; for validation, `ProduceRequest.validateRecords` and `LogValidator`.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from klamm.wire.batch_limits import DEFAULT_LIMITS, BatchLimits, check_room
from klamm.wire.compression import Codec
from klamm.wire.errors import ErrorCode, KafkaError, NotOneBatchError
from klamm.wire.primitives import ReadBuffer

MAGIC: Final = 2
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
"""The size of base offset and batch length, which `batch_length` does not count."""
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

CRC_START: Final = 21
_CRC_POSITION: Final = 17
_MAX_TIMESTAMP_POSITION: Final = 35
_HEADER_UP_TO_MAGIC_BYTES: Final = 17
_SMALLEST_LENGTH: Final = 14
_INT32_SPAN: Final = 2**31

# A table by id, because a call of the enum takes ten times as long.
_CODECS: Final = tuple(Codec)

_HEADER: Final = Struct(">qiibIhiqqqhii")
_PREFIX: Final = Struct(">qiib")
_BASE_OFFSET: Final = Struct(">q")
_LEADER_EPOCH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")

unpack_header: Final = _HEADER.unpack_from
"""Returns the fields of `RecordBatchHeader` at `(buffer, position)`, as a plain tuple."""
_unpack_header: Final = unpack_header
_unpack_prefix: Final = _PREFIX.unpack_from
_pack_base_offset: Final = _BASE_OFFSET.pack_into
_pack_leader_epoch: Final = _LEADER_EPOCH.pack_into


class RecordBatchHeader(NamedTuple):
    """The header of a batch, with the fields in the order of the bytes.

    `batch_length` is the number of bytes after this field. If the attributes have the flag DELETE_HORIZON,
    `base_timestamp_ms` is the delete horizon instead (KIP-534). Ids, epochs and sequences are -1 if a batch has none.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole batch."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Return the last record's offset."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Return the last record's sequence number, or -1. Sequence numbers wrap around after 2**31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _INT32_SPAN

    @property
    def codec(self) -> Codec:
        """Return the codec. Raises KafkaError(UNSUPPORTED_COMPRESSION_TYPE) for an unknown id."""
        try:
            return _CODECS[self.attributes & CODEC_MASK]
        except IndexError:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"No codec has id {self.attributes & CODEC_MASK}."
            ) from None

    @property
    def is_log_append_time(self) -> bool:
        """Return True if the timestamps are the times at which the broker appended the batch."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Return True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Return True if the batch has a control record, e.g. the end of a transaction, and no record of a client."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return the time from which compaction may drop tombstones and markers of this batch; None if unset."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON else None


# Not `_make`, which is a Python function and slower: this runs for every batch.
_new_header: Final[Callable[[Iterable[int]], RecordBatchHeader]] = partial(tuple.__new__, RecordBatchHeader)


def read_header(buffer: ReadBuffer, position: int = 0) -> RecordBatchHeader:
    """Return the header at a position. Raises KafkaError(CORRUPT_MESSAGE) if there are too few bytes."""
    try:
        return RecordBatchHeader._make(_unpack_header(buffer, position))
    except struct_error:
        raise _corrupt(f"{len(buffer) - position} bytes are too few for the header of a batch.") from None


def batch_checksum(batch: ReadBuffer) -> int:
    """Return the CRC-32C of one batch, from its attributes to its end."""
    return int(crc32c(memoryview(batch)[CRC_START:]))


def iterate_batches(buffer: ReadBuffer) -> Iterator[tuple[RecordBatchHeader, memoryview]]:
    """Yield the header and the bytes of each complete batch in a buffer; a partial batch at the end is left out.

    Raises KafkaError(CORRUPT_MESSAGE) for bytes that are not a batch of magic 2. CRCs are not checked.
    """
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= HEADER_BYTES:
        header = RecordBatchHeader._make(_unpack_header(view, position))
        if header.magic != MAGIC or header.size_bytes < HEADER_BYTES:
            raise _corrupt(f"There is no batch of magic {MAGIC} at byte {position}.")
        end = position + header.size_bytes
        if end > len(view):
            return
        yield header, view[position:end]
        position = end


def validate_produced(records: ReadBuffer, max_message_bytes: int) -> RecordBatchHeader:
    """Check the batch that a producer has sent for a partition, and return its header. The records are not decoded.

    A second, truncated batch may follow; the caller ignores it, as Kafka does. `max_message_bytes` limits the size of
    the batch on the wire, compressed or not.

    Raises NotOneBatchError if there is not exactly one batch. Raises KafkaError: INVALID_RECORD for a base offset other
    than 0, a number of records that does not fit the offsets, control batches and missing sequence numbers;
    INVALID_TIMESTAMP for the type LogAppendTime; MESSAGE_TOO_LARGE; UNSUPPORTED_COMPRESSION_TYPE; CORRUPT_MESSAGE for
    all other faults.
    """
    size_bytes = len(records)
    if size_bytes < HEADER_BYTES:
        raise _no_batch(records)
    header = _new_header(_unpack_header(records, 0))
    (
        base_offset,
        batch_length,
        _leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        _base_timestamp_ms,
        _max_timestamp_ms,
        producer_id,
        _producer_epoch,
        base_sequence,
        records_count,
    ) = header
    if magic != MAGIC or batch_length + LOG_OVERHEAD_BYTES != size_bytes:
        _check_only_batch(records)
        size_bytes = batch_length + LOG_OVERHEAD_BYTES
        records = records[:size_bytes]
    if base_offset != 0:
        raise _invalid(f"The base offset of a produced batch is 0, not {base_offset}.")
    if size_bytes > max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"The batch has {size_bytes} bytes, the topic takes {max_message_bytes}."
        )
    if crc32c(records[CRC_START:]) != crc:
        raise _corrupt("The CRC of the batch is wrong.")
    if records_count <= 0 or last_offset_delta + 1 != records_count:
        raise _invalid(f"A count of {records_count} records does not fit a last offset delta of {last_offset_delta}.")
    if attributes & (CONTROL | LOG_APPEND_TIME) or attributes & CODEC_MASK >= len(_CODECS):
        _check_attributes(header)
    if producer_id > NO_PRODUCER_ID and base_sequence < 0:
        raise _invalid(f"The batch of producer {producer_id} has sequence number {base_sequence}.")
    return header


def holds_one_batch(records: ReadBuffer) -> bool:
    """Return True if the data are one complete batch of magic 2, which an incomplete batch may follow."""
    if len(records) < HEADER_BYTES:
        return False
    try:
        _check_only_batch(records)
    except KafkaError:
        return False
    return True


def _check_attributes(header: RecordBatchHeader) -> None:
    if header.is_control:
        raise _invalid("Only the broker writes control records.")
    if header.is_log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "Only the broker sets the timestamp type LogAppendTime.")
    _ = header.codec


def _check_only_batch(records: ReadBuffer) -> None:
    """Raise KafkaError unless the data are one complete batch of magic 2, which an incomplete batch may follow."""
    _base_offset, batch_length, _epoch, magic = _unpack_prefix(records, 0)
    size_bytes = batch_length + LOG_OVERHEAD_BYTES
    if batch_length < _SMALLEST_LENGTH or not 0 <= magic <= MAGIC:
        raise _corrupt(f"A batch cannot have {size_bytes} bytes and magic {magic}.")
    if size_bytes > len(records):
        raise NotOneBatchError("The records hold no complete batch.")
    if magic != MAGIC:
        raise NotOneBatchError(f"Batches have magic {MAGIC}, not {magic}.")
    if size_bytes < HEADER_BYTES:
        raise _corrupt(f"A batch cannot have {size_bytes} bytes.")
    if size_bytes != len(records):
        _check_cut_batch(records[size_bytes:])


def _check_cut_batch(rest: ReadBuffer) -> None:
    """Raise KafkaError unless the rest is the beginning of a second batch, which Kafka ignores."""
    if len(rest) < LOG_OVERHEAD_BYTES:
        return
    batch_length = int.from_bytes(rest[8:12], "big", signed=True)
    if batch_length < _SMALLEST_LENGTH:
        raise _corrupt(f"A batch cannot have {batch_length + LOG_OVERHEAD_BYTES} bytes.")
    if len(rest) < _HEADER_UP_TO_MAGIC_BYTES:
        return
    magic = _unpack_prefix(rest, 0)[-1]
    if not 0 <= magic <= MAGIC:
        raise _corrupt(f"A batch cannot have magic {magic}.")
    if batch_length + LOG_OVERHEAD_BYTES <= len(rest):
        raise NotOneBatchError("The records hold more than one batch.")


def _no_batch(records: ReadBuffer) -> KafkaError:
    if len(records) >= _HEADER_UP_TO_MAGIC_BYTES:
        try:
            _check_only_batch(records)
        except KafkaError as error:
            return error
    return NotOneBatchError("The records hold no complete batch.")


def assign_offset(batch: bytearray | memoryview, base_offset: int, partition_leader_epoch: int) -> None:
    """Set base offset and leader epoch in place. The CRC does not cover them."""
    _pack_base_offset(batch, 0, base_offset)
    _pack_leader_epoch(batch, 12, partition_leader_epoch)


def set_max_timestamp(batch: bytearray | memoryview, attributes: int, max_timestamp_ms: int) -> None:
    """Set attributes and largest timestamp in place, and compute the CRC again. Used e.g. for LogAppendTime."""
    _ATTRIBUTES.pack_into(batch, CRC_START, attributes)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    _CRC.pack_into(batch, _CRC_POSITION, batch_checksum(batch))


def encode_with_checksum(header: RecordBatchHeader, payload: bytes) -> bytearray:
    """Return the batch with this header and these encoded records; compute its CRC."""
    batch = bytearray(_HEADER.pack(*header))
    batch += payload
    _CRC.pack_into(batch, _CRC_POSITION, batch_checksum(batch))
    return batch


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def check_count(header: RecordBatchHeader, limits: BatchLimits = DEFAULT_LIMITS) -> None:
    """Check that the declared number of records is allowed and fits the batch's size. The records are not read.

    Raises KafkaError: MESSAGE_TOO_LARGE above the limit, because producers then split the batch; INVALID_RECORD if the
    number does not fit.
    """
    if header.records_count > limits.max_records:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {header.records_count} records, the broker takes {limits.max_records} (record.max.count).",
        )
    is_packed = header.attributes & CODEC_MASK
    check_room(header.records_count, limits.max_unpacked_bytes if is_packed else header.size_bytes - HEADER_BYTES)
