"""Record batches of magic 2 (KIP-98): their records, and the public names of `batch_headers`.

Source: Kafka's `DefaultRecord` and `EndTransactionMarker`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from klamm.wire.batch_headers import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    RecordBatchHeader,
    assign_offset,
    batch_checksum,
    encode_with_checksum,
    holds_one_batch,
    iterate_batches,
    read_header,
    set_max_timestamp,
    unpack_header,
    validate_produced,
)
from klamm.wire.compression import Codec, compress, decompress
from klamm.wire.errors import ErrorCode, KafkaError, NotOneBatchError
from klamm.wire.primitives import ReadBuffer

# Also has all names of `batch_headers`.
__all__ = [
    "CODEC_MASK",
    "CONTROL",
    "CRC_START",
    "DELETE_HORIZON",
    "HEADER_BYTES",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD_BYTES",
    "MAGIC",
    "NO_PARTITION_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "TRANSACTIONAL",
    "ControlRecordType",
    "EndTransactionMarker",
    "NotOneBatchError",
    "Record",
    "RecordBatchHeader",
    "assign_offset",
    "batch_checksum",
    "decode_end_transaction_marker",
    "decode_records",
    "encode_batch",
    "encode_batch_like",
    "encode_empty_batch",
    "encode_end_transaction_marker",
    "holds_one_batch",
    "iterate_batches",
    "iterate_records",
    "read_header",
    "set_max_timestamp",
    "unpack_header",
    "validate_produced",
]

_KEEPS_BYTES: Final = "surrogateescape"
_CONTROL_KEY: Final = Struct(">hh")
_END_TRANSACTION_VALUE: Final = Struct(">hi")


class Record(NamedTuple):
    """One record. `offset` and `timestamp_ms` are absolute; `headers` are pairs of name and value.

    If a header's name is not UTF-8, its bytes are decoded with Python's `surrogateescape`, so that they are encoded
    unchanged.

    When a batch is encoded, the offset -1 means the next offset: one after the previous record, or the batch's first.
    """

    offset: int = -1
    timestamp_ms: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class ControlRecordType(IntEnum):
    """The type of a control record that ends a transaction; it is in the record's key.

    KRaft has other types, in its own log.
    """

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """The record of a control batch that ends a transaction."""

    type: ControlRecordType
    coordinator_epoch: int


def decode_records(batch: ReadBuffer) -> Iterator[Record]:
    """Return the decompressed records of one batch.

    In a batch of LogAppendTime all records have the batch's largest timestamp. Raises KafkaError: CORRUPT_MESSAGE if
    the header or the compressed bytes cannot be read, INVALID_RECORD if a record is malformed or bytes follow the last
    one.
    """
    header = read_header(batch)
    yield from iterate_records(header, decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size_bytes]))


def iterate_records(header: RecordBatchHeader, body: ReadBuffer) -> Iterator[Record]:
    """Yield the records of a batch with this header, from its decompressed body. Raises like `decode_records`."""
    fixed_timestamp_ms = header.max_timestamp_ms if header.is_log_append_time else None
    position = 0
    try:
        for _ in range(header.records_count):
            length, start = _read_varlong(body, position)
            position = start + length
            if length < 0 or position > len(body):
                raise _invalid(f"A record at byte {start} of {len(body)} cannot have {length} bytes.")
            record = _decode_record(body, start + 1, header, fixed_timestamp_ms)
            if record[1] != position:
                raise _invalid(f"A record of {length} bytes takes {record[1] - start}.")
            yield record[0]
    except IndexError as error:
        raise _invalid(f"The records are cut short: {error}") from None
    if position != len(body):
        raise _invalid(f"{len(body) - position} bytes follow the last record.")


def _decode_record(
    body: ReadBuffer, position: int, header: RecordBatchHeader, fixed_timestamp_ms: int | None
) -> tuple[Record, int]:
    timestamp_delta, position = _read_varlong(body, position)
    offset_delta, position = _read_varlong(body, position)
    key, position = _read_bytes(body, position)
    value, position = _read_bytes(body, position)
    header_count, position = _read_varlong(body, position)
    headers: list[tuple[str, bytes | None]] = []
    if not 0 <= header_count <= len(body) - position:
        raise _invalid(f"{header_count} headers in {len(body) - position} bytes.")
    for _ in range(header_count):
        name, position = _read_bytes(body, position)
        if name is None:
            raise _invalid("A header has no name.")
        content, position = _read_bytes(body, position)
        headers.append((name.decode("utf-8", _KEEPS_BYTES), content))
    timestamp_ms = header.base_timestamp_ms + timestamp_delta if fixed_timestamp_ms is None else fixed_timestamp_ms
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers), position


class _EncodedRecords(NamedTuple):
    body: bytearray
    records_count: int
    next_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int


def _encode_records(records: Iterable[Record], base_offset: int, base_timestamp_ms: int | None) -> _EncodedRecords:
    """Encode records. The default of the base timestamp is the first record's timestamp."""
    body = bytearray()
    count = 0
    next_offset = base_offset
    max_timestamp_ms = NO_TIMESTAMP
    for record in records:
        if base_timestamp_ms is None:
            base_timestamp_ms = record.timestamp_ms
        max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
        offset = next_offset if record.offset < 0 else record.offset
        _encode_record(body, record, record.timestamp_ms - base_timestamp_ms, offset - base_offset)
        next_offset = offset + 1
        count += 1
    return _EncodedRecords(
        body, count, next_offset, NO_TIMESTAMP if base_timestamp_ms is None else base_timestamp_ms, max_timestamp_ms
    )


