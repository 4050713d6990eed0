"""Compares the end of segments, due compactions and merged segments with models on small numbers.

Times, ages and sizes are small, so that examples often lie exactly on a limit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from klamm.wire.records import NO_TIMESTAMP
from klamm_broker.log.cleaner import DirtyRange, dirty_range, group_segments
from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.files import FileHandle, OpenFiles
from klamm_broker.log.segment import MAX_RELATIVE_OFFSET, LogSegment
from tests.unit.log.playbook import START_MS, LogPlaybook, produced

OpenLog = Callable[..., LogPlaybook]
BATCH_BYTES = len(produced(b"v"))
TIMESTAMPS = st.integers(NO_TIMESTAMP, 6)


@given(
    batches=st.lists(st.tuples(TIMESTAMPS, st.integers(0, 3)), min_size=1, max_size=8),
    segment_ms=st.integers(1, 4),
    most_batches=st.integers(1, 4),
)
def test_a_segment_ends_by_age_or_size(batches: list[tuple[int, int]], segment_ms: int, most_batches: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        playbook = LogPlaybook(
            Path(folder) / "topic-0", segment_ms=segment_ms, segment_bytes=most_batches * BATCH_BYTES
        )
        for timestamp_ms, pause_ms in batches:
            playbook.clock.advance_ms(pause_ms)
            playbook.log.append(produced(b"v", timestamp_ms=timestamp_ms), now_ms=playbook.clock.wall_ms())
        bases = [segment.base_offset for segment in playbook.log.segments]
        playbook.log.close_files()
    assert bases == segment_bases(batches, segment_ms, most_batches)


def segment_bases(batches: list[tuple[int, int]], segment_ms: int, most_batches: int) -> list[int]:
    """Return the base offsets by Kafka's rule.

    The age of a segment counts from its first batch's timestamp, or from the clock if there is none.
    """
    bases = [0]
    first_ms = created_ms = now_ms = 0
    for offset, (timestamp_ms, pause_ms) in enumerate(batches):
        now_ms += pause_ms
        size = offset - bases[-1]
        if size:
            age_ms = timestamp_ms - first_ms if first_ms != NO_TIMESTAMP else now_ms - created_ms
            if size == most_batches or age_ms > segment_ms:
                bases.append(offset)
                created_ms, size = now_ms, 0
        if not size:
            first_ms = timestamp_ms
    return bases


@given(
    timestamps=st.lists(TIMESTAMPS, min_size=1, max_size=7),
    checkpoint=st.integers(0, 8),
    now_ms=st.integers(0, 9),
    lags_ms=st.tuples(st.integers(0, 4), st.integers(1, 4)).filter(lambda lags: lags[0] <= lags[1]),
)
def test_the_dirty_part_of_a_log(timestamps: list[int], checkpoint: int, now_ms: int, lags_ms: tuple[int, int]) -> None:
    min_lag_ms, max_lag_ms = lags_ms
    with tempfile.TemporaryDirectory() as folder:
        playbook = LogPlaybook(
            Path(folder) / "topic-0",
            cleanup_policy="compact",
            segment_bytes=BATCH_BYTES,
            min_compaction_lag_ms=min_lag_ms,
            max_compaction_lag_ms=max_lag_ms,
        )
        for timestamp_ms in timestamps:
            playbook.log.append(produced(b"v", timestamp_ms=timestamp_ms), now_ms=START_MS)
        found = dirty_range(playbook.log, checkpoint, now_ms)
        playbook.log.close_files()

    active = len(timestamps) - 1
    first_dirty = min(checkpoint, len(timestamps))
    old_enough = [
        offset
        for offset in range(min(first_dirty, active), active)
        if not min_lag_ms or all(each <= now_ms - min_lag_ms for each in timestamps[first_dirty : offset + 1])
    ]
    assert found == DirtyRange(
        first_dirty,
        max(first_dirty, old_enough[-1] + 1 if old_enough else min(first_dirty, active)),
        min(first_dirty, active) * BATCH_BYTES,
        len(old_enough) * BATCH_BYTES,
        any(0 <= timestamps[offset] < now_ms - max_lag_ms for offset in old_enough),
    )


@given(
    segments=st.lists(
        st.tuples(st.sampled_from([1, 2, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 31) + 1]), st.integers(1, 3)),
        min_size=1,
        max_size=7,
    ),
    max_bytes=st.integers(1, 6),
)
def test_merged_segments_fit_into_one_file_and_its_index(segments: list[tuple[int, int]], max_bytes: int) -> None:
    bases = list(accumulate((offsets for offsets, _size in segments), initial=0))
    files = OpenFiles(8)
    made = [LogSegment(Path("topic-0"), base, FileOperations(), files) for base in bases]
    for segment, (_offsets, size_bytes) in zip(made, segments, strict=False):
        segment.size_bytes = size_bytes
    last_offsets = {segment: after.base_offset - 1 for segment, after in pairwise(made)}

    def fits(group: tuple[LogSegment, ...]) -> bool:
        size_bytes = sum(segment.size_bytes for segment in group)
        return size_bytes <= max_bytes and last_offsets[group[-1]] - group[0].base_offset <= MAX_RELATIVE_OFFSET

    groups = list(group_segments(made[:-1], made, max_bytes))
    assert [segment for group in groups for segment in group] == made[:-1]
    assert all(len(group) == 1 or fits(group) for group in groups)
    assert not any(fits((*group, after[0])) for group, after in pairwise(groups))


def test_a_closed_descriptor_cannot_be_used_again(tmp_path: Path) -> None:
    operations = FileOperations()
    (tmp_path / "file").touch()
    handle = FileHandle(operations, operations.open(tmp_path / "file", 0))
    assert handle.try_acquire()
    handle.release()
    assert handle.try_acquire()
    handle.release()
    handle.release()
    assert not handle.try_acquire()


def test_a_file_in_use_stays_open(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"v")
    assert playbook.values() == [b"v"]
    assert len(playbook.open_files) == 1


def test_a_repeated_batch_is_due_for_a_sync_like_the_first(open_log: OpenLog) -> None:
    playbook = open_log(flush_messages=3)
    sent = {"producer_id": 7, "producer_epoch": 0}
    for sequence in range(3):
        playbook.append(b"v", base_sequence=sequence, **sent)
    assert playbook.log.recovery_point == 3

    def again(sequence: int) -> tuple[bool, bool]:
        batch = produced(b"v", base_sequence=sequence, **sent)
        result = playbook.log.append(batch, now_ms=START_MS, defer_flush=True)
        return result.duplicate, result.flush_due

    assert again(2) == (True, False)
    for sequence in range(3, 6):
        batch = produced(b"v", base_sequence=sequence, **sent)
        assert playbook.log.append(batch, now_ms=START_MS, defer_flush=True).flush_due == (sequence == 5)
    assert [again(sequence) for sequence in (3, 4, 5)] == [(True, False), (True, False), (True, True)]
