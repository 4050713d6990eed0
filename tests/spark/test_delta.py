"""The commands on a Delta lake: report, compaction, and which files are orphans."""

from klamm_spark.settings.spark import Pipeline
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of

EVENTS = 400


def test_report_compact_and_verify(spark, ship, tmp_path):
    from klamm_spark.lake import compact, verify
    from klamm_spark.lake.layout import Lake
    from klamm_spark.report.command import build

    settings = settings_of(tmp_path / "lake", sink="delta", max_files_per_trigger=1)
    pipeline, lake = Pipeline(tmp_path / "spool", settings), Lake(tmp_path / "lake", "delta")
    events = list(sample_events(EVENTS))
    write_sample_spool(tmp_path / "spool", events, events_per_segment=EVENTS // 2)
    ship(tmp_path / "spool", settings)
    denied = sorted(e["event_id"] for e in events if e["outcome"] == "denied" and e["kind"] == "request")
    said = []
    assert compact.run(spark, pipeline, keep_hours=1, say=said.append) == 0
    assert f"{lake.events}: optimized; replaced files are kept for 168 hours" in said
    report = build(spark, lake)
    assert (report.totals["events"], report.totals["denied"]) == (EVENTS, len(denied))
    assert sum(row[7] for row in report.tables["denials"].rows) == len(denied)
    # Small files that OPTIMIZE has replaced are no orphans; what no commit knows is.
    assert len(list(lake.events.rglob("part-*.parquet"))) > len(lake.read(spark).inputFiles())
    orphan = lake.events / "date=2026-01-01" / "hour=0" / "part-orphan.parquet"
    orphan.write_bytes(b"left by a driver")
    write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=EVENTS))
    said = []
    assert verify.run(spark, pipeline, say=said.append) == 3
    assert f"  not shipped: {EVENTS}-{EVENTS + 9}" in said
    assert [line for line in said if line.startswith("orphan")] == [
        f"orphan: {orphan} is not in the commit log: no query reads it"
    ]
