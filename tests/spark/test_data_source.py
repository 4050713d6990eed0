"""Tests of `format("klamm_audit")`: it has the same events as the lake, and whole lines of open segments."""

import json
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


def test_spool_is_read_as_a_table(spark, shipped):
    from tests.spark.test_ship import plain

    spool = shipped.pipeline.spool
    table = spark.read.format("klamm_audit").load(str(spool / ".." / "spool"))
    rows = table.where("bad_line is null").dropDuplicates(["event_id"]).orderBy("seq").collect()
    assert [plain(row) for row in rows] == shipped.events
    assert table.where("bad_line is null").count() == EVENTS + 1_000, "a copied segment is there as it is"
    bad = [row.bad_line for row in table.where("bad_line is not null").collect()]
    assert sorted(bad) == sorted(BAD_LINES)


def test_the_open_segment_is_read_unless_live_is_false(spark, tmp_path):
    folder = tmp_path / "spool" / "node-1"
    folder.mkdir(parents=True)
    text = "".join(json.dumps(event) + "\n" for event in sample_events(30))
    (folder / f"{SegmentName(BOOT, 0).stem}.open").write_text(text[:-20])
    write_sample_spool(tmp_path / "spool", sample_events(10, node="node-2"))
    table = spark.read.format("klamm_audit")
    assert table.load(str(tmp_path / "spool")).count() == 39, "a torn line is no line yet"
    assert table.option("live", "false").load(str(tmp_path / "spool")).count() == 10


def test_a_compressed_segment_is_read_in_parts(tmp_path, monkeypatch):
    from klamm_spark.spark import data_source

    monkeypatch.setattr(data_source, "_BATCH_BYTES", 10_000)
    (path,) = write_sample_spool(tmp_path / "spool", sample_events(300))
    packed = path.with_suffix(".jsonl.zst")
    packed.write_bytes(compress(path.read_bytes(), "zstd"))
    batches = list(data_source.read_batches(packed))
    assert [number for batch in batches for number in batch.column("seq").to_pylist()] == list(range(300))
    assert len(batches) > 10


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


def test_a_scan_does_not_use_the_filter_of_another_scan(spark, two_nodes):
    """Spark's push-down is on, which a session may use for other formats."""
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
    """Return a spool with ten segments of two nodes, and their events."""
    first, second = list(sample_events(600)), list(sample_events(400, node="node-2", seed=2))
    write_sample_spool(tmp_path / "spool", first, events_per_segment=100)
    write_sample_spool(tmp_path / "spool", second, events_per_segment=100)
    before = spark.conf.get(PUSHDOWN)
    yield str(tmp_path / "spool"), [*first, *second]
    spark.conf.set(PUSHDOWN, before)


def attacks():
    """Return events that cause findings of some detections, each with its own accounts and address."""
    seq = 0
    for number, name in enumerate(("grant_then_read", "success_after_failures", "password_spraying", "mass_delete")):
        text = json.dumps(CASES[name][0][0]).replace("10.0.0.", f"10.9.{number}.").replace("User:", f"User:{name}-")
        for event in json.loads(text):
            yield {**event, "node": "n", "boot": "019b8ff8d000c0ffee09", "seq": seq, "event_id": f"n/{seq}"}
            seq += 1


@pytest.mark.timeout(1000)
def test_a_notebook_finds_what_detect_finds(tmp_path, capsys):
    """The notebook runs in its own process, because no other test has a session there."""
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
    assert all(not cell.get("outputs") for cell in notebook["cells"])


def line_of_finding(finding):
    """Return a finding as the notebook prints it."""
    severity = ("low", "medium", "high", "critical")[finding["severity_id"] - 2]
    (evidence,) = finding.get("evidences", [{}])
    account = evidence.get("actor", {}).get("user", {}).get("uid", "")
    what = "".join(one["name"] for one in finding.get("resources", ()))
    title, _, detail = finding["message"].partition(": ")
    return f"{severity} {title} {account} {evidence.get('src_endpoint', {}).get('ip', '')} {what} {detail}"
