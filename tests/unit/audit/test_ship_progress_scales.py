"""What `ship` does for each batch costs as much over 100,000 segments as over 1,000. Without Spark."""

import os
import pickle
import time

import pytest

from klamm.testing import MovingClock
from klamm_spark.errors import LakeError
from klamm_spark.lake.shipped_log import ShippedLog
from klamm_spark.spool.backlog import SpoolBacklog
from klamm_spark.spool.layout import sealed_segments
from tests.audit_samples import sample_events, write_sample_spool

PER_DAY = 1000
PER_BATCH = 20
COMPACT_EVERY = 10
LONG_AGO_S = 1_000_000_000


def name_of(number):
    return f"{number:012x}c0ffee00-{0:020d}.jsonl.zst"


def write_names(folder, count):
    """A spool of so many empty segments, in days that have not changed for long."""
    for number in range(count):
        day = folder / "n" / f"2026-{number // PER_DAY // 28 + 1:02}-{number // PER_DAY % 28 + 1:02}"
        if number % PER_DAY == 0:
            day.mkdir(parents=True)
        os.close(os.open(day / name_of(number), os.O_CREAT))
    for path in (folder / "n", *(folder / "n").iterdir()):
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    return day


class Checkpoint:
    """What Spark's file source leaves."""

    def __init__(self, folder):
        self.folder = folder
        self.entries = []
        self.batch = -1
        for name in ("sources/0", "offsets", "commits"):
            (folder / name).mkdir(parents=True)

    def commit(self, paths, *, committed=True):
        self.batch += 1
        new = [f'{{"path":"file://{path}","timestamp":0,"batchId":{self.batch}}}' for path in paths]
        self.entries += new
        compact = (self.batch + 1) % COMPACT_EVERY == 0
        log = self.folder / "sources" / "0" / f"{self.batch}{'.compact' if compact else ''}"
        log.write_text("\n".join(["v1", *(self.entries if compact else new)]))
        (self.folder / "offsets" / str(self.batch)).write_text(f'v1\n{{}}\n{{"logOffset":{self.batch}}}')
        if committed:
            (self.folder / "commits" / str(self.batch)).write_text("v1\n{}")


def seconds_of_a_batch(folder, count):
    """Of the batches after `count` segments were shipped: the quickest, with a sum of the log among them."""
    day, checkpoint = write_names(folder / "spool", count), Checkpoint(folder / "checkpoint")
    checkpoint.commit(sealed_segments(folder / "spool" / "n"))
    log, backlog = ShippedLog(checkpoint.folder, folder / "spool"), SpoolBacklog(folder / "spool")
    backlog.take(log.new_files())
    backlog.look()
    assert backlog.count == 0
    quickest = []
    for round in range(2):
        spent = 0.0
        for batch in range(COMPACT_EVERY):
            first = count + (round * COMPACT_EVERY + batch) * PER_BATCH
            new = [day / name_of(number) for number in range(first, first + PER_BATCH)]
            for path in new:
                path.write_bytes(b"x")
            began = time.process_time()
            backlog.look()
            spent += time.process_time() - began
            assert (backlog.count, backlog.size_bytes) == (PER_BATCH, PER_BATCH)
            checkpoint.commit(new)
            began = time.process_time()
            taken = log.new_files()
            backlog.take(taken)
            spent += time.process_time() - began
            assert sorted(taken) == new
        quickest.append(spent / COMPACT_EVERY)
    return min(quickest)


@pytest.mark.timeout(300)
def test_a_batch_over_a_hundred_thousand_segments_costs_what_one_over_a_thousand_does(tmp_path):
    few, many = seconds_of_a_batch(tmp_path / "few", 1_000), seconds_of_a_batch(tmp_path / "many", 100_000)
    print(f"{few * 1e3:.2f} and {many * 1e3:.2f} ms")
    assert many / few < 3


def test_what_is_not_committed_yet_comes_later(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    log = ShippedLog(checkpoint.folder, tmp_path)
    assert log.new_files() == []
    for number in range(COMPACT_EVERY + 2):
        path = tmp_path / name_of(number)
        checkpoint.commit([path], committed=False)
        assert log.new_files() == []
        (checkpoint.folder / "commits" / str(number)).write_text("v1\n{}")
        assert log.new_files() == [path]
        assert log.new_files() == []
    assert len(ShippedLog(checkpoint.folder, tmp_path).new_files()) == COMPACT_EVERY + 2


def test_the_files_of_a_batch_that_has_started_are_known_before_it_is_committed(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    log = ShippedLog(checkpoint.folder, tmp_path)
    assert log.files_in_work() == []
    for number in range(COMPACT_EVERY + 2):
        path = tmp_path / name_of(number)
        checkpoint.commit([path], committed=False)
        assert log.files_in_work() == [path]
        assert log.files_in_work() == []
        (checkpoint.folder / "commits" / str(number)).write_text("v1\n{}")
        assert log.new_files() == [path]
        assert log.files_in_work() == []


@pytest.mark.parametrize("batches", [1, COMPACT_EVERY])
def test_a_log_of_another_format_is_refused(tmp_path, batches):
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    for number in range(batches):
        checkpoint.commit([tmp_path / name_of(number)])
    for path in (checkpoint.folder / "sources" / "0").iterdir():
        path.write_text("v9\n{}")
    with pytest.raises(LakeError, match='"v9"'):
        ShippedLog(checkpoint.folder, tmp_path).new_files()


def test_the_backlog_follows_the_spool(tmp_path):
    paths = write_sample_spool(tmp_path / "spool", sample_events(100), events_per_segment=25)
    backlog = SpoolBacklog(tmp_path / "spool")
    backlog.look()
    assert str(backlog).startswith("4 segments (100 events, 0.1 MB) behind")
    backlog.take(paths[:1])
    # A copy is not another segment, one that retention has deleted does not wait, and a day that is gone is no error.
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
    assert str(backlog) == "nothing behind the spool"


def test_what_has_left_the_spool_is_forgotten(tmp_path):
    """A driver runs for years, and retention deletes what is shipped."""
    day = tmp_path / "spool" / "n" / "2026-01-01"
    day.mkdir(parents=True)
    backlog = SpoolBacklog(tmp_path / "spool")
    sizes = []
    for round_number in range(4):
        paths = [day / name_of(100 * round_number + number) for number in range(100)]
        for path in paths:
            path.touch()
        if round_number == 1:
            backlog.look()
        backlog.take(paths)
        if round_number != 2:
            backlog.look()
        assert backlog.count == 0
        for path in paths:
            path.unlink()
        backlog.look()
        sizes.append(len(pickle.dumps(vars(backlog))))
    assert max(sizes) < sizes[0] + 50


def test_a_folder_is_listed_again_until_its_time_of_change_is_settled(tmp_path):
    clock = MovingClock()
    (path, *_) = write_sample_spool(tmp_path / "spool", sample_events(10), events_per_segment=10)
    backlog = SpoolBacklog(tmp_path / "spool", clock)
    backlog.look()
    changed = path.parent.stat().st_mtime_ns

    def add(number):
        """A segment that comes within the resolution of the file system's times."""
        path.with_name(name_of(number)).write_bytes(path.read_bytes())
        os.utime(path.parent, ns=(changed, changed))
        backlog.look()
        return backlog.count

    assert add(1) == 2
    clock.advance_ms(10_000)
    backlog.look()
    assert add(2) == 2, "it is not expected to change without a later time"
