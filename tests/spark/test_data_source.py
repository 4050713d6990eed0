"""`format("klamm_audit")`: the same events as the lake, and a live tail without loss or repetition."""

import json
import pickle
import subprocess
import sys

import pytest

from klamm_spark.spool.compression import compress
from klamm_spark.spool.layout import SegmentName
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import BAD_LINES, EVENTS
from tests.spark.test_cluster import ROOT, environment

BOOT = "019b8ff8d000c0ffee00"


def test_a_spool_as_a_table(spark, shipped):
    from tests.spark.test_ship import plain

    spool = shipped.pipeline.spool
    table = spark.read.format("klamm_audit").load(str(spool / ".." / "spool"))
    rows = table.where("bad_line is null").dropDuplicates(["event_id"]).orderBy("seq").collect()
    assert [plain(row) for row in rows] == shipped.events
    assert table.where("bad_line is null").count() == EVENTS + 1_000, "a copied segment is there as it is"
    bad = [row.bad_line for row in table.where("bad_line is not null").collect()]
    assert sorted(bad) == sorted(BAD_LINES)


@pytest.fixture
def follow(spark, tmp_path):
    """Run a stream to the end of what is there; the numbers of all micro-batches so far, and rows per batch."""

    def run(**options):
        stream = spark.readStream.format("klamm_audit").options(**options).load(str(tmp_path / "spool"))
        writer = stream.select("seq").writeStream.format("json").option("checkpointLocation", str(tmp_path / "check"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
        rows = spark.read.schema("seq long").json(str(tmp_path / "out")).collect()
        return sorted(row.seq for row in rows), [progress.numInputRows for progress in query.recentProgress]

    return run


def lines(events):
    return "".join(json.dumps(event) + "\n" for event in events)


def test_the_open_segment_is_followed_through_its_sealing(follow, tmp_path):
    folder = tmp_path / "spool" / "node-1"
    folder.mkdir(parents=True)
    path = folder / f"{SegmentName(BOOT, 0).stem}.open"
    text = lines(sample_events(30))
    torn = text.index("\n", len(text) // 2) + 20
    path.write_text(text[:torn])
    numbers, _ = follow()
    assert numbers == list(range(len(numbers)))
    assert 0 < len(numbers) < 30
    path.write_text(text)
    path.rename(folder / f"{SegmentName(BOOT, 0).stem}.jsonl")
    (folder / f"{SegmentName(BOOT, 30).stem}.open").write_text(lines(sample_events(5, first_seq=30)))
    assert follow()[0] == list(range(35))


def test_a_batch_takes_no_more_than_it_may(follow, tmp_path):
    write_sample_spool(tmp_path / "spool", sample_events(300), events_per_segment=100)
    numbers, sizes = follow(maxBytesPerTrigger="60000")
    assert numbers == list(range(300))
    assert len([size for size in sizes if size]) >= 4
    assert max(sizes) <= 100


def test_segments_deleted_unread_stop_the_stream_by_default(follow, tmp_path):
    from pyspark.errors import StreamingQueryException

    folder = tmp_path / "spool" / "node-1"
    folder.mkdir(parents=True)
    path = folder / f"{SegmentName(BOOT, 0).stem}.open"
    path.write_text(lines(sample_events(5)))
    follow()
    path.unlink()
    write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=10))
    with pytest.raises(StreamingQueryException, match="deleted before it was read"):
        follow()
    assert follow(failOnDataLoss="false")[0] == [*range(5), *range(10, 20)]


def test_a_spool_at_a_uri(tmp_path):
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    from klamm_spark.spark.data_source import AuditDataSource, read_batches
    from klamm_spark.spool.offsets import SpoolFollower
    from klamm_spark.storage.arrow_paths import ArrowPath

    for path in write_sample_spool(tmp_path / "spool", sample_events(300), events_per_segment=100):
        path.with_suffix(".jsonl.zst").write_bytes(compress(path.read_bytes(), "zstd"))
        path.unlink()
    write_sample_spool(tmp_path / "spool", sample_events(50, node="node-2"))
    far = ArrowPath("spool", SubTreeFileSystem(str(tmp_path), LocalFileSystem()))
    follower = pickle.loads(pickle.dumps(SpoolFollower(far, True)))
    pieces = follower.pieces({}, follower.latest({}))
    assert sum(len(batch) for piece in pieces for batch in read_batches(follower, piece)) == 350
    half = follower.latest({}, 40_000)
    assert pieces != follower.pieces({}, half)
    rest = follower.pieces(half, follower.latest(half))
    numbers = [len(follower.read(piece).splitlines()) for piece in [*follower.pieces({}, half), *rest]]
    assert sum(numbers) == 350
    with pytest.raises(ValueError, match="klamm_audit cannot read viewfs://x/spool: PyArrow says"):
        AuditDataSource({"path": "viewfs://x/spool"}).reader(None)


CONDITIONS = (
    "time_us >= {middle}",
    "time > timestamp_micros({middle}) and outcome = 'denied'",
    "principal in ('User:user-1', 'User:user-2') and total_time_ms < 0.5",
    "node = 'node-2' and seq <= 20",
    "node in ('node-1', 'other') and kind = 'connection'",
    "resource_count is null and not action = 'completed'",
    "bad_line is null and client_id is not null and api_key = 1 and api_version < 99999999999",
    "principal like 'User:user-1%' and size(resources) = 1",
    "node = 'none'",
)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_that_are_pushed_down_change_nothing(spark, two_nodes, condition):
    spool, middle = two_nodes
    condition = condition.format(middle=middle)
    every = spark.read.format("klamm_audit").load(spool)
    spark.conf.set(PUSHDOWN, "false")
    expected = {row.event_id for row in every.where(condition).collect()}
    spark.conf.set(PUSHDOWN, "true")
    assert {row.event_id for row in every.where(condition).collect()} == expected
    assert bool(expected) == (condition != "node = 'none'")


def test_old_segments_and_other_nodes_are_not_opened(spark, two_nodes, tmp_path):
    spool, middle = two_nodes
    rows = spark.read.format("klamm_audit").load(spool)
    spark.conf.set(PUSHDOWN, "true")
    # Where there is nothing to read, Spark has one partition.
    assert rows.rdd.getNumPartitions() == 10
    for condition, parts in ((f"time_us >= {middle}", 4), ("node = 'node-2'", 4), ("node = 'none'", 1)):
        assert rows.where(condition).rdd.getNumPartitions() == parts, condition


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def two_nodes(spark, tmp_path):
    """Ten segments; and a time in the middle of the first node's."""
    events = list(sample_events(600))
    write_sample_spool(tmp_path / "spool", events, events_per_segment=100)
    write_sample_spool(tmp_path / "spool", sample_events(400, node="node-2", seed=2), events_per_segment=100)
    before = spark.conf.get(PUSHDOWN)
    yield str(tmp_path / "spool"), events[350]["time_us"]
    spark.conf.set(PUSHDOWN, before)


def test_a_notebook_finds_the_format_by_itself(tmp_path):
    """In a process of its own: no other test has a session there."""
    write_sample_spool(tmp_path / "spool", sample_events(2000), events_per_segment=500)
    notebook = json.loads((ROOT / "examples" / "audit" / "notebook.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    program = tmp_path / "notebook.py"
    program.write_text("\n\n".join(cells))
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=200,
        env=environment() | {"KLAMM_AUDIT_SPOOL": str(tmp_path / "spool")},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    failed = sum(event.get("action") == "failure" for event in sample_events(2000))
    assert f"{failed} failed logins" in done.stdout
    assert "2000 events came through the stream" in done.stdout
    assert all(not cell.get("outputs") for cell in notebook["cells"])
