"""`ship` starts from every state that a killed driver leaves, and from those that others have made."""

import json
import subprocess
import sys

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake import replay, verify
from klamm_spark.lake.layout import Lake, committed_files
from klamm_spark.lake.ship_lock import only_writer
from klamm_spark.settings.spark import Pipeline
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import reseal, settings_of
from tests.spark.test_cluster import environment


def seqs_of(spark, lake):
    return sorted(row.seq for row in lake.read_events(spark).select("seq").collect())


STEPS = ("before the checkpoint's commit", "before the sink's commit", "before the data", "before the offsets")


def last_batch_with_rows(checkpoint):
    """Behind it, there may be batches that only advance the watermark."""
    offsets = {
        int(path.name): json.loads(path.read_text().splitlines()[-1])
        for path in (checkpoint / "offsets").glob("[0-9]*")
    }
    return min(batch for batch, offset in offsets.items() if offset == offsets[max(offsets)])


def forget(log, first):
    """Remove the batches of a log from this one on."""
    for path in list(log.glob("[0-9]*")):
        if int(path.stem) >= first:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _delta_batch(commit):
    """The number of a stream's batch that a commit of Delta is of; -1 for others."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    return max((action["txn"]["version"] for action in actions if "txn" in action), default=-1)


def kill_at(step, table, checkpoint):
    """Make the state that a driver leaves which is killed at a step of a query's last batch with rows."""
    batch, steps = last_batch_with_rows(checkpoint), STEPS.index(step)
    forget(checkpoint / "commits", batch)
    forget(checkpoint / "offsets", batch + (steps < 3))
    forget(table / "_spark_metadata", batch + (steps < 1))
    for commit in (table / "_delta_log").glob("[0-9]*.json"):
        if _delta_batch(commit) >= batch + (steps < 1):
            commit.unlink()
            commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
            commit.with_suffix(".crc").unlink(missing_ok=True)
    if steps < 2:
        return
    named = {path.name for path in committed_files(table)}
    for path in list(table.rglob("part-*.parquet")):
        if path.name not in named:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_two_at_a_time_are_refused(ship, tmp_path):
    lake = Lake(tmp_path / "lake", "parquet")
    write_sample_spool(tmp_path / "spool", sample_events(10))
    code = (
        "import pathlib, sys\nfrom klamm_spark.lake.layout import Lake\n"
        "from klamm_spark.lake.ship_lock import only_writer\n"
        f"with only_writer(Lake(pathlib.Path({str(lake.root)!r}), 'parquet')):\n    print('locked', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(LakeError, match=f"process {other.pid} ships to {lake.root} already"):
            ship(tmp_path / "spool", settings_of(lake.root))
        other.kill()
    with only_writer(lake):
        pass


def test_a_segment_that_was_deleted_before_it_was_read_is_named_and_stops_no_other(spark, ship, tmp_path):
    settings, lake = settings_of(tmp_path / "lake"), Lake(tmp_path / "lake", "parquet")
    write_sample_spool(tmp_path / "spool", sample_events(10))
    ship(tmp_path / "spool", settings)
    (gone,) = write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=10))
    ship(tmp_path / "spool", settings)
    # The driver is killed when it has listed the segment, and retention deletes it.
    kill_at(STEPS[2], lake.events, lake.ship_checkpoint)
    gone.unlink()
    write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=20))
    said = ship(tmp_path / "spool", settings)
    assert [line for line in said if line.startswith(f"{gone} was deleted before it was shipped")]
    assert seqs_of(spark, lake) == [*range(10), *range(20, 30)]
    said = []
    assert verify.run(spark, Pipeline(tmp_path / "spool", settings), say=said.append) == 1
    assert "  lost, and no audit_gap reports it: 10-19" in said


@pytest.mark.slow
def test_lines_of_the_quarantine_that_are_events_by_now_are_replayed_once(spark, ship, tmp_path):
    settings, lake = settings_of(tmp_path / "lake"), Lake(tmp_path / "lake", "parquet")
    pipeline = Pipeline(tmp_path / "spool", settings)
    (path,) = write_sample_spool(tmp_path / "spool", sample_events(6))
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    # An earlier klamm did not take these two for events, nor the third, which is none.
    path.write_text(
        "".join([*lines[:3], *(line.replace('"kind"', '"kind_"') for line in lines[3:5]), "none\n", lines[5]])
    )
    reseal([path])
    ship(tmp_path / "spool", settings)
    rows = lake.read(spark).where("bad_line is not null")
    assert rows.count() == 3
    _quarantined_by_an_earlier_klamm(lake, spark)
    said = []
    for _ in range(2):
        assert replay.run(spark, pipeline, say=said.append) == 0
    assert said[0].startswith("2 lines of the quarantine are events: klamm audit ship takes them from ")
    assert said[1] == "1 lines of the quarantine are no events, or are in the lake or on their way already"
    ship(tmp_path / "spool", settings)
    assert seqs_of(spark, lake) == list(range(6))
    path.write_text(whole)
    reseal([path])
    assert replay.run(spark, pipeline, say=said.append) == 0
    assert said[-1] == "3 lines of the quarantine are no events, or are in the lake or on their way already"


def _quarantined_by_an_earlier_klamm(lake, spark):
    """The quarantine's lines as this klamm can read them."""
    for file in (lake.events / "date=__HIVE_DEFAULT_PARTITION__").rglob("part-*.parquet"):
        import pyarrow.parquet as pq

        table = pq.read_table(file, partitioning=None)
        place = table.column_names.index("bad_line")
        lines = [line and line.replace('"kind_"', '"kind"') for line in table.column(place).to_pylist()]
        changed = table.set_column(place, "bad_line", [lines])
        pq.write_table(changed.cast(table.schema), file)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("sink", "step"), [*(("parquet", step) for step in STEPS), *(("delta", step) for step in STEPS[:2])]
)
def test_a_driver_killed_at_a_step_repeats_and_loses_nothing(spark, ship, tmp_path, sink, step):
    settings, lake, first = settings_of(tmp_path / "lake", sink=sink), Lake(tmp_path / "lake", sink), 0
    for _ in range(2):
        write_sample_spool(tmp_path / "spool", sample_events(100, first_seq=first))
        ship(tmp_path / "spool", settings)
        first += 100
    kill_at(step, lake.events, lake.ship_checkpoint)
    ship(tmp_path / "spool", settings)
    assert seqs_of(spark, lake) == list(range(first))
