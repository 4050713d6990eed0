"""What `klamm audit compact` does: files become few, and nothing else changes."""

from klamm_spark.settings.spark import Pipeline
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of
from tests.spark.sessions import rows_of

EVENTS = 400


def test_small_files_become_few_and_the_lake_says_the_same(spark, ship, tmp_path):
    from klamm_spark.lake import compact, verify
    from klamm_spark.lake.layout import Lake
    from klamm_spark.lake.seals import read_seals
    from klamm_spark.report.command import build

    settings = settings_of(tmp_path / "lake", max_files_per_trigger=1)
    pipeline, lake = Pipeline(tmp_path / "spool", settings), Lake(tmp_path / "lake")
    events = list(sample_events(EVENTS))
    write_sample_spool(tmp_path / "spool", events, events_per_segment=EVENTS // 2)
    ship(tmp_path / "spool", settings)
    denied = sorted(e["event_id"] for e in events if e["outcome"] == "denied" and e["kind"] == "request")
    said, seals = [], read_seals(lake)
    assert compact.run(pipeline, keep_hours=168, say=said.append) == 0
    assert f"{lake.events}: optimized; replaced files are kept for 168 hours" in said
    assert f"{lake.seals}: 2 files merged into 1" in said
    assert (len(list(lake.seals.glob("*.parquet"))), read_seals(lake)) == (1, seals)
    report = build(lake)
    assert (report.totals["events"], report.totals["denied"]) == (EVENTS, len(denied))
    assert sum(row[7] for row in report.tables["denials"].rows) == len(denied)
    assert len(list(lake.events.rglob("part-*.parquet"))) > len(rows_of(spark, lake).inputFiles()) == 1
    assert verify.run(None, pipeline, say=said.append) == 0, said
