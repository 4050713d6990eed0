"""Batches whose records no consumer could read are refused, sound ones are not."""

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
from klamm_broker.log import plain_records, record_check, record_plans
from klamm_broker.log.record_check import UnpacksToMoreError, check_records
from tests.unit.log.playbook import START_MS, LogPlaybook, produced

OpenLog = Callable[..., LogPlaybook]
CODECS = list(Codec)


def with_header(batch: bytes | bytearray, **fields: int) -> bytearray:
    """The batch with other fields in its header, and a right CRC."""
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
    """As in Kafka: decompressed, without the bytes of its length; records that come uncompressed have none."""
    sizes = [30, 300, 3000 + larger, 40]
    # Before and behind the value: attributes, timestamp, delta, no key, length of the value, number of headers.
    records = [Record(-1, START_MS, None, bytes(size)) for size in sizes]
    batch = encode_batch(records, codec=codec)
    limit = 3000 + len(b"atdkvvh")
    if larger and codec is not Codec.NONE:
        with pytest.raises(KafkaError, match=f"A record has {limit + 1} bytes; {limit} are allowed") as raised:
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
def test_what_an_encoder_makes_is_sound(records: list[Record], codec: Codec) -> None:
    assert check(encode_batch(records, codec=codec)) is None


@pytest.mark.parametrize("count", [1, 63, 64, 65, 66, 67, 100, 500])
def test_records_of_many_lengths_are_sound(count: int) -> None:
    """Where a regular batch would have its 65th record, another one may have anything."""
    drawn = random.Random(count)
    for _ in range(100):
        records = [Record(timestamp_ms=START_MS, value=drawn.randbytes(drawn.randrange(300))) for _ in range(count)]
        assert check(encode_batch(records)) is None


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 66, 200, 8192, 8193])
@pytest.mark.parametrize("size_bytes", [1, 60, 100])
def test_regular_batches_are_sound_the_second_time_too(count: int, size_bytes: int) -> None:
    batch = encode_batch([Record(timestamp_ms=START_MS + n // 100, value=b"x" * size_bytes) for n in range(count)])
    for _ in range(2):
        assert check(batch) is None


@given(RECORDS, st.data())
def test_a_changed_byte_is_refused_by_all_or_by_none(records: list[Record], data: st.DataObject) -> None:
    """What passes can be decoded, with the offsets that the header says."""
    batch = encode_batch(records)
    position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    if check(batch) is None:
        try:
            offsets = [record.offset for record in decode_records(batch)]
        except KafkaError as error:
            # A header's name that is no text is for who looks at it.
            assert "utf-8" in str(error)  # noqa: PT017
        else:
            assert offsets == list(range(len(records)))


@pytest.mark.interpreted
@pytest.mark.parametrize("count", [10, 70])
def test_a_changed_byte_of_a_regular_batch_is_found_by_its_plan_too(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_check, "_PLANS_ABOVE_BYTES", 0)
    batch = encode_batch([Record(timestamp_ms=START_MS, key=b"k" * 3, value=b"v" * 9) for _ in range(count)])
    size_bytes = len(batch)
    for position in range(HEADER_BYTES, size_bytes):
        for value in (batch[position] ^ 0x80, batch[position] ^ 0x02, batch[position] ^ 0x01):
            changed = bytearray(batch)
            changed[position] = value
            record_plans.plans.clear()
            expected = check(changed)
            check(batch)
            assert record_plans.plans
            assert check(changed) == expected


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 2, 4, 5, 1000, 2**31 - 1])
def test_a_count_that_lies(codec: Codec, count: int) -> None:
    batch = with_header(encode_batch([Record(value=b"x" * 30)] * 3, codec=codec), records_count=count)
    assert check(batch) is ErrorCode.INVALID_RECORD


def test_a_count_that_lies_is_found_without_a_look_at_the_records() -> None:
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
    ],
    ids=lambda body: body.hex(),
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_bodies_that_are_no_records(codec: Codec, body: bytes) -> None:
    batch = with_body(encode_batch([Record(value=b"x")], codec=codec), compress(codec, body))
    assert check(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS[1:])
def test_garbage_in_place_of_what_was_compressed(codec: Codec) -> None:
    batch = with_body(encode_batch([Record(value=b"x" * 99)], codec=codec), b"garbage" * 9)
    assert check(batch) is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(UnpacksToMoreError):
        check(batch, 1000)


def test_a_bomb() -> None:
    bomb = compress(Codec.ZSTD, bytes(130 * 1024 * 1024))
    assert len(bomb) < 20_000
    assert check(with_body(encode_batch([Record(value=b"x")], codec=Codec.ZSTD), bomb)) is ErrorCode.CORRUPT_MESSAGE


