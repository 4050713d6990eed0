"""The cost of a batch of `ship` is the same after 100,000 segments as after 1,000. The tests need no Spark."""

import os
import pickle
import time

import pytest

from klamm.testing import MovingClock
from klamm_spark.spool.backlog import SpoolBacklog
from klamm_spark.spool.layout import sealed_segments
from tests.audit_samples import sample_events, write_sample_spool

PER_DAY = 1000
PER_BATCH = 20
BATCHES = 10
LONG_AGO_S = 1_000_000_000


def name_of(number):
    return f"{number:012x}c0ffee00-{0:020d}.jsonl.zst"


def stem_of(path):
    return path.name.partition(".")[0]


def write_names(folder, count):
    """Write a spool of this number of empty segments, in folders of days that have not changed for long."""
    for number in range(count):
        day = folder / "n" / f"2026-{number // PER_DAY // 28 + 1:02}-{number // PER_DAY % 28 + 1:02}"
        if number % PER_DAY == 0:
            day.mkdir(parents=True)
        os.close(os.open(day / name_of(number), os.O_CREAT))
    for path in (folder / "n", *(folder / "n").iterdir()):
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    return day


def seconds_of_a_batch(folder, count):
    """Return the time of the quickest batch after `count` segments were shipped."""
    day = write_names(folder / "spool", count)
    known = set(map(stem_of, sealed_segments(folder / "spool" / "n")))
    backlog = SpoolBacklog(folder / "spool", known)
    backlog.look()
    assert backlog.waiting() == []
    quickest = []
    for round in range(2):
        spent = 0.0
        for batch in range(BATCHES):
            first = count + (round * BATCHES + batch) * PER_BATCH
            new = [day / name_of(number) for number in range(first, first + PER_BATCH)]
            for path in new:
                path.write_bytes(b"x")
            began = time.process_time()
            backlog.look()
            waiting = backlog.waiting()
            spent += time.process_time() - began
            assert [(each.path, each.size_bytes) for each in waiting] == [(path, 1) for path in new]
            known.update(each.stem for each in waiting)
        quickest.append(spent / BATCHES)
    return min(quickest)


@pytest.mark.once
@pytest.mark.timeout(300)
def test_a_batch_costs_the_same_after_a_hundred_thousand_segments_as_after_a_thousand(tmp_path):
    few, many = seconds_of_a_batch(tmp_path / "few", 1_000), seconds_of_a_batch(tmp_path / "many", 100_000)
    print(f"{few * 1e3:.2f} and {many * 1e3:.2f} ms")
    assert many / few < 3


def test_the_backlog_follows_the_spool(tmp_path):
    paths = write_sample_spool(tmp_path / "spool", sample_events(100), events_per_segment=25)
    known = set()
    backlog = SpoolBacklog(tmp_path / "spool", known)
    backlog.look()
    assert str(backlog).startswith("4 segments (100 events, 0.1 MB) left to ship")
    known.add(stem_of(paths[0]))
    # A copy is not another segment, a segment that retention has deleted does not wait, and a missing folder is no
    # error.
    copy = tmp_path / "spool" / "copy" / paths[0].name
    copy.parent.mkdir()
    copy.write_bytes(paths[0].read_bytes())
    paths[1].unlink()
    backlog.look()
    assert str(backlog).startswith("2 segments (50 events, ")
    for path in paths[0].parent.iterdir():
        path.unlink()
    paths[0].parent.rmdir()
    backlog.look()
    assert str(backlog) == "no segments left to ship"


def test_deleted_segments_take_no_memory(tmp_path):
    """A driver may run for years, and retention deletes shipped segments."""
    known = set()
    (tmp_path / "spool" / "n").mkdir(parents=True)
    backlog = SpoolBacklog(tmp_path / "spool", known)
    sizes = []
    for number in range(4):
        day = tmp_path / "spool" / "n" / f"2026-01-{number + 1:02}"
        day.mkdir()
        (path := day / name_of(number)).touch()
        os.utime(day, (LONG_AGO_S, LONG_AGO_S))
        backlog.look()
        assert [each.path for each in backlog.waiting()] == [path]
        known.add(stem_of(path))
        assert backlog.waiting() == []
        path.unlink()
        day.rmdir()
        backlog.look()
        sizes.append(len(pickle.dumps((backlog._waiting, backlog._done_ns))))
    assert max(sizes) == sizes[0]


def test_a_folder_is_listed_again_while_its_last_change_is_recent(tmp_path):
    clock, known = MovingClock(), set()
    (path, *_) = write_sample_spool(tmp_path / "spool", sample_events(10), events_per_segment=10)
    known.add(stem_of(path))
    backlog = SpoolBacklog(tmp_path / "spool", known, clock)
    backlog.look()
    changed = path.parent.stat().st_mtime_ns

    def add(number):
        """Add a segment within the resolution of the file system's times. Return True if it is found."""
        new = path.with_name(name_of(number))
        new.write_bytes(path.read_bytes())
        os.utime(path.parent, ns=(changed, changed))
        backlog.look()
        found = [each.path for each in backlog.waiting()]
        known.add(stem_of(new))
        return found == [new]

    assert add(1)
    clock.advance_ms(10_000)
    backlog.look()
    assert not add(2), "a folder is not listed again if the time of its last change is the same"


def test_the_first_existing_copy_of_a_segment_waits(tmp_path):
    (path,) = write_sample_spool(tmp_path / "spool", sample_events(10))
    first, last = (tmp_path / "spool" / folder / path.name for folder in ("a-copy", "z-copy"))
    for copy in (first, last):
        copy.parent.mkdir()
        copy.write_bytes(path.read_bytes())
    backlog = SpoolBacklog(tmp_path / "spool", set())
    for expected in (first, path, last):
        backlog.look()
        assert [each.path for each in backlog.waiting()] == [expected]
        expected.unlink()
