"""Record batches of magic 2 (KIP-98): headers, validation of produced batches, and records.

A batch is a header of 61 bytes and the records, compressed as a whole. The CRC does not cover `base_offset` and
`partition_leader_epoch`, so a broker sets them without computing it again. Source: Kafka's `DefaultRecordBatch`,
`DefaultRecord` and `EndTransactionMarker`; for validation, `ProduceRequest.validateRecords` and `LogValidator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from klamm.wire.compression import Codec, compress, decompress
from klamm.wire.errors import ErrorCode, KafkaError
from klamm.wire.primitives import ReadBuffer

MAGIC: Final = 2
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and batch length, which `batch_length` does not count."""
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

# By id: to call an enum costs ten times as much.
_CODECS: Final = tuple(Codec)

_HEADER: Final = Struct(">qiibIhiqqqhii")
_PREFIX: Final = Struct(">qiib")
_BASE_OFFSET: Final = Struct(">q")
_LEADER_EPOCH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")
_CONTROL_KEY: Final = Struct(">hh")
_END_TRANSACTION_VALUE: Final = Struct(">hi")

unpack_header: Final = _HEADER.unpack_from
"""`(buffer, position)` to the fields of `RecordBatchHeader`, as a plain tuple."""
_unpack_header: Final = unpack_header
_unpack_prefix: Final = _PREFIX.unpack_from
_pack_base_offset: Final = _BASE_OFFSET.pack_into
_pack_leader_epoch: Final = _LEADER_EPOCH.pack_into


class RecordBatchHeader(NamedTuple):
    """The header of a batch, field by field as it lies in the bytes.

    `batch_length` counts what follows it. `base_timestamp_ms` is the delete horizon instead, if the attributes say so
    (KIP-534). Ids, epochs and sequences are -1 where a batch has none.
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
        """Of the whole batch."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, or -1; they wrap around after 2**31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _INT32_SPAN

    @property
    def codec(self) -> Codec:
        """Raises KafkaError(UNSUPPORTED_COMPRESSION_TYPE) for an id that no codec has."""
        try:
            return _CODECS[self.attributes & CODEC_MASK]
        except IndexError:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"No codec has id {self.attributes & CODEC_MASK}."
            ) from None

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may be dropped by compaction; None if that is not set yet."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON else None


# Runs for every batch; `_make` is a function of Python's and takes longer.
_new_header: Final[Callable[[Iterable[int]], RecordBatchHeader]] = partial(tuple.__new__, RecordBatchHeader)


class Record(NamedTuple):
    """One record. `offset` and `timestamp_ms` are absolute; `headers` are pairs of name and value.

    When a batch is encoded, an offset of -1 stands for the next one: one after the previous record's, or the batch's
    first.
    """

    offset: int = -1
    timestamp_ms: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class ControlRecordType(IntEnum):
    """Type of a control record that ends a transaction, in its key. KRaft has others, in its own log."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """The one record of a transaction's control batch."""

    type: ControlRecordType
    coordinator_epoch: int


def read_header(buffer: ReadBuffer, position: int = 0) -> RecordBatchHeader:
    """The header at a position. Raises KafkaError(CORRUPT_MESSAGE) if there are too few bytes."""
    try:
        return RecordBatchHeader._make(_unpack_header(buffer, position))
    except struct_error:
        raise _corrupt(f"{len(buffer) - position} bytes are too few for the header of a batch.") from None


def batch_checksum(batch: ReadBuffer) -> int:
    """CRC-32C of one batch, from its attributes to its end."""
    return int(crc32c(memoryview(batch)[CRC_START:]))


def iterate_batches(buffer: ReadBuffer) -> Iterator[tuple[RecordBatchHeader, memoryview]]:
    """Each complete batch of a buffer with its bytes; a partial one at the end is left out.

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


class NotOneBatchError(KafkaError):
    """INVALID_RECORD: a producer has sent something other than one batch of magic 2."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


