"""`format("klamm_audit")`: the same events as the lake, and a live tail without loss or repetition."""

import json

import pytest

from klamm_spark.spool_layout import SegmentName
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import BAD_LINES, EVENTS

BOOT = "019b8ff8d000c0ffee00"


@pytest.fixture(scope="module")
def source(spark):
    from klamm_spark.data_source import register

    register(spark)
    return spark


def test_a_spool_as_a_table(source, shipped):
    from tests.spark.test_ship import plain

    spool = shipped.pipeline.spool
    table = source.read.format("klamm_audit").load(str(spool / ".." / "spool"))
    rows = table.where("bad_line is null").dropDuplicates(["event_id"]).orderBy("seq").collect()
    assert [plain(row) for row in rows] == shipped.events
    assert table.where("bad_line is null").count() == EVENTS + 1_000, "a copied segment is there as it is"
    bad = [row.bad_line for row in table.where("bad_line is not null").collect()]
    assert sorted(bad) == sorted(BAD_LINES)


@pytest.fixture
def follow(source, tmp_path):
    """Run a stream to the end of what is there; the numbers of all micro-batches so far, and rows per batch."""

    def run(**options):
        stream = source.readStream.format("klamm_audit").options(**options).load(str(tmp_path / "spool"))
        writer = stream.select("seq").writeStream.format("json").option("checkpointLocation", str(tmp_path / "check"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
        rows = source.read.schema("seq long").json(str(tmp_path / "out")).collect()
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


def test_a_spool_at_a_uri_is_refused():
    from klamm_spark.data_source import AuditDataSource

    with pytest.raises(ValueError, match=r"reads a spool in a folder, not at s3a://bucket/spool: klamm audit ship"):
        AuditDataSource({"path": "s3a://bucket/spool"}).reader(None)