def encode_batch(
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    last_offset: int | None = None,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    attributes: int = 0,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Return a batch of these records, in ascending order of offsets.

    `attributes` adds TRANSACTIONAL or CONTROL. `last_offset` is by default the offset of the last record. For a
    compacted batch, pass the last offset before compaction. With `log_append_time_ms`, the batch has the timestamp type
    LogAppendTime.
    """
    encoded = _encode_records(records, base_offset, delete_horizon_ms)
    max_timestamp_ms = encoded.max_timestamp_ms
    attributes |= codec
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp_ms = log_append_time_ms
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
    payload = compress(codec, encoded.body, level)
    final_offset = encoded.next_offset - 1 if last_offset is None else last_offset
    header = RecordBatchHeader(
        base_offset,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
        partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        final_offset - base_offset,
        encoded.base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        encoded.records_count,
    )
    return encode_with_checksum(header, payload)


def encode_batch_like(
    header: RecordBatchHeader,
    records: Iterable[Record],
    *,
    delete_horizon_ms: int | None,
    last_offset: int | None,
) -> bytearray:
    """Return a batch of these records that replaces the batch with this header.

    Base offset, codec, producer and kind stay the same.
    """
    return encode_batch(
        records,
        codec=header.codec,
        base_offset=header.base_offset,
        last_offset=last_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=header.attributes & (TRANSACTIONAL | CONTROL),
        log_append_time_ms=header.max_timestamp_ms if header.is_log_append_time else None,
        delete_horizon_ms=delete_horizon_ms,
    )


def encode_empty_batch(header: RecordBatchHeader) -> bytes:
    """Return a batch with this header and no records.

    Compaction keeps such a batch, because it has the producer's last sequence number.
    """
    empty = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
        base_timestamp_ms=NO_TIMESTAMP,
        records_count=0,
    )
    return bytes(encode_with_checksum(empty, b""))


def encode_end_transaction_marker(
    kind: ControlRecordType, *, timestamp_ms: int, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> bytearray:
    """Return the control batch that commits or aborts a producer's transaction in a partition."""
    value = _END_TRANSACTION_VALUE.pack(0, coordinator_epoch)
    return encode_batch(
        [Record(0, timestamp_ms, _CONTROL_KEY.pack(0, kind), value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


def decode_end_transaction_marker(batch: ReadBuffer) -> EndTransactionMarker | None:
    """Return the marker in a control batch; None if the batch is of another type, or compaction has emptied it.

    Raises KafkaError(INVALID_RECORD) for a control record that is malformed.
    """
    for record in decode_records(batch):
        try:
            _version, type_id = _CONTROL_KEY.unpack_from(record.key or b"")
            if type_id not in iter(ControlRecordType):
                return None
            _version, coordinator_epoch = _END_TRANSACTION_VALUE.unpack_from(record.value or b"")
        except struct_error:
            raise _invalid("A control record is cut short.") from None
        return EndTransactionMarker(ControlRecordType(type_id), coordinator_epoch)
    return None


def _encode_record(out: bytearray, record: Record, timestamp_delta_ms: int, offset_delta: int) -> None:
    body = bytearray(1)
    _write_varlong(body, timestamp_delta_ms)
    _write_varlong(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    _write_varlong(body, len(record.headers))
    for name, content in record.headers:
        _write_bytes(body, name.encode("utf-8", _KEEPS_BYTES))
        _write_bytes(body, content)
    _write_varlong(out, len(body))
    out += body


def _read_varlong(buffer: ReadBuffer, position: int) -> tuple[int, int]:
    """Read a zigzag-encoded number of at most 10 bytes, Kafka's varint or varlong."""
    raw = buffer[position]
    position += 1
    if raw > 0x7F:
        raw &= 0x7F
        shift = 7
        while True:
            byte = buffer[position]
            position += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise _invalid(f"A number before byte {position} is longer than 64 bits.")
    return (raw >> 1) ^ -(raw & 1), position


def _write_varlong(out: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def _read_bytes(buffer: ReadBuffer, position: int) -> tuple[bytes | None, int]:
    length, position = _read_varlong(buffer, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(buffer):
        raise _invalid(f"{length} bytes declared at byte {position}, {len(buffer) - position} are left.")
    return bytes(buffer[position:end]), end


def _write_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        _write_varlong(out, -1)
    else:
        _write_varlong(out, len(content))
        out += content


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
