"""Tests that batches with unreadable records are refused, and valid ones accepted."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm import ErrorCode, KafkaError
from klamm.wire.batch_headers import check_count
from klamm.wire.compression import Codec, compress
from klamm.wire.records import HEADER_BYTES, Record, batch_checksum, decode_records, encode_batch, read_header
from klamm_broker.log import record_check, record_walk
from klamm_broker.log.config import LogConfig
from klamm_broker.log.produce_validation import is_costly_to_prepare
from klamm_broker.log.record_check import UnpacksToMoreError, check_records
from tests.unit.log.playbook import START_MS, LogPlaybook, produced

OpenLog = Callable[..., LogPlaybook]
CODECS = list(Codec)


def with_header(batch: bytes | bytearray, **fields: int) -> bytearray:
    """Return the batch with other header fields, and a correct CRC."""
    changed = bytearray(batch)
    if "records_count" in fields:
        struct.pack_into(">i", changed, 57, fields["records_count"])
        struct.pack_into(">i", changed, 23, fields["records_count"] - 1)
    if "batch_length" in fields:
        struct.pack_into(">i", changed, 8, fields["batch_length"])
    struct.pack_into(">I", changed, 17, batch_checksum(changed))
    return changed


def with_body(batch: bytes | bytearray, body: bytes) -> bytearray:
    changed = bytearray(batch[:HEADER_BYTES]) + body
    return with_header(changed, batch_length=len(changed) - 12)


def check(batch: bytes | bytearray, max_bytes: int = record_check.MAX_UNCOMPRESSED_BYTES) -> ErrorCode | None:
    try:
        check_records(batch, read_header(batch), max_bytes)
    except KafkaError as error:
        return error.error_code
    return None


@pytest.mark.parametrize("codec", list(CODECS))
@pytest.mark.parametrize("larger", [0, 1])
def test_a_record_of_a_compressed_batch_has_a_limit(codec: Codec, larger: int) -> None:
    """Count decompressed bytes without the length field, as Kafka does.

    Uncompressed records have no such limit.
    """
    sizes = [30, 300, 3000 + larger, 40]
    # The bytes around the value: attributes, timestamp, delta, no key, length of the value, number of headers.
    records = [Record(-1, START_MS, None, bytes(size)) for size in sizes]
    batch = encode_batch(records, codec=codec)
    limit = 3000 + len(b"atdkvvh")
    if larger and codec is not Codec.NONE:
        with pytest.raises(KafkaError, match=f"A record has {limit + 1} bytes; at most {limit} are allowed") as raised:
            check_records(batch, read_header(batch), max_record_bytes=limit)
        assert raised.value.error_code == ErrorCode.INVALID_RECORD
    else:
        check_records(batch, read_header(batch), max_record_bytes=limit)


RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        timestamp_ms=st.integers(START_MS, START_MS + 2**40),
        key=st.none() | st.binary(max_size=200),
        value=st.none() | st.binary(max_size=200),
        headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


@given(RECORDS, st.sampled_from(CODECS))
def test_encoded_batches_are_valid(records: list[Record], codec: Codec) -> None:
    assert check(encode_batch(records, codec=codec)) is None


def test_timestamps_of_one_and_two_bytes_are_valid() -> None:
    """-64 ms is the lowest difference that fits into one byte."""
    steps_ms = (0, 63, -64, 64, -65, 2**40, -(2**40))
    assert check(encode_batch([Record(timestamp_ms=START_MS + step_ms) for step_ms in steps_ms])) is None


@pytest.mark.parametrize("count", [1, 63, 64, 65, 66, 67, 100, 500])
def test_records_of_many_lengths_are_valid(count: int) -> None:
    """From the 65th record on, an offset delta has two bytes."""
    drawn = random.Random(count)
    for _ in range(100):
        records = [Record(timestamp_ms=START_MS, value=drawn.randbytes(drawn.randrange(300))) for _ in range(count)]
        assert check(encode_batch(records)) is None


@pytest.mark.interpreted
@pytest.mark.parametrize("count", [1, 63, 64, 65, 8192, 8193])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_each_batch_is_checked_whatever_came_before(count: int, codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is only one way to check records, and no result is kept."""
    batch = encode_batch([Record(timestamp_ms=START_MS, value=b"x" * 60) for _ in range(count)], codec=codec)
    walked = []

    def walk(body: bytes, count: int) -> int:
        walked.append(count)
        return record_walk.walk(body, count)

    monkeypatch.setattr(record_check, "walk", walk)
    for _ in range(3):
        assert check(batch) is None
    assert walked == [count] * 3


