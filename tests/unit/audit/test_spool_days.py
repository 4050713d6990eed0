"""Tests of sealed segments in folders of days, and of spools of an earlier klamm, which have no such folders."""

import errno
import json
import os

import pytest

from klamm_spark.queries.event_views import DuckDbViews, Period
from klamm_spark.spool.chain import read_folder
from klamm_spark.spool.compression import decompress
from klamm_spark.spool.folder import SpoolError
from klamm_spark.spool.layout import SEAL_SUFFIX, day_of, open_segments, parse_name, sealed_segments, segment_files
from klamm_spark.spool.reader import read_segment, segments_of
from klamm_spark.terminal.spool_lines import SpoolLines
from tests.audit_samples import line_of, sample_events
from tests.unit.audit.test_spool import Writer, fail, seals

DAY_MS = 24 * 3600 * 1000


def written_for_days(folder, days, **settings):
    """Return a writer that seals an event a day."""
    writer = Writer(folder, segment_age_ms=10, **settings)
    writer.start()
    for _ in range(days):
        writer.write()
        writer.clock.advance_ms(DAY_MS)
        writer.spool.tick()
    return writer


def days_of(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def make_flat(folder):
    """Move the segments as an earlier klamm has left them."""
    for path in segment_files(folder):
        path.rename(folder / path.name)
    for day in days_of(folder):
        (folder / day).rmdir()


def numbers(lines):
    return [json.loads(line)["seq"] for line in lines]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_segment_is_in_the_folder_of_the_day_of_its_first_event(tmp_path, compression):
    writer = Writer(tmp_path / "n", compression=compression)
    first_day = day_of(writer.clock.wall_us())
    writer.start()
    writer.write()
    writer.clock.advance_ms(DAY_MS)
    writer.write()
    assert [path.parent for path in open_segments(writer.folder)] == [writer.folder]
    writer.spool.close()
    (path,) = sealed_segments(writer.folder)
    assert path.parent.name == first_day
    assert [path.parent.name for path in segment_files(writer.folder, SEAL_SUFFIX)] == [first_day]


@pytest.mark.parametrize("flat_days", [0, 2])
def test_all_readers_read_both_layouts(tmp_path, flat_days):
    folder = tmp_path / "n"
    writer = written_for_days(folder, 2)
    writer.spool.close()
    if flat_days:
        make_flat(folder)
    writer.start("11111111")
    for seq in (2, 3):
        writer.seq = seq
        writer.write()
        writer.clock.advance_ms(DAY_MS)
        writer.spool.tick()
    writer.seq = 4
    writer.write()
    assert len(days_of(folder)) == 4 - flat_days
    assert [parse_name(path.name).first_seq for path in sealed_segments(folder)] == [0, 1, 2, 3]
    found = read_folder(folder)
    assert found.breaks == []
    assert [seal.last_seq for seal in found.ends.values()] == [1, 3]
    assert numbers(SpoolLines(tmp_path).new_lines()) == [0, 1, 2, 3, 4]
    segments = segments_of(folder).values()
    assert numbers(line for path in segments for line in read_segment(path).splitlines()) == [0, 1, 2, 3, 4]


def test_a_report_reads_folders_of_days(tmp_path):
    writer = Writer(tmp_path / "node-1")
    writer.start()
    for event in sample_events(100, seed=1):
        writer.spool.write(line_of(event), event["seq"], event["seq"], 1)
    writer.spool.close()
    views = DuckDbViews(tmp_path, Period())
    assert views.query("SELECT count(*) FROM events").rows == [(100,)]
    views.close()


def test_retention_deletes_folders_of_days_that_are_empty(tmp_path):
    writer = written_for_days(tmp_path / "n", 4, retention_ms=2 * DAY_MS)
    kept = [path.parent.name for path in sealed_segments(writer.folder)]
    assert len(kept) == 3
    assert days_of(writer.folder) == kept
    writer.clock.advance_ms(30 * DAY_MS)
    writer.spool.tick()
    assert sealed_segments(writer.folder) == []
    assert days_of(writer.folder) == kept[-1:], "the newest seal stays for the chain"


@pytest.mark.parametrize("step", ["make_folder", "write_whole", "rename", "sync_directory"])
def test_a_crash_while_a_segment_is_sealed_leaves_one_segment_and_one_seal(tmp_path, step):
    writer = Writer(tmp_path / "n")
    writer.start()
    writer.write(3)
    setattr(writer.files, step, lambda *_: fail())
    writer.clock.advance_ms(DAY_MS)
    with pytest.raises(SpoolError):
        writer.spool.close()
    delattr(writer.files, step)
    writer.start("11111111")
    assert open_segments(writer.folder) == []
    (path,) = sealed_segments(writer.folder)
    assert numbers(path.read_bytes().splitlines()) == [0, 1, 2]
    assert [seal.segment for seal in seals(writer.folder)] == [path.stem]


def test_events_after_a_failed_seal_are_also_in_the_compressed_segment(tmp_path):
    writer = Writer(tmp_path / "n", compression="zstd", segment_age_ms=10)
    writer.start()
    writer.write(2)
    writer.clock.advance_ms(10)
    write_whole = writer.files.write_whole
    writer.files.write_whole = lambda path, data: full() if path.suffix == ".zst" else write_whole(path, data)
    with pytest.raises(SpoolError, match="No space"):
        writer.spool.tick()
    del writer.files.write_whole
    writer.write()
    writer.spool.close()
    (path,) = sealed_segments(writer.folder)
    assert numbers(decompress(path.read_bytes(), path.suffix).splitlines()) == [0, 1, 2]


def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
