"""Tests of compaction: kept records, removed tombstones and markers, readers meanwhile, and crashes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm import ErrorCode, KafkaError
from klamm.wire.records import ControlRecordType, Record, decode_records, encode_batch, iterate_batches
from klamm_broker.log.cleaner import Cleaner, CleaningStoppedError, dirty_range, group_segments
from klamm_broker.log.files import FileRegion
from klamm_broker.log.segment import LogSegment
from tests.unit.log.playbook import START_MS, LogPlaybook
from tests.unit.log.test_transactions import Producer, committed

OpenLog = Callable[..., LogPlaybook]
DAY_MS = 86_400_000


def clean(playbook: LogPlaybook, checkpoint: int = 0, *, now_ms: int = START_MS, map_bytes: int = 1 << 20) -> int:
    """Run one pass over all segments but the active one."""
    return Cleaner(playbook.context, map_bytes).clean(
        playbook.log, dirty_range(playbook.log, checkpoint, now_ms), now_ms
    )


def kept(playbook: LogPlaybook) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of all records."""
    return [(record.offset, record.key, record.value) for record in playbook.records()]


def test_an_empty_batch_of_an_expired_producer_is_removed(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")
    Producer(playbook, 7).send(b"a", attributes=0)
    playbook.append_keyed((b"a", b"2"), (b"b", b"1"))
    playbook.log.roll(START_MS)
    playbook.log.with_producers(lambda producers: producers.remove_expired(START_MS + DAY_MS, 1000))

    clean(playbook)

    assert kept(playbook) == [(1, b"a", b"2"), (2, b"b", b"1")]


def test_the_last_record_of_each_key_stays(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")
    playbook.append_keyed((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    playbook.append_keyed((b"c", b"1"), (b"b", b"2"))
    playbook.log.roll(START_MS)
    playbook.append_keyed((b"a", b"3"))

    assert clean(playbook) == 5
    assert kept(playbook) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2"), (5, b"a", b"3")]


def test_offsets_continue_after_compaction_and_a_restart(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")
    for number in range(10):
        playbook.append_keyed((b"a", b"%d" % number))
    playbook.log.roll(START_MS)
    clean(playbook)
    expected = kept(playbook)
    assert expected == [(9, b"a", b"9")]

    for how in (playbook.reopen, playbook.crash):
        how()
        assert kept(playbook) == expected
        assert playbook.log.end_offset == 10
    assert playbook.append_keyed((b"a", b"x")) == 10


def test_consumers_read_across_the_gaps(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact", index_interval_bytes=0)
    for number in range(40):
        playbook.append_keyed((b"%d" % (number % 7), b"v" * 50))
    playbook.log.roll(START_MS)
    clean(playbook)

    for how in (lambda: None, playbook.reopen, playbook.crash):
        how()
        for offset in range(41):
            found = playbook.log.read(offset, 1, min_one_message=True)
            expected = next((each[0] for each in kept(playbook) if each[0] >= offset), None)
            if isinstance(found.records, FileRegion):
                header, batch = next(iterate_batches(found.records.read_bytes()))
                assert [record.offset for record in decode_records(batch)] == [expected]
            else:
                assert expected is None


def test_a_reader_never_reads_a_later_file_of_the_same_name(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    playbook = open_log(cleanup_policy="compact")
    for number in range(4):
        playbook.append_keyed((b"k%d" % number, b"old"))
    playbook.append_keyed((b"k0", b"new"))
    playbook.log.roll(START_MS)
    old = playbook.log.segments[0]
    position_of = LogSegment.position_of

    def compacted_meanwhile(segment: LogSegment, offset: int, end: int) -> int | None:
        found = position_of(segment, offset, end)
        if segment is old:
            monkeypatch.undo()
            clean(playbook)
            # The file was deleted. A segment that was replaced later has left a shorter file with the same name.
            old.file.path.write_bytes(b"")
        return found

    monkeypatch.setattr(LogSegment, "position_of", compacted_meanwhile)
    read = playbook.log.read(1, 10_000)
    assert isinstance(read.records, FileRegion)
    assert [header.base_offset for header, _ in iterate_batches(read.records.read_bytes())] == [1, 2, 3, 4]
    read.records.close()


def test_small_segments_are_merged(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact", segment_bytes=300)
    for number in range(30):
        playbook.append_keyed((b"%d" % (number % 3), b"v" * 50))
    before = len(playbook.log.segments)

    clean(playbook)
    clean(playbook)

    assert before > 10
    assert len(playbook.log.segments) < before / 2
    assert [segment.base_offset for segment in playbook.log.segments][0] == 0
    assert [each[0] for each in kept(playbook)][-1] == 29


def test_merged_segments_are_consecutive_and_fit_into_one_file(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=200)
    for _ in range(9):
        playbook.append(b"v" * 40)
    segments = playbook.log.segments
    size_bytes = segments[0].size_bytes

    groups = list(group_segments(segments[:-1], segments, 2 * size_bytes))

    assert [len(group) for group in groups] == [2, 2, 2, 2]
    assert [segment for group in groups for segment in group] == list(segments[:-1])


def test_tombstones_are_removed_in_the_second_pass_after_their_time(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact", delete_retention_ms=1000)
    playbook.append_keyed((b"a", b"1"), (b"b", b"1"))
    playbook.append_keyed((b"a", None))
    playbook.append_keyed((b"c", b"1"))
    playbook.log.roll(START_MS)

    clean(playbook, now_ms=START_MS)
    assert kept(playbook) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    timestamps = [record.timestamp_ms for record in playbook.records()]
    assert timestamps == [START_MS] * 3
    clean(playbook, now_ms=START_MS + 999)
    assert (2, b"a", None) in kept(playbook)

    clean(playbook, now_ms=START_MS + 1000)

    assert kept(playbook) == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert playbook.crash().end_offset == 4


def test_a_pass_reads_no_clean_segments_again(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")
    playbook.append_keyed((b"a", b"1"), (b"a", b"2"))
    playbook.log.roll(START_MS)
    end_offset = clean(playbook)

    assert dirty_range(playbook.log, end_offset, START_MS).dirty_bytes == 0
    assert not dirty_range(playbook.log, end_offset, START_MS).is_due(playbook.config)


def test_compaction_waits_for_the_dirty_ratio(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact", min_cleanable_dirty_ratio=0.6, segment_bytes=200)
    for number in range(4):
        playbook.append_keyed((b"%d" % number, b"v" * 100))
    playbook.log.roll(START_MS)

    assert dirty_range(playbook.log, 0, START_MS).is_due(playbook.config)
    assert dirty_range(playbook.log, 1, START_MS).is_due(playbook.config)
    assert not dirty_range(playbook.log, 2, START_MS).is_due(playbook.config)


def test_a_log_is_compacted_after_the_maximum_lag_at_any_dirty_ratio(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact", min_cleanable_dirty_ratio=1, max_compaction_lag_ms=1000)
    playbook.append_keyed((b"a", b"1"))
    playbook.log.roll(START_MS)

    assert not dirty_range(playbook.log, 0, START_MS + 1000).is_due(playbook.config)
    assert dirty_range(playbook.log, 0, START_MS + 1001).is_due(playbook.config)


def test_young_records_are_not_compacted(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact", min_compaction_lag_ms=1000)
    for number in range(3):
        playbook.append_keyed((b"a", b"%d" % number))
        playbook.append_keyed((b"a", b"%d'" % number))
        playbook.log.roll(START_MS)
        playbook.clock.advance_ms(1000)

    assert clean(playbook, now_ms=START_MS + 2000) == 4
    assert [value for _offset, _key, value in kept(playbook)] == [b"1'", b"2", b"2'"]


def test_records_of_an_open_transaction_are_not_compacted(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")
    playbook.append_keyed((b"a", b"1"), (b"a", b"2"))
    Producer(playbook, 1).send(b"a")
    playbook.log.roll(START_MS)

    assert clean(playbook) == 2
    assert [each[0] for each in kept(playbook)] == [1, 2]


def test_an_open_transaction_does_not_make_a_compacted_log_due_again(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=1000)
    playbook.append_keyed((b"a", b"1"), (b"a", b"2"))
    playbook.log.roll(START_MS)
    playbook.append_keyed((b"a", b"3"), (b"a", b"4"))
    Producer(playbook, 1).send(b"a")
    playbook.log.roll(START_MS)
    late_ms = START_MS + DAY_MS

    first = dirty_range(playbook.log, 0, late_ms)
    assert first.is_due(playbook.config)
    assert first.dirty_bytes == playbook.log.segments[0].size_bytes
    end_offset = clean(playbook, now_ms=late_ms)
    assert end_offset == 4
    assert not dirty_range(playbook.log, end_offset, late_ms).is_due(playbook.config)


def test_a_full_map_ends_the_pass_earlier(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")
    for number in range(20):
        playbook.append_keyed((b"key %d" % (number % 10), b"%d" % number))
    playbook.log.roll(START_MS)
    first = clean(playbook, map_bytes=800)

    assert 0 < first < 20
    checkpoint = first
    while checkpoint < 20:
        checkpoint = clean(playbook, checkpoint, map_bytes=800)
    assert [value for _offset, _key, value in kept(playbook)] == [b"%d" % number for number in range(10, 20)]


def test_aborted_records_are_removed_before_their_marker(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact", delete_retention_ms=1000)
    producer, other = Producer(playbook, 1), Producer(playbook, 2)
    producer.send(b"a", b"b")
    producer.abort()
    other.send(b"a")
    other.commit()
    producer.send(b"c")
    producer.commit()
    playbook.log.roll(START_MS)
    expected = committed(playbook)

    markers = []
    for now_ms in (START_MS, START_MS + 1, START_MS + 1000 + 1):
        clean(playbook, now_ms=now_ms)
        assert committed(playbook) == expected == [b"a", b"c"]
        markers.append(control_types(playbook))

    abort, commit = ControlRecordType.ABORT, ControlRecordType.COMMIT
    assert markers == [[abort, commit, commit], [abort, commit, commit], [commit, commit]]
    assert [record.value for record in playbook.records() if record.key in (b"a", b"b", b"c")] == [b"a", b"c"]


def control_types(playbook: LogPlaybook) -> list[ControlRecordType]:
    """Return the types of the markers in the log."""
    return [
        ControlRecordType(record.key[3]) for record in playbook.records() if record.key and record.key[:2] == b"\0\0"
    ]


def test_records_whose_abort_marker_is_in_the_active_segment_are_removed(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")
    playbook.append_keyed((b"a", b"committed"))
    producer = Producer(playbook, 7)
    producer.send(b"a")
    playbook.log.roll(START_MS)
    producer.abort()

    clean(playbook)

    assert committed(playbook) == [b"committed"]


def test_aborted_transaction_of_an_earlier_pass_does_not_affect_later_ones(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")
    producer = Producer(playbook, 7)
    producer.send(b"a")
    producer.abort()
    playbook.log.roll(START_MS)
    checkpoint = clean(playbook)
    producer.send(b"b")
    producer.send(b"b")
    producer.commit()
    playbook.log.roll(START_MS)

    clean(playbook, checkpoint)

    assert [offset for offset, key, _value in kept(playbook) if key == b"b"] == [3]


def test_a_segment_with_an_invalid_batch_is_not_changed(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")
    for value in (b"1", b"2", b"3"):
        playbook.append_keyed((b"a", value))
    playbook.log.roll(START_MS)
    path = playbook.directory / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[-len(content) // 2] ^= 0xFF
    path.write_bytes(content)

    with pytest.raises(KafkaError) as error:
        clean(playbook)
    assert error.value.error_code is ErrorCode.CORRUPT_MESSAGE
    assert path.read_bytes() == content


def test_producers_continue_after_compaction_and_replay(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")
    producer = Producer(playbook, 1)
    for _ in range(3):
        producer.send(b"a", attributes=0)
    playbook.append_keyed((b"a", b"last"))
    playbook.log.roll(START_MS)
    clean(playbook)
    playbook.log.close(START_MS)
    for path in playbook.directory.glob("*.snapshot"):
        path.unlink()

    playbook.open(is_clean=False)

    assert [value for _offset, _key, value in kept(playbook)] == [b"last"]
    assert playbook.log.active_producers()[0].last_sequence == 2
    assert producer.send(b"a", attributes=0) == 4


def test_a_failed_pass_does_not_change_the_log(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact")
    for number in range(5):
        playbook.append_keyed((b"a", b"%d" % number))
    playbook.log.roll(START_MS)
    expected, files = kept(playbook), playbook.files()
    for failing in ("pwrite", "fsync", "rename"):
        playbook.disk.failing = {failing}
        with pytest.raises((OSError, KafkaError)):
            clean(playbook)
        playbook.disk.failing = set()
        assert kept(playbook) == expected
        assert playbook.files() == files
    assert clean(playbook) == 5


def test_compaction_leaves_segments_that_were_deleted_meanwhile(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact,delete", retention_ms=1000)
    for number in range(5):
        playbook.append_keyed((b"a", b"%d" % number))
    playbook.log.roll(START_MS)

    def retention_comes_between() -> None:
        playbook.disk.after_rename = None
        playbook.log.delete_old_segments(START_MS + 10_000)

    playbook.disk.after_rename = retention_comes_between
    clean(playbook)

    assert kept(playbook) == []
    assert playbook.log.log_start_offset == 5
    assert not [name for name in playbook.files() if name.endswith((".swap", ".cleaned"))]


def test_crash_at_every_step_of_the_swap_keeps_the_latest_values(open_log: OpenLog, tmp_path: Path) -> None:
    playbook = open_log(cleanup_policy="compact", segment_bytes=300)
    for number in range(20):
        playbook.append_keyed((b"%d" % (number % 3), b"%d" % number))
    playbook.log.roll(START_MS)
    latest = {record.key: record.value for record in playbook.records()}
    states: list[Path] = []

    def remember() -> None:
        state = tmp_path / f"state-{len(states)}"
        shutil.copytree(playbook.directory, state)
        states.append(state)

    playbook.disk.after_rename = remember
    clean(playbook)
    playbook.disk.after_rename = None

    assert len(states) > 20
    for state in states:
        found = LogPlaybook(state)
        assert found.log.end_offset == 20, state
        assert {record.key: record.value for record in found.records()} == latest
        offsets = [record.offset for record in found.records()]
        assert offsets == sorted(set(offsets))
        assert not [name for name in found.files() if name.endswith((".swap", ".cleaned", ".deleted"))]


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
BATCHES = st.lists(
    st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=8))), min_size=1, max_size=5), max_size=25
)


@settings(max_examples=60)
@given(batches=BATCHES, rolls=st.sets(st.integers(0, 25)), passes=st.sets(st.integers(0, 25)))
def test_compacted_log_equals_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[bytes, bytes | None]]],
    rolls: set[int],
    passes: set[int],
) -> None:
    playbook = LogPlaybook(tmp_path_factory.mktemp("log") / "topic-0", cleanup_policy="compact", delete_retention_ms=3)
    written: dict[int, Record] = {}
    checkpoint = 0
    now_ms = START_MS
    for number, pairs in enumerate(batches):
        offset = playbook.log.append(
            encode_batch([Record(timestamp_ms=START_MS, key=key, value=value) for key, value in pairs]),
            now_ms=START_MS,
        ).base_offset
        for index, (key, value) in enumerate(pairs):
            written[offset + index] = Record(offset + index, START_MS, key, value, [])
        if number in rolls:
            playbook.log.roll(START_MS)
        if number in passes:
            checkpoint = clean(playbook, checkpoint, now_ms=now_ms)
            now_ms += 2
    last = {record.key: record for record in written.values()}

    records = playbook.records()

    assert all(written[record.offset] == record for record in records)
    assert {record.key: record.value for record in records if record.value is not None} | {
        key: None for key, record in last.items() if record.value is None
    } == {key: record.value for key, record in last.items()}
    below = [record for record in records if record.offset < checkpoint]
    keys_below = [record.key for record in below]
    assert len(set(keys_below)) == len(keys_below)
    playbook.crash()
    assert playbook.records() == records


def test_a_stopped_pass_does_not_change_the_log(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact", segment_bytes=200)
    for number in range(8):
        playbook.append(b"%d" % number * 10)
    before, files = playbook.values(), playbook.files()
    dirty = dirty_range(playbook.log, 0, START_MS)
    for stop_at in range(8):
        answers = iter([False] * stop_at + [True] * 99)
        with pytest.raises(CleaningStoppedError):
            Cleaner(playbook.context, should_stop=lambda answers=answers: next(answers)).clean(
                playbook.log, dirty, START_MS
            )
        assert playbook.values() == before
        assert playbook.files() >= files
        assert not [name for name in playbook.files() if name.endswith((".cleaned", ".swap"))]
    Cleaner(playbook.context).clean(playbook.log, dirty, START_MS)
    assert len(playbook.values()) < len(before)


def test_leftovers_of_a_failed_pass_are_not_appended_to_the_next_one(open_log: OpenLog) -> None:
    playbook = open_log(cleanup_policy="compact", segment_bytes=200)
    for number in range(8):
        playbook.append(b"%d" % number * 10)
    (playbook.directory / "00000000000000000000.log.cleaned").write_bytes(b"left over" * 99)
    Cleaner(playbook.context).clean(playbook.log, dirty_range(playbook.log, 0, START_MS), START_MS)
    expected = playbook.values()
    playbook.crash()
    assert playbook.values() == expected
    assert not [name for name in playbook.files() if "set-aside" in name]