def validate_produced(records: ReadBuffer, max_message_bytes: int) -> RecordBatchHeader:
    """Check the one batch that a producer sent for a partition and return its header. The records are not decoded.

    A second batch that is cut off may follow; the caller ignores it, as Kafka does. `max_message_bytes` limits the size
    of the batch as it was sent, compressed or not.

    Raises NotOneBatchError; KafkaError: INVALID_RECORD for a base offset other than 0, a range of offsets that does not
    fit the count of records, control batches and missing sequence numbers; MESSAGE_TOO_LARGE;
    UNSUPPORTED_COMPRESSION_TYPE; CORRUPT_MESSAGE for the rest.
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
    """Whether produced data hold one complete batch of magic 2, and no other complete one behind it."""
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
    """Raise a KafkaError if something other than a second, incomplete batch follows the first one."""
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
    """Raise a KafkaError unless the rest is the beginning of a second batch, which Kafka ignores."""
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
    """Set attributes and the largest timestamp in place and compute the CRC again, e.g. for LogAppendTime."""
    _ATTRIBUTES.pack_into(batch, CRC_START, attributes)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    _CRC.pack_into(batch, _CRC_POSITION, batch_checksum(batch))


def decode_records(batch: ReadBuffer) -> Iterator[Record]:
    """The records of one batch, uncompressed.

    In a batch of LogAppendTime all records have the batch's largest timestamp. Raises KafkaError: CORRUPT_MESSAGE if
    the bytes do not match the header, INVALID_RECORD if a record's size is wrong.
    """
    header = read_header(batch)
    body = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size_bytes])
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
    except (IndexError, UnicodeDecodeError) as error:
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
        headers.append((name.decode(), content))
    timestamp_ms = header.base_timestamp_ms + timestamp_delta if fixed_timestamp_ms is None else fixed_timestamp_ms
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers), position


class _EncodedRecords(NamedTuple):
    body: bytearray
    records_count: int
    next_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int


def _encode_records(records: Iterable[Record], base_offset: int, base_timestamp_ms: int | None) -> _EncodedRecords:
    """If there is no base timestamp, the first record's is taken."""
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
    """A batch of these records, in ascending order of offsets.

    `attributes` adds TRANSACTIONAL or CONTROL. `last_offset` is the last record's by default; a compacted batch keeps
    the one that it had. `log_append_time_ms` makes it a batch of LogAppendTime.
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
    return _with_checksum(header, payload)


def encode_batch_like(
    header: RecordBatchHeader, records: Iterable[Record], *, delete_horizon_ms: int | None
) -> bytearray:
    """A batch in place of one with this header: other records at its offsets, with its codec, producer and kind."""
    return encode_batch(
        records,
        codec=header.codec,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=header.attributes & (TRANSACTIONAL | CONTROL),
        log_append_time_ms=header.max_timestamp_ms if header.is_log_append_time else None,
        delete_horizon_ms=delete_horizon_ms,
    )


def _with_checksum(header: RecordBatchHeader, payload: bytes) -> bytearray:
    batch = bytearray(_HEADER.pack(*header))
    batch += payload
    _CRC.pack_into(batch, _CRC_POSITION, batch_checksum(batch))
    return batch


def encode_empty_batch(header: RecordBatchHeader) -> bytes:
    """The batch without its records. Compaction keeps it for the producer's last sequence number."""
    empty = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
        base_timestamp_ms=NO_TIMESTAMP,
        records_count=0,
    )
    return bytes(_with_checksum(empty, b""))


def encode_end_transaction_marker(
    kind: ControlRecordType, *, timestamp_ms: int, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> bytearray:
    """The control batch that commits or aborts a producer's transaction in a partition."""
    value = _END_TRANSACTION_VALUE.pack(0, coordinator_epoch)
    return encode_batch(
        [Record(0, timestamp_ms, _CONTROL_KEY.pack(0, kind), value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


def decode_end_transaction_marker(batch: ReadBuffer) -> EndTransactionMarker | None:
    """The marker in a control batch; None if the batch is of another type, or compaction has emptied it.

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
        _write_bytes(body, name.encode())
        _write_bytes(body, content)
    _write_varlong(out, len(body))
    out += body


def _read_varlong(buffer: ReadBuffer, position: int) -> tuple[int, int]:
    """Zigzag, at most 10 bytes; Kafka's varint and varlong read alike."""
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


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
