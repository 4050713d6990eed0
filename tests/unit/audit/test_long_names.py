"""Texts that many rows or seals of the lake may repeat are at most as long as those that servers write."""

from dataclasses import replace

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
import pyarrow as pa
import pyarrow.parquet as pq

from klamm_spark.errors import LakeError
from klamm_spark.lake import appends, forget, scanned, ship
from klamm_spark.lake.appends import Named, append
from klamm_spark.lake.files import TableFile
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.seals import Ledger
from klamm_spark.lake.tasks import Tasks
from klamm_spark.lake.written import FILE, DataFile
from klamm_spark.settings.spark import Pipeline, SparkSettings
from klamm_spark.spool.layout import Seal
from tests.audit_samples import sample_events, write_sample_spool

HOUR_US = 3_600_000_000


def file_of(folder, rows, **values):
    """Return a file of the table that has only these columns."""
    columns = {field.name: values.get(field.name, pa.nulls(rows, field.type)) for field in FILE}
    pq.write_table(pa.table(columns, FILE), folder / "part.parquet")
    return TableFile(str(folder / "part.parquet"), None)


@pytest.mark.parametrize(
    ("column", "length", "is_named"),
    [("source_file", 4096, False), ("source_file", 4097, True), ("node", 1024, False), ("node", 1025, True)],
)
def test_a_text_that_is_longer_than_those_of_servers_is_named(tmp_path, column, length, is_named):
    found = scanned.scan(file_of(tmp_path, 1, **{column: ["x" * length]})).problems
    assert ["a text of more than" in line for line in found] == [True] * is_named


@pytest.mark.parametrize(
    ("source", "segment"),
    [
        ("/spool/n/a-1.jsonl.zst", "a-1"),
        ("a-1.jsonl", "a-1"),
        ("s3://b/a/b.jsonl.gz", "b"),
        ("/spool/.jsonl", ""),
        ("a-1.jsonl/", ""),
        ("a-1.json", ""),
        (f"/spool/{'a' * 249}.jsonl", "a" * 249),
        (f"/spool/{'a' * 250}.jsonl", ""),
    ],
)
def test_a_row_must_belong_to_the_segment_of_its_file(tmp_path, source, segment):
    assert list(scanned.scan(file_of(tmp_path, 1, source_file=[source])).segments) == [segment]


def test_the_names_of_many_nodes_count_toward_the_limit_of_memory(tmp_path, monkeypatch):
    counted = []
    monkeypatch.setattr(scanned, "_check_kept", counted.append)
    nodes = [f"{'n' * 1000}{number}" for number in range(100)]
    file = file_of(tmp_path, 100, node=nodes, boot=["b"] * 100, seq=list(range(100)))
    scanned.scan(file)
    assert max(counted) > 100_000


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "lake")


@pytest.mark.parametrize(("length", "is_aside"), [(4096, False), (4097, True)])
@pytest.mark.parametrize("name", ["sisters", "key_id", "signature"])
def test_a_segment_whose_seal_has_a_long_text_is_set_aside(tmp_path, lake, name, length, is_aside):
    (path,) = write_sample_spool(tmp_path / "spool", sample_events(10))
    seal = Seal.read(path.with_suffix(".seal"))
    text = "m:0:c".ljust(length, ",") if name == "sisters" else "x" * length
    path.with_suffix(".seal").write_bytes(replace(seal, **{name: text}).to_json())
    ledger = Ledger(tmp_path / "spool", lake, lambda line: None)
    assert (ledger.admit(path) is None) == is_aside
    assert [f"{name} of a seal has at most 4,096" in reason for reason in ledger.aside.values()] == [True] * is_aside


@pytest.mark.parametrize(
    ("limit", "value", "files", "sizes"),
    [
        ("_MOST_SEGMENTS", 2, 100, [2, 2, 1]),
        ("_MOST_SEGMENTS", 2, 0, [2, 2, 1]),
        ("_MOST_SEAL_BYTES", 1, 100, [1, 1, 1, 1, 1]),
        ("_MOST_SEAL_BYTES", 1, 0, [1, 1, 1, 1, 1]),
        ("_MOST_SEAL_BYTES", 1 << 20, 3, [3, 2]),
    ],
)
def test_a_batch_has_at_most_as_many_seals_as_a_commit_may_have(
    tmp_path, lake, monkeypatch, limit, value, files, sizes
):
    write_sample_spool(tmp_path / "spool", sample_events(50), events_per_segment=10)
    monkeypatch.setattr(ship, limit, value)
    settings = SparkSettings(lake=lake.root, max_files_per_trigger=files)
    shipper = ship.Shipper(Tasks(), tmp_path / "spool", lake, settings, lambda line: None)
    shipper.look()
    found = list(iter(shipper.next_batch, []))
    assert [len(each) for each in found] == sizes


def test_a_commit_that_readers_could_not_read_is_refused(lake, monkeypatch):
    file = DataFile("date=2026-01-01/hour=0/part-0.parquet", "2026-01-01", "0", 1, '{"numRecords":1}')
    named = Named({"a": '"' * 1000}, {})
    append(lake, [file], named)
    (commit, *_) = sorted((lake.events / "_delta_log").glob("*.json"), reverse=True)
    for most in (commit.stat().st_size - 800, 1000):
        monkeypatch.setattr(appends, "MOST_COMMIT_BYTES", most)
        with pytest.raises(LakeError, match=r"would have [\d,]+ bytes of seals and [\d,]+ of 1 files"):
            append(lake, [file], named)
    monkeypatch.setattr(appends, "MOST_COMMIT_BYTES", commit.stat().st_size + 1000)
    append(lake, [file], named)
    assert len(list((lake.events / "_delta_log").glob("*.json"))) == 3


@pytest.mark.parametrize(("until", "is_refused"), [(0, False), (2, False), (3, True)])
def test_a_deletion_from_more_files_than_a_commit_may_have_is_refused_before_a_record(
    tmp_path, lake, monkeypatch, until, is_refused
):
    monkeypatch.setattr(forget, "_MOST_FILES", 2)
    events = list(sample_events(8, step_us=HOUR_US // 2))
    pipeline = Pipeline(tmp_path / "spool", SparkSettings(lake=lake.root))
    write_sample_spool(tmp_path / "spool", events)
    ship.run(None, pipeline, once=True, say=lambda line: None)
    refused = False
    try:
        forget.run(pipeline, before_us=events[0]["time_us"] + until * HOUR_US, say=lambda line: None)
    except LakeError as error:
        refused = "3 files have old events" in str(error)
    assert (refused, lake.table().version()) == (is_refused, 1 if is_refused or not until else 2)
    assert lake.forgotten.exists() == (bool(until) and not is_refused)
