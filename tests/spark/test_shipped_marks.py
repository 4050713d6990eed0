"""`ship` marks the segments that are in the lake, so that retention may delete them."""

from klamm_spark.spool.layout import sealed_segments
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of


def marks(folder):
    return sorted(path.stem for path in folder.rglob("*.shipped"))


def test_segments_that_are_in_the_lake_are_marked(ship, tmp_path):
    spool, settings = tmp_path / "spool", settings_of(tmp_path / "lake")
    write_sample_spool(spool, list(sample_events(60)), events_per_segment=20)
    (folder,) = spool.iterdir()
    ship(spool, settings)
    assert marks(folder) == [path.name.partition(".")[0] for path in sealed_segments(folder)]
    # A later segment, which is not shipped yet, has no mark.
    (late,) = write_sample_spool(tmp_path / "other", list(sample_events(5)), events_per_segment=20)
    (folder / f"{'f' * 20}-{0:020d}.jsonl").write_bytes(late.read_bytes())
    assert len(marks(folder)) == 3
