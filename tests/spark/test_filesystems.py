"""Spool and lake at URIs that only Hadoop can open: viewfs, whose mount table leads to a folder of this machine."""

from __future__ import annotations

import time

import cramjam
import pytest

from klamm_spark.settings.spark import Pipeline
from klamm_spark.storage.filesystems import HadoopPath, create_durably, path_of
from klamm_spark.storage.hadoop_errors import FileSystemError, translated_errors
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import MOUNT, settings_of

EVENTS = 900


@pytest.fixture
def said():
    return []


def test_all_commands_work_with_spool_and_lake_at_uris(spark, ship, far, said):
    from klamm_spark.lake import compact, verify
    from klamm_spark.lake.layout import Lake
    from klamm_spark.report.command import build

    folder, uri = far
    settings = settings_of(f"{uri}/a lake", max_files_per_trigger=1)
    pipeline, lake = Pipeline(f"{uri}/spool", settings), Lake.of(settings, spark)
    events = list(sample_events(EVENTS))
    write_sample_spool(folder / "spool", events[:600], events_per_segment=200)
    said += ship(pipeline.spool, settings)
    assert "shipped 600 events in 3 batches" in "\n".join(said)

    assert compact.run(spark, pipeline, keep_hours=168, say=said.append) == 0

    # A restart takes what is new alone.
    write_sample_spool(folder / "spool", events[600:], events_per_segment=300)
    lines = ship(pipeline.spool, settings)
    assert "shipped 300 events in 1 batches" in "\n".join(lines)
    assert lines[0].endswith("nothing behind the spool")
    assert sorted(row.seq for row in lake.read_events(spark).select("seq").collect()) == list(range(EVENTS))
    assert verify.run(spark, Pipeline(None, settings), say=said.append) == 0, said
    assert verify.run(spark, pipeline, say=said.append) == 0, said
    report = build(spark, lake)
    assert (report.lake, report.totals["events"]) == (f"{uri}/a lake", EVENTS)
    assert not list((folder / "a lake").rglob("*.klamm")), "what is put in place leaves nothing beside it"


def test_missing_or_wrong_places_are_named(spark, ship, far, said):
    from klamm_spark.lake import verify

    folder, uri = far
    settings = settings_of(f"{uri}/lake")
    pipeline = Pipeline(f"{uri}/spool", settings)
    events = [event for event in sample_events(100) if event["seq"] != 20]
    first, second, _, fourth = write_sample_spool(folder / "spool", events, events_per_segment=25)
    ship(pipeline.spool, settings)
    first.write_bytes(first.read_bytes().replace(b"orders-1", b"orders-2"))
    second.rename(second.with_name(f"{second.name}.gz"))
    fourth.with_suffix(".seal").unlink()
    write_sample_spool(folder / "spool", sample_events(10, first_seq=100))
    # As it is while `hdfs dfs -put` copies it.
    (folder / "spool" / "node-1" / f"{first.stem[:-3]}999.jsonl._COPYING_").write_bytes(b"{")
    assert verify.run(spark, pipeline, say=said.append) == 1
    at = f"{uri}/spool/node-1/{first.parent.name}"
    assert "  not shipped: 100-109" in said
    assert "  lost, and no audit_gap reports it: 20" in said
    assert f"broken chain: {at}/{first.name} was changed: its SHA-256 differs from its seal" in said
    assert f"broken chain: {at}/{second.name}.gz was changed: it has 0 events, its seal says 25" in said
    assert any(line.startswith(f"broken chain: {at}/{fourth.name} was inserted") for line in said)


def test_packed_segments_are_held_against_their_seals(spark, ship, far, said):
    from klamm_spark.lake import verify

    folder, uri = far
    paths = write_sample_spool(folder / "spool", sample_events(100), events_per_segment=50)
    for path, suffix, pack in zip(paths, ("zst", "gz"), (cramjam.zstd.compress, cramjam.gzip.compress), strict=True):
        path.with_name(f"{path.name}.{suffix}").write_bytes(bytes(pack(path.read_bytes())))
        path.unlink()
    settings = settings_of(f"{uri}/lake")
    assert "shipped 100 events" in "\n".join(ship(f"{uri}/spool", settings))
    assert verify.run(spark, Pipeline(f"{uri}/spool", settings), say=said.append) == 0, said


def test_delta_in_s3_is_compacted_only_without_another_writer(spark):
    from klamm_spark.errors import LakeError
    from klamm_spark.lake.compact import require_one_writer
    from klamm_spark.lake.layout import Lake

    lake = Lake(HadoopPath("s3a://bucket/lake"))
    with pytest.raises(LakeError, match=r"stop klamm audit ship .* --alone"):
        require_one_writer(spark, lake)
    spark.conf.set("spark.delta.logStore.s3a.impl", "io.delta.storage.S3DynamoDBLogStore")
    require_one_writer(spark, lake)
    spark.conf.unset("spark.delta.logStore.s3a.impl")
    require_one_writer(spark, Lake(HadoopPath("abfss://c@a.dfs.core.windows.net/lake")))


