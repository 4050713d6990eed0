"""Tests of the reader of a table's log: which files it reads."""

import os

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
from klamm_spark import cli
from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.table_log import check_table_log
from tests.audit_samples import sample_events, write_sample_spool

STRAY = "99999999999999999999.checkpoint.parquet"


@pytest.mark.parametrize("stray", [False, True])
def test_a_checkpoint_without_a_version_is_ignored(tmp_path, stray):
    """Delta ignores such a checkpoint."""
    write_sample_spool(tmp_path / "spool", sample_events(20), final=True)
    assert cli.main(["ship", "--once", "--spool", str(tmp_path / "spool"), "--lake", str(tmp_path / "lake")]) == 0
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
