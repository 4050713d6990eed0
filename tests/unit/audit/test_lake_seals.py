"""The table of seals gets the same rows whether segments were read ahead or not. Without Spark."""

import pytest

from klamm_spark.lake.layout import Lake
from klamm_spark.lake.seals import LakeSeals, read_seal_files, read_seals
from klamm_spark.spool.layout import SEAL_SUFFIX
from tests.audit_samples import sample_events, write_sample_spool

pytest.importorskip("pyarrow")


@pytest.fixture
def segments(tmp_path):
    return write_sample_spool(tmp_path / "spool", sample_events(40, seed=3), events_per_segment=10, final=True)


def rows_of(tmp_path, lake_name, segments, ahead=()):
    """All rows of a new lake, and what was said."""
    said = []
    lake = Lake(tmp_path / lake_name, "parquet")
    seals = LakeSeals(tmp_path / "spool", lake, said.append)
    for segment in ahead:
        seals.read_ahead(segment)
    seals.add(segments)
    return [row for file in read_seal_files(lake, lines_of=None) for row in file.rows], said


@pytest.mark.parametrize("part", [slice(1), slice(1, 3), slice(None)])
def test_reading_ahead_changes_no_row(tmp_path, segments, part):
    expected, _ = rows_of(tmp_path, "one", segments)
    assert len(expected) == len(segments) == 4
    found, said = rows_of(tmp_path, "other", segments, segments[part] * 2)
    assert (found, said) == (expected, [])


def test_a_segment_that_was_read_ahead_and_not_shipped_has_no_row(tmp_path, segments):
    found, _ = rows_of(tmp_path, "lake", segments[:2], segments)
    assert [row.segment for row in found] == [path.name.partition(".")[0] for path in segments[:2]]


def test_a_segment_without_a_seal_is_named_once(tmp_path, segments):
    stem = segments[1].name.partition(".")[0]
    segments[1].with_name(stem + SEAL_SUFFIX).unlink()
    found, said = rows_of(tmp_path, "lake", segments, segments)
    assert len(found) == 3
    assert len(said) == 1
    assert f"{segments[1]} gets no seal" in said[0]


def test_a_seal_that_becomes_final_after_it_was_read_is_added_again(tmp_path):
    segments = write_sample_spool(tmp_path / "spool", sample_events(30, seed=3), events_per_segment=10)
    lake = Lake(tmp_path / "lake", "parquet")
    seals = LakeSeals(tmp_path / "spool", lake, print)
    for segment in segments:
        seals.read_ahead(segment)
    stem = segments[-1].name.partition(".")[0]
    path = segments[-1].with_name(stem + SEAL_SUFFIX)
    path.write_bytes(path.read_bytes().replace(b'"final":false', b'"final":true'))
    seals.add(segments)
    assert read_seals(lake).seals[stem].final