def test_a_hadoop_path_has_the_methods_of_a_path(spark, far):
    folder, uri = far
    path = path_of(f"{uri}/x", spark)
    assert isinstance(path, HadoopPath)
    assert (path.exists(), path.is_dir(), list(path.glob("*"))) == (False, False, [])
    with pytest.raises(FileNotFoundError):
        list(path.iterdir())
    file = path / "a b=%" / "1.compact"
    for text in ("a text", "another"):
        create_durably(file, text.encode())
        assert file.read_bytes() == b"a text", "its name stands for its content"
    assert [path.name for path in file.parent.iterdir()] == ["1.compact"]
    assert (file.stem, file.suffix, file.parent.name) == ("1", ".compact", "a b=%")
    (listed,) = file.parent.glob("*.compact")
    assert (listed, listed.stat().st_size, listed.is_dir()) == (file, 6, False)
    assert abs(listed.stat().st_mtime - time.time()) < 3600
    assert [found.is_dir() for found in path.iterdir()] == [True]
    file.unlink(missing_ok=True)
    assert list(file.parent.iterdir()) == []
    with pytest.raises(FileSystemError, match="hdfs://host/x cannot be used: Wrong FS: hdfs://host/x"):
        HadoopPath("hdfs://host/x", path._file_system).exists()


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (
            "s3a://bucket/x",
            r'^Spark has no file system for s3a://: add its jar to conf, e.g. "spark.jars.packages" = '
            r'"org.apache.hadoop:hadoop-aws:\d+\.\d+\.\d+"$',
        ),
        ("nothing://host/x", "^Spark has no file system for nothing://: add the jar that has it to conf"),
        ("viewfs://nowhere/x", "^viewfs://nowhere/x cannot be used: .*Empty Mount table"),
        ("hdfs:///x", "^hdfs:///x cannot be used: Incomplete HDFS URI, no host"),
    ],
)
def test_a_file_system_that_spark_lacks_is_reported_in_one_sentence(spark, uri, message):
    with pytest.raises(FileSystemError, match=message):
        path_of(uri, spark)


def test_a_missing_spool_or_lake_is_reported(spark, ship, far):
    from klamm_spark.errors import LakeError
    from klamm_spark.lake.layout import Lake

    _, uri = far
    with pytest.raises(LakeError, match=f"there is no spool at {uri}/nowhere"):
        ship(f"{uri}/nowhere", settings_of(f"{uri}/lake"))
    with pytest.raises(LakeError, match=f"nothing was shipped to {uri}/lake yet"):
        Lake.of(settings_of(f"{uri}/lake"), spark).require_events()


def test_an_error_of_a_store_is_reported_without_a_stack_trace(spark, far):
    _, uri = far
    with pytest.raises(FileSystemError, match=f"^{uri} cannot be used: ") as caught, translated_errors(uri):
        spark.read.text(f"{uri}/nowhere")
    assert "\n" not in str(caught.value)
    with pytest.raises(FileSystemError, match=f"^{uri} cannot be used: .*does not exist"), translated_errors(uri):
        spark._jvm.org.apache.hadoop.fs.Path(uri).getFileSystem(spark._jsc.hadoopConfiguration()).open(
            spark._jvm.org.apache.hadoop.fs.Path(f"{uri}/nowhere")
        )
    with pytest.raises(FileNotFoundError), translated_errors(uri):
        raise FileNotFoundError("another")


def test_a_driver_that_is_killed_leaves_a_sound_lake(spark, ship, far, said, tmp_path):
    from klamm_spark.lake import verify
    from klamm_spark.lake.layout import Lake
    from tests.spark.test_driver_kills import Driver

    folder, uri = far
    write_sample_spool(folder / "spool", sample_events(600), events_per_segment=150)
    file = tmp_path / "klamm.toml"
    file.write_text(f'[audit.spark.conf]\n"{MOUNT}" = "{folder.parent.as_uri()}"\n')

    driver = Driver(f"{uri}/spool", f"{uri}/lake", file=file, folder=folder / "lake")
    try:
        assert driver.wait_for_uncommitted_data(after=1)
    finally:
        driver.kill()
    settings = settings_of(f"{uri}/lake")
    ship(f"{uri}/spool", settings)
    rows = Lake.of(settings, spark).read_events(spark).select("seq").collect()
    assert sorted(row.seq for row in rows) == list(range(600))
    assert verify.run(spark, Pipeline(f"{uri}/spool", settings), say=said.append) == 0, said
