"""Segments are marked as shipped when the disk has what was committed, and not before. Without Spark."""

import json
import os
import time
from pathlib import Path

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import COMMIT_LOG, Lake, write_log
from klamm_spark.lake.shipped_marks import ShippedMarks
from klamm_spark.lake.syncing import LakeSync
from tests.audit_samples import sample_events, write_sample_spool
from tests.unit.audit.test_spool import BadDisk

pytest.importorskip("pyarrow")


class RecordingDisk(BadDisk):
    """Keeps what was synced, files and folders, by their paths below the lake."""

    def __init__(self, root):
        super().__init__()
        self.root, self.synced = root, []

    def fsync(self, descriptor):
        super().fsync(descriptor)
        self.synced.append(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(f"{self.root}/"))

    def sync_directory(self, path):
        super().sync_directory(path)
        self.synced.append(str(path).removeprefix(f"{self.root}/"))

    def take(self):
        taken, self.synced = self.synced, []
        return taken


class Written:
    """A lake as Spark writes it: a batch has one file of rows, with its checksum."""

    def __init__(self, root, sink):
        self.lake, self.entries = Lake(root, sink), []

    def batch(self, number, *, compact=False, age_ms=0):
        part = f"date=2026-01-01/hour={number}/part {number}.parquet"
        path = self.lake.events / part
        path.parent.mkdir(parents=True)
        path.write_bytes(b"rows")
        path.with_name(f".{path.name}.crc").write_bytes(b"checksum")
        entry = {"path": path.as_uri(), "modificationTime": int(time.time() * 1000) - age_ms}
        self.entries.append(entry)
        if self.lake.sink == "delta":
            log = self.lake.events / "_delta_log" / f"{number:020d}.json"
            log.parent.mkdir(exist_ok=True)
            relative = entry | {"path": part.replace(" ", "%20")}
            log.write_text(f'{{"commitInfo":{{}}}}\n{json.dumps({"add": relative}, separators=(",", ":"))}\n')
        else:
            log = self.lake.events / COMMIT_LOG / (f"{number}.compact" if compact else str(number))
            log.parent.mkdir(exist_ok=True)
            write_log(log, self.entries if compact else [entry])
        checkpoint = [self.lake.ship_checkpoint / name / str(number) for name in ("offsets", "commits", "sources/0")]
        for path in checkpoint:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("v1")
        return {part, *(str(path.relative_to(self.lake.root)) for path in (log, *checkpoint))}


@pytest.fixture(params=["parquet", "delta"])
def written(request, tmp_path):
    return Written(tmp_path / "lake", request.param)


def test_each_batch_is_synced_once_with_its_folders(written):
    disk = RecordingDisk(written.lake.root)
    sync = LakeSync(written.lake, disk)
    for number in range(3):
        batch = {path if "part" not in path else f"events/{path}" for path in written.batch(number)}
        sync.run()
        synced = disk.take()
        assert batch <= set(synced)
        assert f"events/date=2026-01-01/hour={number}/.part {number}.parquet.crc" in synced
        folders = {str(folder) for path in batch for folder in Path(path).parents if str(folder) != "."}
        assert folders | {str(written.lake.root)} <= set(synced)
        assert [path for path in synced if "hour=" in path and f"hour={number}" not in path] == []
        # Files first: a folder names what is there.
        assert max(map(synced.index, batch)) < min(map(synced.index, folders))
    sync.run()
    assert disk.take() == [str(written.lake.root)]


def test_a_log_that_sums_up_the_others_is_followed(tmp_path):
    written = Written(tmp_path / "lake", "parquet")
    disk = RecordingDisk(written.lake.root)
    sync = LakeSync(written.lake, disk)
    for number in range(3):
        written.batch(number, compact=number == 1)
        sync.run()
        assert f"events/date=2026-01-01/hour={number}/part {number}.parquet" in disk.take()


def test_what_an_earlier_driver_has_committed_within_the_last_hour_is_synced(written):
    paths = []
    for number, age_ms in enumerate((7_200_000, 60_000, 0)):
        written.batch(number, age_ms=age_ms)
        paths.append(f"events/date=2026-01-01/hour={number}/part {number}.parquet")
    disk = RecordingDisk(written.lake.root)
    LakeSync(written.lake, disk).run()
    synced = disk.take()
    assert [path in synced for path in paths] == [False, True, True]


def test_nothing_is_marked_that_cannot_be_synced(written, tmp_path):
    segments = write_sample_spool(tmp_path / "spool", sample_events(10))
    marks = ShippedMarks(tmp_path / "spool", written.lake, print)
    disk = marks._sync._files = RecordingDisk(written.lake.root)
    written.batch(0)
    disk.broken.add("fsync")
    with pytest.raises(LakeError, match="what was shipped cannot be synced, and its segments are not marked"):
        marks.add(segments)
    assert list((tmp_path / "spool").rglob("*.shipped")) == list(written.lake.seals.glob("*")) == []
    disk.broken.clear()
    marks.add(segments)
    assert any("part 0" in path for path in disk.take())
    assert len(list((tmp_path / "spool").rglob("*.shipped"))) == 1