def test_a_large_batch_is_checked_where_that_is_allowed() -> None:
    batch = encode_batch([Record(value=bytes(20_000_000))], codec=Codec.ZSTD)
    with pytest.raises(UnpacksToMoreError):
        check(batch, record_check.INLINE_UNPACKED_BYTES)
    assert check(batch) is None


def test_a_log_takes_none_of_them(open_log: OpenLog) -> None:
    book = open_log()
    lying = with_header(produced(b"x"), records_count=2**31 - 1)
    with pytest.raises(KafkaError):
        book.log.append(lying, now_ms=START_MS)
    assert book.log.end_offset == 0
    book.context.validates_records = False
    with pytest.raises(KafkaError):
        book.log.append(lying, now_ms=START_MS)
    trusted = with_body(produced(b"x" * 50), b"?" * 50)
    book.log.append(trusted, now_ms=START_MS)
    assert book.log.end_offset == 1


PLAIN_RECORDS = st.lists(st.sampled_from([57, 64, 65, 130, 300, 8178, 8191, 9000]), min_size=1, max_size=90)


@given(PLAIN_RECORDS, st.integers(0, 2**32), st.integers(0, 12))
def test_plain_records_are_compared_at_once_with_the_same_outcome(sizes: list[int], place: int, head: int) -> None:
    """As well with any one byte changed, most often one before a value."""
    batch = encode_batch([Record(timestamp_ms=START_MS, value=b"v" * size) for size in sizes])
    body = bytearray(batch[HEADER_BYTES:])
    index = place % len(sizes)
    start = len(encode_batch([Record(timestamp_ms=START_MS, value=b"v" * size) for size in sizes[:index]]))
    at = min(max(start - HEADER_BYTES, 0) + head, len(body) - 1) if index else head
    for changed in (body[at], body[at] ^ 1 << place % 8, 0xFF, 0, 1):
        body[at] = changed
        assert outcome(bytes(body), len(sizes)) == outcome_record_by_record(bytes(body), len(sizes))


ALMOST_PLAIN = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        timestamp_ms=st.sampled_from([START_MS, START_MS, START_MS, START_MS + 70]),
        key=st.sampled_from([None, None, None, b"k"]),
        value=st.sampled_from([57, 70, 200]).map(lambda size: b"v" * size),
        headers=st.sampled_from([[], [], [], [], [("h", None)]]),
    ),
    min_size=1,
    max_size=90,
)


@given(ALMOST_PLAIN, st.sampled_from([-1, 0, 0, 1]), st.binary(max_size=2))
def test_records_that_are_not_all_plain_have_the_same_outcome(records: list[Record], more: int, rest: bytes) -> None:
    """As well with a count that lies, and with bytes behind the last record."""
    body = bytes(encode_batch(records)[HEADER_BYTES:]) + rest
    count = len(records) + more
    assert outcome(body, count) == outcome_record_by_record(body, count)
    if not more and not rest:
        assert outcome(body, count) == len(body)


def outcome(body: bytes, count: int) -> object:
    try:
        return record_check._walk_in_an_interpreter(body, count)
    except IndexError:
        return IndexError
    except KafkaError as error:
        return error.error_code


def outcome_record_by_record(body: bytes, count: int) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_check, "walk_plain", lambda _body, _count: (0, 0))
        return outcome(body, count)


def test_irregular_records_without_keys_are_plain() -> None:
    sizes = [100 + 13 * index % 200 for index in range(90)]
    batch = encode_batch([Record(timestamp_ms=START_MS, value=b"v" * size) for size in sizes])
    body = bytes(batch[HEADER_BYTES:])
    assert plain_records.walk_plain(body, 90) == (90, len(body))


def test_timestamps_of_any_size_in_plain_records() -> None:
    """One byte holds a difference of up to 63 ms."""
    later_ms = [0, 1, 63, 64, 100_000, 2]
    for first_plain in range(2, len(later_ms) + 1):
        batch = encode_batch([Record(timestamp_ms=START_MS + ms, value=b"v" * 80) for ms in later_ms[:first_plain]])
        assert plain_records.walk_plain(bytes(batch[HEADER_BYTES:]), first_plain)[0] == min(first_plain, 3)
        assert check(batch) is None


def test_what_is_remembered_of_plain_records_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each length once; with timestamps, up to a number."""
    monkeypatch.setattr(plain_records, "_MAX_SIZES", 8)
    plain_records._short_sizes.clear()
    for size in (70, 71):
        records = [Record(timestamp_ms=START_MS + ms, value=b"v" * size) for ms in range(60)]
        body = bytes(encode_batch(records)[HEADER_BYTES:])
        for _ in range(2):
            assert plain_records.walk_plain(body, 60) == (60, len(body))
    assert len(plain_records._short_sizes) == 9
