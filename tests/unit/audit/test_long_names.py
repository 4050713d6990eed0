"""Texts of the lake that repeat in all rows of a file, or in all seals of a commit, are as short as servers write them."""

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
import pyarrow as pa
import pyarrow.parquet as pq

from klamm_spark.lake import scanned
from klamm_spark.lake.files import TableFile
from klamm_spark.lake.written import FILE


def file_of(folder, rows, **values):
    """A file of the table that has these columns alone."""
    columns = {field.name: values.get(field.name, pa.nulls(rows, field.type)) for field in FILE}
    pq.write_table(pa.table(columns, FILE), folder / "part.parquet")
    return TableFile(str(folder / "part.parquet"), None)


@pytest.mark.parametrize(
    ("column", "length", "is_named"),
    [("source_file", 4096, False), ("source_file", 4097, True), ("node", 1024, False), ("node", 1025, True)],
)
def test_a_text_that_is_longer_than_a_server_s_is_named(tmp_path, column, length, is_named):
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
def test_a_row_is_of_the_segment_of_its_file(tmp_path, source, segment):
    assert list(scanned.scan(file_of(tmp_path, 1, source_file=[source])).segments) == [segment]


def test_the_names_of_many_nodes_count_as_what_is_kept(tmp_path, monkeypatch):
    counted = []
    monkeypatch.setattr(scanned, "_check_kept", counted.append)
    nodes = [f"{'n' * 1000}{number}" for number in range(100)]
    file = file_of(tmp_path, 100, node=nodes, boot=["b"] * 100, seq=list(range(100)))
    scanned.scan(file)
    assert max(counted) > 100_000