@given(RECORDS, st.data())
def test_all_readers_agree_on_a_batch_with_a_changed_byte(records: list[Record], data: st.DataObject) -> None:
    """A batch that passes can be decoded, and has the offsets of its header."""
    batch = encode_batch(records)
    position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    if check(batch) is None:
        assert [record.offset for record in decode_records(batch)] == list(range(len(records)))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 2, 4, 5, 1000, 2**31 - 1])
def test_a_wrong_count_of_records_is_refused(codec: Codec, count: int) -> None:
    batch = with_header(encode_batch([Record(value=b"x" * 30)] * 3, codec=codec), records_count=count)
    assert check(batch) is ErrorCode.INVALID_RECORD


def test_a_wrong_count_is_found_without_reading_the_records() -> None:
    batch = with_header(encode_batch([Record(value=b"x")]), records_count=100_000)
    with pytest.raises(KafkaError):
        check_count(read_header(batch))
    check_count(read_header(encode_batch([Record(value=b"x")] * 9)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\x0c\x00\x00\x00\x01\x01\x00" + b"more",
        b"\x0e\x00\x00\x00\x01\x01\x00",
        b"\x0b\x00\x00\x00\x01\x01\x00",
        b"\x0c\x00\x00\x02\x01\x01\x00",
        b"\x0c\x00\x00\x00\x03\x01\x00",
        b"\x0c\x00\x00\x00\x7e\x01\x00",
        b"\x0c\x00\x00\x00\x01\x01\x02",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x1e\x00" + b"\x80" * 11 + b"\x00\x00\x01\x01\x00",
        b"\x8e\x01\x00\x00\x00\x01\x81\x01" + b"x" * 64 + b"\x00",  # A value with the length -65.
    ],
    ids=lambda body: body.hex(),
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_bodies_that_are_no_records_are_refused(codec: Codec, body: bytes) -> None:
    batch = with_body(encode_batch([Record(value=b"x")], codec=codec), compress(codec, body))
    assert check(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS[1:])
def test_garbage_instead_of_compressed_data_is_refused(codec: Codec) -> None:
    batch = with_body(encode_batch([Record(value=b"x" * 99)], codec=codec), b"garbage" * 9)
    assert check(batch) is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(UnpacksToMoreError):
        check(batch, 1000)


def test_compression_bomb_is_refused() -> None:
    bomb = compress(Codec.ZSTD, bytes(130 * 1024 * 1024))
    assert len(bomb) < 20_000
    assert check(with_body(encode_batch([Record(value=b"x")], codec=Codec.ZSTD), bomb)) is ErrorCode.CORRUPT_MESSAGE


def test_a_large_batch_is_checked_only_on_threads_that_allow_it() -> None:
    batch = encode_batch([Record(value=bytes(20_000_000))], codec=Codec.ZSTD)
    with pytest.raises(UnpacksToMoreError):
        check(batch, record_check.INLINE_UNPACKED_BYTES)
    assert check(batch) is None


def test_a_log_refuses_all_invalid_batches(open_log: OpenLog) -> None:
    playbook = open_log()
    lying = with_header(produced(b"x"), records_count=2**31 - 1)
    with pytest.raises(KafkaError):
        playbook.log.append(lying, now_ms=START_MS)
    assert playbook.log.end_offset == 0
    playbook.context.validates_records = False
    with pytest.raises(KafkaError):
        playbook.log.append(lying, now_ms=START_MS)
    trusted = with_body(produced(b"x" * 50), b"?" * 50)
    playbook.log.append(trusted, now_ms=START_MS)
    assert playbook.log.end_offset == 1


@pytest.mark.parametrize(("compression_type", "is_costly"), [("producer", False), ("gzip", False), ("zstd", True)])
def test_only_a_batch_with_another_codec_is_decompressed_to_prepare_it(compression_type: str, is_costly: bool) -> None:
    header = read_header(encode_batch([Record(timestamp_ms=START_MS, value=b"x")], codec=Codec.GZIP))
    assert is_costly_to_prepare(header, LogConfig({"compression.type": compression_type}), START_MS) is is_costly
