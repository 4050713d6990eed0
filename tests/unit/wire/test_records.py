"""Tests of record batches: encoding and decoding, batches that producers may send, and arbitrary bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm import ErrorCode, KafkaError
from klamm.wire.compression import Codec, compress, decompress
from klamm.wire.records import (
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    ControlRecordType,
    EndTransactionMarker,
    Record,
    RecordBatchHeader,
    assign_offset,
    batch_checksum,
    decode_end_transaction_marker,
    decode_records,
    encode_batch,
    encode_empty_batch,
    encode_end_transaction_marker,
    iterate_batches,
    read_header,
    set_max_timestamp,
    validate_produced,
)

MAX_BYTES = 1 << 20

# The bytes of one record with key, value and a header, worked out by hand from the format's description.
KNOWN_RECORD = bytes.fromhex("1c 00 00 00 02 6b 04 76 31 02 02 68 04 ff 00".replace(" ", ""))
KNOWN_BATCH = Record(0, 1000, b"k", b"v1", [("h", b"\xff\x00")])


def sample(**fields: Any) -> bytearray:
    """Return a batch of three records as a producer sends it."""
    return encode_batch([Record(timestamp_ms=1000 + n, key=b"k", value=b"%d" % n) for n in range(3)], **fields)


def changed(position: int, content: bytes, batch: bytearray | None = None) -> bytearray:
    """Return the sample with some bytes replaced, and a correct CRC."""
    batch = sample() if batch is None else batch
    batch[position : position + len(content)] = content
    batch[17:21] = batch_checksum(batch).to_bytes(4, "big")
    return batch


def code_of(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        work()
    return error.value.error_code


# Encoding


def test_a_batch_is_encoded_to_known_bytes() -> None:
    batch = encode_batch([KNOWN_BATCH])

    assert bytes(batch[HEADER_BYTES:]) == KNOWN_RECORD
    assert read_header(batch) == RecordBatchHeader(
        base_offset=0,
        batch_length=HEADER_BYTES - 12 + len(KNOWN_RECORD),
        partition_leader_epoch=-1,
        magic=2,
        crc=batch_checksum(batch),
        attributes=0,
        last_offset_delta=0,
        base_timestamp_ms=1000,
        max_timestamp_ms=1000,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=1,
    )
    assert list(decode_records(batch)) == [KNOWN_BATCH]


bytes_or_none = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=20), bytes_or_none), max_size=3)
timestamps = st.integers(-1, 2**50)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    base_offset = draw(st.integers(0, 2**40))
    gaps = draw(st.lists(st.integers(1, 2**20), min_size=1, max_size=12))
    records, offset = [], base_offset
    for gap in gaps:
        records.append(Record(offset, draw(timestamps), draw(bytes_or_none), draw(bytes_or_none), draw(headers)))
        offset += gap
    return records


@given(record_lists(), st.sampled_from(Codec))
def test_records_are_decoded_as_encoded(records: list[Record], codec: Codec) -> None:
    batch = encode_batch(records, codec=codec, base_offset=records[0].offset)

    header = read_header(batch)
    assert list(decode_records(batch)) == records
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)
    assert header.codec is codec
    assert header.crc == batch_checksum(batch)
    assert header.size_bytes == len(batch)


@given(st.sampled_from(Codec), st.binary(max_size=200_000) | st.integers(0, 200_000).map(lambda n: b"a" * n))
def test_data_is_decompressed_as_compressed(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 1), (Codec.ZSTD, 19)])
def test_the_compression_level_changes_the_size(codec: Codec, level: int) -> None:
    data = b"".join(b"%d %x" % (n * n, n * 7919) for n in range(5000))

    assert compress(codec, data, level) != compress(codec, data)
    assert bytes(decompress(codec, compress(codec, data, level))) == data


def test_snappy_is_read_with_and_without_framing() -> None:
    import cramjam

    data = b"some bytes " * 10_000
    framed = compress(Codec.SNAPPY, data)

    assert framed.startswith(b"\x82SNAPPY\x00")
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)))) == data


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: b"\x00" * 20, lambda data: data[:1]])
def test_damaged_compressed_data_is_corrupt(codec: Codec, damage: Callable[[bytes], bytes]) -> None:
    damaged = damage(compress(codec, bytes(range(256)) * 300))

    assert code_of(lambda: decompress(codec, damaged)) is ErrorCode.CORRUPT_MESSAGE


def test_a_snappy_block_longer_than_the_rest_is_corrupt() -> None:
    framed = bytearray(compress(Codec.SNAPPY, b"x" * 100))
    framed[16:20] = b"\x7f\xff\xff\xff"

    assert code_of(lambda: decompress(Codec.SNAPPY, bytes(framed))) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_small_batch_that_unpacks_to_many_bytes_is_refused(codec: Codec) -> None:
    bomb = compress(codec, bytes(2_000_000))

    assert len(decompress(codec, bomb, max_bytes=2_000_000)) == 2_000_000
    assert code_of(lambda: decompress(codec, bomb, max_bytes=1_999_999)) is ErrorCode.CORRUPT_MESSAGE


# Changes in place


def test_the_crc_does_not_cover_offset_and_leader_epoch() -> None:
    batch = sample()
    before = bytes(batch)

    assign_offset(batch, 2**40, 77)

    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.last_offset) == (2**40, 77, 2**40 + 2)
    assert bytes(batch[16:]) == before[16:]
    assert [record.offset for record in decode_records(batch)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_log_append_time_is_the_time_of_all_records() -> None:
    batch = sample()

    set_max_timestamp(batch, LOG_APPEND_TIME, 5000)

    header = read_header(batch)
    assert header.crc == batch_checksum(batch)
    assert header.is_log_append_time
    assert [record.timestamp_ms for record in decode_records(batch)] == [5000] * 3


def test_sequence_numbers_wrap_around() -> None:
    assert read_header(sample(producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)).last_sequence == 0
    assert read_header(sample()).last_sequence == -1


def test_a_compacted_batch_keeps_its_range_of_offsets() -> None:
    held = [Record(11, 1000, b"k", b"v", [])]
    batch = encode_batch(held, base_offset=10, last_offset=14, delete_horizon_ms=9000)

    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.records_count) == (10, 14, 1)
    assert header.delete_horizon_ms == 9000
    assert list(decode_records(batch)) == held


def test_an_empty_batch_keeps_the_state_of_its_producer() -> None:
    full = read_header(
        sample(codec=Codec.GZIP, base_offset=10, producer_id=3, producer_epoch=4, base_sequence=5, delete_horizon_ms=1)
    )

    batch = encode_empty_batch(full)

    header = read_header(batch)
    assert len(batch) == HEADER_BYTES
    assert header.crc == batch_checksum(batch)
    assert (header.base_offset, header.last_offset, header.last_sequence) == (10, 12, 7)
    assert (header.producer_id, header.producer_epoch, header.codec) == (3, 4, Codec.NONE)
    assert header.delete_horizon_ms is None
    assert list(decode_records(batch)) == []


@pytest.mark.parametrize("kind", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_end_transaction_marker(kind: ControlRecordType) -> None:
    batch = encode_end_transaction_marker(kind, timestamp_ms=1000, producer_id=7, producer_epoch=2, coordinator_epoch=9)

    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    assert decode_end_transaction_marker(batch) == EndTransactionMarker(kind, 9)


def test_control_batches_of_other_types_are_not_read_as_markers() -> None:
    leader_change = encode_batch([Record(key=b"\x00\x00\x00\x02", value=b"")], attributes=CONTROL)
    emptied = encode_empty_batch(read_header(leader_change))
    cut_short = encode_batch([Record(key=b"\x00\x00\x00\x01", value=b"\x00")], attributes=CONTROL)

    assert decode_end_transaction_marker(leader_change) is None
    assert decode_end_transaction_marker(emptied) is None
    assert code_of(lambda: decode_end_transaction_marker(cut_short)) is ErrorCode.INVALID_RECORD


# Batches of producers


@pytest.mark.parametrize("codec", list(Codec))
def test_valid_batches_are_accepted(codec: Codec) -> None:
    batch = sample(codec=codec, producer_id=5, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)

    assert validate_produced(batch, MAX_BYTES) == read_header(batch)
    assert validate_produced(memoryview(bytes(batch)), len(batch)) == read_header(batch)


def old_batch(magic: int) -> bytes:
    return bytes(8) + (60).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(55)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (sample()[:11], ErrorCode.INVALID_RECORD),
        (sample()[:40], ErrorCode.INVALID_RECORD),
        (sample()[:-1], ErrorCode.INVALID_RECORD),
        (sample() + sample(), ErrorCode.INVALID_RECORD),
        (sample() + bytes(12), ErrorCode.CORRUPT_MESSAGE),
        (sample() + sample()[:16] + b"\x03", ErrorCode.CORRUPT_MESSAGE),
        (old_batch(0), ErrorCode.INVALID_RECORD),
        (old_batch(1), ErrorCode.INVALID_RECORD),
        (old_batch(3), ErrorCode.CORRUPT_MESSAGE),
        (old_batch(0xFF), ErrorCode.CORRUPT_MESSAGE),
        (changed(8, b"\x00\x00\x00\x0d"), ErrorCode.CORRUPT_MESSAGE),
        (changed(8, b"\xff\xff\xff\xff"), ErrorCode.CORRUPT_MESSAGE),
        (changed(8, b"\x00\x00\x00\x20"), ErrorCode.CORRUPT_MESSAGE),
        (sample()[:-1] + b"\x01", ErrorCode.CORRUPT_MESSAGE),
        (sample(base_offset=1), ErrorCode.INVALID_RECORD),
        (changed(23, b"\x00\x00\x00\x03"), ErrorCode.INVALID_RECORD),
        (changed(57, b"\x00\x00\x00\x02"), ErrorCode.INVALID_RECORD),
        (encode_batch([]), ErrorCode.INVALID_RECORD),
        (changed(CRC_START, b"\x00\x05"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (changed(CRC_START, b"\x00\x08"), ErrorCode.INVALID_TIMESTAMP),
        (changed(CRC_START, b"\x00\x20"), ErrorCode.INVALID_RECORD),
        (sample(producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
    ],
)
def test_invalid_batches_are_refused(batch: bytes, code: ErrorCode) -> None:
    assert code_of(lambda: validate_produced(batch, MAX_BYTES)) is code


@pytest.mark.parametrize("tail", [b"\x00", bytes(11), sample()[:12], sample()[:16], sample()[:17], sample()[:-1]])
def test_an_incomplete_second_batch_is_left_out(tail: bytes) -> None:
    batch = sample()
    assert validate_produced(bytes(batch) + tail, len(batch)) == read_header(batch)


def test_batch_of_the_largest_size_is_accepted() -> None:
    batch = sample()

    validate_produced(batch, len(batch))
    assert code_of(lambda: validate_produced(batch, len(batch) - 1)) is ErrorCode.MESSAGE_TOO_LARGE


@given(st.integers(0, len(sample()) - 1), st.integers(1, 255))
def test_any_changed_byte_is_noticed(position: int, mask: int) -> None:
    batch = sample()
    batch[position] ^= mask

    if position in range(12, 16):
        validate_produced(batch, MAX_BYTES)
    else:
        with pytest.raises(KafkaError):
            validate_produced(batch, MAX_BYTES)


# Arbitrary bytes


def outcome(batch: bytearray) -> ErrorCode | None:
    """Return the outcome of decoding. Any error but KafkaError fails the test."""
    try:
        list(decode_records(batch))
    except KafkaError as error:
        return error.error_code
    return None


EXPECTED = {
    None,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}


@given(st.binary(max_size=200))
def test_any_bytes_as_records_raise_only_known_errors(body: bytes) -> None:
    batch = changed(8, (HEADER_BYTES - 12 + len(body)).to_bytes(4, "big"), sample()[:HEADER_BYTES] + body)
    assert outcome(batch) in EXPECTED


@given(record_lists(), st.sampled_from(Codec), st.data())
def test_damaged_records_are_refused(records: list[Record], codec: Codec, data: st.DataObject) -> None:
    batch = encode_batch(records, codec=codec, base_offset=records[0].offset)
    position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    assert outcome(batch) in EXPECTED


def test_records_with_impossible_sizes_are_refused_before_any_is_decoded() -> None:
    many_headers = b"\x10" + b"\x00\x00\x00\x01\x01" + b"\xfe\xff\x03"
    batch = changed(57, b"\x00\x00\x00\x01", sample()[:HEADER_BYTES] + many_headers)
    batch = changed(8, (len(batch) - 12).to_bytes(4, "big"), batch)

    assert code_of(lambda: list(decode_records(batch))) is ErrorCode.INVALID_RECORD


def test_number_longer_than_64_bits_is_refused() -> None:
    body = b"\x1e" + b"\x00" + b"\xff" * 11 + b"\x01"
    batch = changed(8, (HEADER_BYTES - 12 + len(body)).to_bytes(4, "big"), sample()[:HEADER_BYTES] + body)

    assert code_of(lambda: list(decode_records(batch))) is ErrorCode.INVALID_RECORD


def test_a_wrong_number_of_records_in_the_header_is_refused() -> None:
    assert code_of(lambda: list(decode_records(changed(57, b"\x00\x00\x00\x02")))) is ErrorCode.INVALID_RECORD
    assert code_of(lambda: list(decode_records(changed(57, b"\x00\x00\x00\x04")))) is ErrorCode.INVALID_RECORD


# Several batches


def test_iteration_leaves_a_partial_batch_out() -> None:
    first, second = sample(), sample(base_offset=3)
    data = bytes(first + second)

    for end in range(len(data) + 1):
        found = [bytes(batch) for _header, batch in iterate_batches(data[:end])]
        assert found == [bytes(first), bytes(second)][: (end >= len(first)) + (end >= len(data))]


def test_iteration_refuses_bytes_that_are_no_batch() -> None:
    assert code_of(lambda: list(iterate_batches(old_batch(1)))) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(lambda: list(iterate_batches(changed(8, b"\x00\x00\x00\x20")))) is ErrorCode.CORRUPT_MESSAGE


def test_header_of_too_few_bytes_is_refused() -> None:
    assert code_of(lambda: read_header(sample()[:60])) is ErrorCode.CORRUPT_MESSAGE


def test_the_name_of_a_header_may_be_any_bytes():
    """No broker reads the name of a header, also in Kafka. A name that is not a text does not hide other records."""
    names = [b"\xff\xfe", "\u00fc".encode(), b"\xc3"]
    records = [Record(0, 5, b"k", b"v", [(name.decode("utf-8", "surrogateescape"), b"x") for name in names])]
    batch = encode_batch(records)
    assert all(name in batch for name in names)
    assert list(decode_records(batch)) == records
    assert encode_batch(decode_records(batch)) == batch
