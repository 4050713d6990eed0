"""`format("klamm_audit")`: the same events as the lake, and a live tail without loss or repetition."""

import json
import pickle
import subprocess
import sys

import pytest

from klamm_spark.cli import main
from klamm_spark.findings.detections import SEVERITIES
from klamm_spark.spool.compression import compress
from klamm_spark.spool.layout import SegmentName
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import BAD_LINES, EVENTS
from tests.spark.test_cluster import ROOT, environment
from tests.unit.audit.test_detections import CASES

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


def test_a_spool_that_is_packed_is_read_in_parts(tmp_path):
    from klamm_spark.spark.data_source import read_batches
    from klamm_spark.spool.offsets import SpoolFollower

    for path in write_sample_spool(tmp_path / "spool", sample_events(300), events_per_segment=100):
        path.with_suffix(".jsonl.zst").write_bytes(compress(path.read_bytes(), "zstd"))
        path.unlink()
    write_sample_spool(tmp_path / "spool", sample_events(50, node="node-2"))
    follower = pickle.loads(pickle.dumps(SpoolFollower(tmp_path / "spool", True)))
    pieces = follower.pieces({}, follower.latest({}))
    assert sum(len(batch) for piece in pieces for batch in read_batches(follower, piece)) == 350
    half = follower.latest({}, 40_000)
    assert pieces != follower.pieces({}, half)
    rest = follower.pieces(half, follower.latest(half))
    numbers = [len(follower.read(piece).splitlines()) for piece in [*follower.pieces({}, half), *rest]]
    assert sum(numbers) == 350


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"lives": "true"}, "klamm_audit has no option lives, only path, live"),
        ({"live": "perhaps"}, 'the option live takes true or false, not "perhaps"'),
        ({"path": "s3a://b/spool"}, "the format klamm_audit reads a folder, not s3a://b/spool: Spark"),
    ],
)
def test_a_wrong_option_is_an_error(options, problem):
    from klamm_spark.spark.data_source import AuditDataSource

    with pytest.raises(ValueError, match=problem):
        AuditDataSource({"path": "/spool", **options}).reader(None)


def test_no_scan_gets_the_filter_of_another(spark, two_nodes):
    """With Spark's push-down, which a session may have for other formats."""
    spool, events = two_nodes
    spark.conf.set(PUSHDOWN, "true")
    rows = spark.read.format("klamm_audit").load(spool)
    kinds = sorted({event["kind"] for event in events})
    counts = [rows.where(f"kind = '{kind}'").agg({"seq": "count"}) for kind in kinds]
    together = counts[0]
    for one in counts[1:]:
        together = together.union(one)
    assert [row[0] for row in together.collect()] == [sum(one["kind"] == kind for one in events) for kind in kinds]


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def two_nodes(spark, tmp_path):
    """Ten segments of two nodes, and their events."""
    first, second = list(sample_events(600)), list(sample_events(400, node="node-2", seed=2))
    write_sample_spool(tmp_path / "spool", first, events_per_segment=100)
    write_sample_spool(tmp_path / "spool", second, events_per_segment=100)
    before = spark.conf.get(PUSHDOWN)
    yield str(tmp_path / "spool"), [*first, *second]
    spark.conf.set(PUSHDOWN, before)


def attacks():
    """What each of some detections fires on, one after another, each by accounts and from an address of its own."""
    seq = 0
    for number, name in enumerate(("grant_then_read", "success_after_failures", "password_spraying", "mass_delete")):
        text = json.dumps(CASES[name][0][0]).replace("10.0.0.", f"10.9.{number}.").replace("User:", f"User:{name}-")
        for event in json.loads(text):
            yield {**event, "node": "n", "boot": "019b8ff8d000c0ffee09", "seq": seq, "event_id": f"n/{seq}"}
            seq += 1


@pytest.mark.timeout(1000)
def test_a_notebook_finds_what_detect_finds(tmp_path, capsys):
    """In a process of its own: no other test has a session there."""
    spool = tmp_path / "spool"
    write_sample_spool(spool, sample_events(2000), events_per_segment=500)
    write_sample_spool(spool, attacks())
    assert main(["detect", str(spool), "--format", "ocsf"]) == 0
    detected = sorted(map(line_of_finding, map(json.loads, capsys.readouterr().out.splitlines())))
    assert {line.split()[0] for line in detected} == {"critical", "high", "low"}

    notebook = json.loads((ROOT / "examples" / "audit" / "notebook.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    program = tmp_path / "notebook.py"
    program.write_text("\n\n".join(cells))
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=900,
        env=environment() | {"KLAMM_AUDIT_SPOOL": str(spool)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith(SEVERITIES)) == detected
    events = [*sample_events(2000), *attacks()]
    failed = sum(event["action"] == "failure" for event in events)
    assert f"{failed} failed logins" in done.stdout
    assert f"{len(events)} events came through the stream" in done.stdout
    assert all(not cell.get("outputs") for cell in notebook["cells"])


def line_of_finding(finding):
    """As the notebook prints it."""
    severity = ("low", "medium", "high", "critical")[finding["severity_id"] - 2]
    (evidence,) = finding.get("evidences", [{}])
    account = evidence.get("actor", {}).get("user", {}).get("uid", "")
    what = "".join(one["name"] for one in finding.get("resources", ()))
    title, _, detail = finding["message"].partition(": ")
    return f"{severity} {title} {account} {evidence.get('src_endpoint', {}).get('ip', '')} {what} {detail}"
