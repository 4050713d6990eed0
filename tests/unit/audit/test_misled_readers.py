"""Commits that lead other readers of the lake to other rows or values than those that `verify` proves are named."""

import json

import pytest

from tests.audit_samples import sample_events, write_sample_spool

pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
pytest.importorskip("duckdb")
from klamm_spark import cli
from klamm_spark.lake.files import files_of
from klamm_spark.lake.layout import Lake

FIRST_ROW = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 34, "cardinality": 1}


@pytest.fixture
def lake(tmp_path):
    write_sample_spool(tmp_path / "spool", sample_events(20), final=True)
    assert cli.main(["ship", "--once", "--spool", str(tmp_path / "spool"), "--lake", str(tmp_path / "lake")]) == 0
    return Lake(tmp_path / "lake")


@pytest.fixture
def verified(lake, capsys):
    def run():
        capsys.readouterr()
        code, said = cli.main(["verify", str(lake.root)]), capsys.readouterr()
        return code, said.out + said.err

    return run


def change(lake, kind, edit):
    """Change the actions of a kind in all commits. Return the commits that have some."""
    found = []
    for commit in sorted((lake.events / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if kind in action:
                edit(action[kind])
                found.append(commit)
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return found


@pytest.mark.parametrize("rows", [1, 2, 1_000])
def test_a_lake_with_a_checkpoint_is_sound(lake, verified, rows):
    """A group of the checkpoint's rows may have no added file, or nothing of the table."""
    import pyarrow.parquet as pq

    lake.table().create_checkpoint()
    (path,) = (lake.events / "_delta_log").glob("*.checkpoint.parquet")
    pq.write_table(pq.ParquetFile(path).read(), path, row_group_size=rows)
    code, said = verified()
    assert code == 0, said


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_vector_of_deleted_rows_is_named(lake, verified, checkpoint):
    """The Delta library leaves out these rows, although the table has no such feature."""
    (file,) = files_of(lake)
    change(lake, "add", lambda add: add.update(deletionVector=FIRST_ROW))
    if checkpoint:
        lake.table().create_checkpoint()
        change(lake, "add", lambda add: add.pop("deletionVector"))
    code, said = verified()
    assert code == 1, said
    assert f"broken chain: {file.path}: its commit has a vector of deleted rows, and other readers skip these" in said


def test_a_partition_by_another_column_is_named(lake, verified):
    """Readers take the values of such a column from the commit."""
    (first,) = change(lake, "metaData", lambda table: table.update(partitionColumns=["date", "hour", "principal"]))
    change(lake, "add", lambda add: add["partitionValues"].update(principal="User:other"))
    code, said = verified()
    assert code == 1, said
    assert f"broken chain: {first} gives the table features or partitions that ship does not give it" in said
    assert (
        "events is partitioned by other columns, whose values readers take from the commits: date, hour, princ" in said
    )


@pytest.mark.parametrize("size_bytes", [0, 1_000])
def test_a_wrong_size_is_named(lake, verified, size_bytes):
    """Readers look for the footer at the end that the commit says, and another one may be there."""
    (file,) = files_of(lake)
    change(lake, "add", lambda add: add.update(size=size_bytes))
    code, said = verified()
    assert code == 1, said
    assert f"broken chain: {file.path}: its commit says {size_bytes:,} bytes, and it has {file.size_bytes:,}" in said
