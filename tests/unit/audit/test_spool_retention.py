"""Tests of retention in the spool, by age and size, and of a full spool."""

import os

import pytest

from klamm_spark.spool.folder import SpoolError
from klamm_spark.spool.layout import open_segments, parse_name, sealed_segments
from klamm_spark.spool.losses import Deleted
from tests.unit.audit.test_spool import Writer, aged, fail, seals, seqs


def test_the_oldest_segments_are_deleted_above_the_limit_of_bytes(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10, retention_bytes=2500)
    writer.start()
    deleted = []
    for _ in range(4):
        writer.write(padding=1000)
        writer.clock.advance_ms(10)
        deleted += writer.tick()
    boot = writer.spool.boot
    assert deleted == [Deleted(boot, 0, 0, 1, "retention_bytes"), Deleted(boot, 1, 1, 1, "retention_bytes")]
    assert [parse_name(path.name).first_seq for path in sealed_segments(writer.folder)] == [2, 3]
    assert [seal.first_seq for seal in seals(writer.folder)] == [2, 3]


def test_old_segments_are_deleted_and_the_newest_seal_stays_for_the_chain(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10, retention_ms=60_000)
    writer.start()
    for _ in range(2):
        writer.write()
        writer.clock.advance_ms(10)
        writer.spool.tick()
    last = seals(writer.folder)[-1]
    writer.clock.advance_ms(60_001)
    assert writer.tick() == [Deleted(writer.spool.boot, 0, 1, 2, "retention_ms")]
    assert sealed_segments(writer.folder) == []
    assert seals(writer.folder) == [last]
    writer.write()
    writer.spool.close()
    (seal,) = seals(writer.folder)
    assert (seal.index, seal.previous_chain) == (2, last.chain)


def test_the_report_of_a_deletion_says_if_the_segment_was_shipped(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10, retention_ms=60_000)
    paths = aged(writer, 3)
    for path in paths[:2]:
        path.with_suffix(".shipped").touch()
    writer.clock.advance_ms(60_001)
    boot = writer.spool.boot
    assert writer.tick() == [
        Deleted(boot, 0, 1, 2, "retention_ms", shipped=True),
        Deleted(boot, 2, 2, 1, "retention_ms"),
    ]


def test_a_deletion_is_reported_even_if_the_next_one_fails(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10, retention_ms=60_000)
    _, second, _ = aged(writer, 3)
    writer.clock.advance_ms(60_001)
    remove = writer.files.remove
    writer.files.remove = lambda path: fail() if path == second else remove(path)
    with pytest.raises(SpoolError, match="broken"):
        writer.spool.tick()
    assert writer.spool.take_losses() == [Deleted(writer.spool.boot, 0, 0, 1, "retention_ms")]
    writer.files.remove = remove
    assert writer.tick() == [Deleted(writer.spool.boot, 1, 2, 2, "retention_ms")]
    assert sealed_segments(writer.folder) == []


def test_segments_without_a_seal_expire_with_the_range_of_their_names(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10, retention_ms=60_000)
    paths = aged(writer, 3)
    wall_s = writer.clock.wall_us() / 1e6
    for path in (paths[0], paths[2]):
        path.with_suffix(".seal").write_bytes(b"{}")
        os.utime(path, (wall_s, wall_s))
    assert writer.tick() == []
    writer.clock.advance_ms(60_001)
    boot = writer.spool.boot
    assert writer.tick() == [
        Deleted(boot, 0, 0, None, "retention_ms"),
        Deleted(boot, 1, 1, 1, "retention_ms"),
        Deleted(boot, 2, None, None, "retention_ms"),
    ]


def test_segments_deleted_by_hand_are_not_reported_as_deleted(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10, retention_ms=60_000)
    first, _ = aged(writer, 2)
    first.unlink()
    writer.clock.advance_ms(60_001)
    assert writer.tick() == [Deleted(writer.spool.boot, 1, 1, 1, "retention_ms")]


def test_retention_continues_after_a_failed_sync(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10, retention_ms=60_000)
    aged(writer, 1)
    writer.write()
    writer.clock.advance_ms(60_001)
    writer.files.broken = {"fsync"}
    with pytest.raises(SpoolError, match="fsync: broken"):
        writer.spool.tick()
    assert sealed_segments(writer.folder) == []


def test_deleting_by_hand_makes_room_at_once(tmp_path):
    writer = Writer(tmp_path / "n", segment_age_ms=10, retention_bytes=1500, on_limit="stop")
    writer.start()
    writer.write(padding=1000)
    writer.clock.advance_ms(10)
    writer.spool.tick()
    with pytest.raises(SpoolError, match="retention_bytes = 1500"):
        writer.write(padding=1000)
    sealed_segments(writer.folder)[0].unlink()
    writer.write(padding=1000)
    assert seqs(open_segments(writer.folder)[0]) == [1]


def test_on_limit_stop_refuses_events_above_the_limit(tmp_path):
    writer = Writer(tmp_path / "n", retention_bytes=1500, on_limit="stop")
    writer.start()
    writer.write(padding=1000)
    with pytest.raises(SpoolError, match="retention_bytes = 1500"):
        writer.write(padding=1000)
    assert seqs(open_segments(writer.folder)[0]) == [0]
