"""Tests of the reader of a table's log: which files it reads."""

import os

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
from klamm_spark import cli
from klamm_spark.errors import LakeError
from klamm_spark.lake import layout, table_log
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.table_log import check_table_log
from tests.audit_samples import sample_events, write_sample_spool

STRAY = "99999999999999999999.checkpoint.parquet"


def ship(folder):
    return cli.main(["ship", "--once", "--spool", str(folder / "spool"), "--lake", str(folder / "lake")])


@pytest.mark.parametrize("stray", [False, True])
def test_a_checkpoint_without_a_version_is_ignored(tmp_path, stray):
    """Delta ignores such a checkpoint."""
    write_sample_spool(tmp_path / "spool", sample_events(20), final=True)
    assert ship(tmp_path) == 0
    lake = Lake(tmp_path / "lake")
    folder = lake.events / "_delta_log"
    check_table_log(folder, lake.require_events())
    commit = max(folder.glob("*.json"))
    commit.unlink()
    os.mkfifo(commit)
    if stray:
        (folder / STRAY).write_bytes(b"PAR1")
    with pytest.raises(LakeError, match="is no file"):
        check_table_log(folder, lake.require_events())


def test_commits_that_are_too_large_together_are_named_and_ship_makes_a_checkpoint_before(tmp_path, monkeypatch):
    for number in range(4):
        write_sample_spool(tmp_path / "spool", sample_events(20, node=f"node-{number}"))
        assert ship(tmp_path) == 0
    lake = Lake(tmp_path / "lake")
    folder = lake.events / "_delta_log"
    size_bytes = check_table_log(folder, lake.require_events())
    assert size_bytes == sum(path.stat().st_size for path in sorted(folder.glob("*.json"))[1:])
    monkeypatch.setattr(table_log, "MOST_COMMITS_BYTES", size_bytes - 1)
    with pytest.raises(LakeError, match=f"since its last checkpoint have {size_bytes:,} bytes, and at most"):
        lake.table()
    monkeypatch.setattr(table_log, "MOST_COMMITS_BYTES", size_bytes)
    monkeypatch.setattr(layout, "MOST_COMMIT_BYTES", size_bytes)
    assert ship(tmp_path) == 0
    assert not list(folder.glob("*.checkpoint.parquet"))
    monkeypatch.setattr(layout, "MOST_COMMIT_BYTES", size_bytes - 1)
    write_sample_spool(tmp_path / "spool", sample_events(20, node="node-9"))
    assert ship(tmp_path) == 0
    assert len(list(folder.glob("*.checkpoint.parquet"))) == 1
    assert check_table_log(folder, lake.require_events()) == max(folder.glob("*.json")).stat().st_size
