"""What `klamm audit compact` does to a Parquet lake, and how it becomes one of Delta."""

import time

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import Lake, committed_files, orphan_files
from klamm_spark.settings.spark import Pipeline
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of


def test_parquet_loses_its_orphans_and_seals_become_few(spark, ship, tmp_path):
    from klamm_spark.lake import compact, verify
    from klamm_spark.lake.seals import read_seals

    settings = settings_of(tmp_path / "lake")
    lake, pipeline, said = Lake(settings.lake, "parquet"), Pipeline(tmp_path / "spool", settings), []
    for first_seq in (0, 10, 20):
        write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=first_seq))
        ship(tmp_path / "spool", settings)
    orphan = next(iter(committed_files(lake.events))).with_name("part-orphan.parquet")
    orphan.write_bytes(b"left by a driver")
    before, seals = set(committed_files(lake.events)), read_seals(lake)
    assert compact.run(spark, pipeline, keep_hours=1, say=said.append) == 0
    assert orphan_files(lake.events) == [orphan], "younger files may be about to be committed"
    assert compact.delete_orphans(lake.events, older_than_s=60, now_s=time.time() + 120) == 1
    assert (set(committed_files(lake.events)), orphan_files(lake.events)) == (before, [])
    assert f"{lake.seals}: 3 files merged into 1" in said
    assert (len(list(lake.seals.glob("*.parquet"))), read_seals(lake)) == (1, seals)
    assert verify.run(spark, pipeline, say=said.append) == 0, said


def test_a_lake_moves_to_delta_and_shipping_goes_on(spark, ship, tmp_path, monkeypatch):
    from klamm_spark.lake import to_delta, verify

    spool, settings = tmp_path / "spool", settings_of(tmp_path / "lake")
    delta = settings_of(tmp_path / "lake", sink="delta")
    events = list(sample_events(600))
    write_sample_spool(spool, events[:400], events_per_segment=200)
    ship(spool, settings)

    def end(*arguments):
        raise KeyboardInterrupt

    def killed_at(step):
        with monkeypatch.context() as patch:
            patch.setattr(to_delta, step, end)
            with pytest.raises(KeyboardInterrupt):
                to_delta.run(spark, Pipeline(None, settings), say=lambda line: None)

    killed_at("move_file")
    moves = iter([to_delta.move_file, end])
    with monkeypatch.context() as patch:
        patch.setattr(to_delta, "move_file", lambda *arguments: next(moves)(*arguments))
        with pytest.raises(KeyboardInterrupt):
            to_delta.run(spark, Pipeline(None, settings), say=lambda line: None)
    with pytest.raises(LakeError, match="klamm audit to-delta was interrupted, run it again"):
        ship(spool, settings)
    assert to_delta.run(spark, Pipeline(None, settings), say=lambda line: None) == 0
    with pytest.raises(LakeError, match="was written by the sink delta, not parquet"):
        ship(spool, settings)
    write_sample_spool(spool, events[400:])
    assert "shipped 200 events" in "\n".join(ship(spool, delta))
    lake, said = Lake(tmp_path / "lake", "delta"), []
    assert sorted(row.seq for row in lake.read_events(spark).select("seq").collect()) == list(range(600))
    assert verify.run(spark, Pipeline(spool, delta), say=said.append) == 0, said


def test_a_batch_that_was_not_ended_is_shipped_before_the_move(spark, ship, tmp_path):
    from klamm_spark.lake import to_delta

    settings = settings_of(tmp_path / "lake")
    write_sample_spool(tmp_path / "spool", sample_events(10))
    ship(tmp_path / "spool", settings)
    (commit,) = (tmp_path / "lake" / "checkpoints" / "ship" / "commits").glob("[0-9]*")
    commit.unlink()
    with pytest.raises(LakeError, match="the last batch was not ended"):
        to_delta.run(spark, Pipeline(None, settings), say=lambda line: None)


def test_files_that_may_be_about_to_be_committed_are_kept(tmp_path):
    from klamm_spark.lake import compact

    for hours in (0, 0.99, float("nan")):
        with pytest.raises(LakeError, match="--keep-hours must be at least 1"):
            compact.run(None, Pipeline(None, settings_of(tmp_path)), keep_hours=hours, say=lambda line: None)
