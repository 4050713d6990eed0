"""Tests of appends and reads: offsets, limits, timestamps, and batches that a topic's settings refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from klamm import ErrorCode, KafkaError
from klamm.wire.batch_headers import HEADER_BYTES, encode_with_checksum
from klamm.wire.compression import Codec
from klamm.wire.records import LOG_APPEND_TIME, Record, decode_records, encode_batch, iterate_batches, read_header
from klamm_broker.log.files import FileRegion
from klamm_broker.log.produce_validation import RecordValidationError
from tests.unit.log.playbook import START_MS, LogPlaybook, fetch, produced
from tests.waiting import open_below

OpenLog = Callable[..., LogPlaybook]
LONG = 2**63


def test_offsets_follow_each_other(open_log: OpenLog) -> None:
    playbook = open_log()

    assert playbook.append(b"a", b"b") == 0
    assert playbook.append(b"c") == 2
    assert playbook.log.end_offset == playbook.log.high_watermark == playbook.log.last_stable_offset == 3
    assert [(record.offset, record.value) for record in playbook.records()] == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_result_has_offsets_and_start(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"a", b"b")
    playbook.log.delete_records(1)

    result = playbook.log.append(produced(b"c", b"d"), now_ms=START_MS)

    assert result == (2, 3, -1, 1, False, False)


def test_leader_epoch_is_in_the_batch_and_the_crc_still_right(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.log.append(produced(b"a"), now_ms=START_MS, leader_epoch=7)

    data = (playbook.directory / "00000000000000000000.log").read_bytes()

    assert read_header(data).partition_leader_epoch == 7
    assert [record.value for record in decode_records(data)] == [b"a"]
    assert playbook.log.end_offset_for_epoch(7) == (7, 1)


def test_a_read_only_buffer_is_appended_and_not_changed(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"a")
    batch = bytes(produced(b"b"))

    playbook.log.append(memoryview(batch), now_ms=START_MS)

    assert read_header(batch).base_offset == 0
    assert playbook.values() == [b"a", b"b"]


def test_read_starts_with_the_batch_that_holds_the_offset(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"a", b"b", b"c")
    playbook.append(b"d")

    assert [record.offset for record in fetch(playbook.log, 1)] == [0, 1, 2, 3]
    assert [record.offset for record in fetch(playbook.log, 3)] == [3]


def test_a_read_at_the_end_returns_nothing(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"a")

    assert playbook.log.read(1, 100) == (1, 1, 0, b"", None)


@pytest.mark.parametrize("offset", [-1, 3])
def test_a_read_outside_the_log_is_out_of_range(open_log: OpenLog, offset: int) -> None:
    playbook = open_log()
    playbook.append(b"a", b"b")

    with pytest.raises(KafkaError) as error:
        playbook.log.read(offset, 100)
    assert error.value.error_code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_read_is_cut_at_max_bytes(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"a" * 100)
    playbook.append(b"b" * 100)
    first_bytes = len(produced(b"a" * 100))

    records = playbook.log.read(0, first_bytes + 10).records

    assert isinstance(records, FileRegion)
    assert (records.position, records.size_bytes) == (0, first_bytes + 10)
    assert len(list(iterate_batches(records.read_bytes()))) == 1


def test_a_first_batch_above_max_bytes_is_returned_whole_or_left_out(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"a" * 100)
    playbook.append(b"b" * 100)

    whole = playbook.log.read(0, 10, min_one_message=True).records

    assert isinstance(whole, FileRegion)
    assert whole.size_bytes == len(produced(b"a" * 100))
    assert playbook.log.read(0, 10).records == b""


def test_a_read_returns_no_unpublished_batches(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"a")
    with (playbook.directory / "00000000000000000000.log").open("ab") as file:
        file.write(produced(b"half", b"written")[:-3])

    assert [record.value for record in fetch(playbook.log, 0)] == [b"a"]


def test_a_region_is_readable_after_roll_retention_and_removal(open_log: OpenLog) -> None:
    playbook = open_log(retention_bytes=0, file_delete_delay_ms=0)
    playbook.append(b"a")
    records = playbook.log.read(0, 1000).records
    assert isinstance(records, FileRegion)

    assert playbook.log.delete_old_segments(START_MS) == 1
    playbook.context.deletions.run_due(START_MS)

    assert [record.value for record in decode_records(records.read_bytes())] == [b"a"]
    assert not [name for name in playbook.files() if name.startswith("0" * 20 + ".log")]
    records.close()


def test_a_closed_region_frees_its_descriptor(open_log: OpenLog, tmp_path: Path) -> None:
    playbook = open_log()
    playbook.append(b"a")
    before = open_below(tmp_path)
    records = playbook.log.read(0, 1000).records
    assert isinstance(records, FileRegion)

    playbook.log.close(START_MS)
    assert open_below(tmp_path) == before
    records.close()
    records.close()

    assert open_below(tmp_path) == before - 1
    with pytest.raises(ValueError, match="closed"):
        records.fileno()


def test_many_segments_need_few_descriptors(open_log: OpenLog, tmp_path: Path) -> None:
    playbook = open_log(segment_bytes=100)
    before = open_below(tmp_path)
    for index in range(50):
        playbook.append(b"%d" % index)

    assert playbook.values() == [b"%d" % index for index in range(50)]
    assert len(playbook.log.segments) == 50
    assert open_below(tmp_path) <= before + 8


# Rolling segments


def test_a_full_segment_is_rolled(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=200)
    for value in (b"a", b"b", b"c", b"d", b"e"):
        playbook.append(value)

    assert [segment.base_offset for segment in playbook.log.segments] == [0, 2, 4]
    assert playbook.values() == [b"a", b"b", b"c", b"d", b"e"]
    assert {
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000002.snapshot",
    } <= playbook.files()


def test_a_segment_is_rolled_when_its_records_time_is_over(open_log: OpenLog) -> None:
    playbook = open_log(segment_ms=1000)
    playbook.append(b"a")
    playbook.clock.advance_ms(1000)
    playbook.append(b"b")
    playbook.clock.advance_ms(1)
    playbook.append(b"c")

    assert [segment.base_offset for segment in playbook.log.segments] == [0, 2]


def test_jitter_makes_a_segment_roll_earlier(open_log: OpenLog) -> None:
    playbook = open_log(segment_ms=1000, segment_jitter_ms=100)
    playbook.append(b"a")
    playbook.log.roll(playbook.clock.wall_ms())
    playbook.append(b"b")
    playbook.clock.advance_ms(902)
    playbook.append(b"c")

    assert [segment.base_offset for segment in playbook.log.segments] == [0, 1, 2]


def test_records_without_timestamps_roll_by_the_clock(open_log: OpenLog) -> None:
    playbook = open_log(segment_ms=1000)
    playbook.log.append(produced(b"a", timestamp_ms=-1), now_ms=START_MS)
    playbook.log.append(produced(b"b", timestamp_ms=-1), now_ms=START_MS + 500)
    playbook.log.append(produced(b"c", timestamp_ms=-1), now_ms=START_MS + 1501)

    assert [segment.base_offset for segment in playbook.log.segments] == [0, 2]


def test_a_record_without_a_timestamp_does_not_end_a_segment_that_began_with_one(open_log: OpenLog) -> None:
    playbook = open_log(segment_ms=1000)
    playbook.append(b"a")
    playbook.log.append(produced(b"b", timestamp_ms=-1), now_ms=START_MS)
    playbook.log.append(produced(b"c", timestamp_ms=-1), now_ms=START_MS + 5000)
    playbook.log.append(produced(b"d", timestamp_ms=START_MS + 5000), now_ms=START_MS + 5000)

    assert [segment.base_offset for segment in playbook.log.segments] == [0, 3]


def test_a_segment_with_a_full_index_is_rolled(open_log: OpenLog) -> None:
    playbook = open_log(index_interval_bytes=0, segment_index_bytes=24)
    for _ in range(6):
        playbook.append(b"a")

    assert [segment.base_offset for segment in playbook.log.segments] == [0, 4]


# Refused batches


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (produced(b"x" * 2000), ErrorCode.MESSAGE_TOO_LARGE),
        (produced(b"x") + produced(b"x"), ErrorCode.INVALID_RECORD),
        (produced(b"x")[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (produced(b"x", base_offset=1), ErrorCode.INVALID_RECORD),
        (produced(b"x", timestamp_ms=START_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_invalid_batches_change_nothing(open_log: OpenLog, batch: bytes, code: ErrorCode) -> None:
    playbook = open_log(max_message_bytes=1000)
    playbook.append(b"a")

    with pytest.raises(KafkaError) as error:
        playbook.log.append(batch, now_ms=START_MS)
    assert error.value.error_code is code
    assert playbook.values() == [b"a"]


def test_batch_larger_than_a_segment_is_refused(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=100)

    with pytest.raises(KafkaError) as error:
        playbook.append(b"x" * 100)
    assert error.value.error_code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamps_that_are_too_old_are_reported_one_by_one(open_log: OpenLog) -> None:
    playbook = open_log(message_timestamp_before_max_ms=1000)
    records = [Record(timestamp_ms=START_MS - age_ms, value=b"v") for age_ms in (1000, 1001, 0, 5000)]

    with pytest.raises(RecordValidationError) as error:
        playbook.log.append(encode_batch(records), now_ms=START_MS)
    assert error.value.error_code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _message in error.value.record_errors] == [1, 3]


def batch_from(base_ms: int, *deltas_ms: int) -> bytearray:
    """Return a batch of records with these timestamps.

    The first has the difference 0 to a base that only its header has.
    """
    batch = bytes(encode_batch([Record(timestamp_ms=each, key=b"k", value=b"v") for each in deltas_ms]))
    header = read_header(batch)._replace(base_timestamp_ms=base_ms, max_timestamp_ms=START_MS)
    return encode_with_checksum(header, batch[HEADER_BYTES:])


@pytest.mark.parametrize(
    ("base_ms", "deltas_ms", "refused"),
    [
        (-LONG, (0,), [0]),
        (-LONG, (0, START_MS + 1), [0]),
        (-LONG, (0, -1), [0, 1]),
        (-2, (0,), []),
        (-1000, (0, 5), []),
    ],
)
def test_timestamps_before_1970_are_checked_one_by_one(
    open_log: OpenLog, base_ms: int, deltas_ms: tuple[int, ...], refused: list[int]
) -> None:
    """Accept timestamps down to 2^63 - 1 ms before now by default, as Kafka does."""
    playbook = open_log()
    batch = batch_from(base_ms, *deltas_ms)
    if not refused:
        playbook.log.append(batch, now_ms=START_MS)
        return
    with pytest.raises(RecordValidationError) as error:
        playbook.log.append(batch, now_ms=START_MS)
    assert error.value.error_code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _message in error.value.record_errors] == refused


COMPRESSED = {"compression_type": "gzip"}
COMPACTED = {"cleanup_policy": "compact"}
TOO_LATE = batch_from(LONG - 1, 0, 1)
TOO_EARLY = batch_from(-LONG, 0, -1)
TOO_WIDE = batch_from(-LONG, 0, START_MS)


@pytest.mark.parametrize("batch", [TOO_LATE, TOO_EARLY, TOO_WIDE])
@pytest.mark.parametrize("configs", [COMPRESSED, COMPACTED], ids=str)
def test_timestamps_beyond_64_bits_are_refused(open_log: OpenLog, configs: dict[str, str], batch: bytearray) -> None:
    most = str(LONG - 1)
    playbook = open_log(message_timestamp_before_max_ms=most, message_timestamp_after_max_ms=most, **configs)
    with pytest.raises(RecordValidationError) as error:
        playbook.log.append(bytes(batch), now_ms=START_MS)
    assert error.value.error_code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("configs", "batch"),
    [(COMPRESSED, TOO_LATE), (COMPACTED, TOO_LATE), (COMPACTED, TOO_EARLY), (COMPACTED, TOO_WIDE)],
)
def test_timestamps_beyond_64_bits_are_replaced_if_the_broker_sets_them(
    open_log: OpenLog, configs: dict[str, str], batch: bytearray
) -> None:
    playbook = open_log(message_timestamp_type="LogAppendTime", **configs)
    playbook.log.append(bytes(batch), now_ms=START_MS)
    assert [record.timestamp_ms for record in playbook.records()] == [START_MS] * 2


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_topic_that_recompresses_refuses_timestamps_before_1970(open_log: OpenLog, kind: str) -> None:
    """Refuse them as Kafka does. A record without a timestamp has -1."""
    playbook = open_log(message_timestamp_type=kind, compression_type="gzip")
    with pytest.raises(RecordValidationError) as error:
        playbook.log.append(bytes(batch_from(-1, 0, -1, 6)), now_ms=START_MS)
    assert error.value.error_code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _message in error.value.record_errors] == [1]
    playbook.log.append(bytes(batch_from(-1, 0, 1, START_MS)), now_ms=START_MS)
    expected = [START_MS] * 3 if kind == "LogAppendTime" else [-1, 0, START_MS - 1]
    assert [record.timestamp_ms for record in playbook.records()] == expected


def test_a_compacted_topic_requires_keys(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")

    with pytest.raises(RecordValidationError) as error:
        playbook.append(b"a", b"b", key=None)
    assert error.value.error_code is ErrorCode.INVALID_RECORD
    assert [index for index, _message in error.value.record_errors] == [0, 1]
    assert playbook.append(b"a") == 0


def test_a_header_with_a_wrong_maximum_timestamp_is_corrected(open_log: OpenLog) -> None:
    playbook = open_log()
    batch = encode_batch([Record(timestamp_ms=START_MS, value=b"v")], log_append_time_ms=START_MS + 9_999_999)
    batch[22] &= ~LOG_APPEND_TIME
    batch[17:21] = _crc(batch)

    playbook.log.append(batch, now_ms=START_MS)

    assert playbook.log.max_timestamp() == (START_MS, 0, 0)


def _crc(batch: bytearray) -> bytes:
    from klamm.wire.records import batch_checksum

    return batch_checksum(batch).to_bytes(4, "big")


def test_log_append_time_replaces_timestamps(open_log: OpenLog) -> None:
    playbook = open_log(message_timestamp_type="LogAppendTime")

    result = playbook.log.append(produced(b"a", b"b", timestamp_ms=5), now_ms=START_MS)

    assert result.log_append_time_ms == START_MS
    assert [record.timestamp_ms for record in playbook.records()] == [START_MS, START_MS]
    assert playbook.crash().end_offset == 2


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_keep_their_codec(open_log: OpenLog, codec: Codec) -> None:
    playbook = open_log()
    batch = encode_batch([Record(value=b"v" * 50) for _ in range(20)], codec=codec)

    playbook.log.append(batch, now_ms=START_MS)

    stored = (playbook.directory / "00000000000000000000.log").read_bytes()
    assert stored[21:] == bytes(batch)[21:]
    assert playbook.values() == [b"v" * 50] * 20


def test_topic_with_its_own_codec_recompresses_batches(open_log: OpenLog) -> None:
    playbook = open_log(compression_type="zstd")
    batch = encode_batch(
        [Record(timestamp_ms=START_MS + n, key=b"%d" % n, value=b"v" * 50) for n in range(20)],
        codec=Codec.GZIP,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )

    playbook.log.append(bytes(batch), now_ms=START_MS)

    header = read_header((playbook.directory / "00000000000000000000.log").read_bytes())
    assert (header.codec, header.producer_id, header.base_sequence) == (Codec.ZSTD, 7, 0)
    assert [record.key for record in playbook.records()] == [b"%d" % n for n in range(20)]
    assert playbook.log.append(bytes(batch), now_ms=START_MS).duplicate


def test_changed_settings_apply_to_the_next_batch(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"x" * 1000)

    playbook.log.update_config(type(playbook.config)({"max.message.bytes": "500"}))

    with pytest.raises(KafkaError):
        playbook.append(b"x" * 1000)
