"""Tests of the reader of a table's log: which files it reads."""

import json
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
    assert size_bytes == sum(path.stat().st_size for path in folder.glob("*.json"))
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


def test_a_checksum_of_a_version_that_is_too_large_is_named(tmp_path, monkeypatch):
    """deltalake reads the newest one as a whole. klamm writes none, but Spark does."""
    write_sample_spool(tmp_path / "spool", sample_events(20))
    assert ship(tmp_path) == 0
    lake = Lake(tmp_path / "lake")
    folder = lake.events / "_delta_log"
    monkeypatch.setattr(table_log, "MOST_COMMIT_BYTES", 100_000)
    path = max(folder.glob("*.json")).with_suffix(".crc")
    path.write_text("{}" + " " * 99_998)
    check_table_log(folder, lake.require_events())
    path.write_text("{}" + " " * 99_999)
    with pytest.raises(LakeError, match=f"{path.name} has 100,001 bytes, and at most 100,000 are read"):
        lake.table()


@pytest.mark.parametrize("place", ["commit", "checkpoint"])
def test_features_that_the_checksum_of_a_version_hides_are_named(tmp_path, capsys, place):
    """deltalake believes the checksum, and other readers the commits or the checkpoint."""
    write_sample_spool(tmp_path / "spool", sample_events(20), final=True)
    assert ship(tmp_path) == 0
    lake = Lake(tmp_path / "lake")
    actions = [json.loads(line) for line in min((lake.events / "_delta_log").glob("*.json")).read_text().splitlines()]
    protocol, table = (next(each[name] for each in actions if name in each) for name in ("protocol", "metaData"))
    path = lake.events / "_delta_log" / f"{lake.table().version() + 1:020}.json"
    mapped = {"metaData": table | {"configuration": {"delta.columnMapping.mode": "name"}}}
    commit = path
    if place == "checkpoint":
        path.write_text(json.dumps({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}))
        lake.table().create_checkpoint()
        path = path.with_suffix(".checkpoint.parquet")
        commit.write_text(json.dumps({"commitInfo": {}}))
    else:
        path.write_text(json.dumps(mapped))
    checksum = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}
    commit.with_suffix(".crc").write_text(json.dumps(checksum | {"metadata": table, "protocol": protocol}))
    assert lake.table().protocol().min_reader_version == 1
    assert not lake.table().metadata().configuration.keys() & mapped["metaData"]["configuration"].keys()
    capsys.readouterr()
    assert cli.main(["verify", "--lake", str(tmp_path / "lake")]) == 1
    named = f"broken chain: {path} gives the table features or partitions that ship does not give it"
    assert named in capsys.readouterr().out
