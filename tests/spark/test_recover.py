"""A lake whose checkpoint is lost: nothing is shipped until it is recovered, and then nothing is lost or repeated."""

import shutil

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import COMMIT_LOG, Lake
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of


@pytest.fixture
def recover(spark):
    def run(spool, settings):
        from klamm_spark.lake import recover
        from klamm_spark.settings.spark import Pipeline

        said = []
        assert recover.run(spark, Pipeline(spool, settings), say=said.append) == 0
        return said

    return run


def is_complete(spark, spool, settings):
    from klamm_spark.lake import verify
    from klamm_spark.settings.spark import Pipeline

    said = []
    assert verify.run(spark, Pipeline(spool, settings), say=said.append) == 0, said
    return True


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_a_lost_checkpoint_is_refused_and_recovered(spark, ship, recover, tmp_path, sink):
    spool, lake = tmp_path / "a spool=1", Lake(tmp_path / "lake", sink)
    settings = settings_of(lake.root, sink=sink, max_files_per_trigger=1)
    write_sample_spool(spool, sample_events(300), events_per_segment=100)
    ship(spool, settings)
    shutil.rmtree(lake.root / "checkpoints")
    write_sample_spool(spool, sample_events(200, first_seq=300), events_per_segment=100)
    with pytest.raises(LakeError, match=r"checkpoints/ship was lost .* run klamm audit recover"):
        ship(spool, settings)

    said = recover(spool, settings)
    assert said[0].endswith("was built again: 3 segments of the spool are shipped already")
    assert "shipped 200 events in 2 batches" in "\n".join(ship(spool, settings))
    assert is_complete(spark, spool, settings)
    assert recover(spool, settings) == [f"{lake.ship_checkpoint} is in order"]


def test_an_old_copy_of_a_checkpoint_is_refused_and_recovered(spark, ship, recover, tmp_path):
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake", "parquet")
    settings = settings_of(lake.root)
    write_sample_spool(spool, sample_events(10))
    ship(spool, settings)
    shutil.copytree(lake.ship_checkpoint, tmp_path / "copy")
    write_sample_spool(spool, sample_events(10, first_seq=10))
    ship(spool, settings)
    shutil.rmtree(lake.ship_checkpoint)
    shutil.copytree(tmp_path / "copy", lake.ship_checkpoint)
    write_sample_spool(spool, sample_events(10, first_seq=20))
    with pytest.raises(LakeError, match="is an old copy"):
        ship(spool, settings)

    # Killed before the new commit log had its name.
    (lake.events / COMMIT_LOG).rename(lake.events / f"{COMMIT_LOG}.old")
    with pytest.raises(LakeError, match="klamm audit recover was interrupted"):
        ship(spool, settings)
    recover(spool, settings)
    ship(spool, settings)
    assert is_complete(spark, spool, settings)


def newest(folder, form="[0-9]*"):
    return max((path for path in folder.glob(form) if path.stem.isdigit()), key=lambda path: int(path.stem))


def tear(path, data):
    """As a power cut leaves a file whose name is on the disk, and whose content is not."""
    path.write_bytes(data)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_files_that_a_power_cut_has_torn_are_refused_and_recovered(spark, ship, recover, tmp_path, sink):
    from klamm_spark.lake import verify
    from klamm_spark.settings.spark import Pipeline

    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake", sink)
    settings = settings_of(lake.root, sink=sink)
    log, form = (lake.events / "_delta_log", "*.json") if sink == "delta" else (lake.events / COMMIT_LOG, "[0-9]*")
    for number, is_commit in enumerate((False, True, False, True)):
        for each in range(2):
            write_sample_spool(spool, sample_events(10, first_seq=20 * number + 10 * each))
            ship(spool, settings)
        if is_commit:
            tear(newest(log, form), (b"", b'v1\n{"path":"fi')[number // 2])
            with pytest.raises(LakeError, match="is torn, as a power cut leaves a file: run klamm audit recover"):
                verify.run(spark, Pipeline(spool, settings), say=print)
        else:
            tear(newest(lake.ship_checkpoint / ("commits", "offsets")[number // 2]), b"")
        with pytest.raises(LakeError, match=r"is torn, as a power cut leaves a file.* run klamm audit recover"):
            ship(spool, settings)
        # Each command has a session of its own, which knows no table yet.
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        recover(spool, settings)
        shipped = "shipped 10 events" if is_commit else "shipped 0 events"
        assert shipped in "\n".join(ship(spool, settings))
        assert is_complete(spark, spool, settings)


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_rows_that_a_power_cut_has_cut_off_are_refused_and_shipped_again(spark, ship, recover, tmp_path, sink):
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake", sink)
    settings = settings_of(lake.root, sink=sink)
    for number in range(11):
        write_sample_spool(spool, sample_events(10, first_seq=10 * number))
        ship(spool, settings)
        if number == 8:
            before = set(lake.events.rglob("*.parquet"))
            synced_ms = (lake.ship_checkpoint / "synced").read_text().split()[1]
    # Nothing after the ninth batch was synced. Spark's `9.compact` and Delta's checkpoint sum up the tenth too.
    (lake.ship_checkpoint / "synced").write_text(f"8 {synced_ms}")
    rows = next(path for path in set(lake.events.rglob("*.parquet")) - before if "checkpoint" not in path.name)
    tear(rows, rows.read_bytes()[:-100])
    with pytest.raises(LakeError, match=r"is cut off, as a power cut leaves a file.* run klamm audit recover"):
        ship(spool, settings)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert f"{rows} is cut off, as a power cut leaves a file" in recover(spool, settings)
    assert "shipped 20 events" in "\n".join(ship(spool, settings))
    assert is_complete(spark, spool, settings)
