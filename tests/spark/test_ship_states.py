"""Tests that `ship` starts from every state that a killed driver, or another program, has left."""

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pkgutil import resolve_name

import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties

from klamm_spark.errors import LakeError
from klamm_spark.lake import appends, verify
from klamm_spark.lake.appends import Named
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.seals import read_seals
from klamm_spark.lake.segment import read_sealed
from klamm_spark.lake.ship_lock import only_writer
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.compression import Compressor, compress
from klamm_spark.spool.layout import Seal
from klamm_spark.spool.signatures import write_key
from klamm_spark.storage.filesystems import sync_all
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of
from tests.spark.lake_attacks import LakeAttack
from tests.spark.sessions import table_of
from tests.spark.test_cluster import environment


def seqs_of(lake):
    return sorted(table_of(lake).column("seq").to_pylist())


def test_a_second_ship_at_the_same_time_is_refused(ship, tmp_path):
    lake = Lake(tmp_path / "lake")
    write_sample_spool(tmp_path / "spool", sample_events(10))
    code = (
        "import pathlib, sys\nfrom klamm_spark.lake.layout import Lake\n"
        "from klamm_spark.lake.ship_lock import only_writer\n"
        f"with only_writer(Lake(pathlib.Path({str(lake.root)!r}))):\n    print('locked', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(LakeError, match=f"process {other.pid} writes to {lake.root} already"):
            ship(tmp_path / "spool", settings_of(lake.root))
        other.kill()
    with only_writer(lake):
        pass


class Killed(BaseException):
    """Ends `ship` as SIGKILL does: no further code of it runs."""


STEPS = {
    "before the files": "klamm_spark.lake.ship.Shipper._write",
    "before the commit": "klamm_spark.lake.ship.append",
    "before the ledger": "klamm_spark.lake.seals.write_rows",
    "before the marks": "klamm_spark.lake.shipped_marks.ShippedMarks.mark",
}


def kill_at(monkeypatch, step, ship, *arguments):
    def die(*given):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(STEPS[step], die)
        with pytest.raises(Killed):
            ship(*arguments)


def marks(spool):
    return sorted(path.stem for path in spool.rglob("*.shipped"))


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_killed_at_a_step_repeats_and_loses_nothing(ship, tmp_path, monkeypatch, step):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    paths = write_sample_spool(spool, sample_events(100))
    ship(spool, settings)
    paths += write_sample_spool(spool, sample_events(100, first_seq=100), events_per_segment=50)
    kill_at(monkeypatch, step, ship, spool, settings)
    assert marks(spool) == [paths[0].stem], "nothing is marked that a power cut could take"
    for pipeline in (Pipeline(spool, settings), Pipeline(None, settings)):
        said = []
        code = verify.run(None, pipeline, say=said.append)
        behind = step == "before the ledger" or (pipeline.spool and step != "before the marks")
        assert code == (verify.EXIT_BEHIND if behind else 0), said
    # Segments that are sealed meanwhile belong to another batch.
    paths += write_sample_spool(spool, sample_events(100, first_seq=200))
    again = 200 if step in ("before the files", "before the commit") else 100
    assert f"shipped {again} events" in "\n".join(ship(spool, settings))
    assert seqs_of(lake) == list(range(300))
    assert marks(spool) == [path.stem for path in paths]
    said = []
    assert verify.run(None, Pipeline(spool, settings), say=said.append) == 0, said


@pytest.fixture
def without_its_row(ship, tmp_path, monkeypatch):
    """Return two segments, their paths and the settings. The newer segment is in the table, but not in the ledger."""
    spool, settings = tmp_path / "spool", settings_of(tmp_path / "lake")
    write_sample_spool(spool, sample_events(10))
    ship(spool, settings)
    (path,) = write_sample_spool(spool, sample_events(10, first_seq=10))
    kill_at(monkeypatch, "before the ledger", ship, spool, settings)
    return path, settings


def verified(pipeline):
    said = []
    return verify.run(None, pipeline, say=said.append), said


@pytest.mark.parametrize("change", ["it left", "it is damaged", "it is unchanged", "its seal left"])
def test_a_segment_without_a_row_of_the_ledger_gets_it_from_the_spool_or_the_commit(
    ship, tmp_path, without_its_row, change
):
    path, settings = without_its_row
    assert verified(Pipeline(None, settings))[0] == verify.EXIT_BEHIND
    if change == "it left":
        path.unlink()
        path.with_suffix(".seal").unlink()
    elif change == "it is damaged":
        path.write_bytes(path.read_bytes()[:-10] + b"xxxxxxxxx\n")
    elif change == "its seal left":
        path.with_suffix(".seal").unlink()
    ship(tmp_path / "spool", settings)
    ship(tmp_path / "spool", settings)
    code, said = verified(Pipeline(None, settings))
    assert code == 0, said
    assert read_seals(Lake(settings.lake)).seals[path.stem].events == 10
    assert seqs_of(Lake(settings.lake)) == list(range(20))


def test_a_commits_seal_that_does_not_fit_is_not_used(ship, tmp_path, without_its_row):
    path, settings = without_its_row
    lake = Lake(settings.lake)
    seal = replace(Seal.read(path.with_suffix(".seal")), previous_chain="0" * 64)
    path.unlink()
    commit = max((lake.events / "_delta_log").glob("*.json"))
    text = commit.read_text()
    said = json.loads(next(line for line in text.splitlines() if "commitInfo" in line))["commitInfo"]["userMetadata"]
    named = Named.parse(said)._replace(segments={path.stem: seal.to_json().decode()})
    commit.write_text(text.replace(json.dumps(said), json.dumps(named.to_json())))
    assert any("does not continue the chain" in line for line in ship(tmp_path / "spool", settings))
    code, said = verified(Pipeline(None, settings))
    assert code == verify.EXIT_FOUND, said


@pytest.mark.parametrize("rows", ["all", "some"])
def test_rows_that_are_deleted_before_the_ledger_has_them_are_reported_missing(without_its_row, rows):
    path, settings = without_its_row
    Lake(settings.lake).table().delete("seq >= 10" if rows == "all" else "seq >= 15")
    code, said = verified(Pipeline(None, settings))
    assert code == verify.EXIT_FOUND
    assert any(line.startswith(f"broken chain: {path.stem}: ") for line in said), said


def test_the_last_append_is_found_with_one_commit_in_memory(ship, tmp_path, monkeypatch):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    for at in range(3):
        (path,) = write_sample_spool(spool, sample_events(10, first_seq=10 * at))
        ship(spool, settings)
    read = []
    monkeypatch.setattr(appends, "read_file", lambda path, most: read.append(path.name) or path.read_bytes())
    assert list(appends.seals_of_last(lake)) == [path.stem]
    assert read == [f"{lake.table().version():020}.json"]
    monkeypatch.undo()
    monkeypatch.setattr(appends, "MOST_COMMIT_BYTES", 10)
    with pytest.raises(LakeError, match="at most 10 are read"):
        next(appends._appends(lake))


class Writes:
    """Counts the writes of `ship`, and ends it before the write number `last`."""

    def __init__(self, last):
        self.last, self.count = last, 0

    def before(self, write):
        def counted(*given, **named):
            if self.count == self.last:
                raise Killed
            self.count += 1
            return write(*given, **named)

        return counted

    def patch(self, monkeypatch):
        for name in ALL_WRITES:
            owner, _, attribute = name.rpartition(".")
            monkeypatch.setattr(name, self.before(getattr(resolve_name(owner), attribute)))


ALL_WRITES = (
    "klamm_spark.lake.ship.Shipper._write",
    "klamm_spark.lake.ship.append",
    "klamm_spark.lake.ship.sync_all",
    "klamm_spark.storage.filesystems._replace_local",
    "klamm_spark.storage.filesystems.sync_directory",
    "klamm_spark.lake.anchors.FileAnchor._append",
    "klamm_spark.lake.shipped_marks.ShippedMarks._touch",
    "klamm_spark.lake.seal_log.TransparencyLog._cosign",
)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_driver_killed_at_any_write_repeats_and_loses_nothing(ship, tmp_path, monkeypatch):
    """`ship` dies before each of its writes in turn, first with an empty lake, then with a filled one."""
    write_key(tmp_path / "key")
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    settings = settings_of(lake.root, log_key=tmp_path / "key", anchor=str(tmp_path / "anchors"))
    events = kills = 0
    for is_the_first in (True, False):
        at, killed = 0, True
        while killed:
            if is_the_first:
                shutil.rmtree(lake.root, ignore_errors=True)
                for path in (*spool.rglob("*.shipped"), *tmp_path.glob("anchors")):
                    path.unlink()
            write_sample_spool(spool, sample_events(10, first_seq=events))
            events += 10
            killed = False
            with monkeypatch.context() as patch:
                Writes(at).patch(patch)
                try:
                    ship(spool, settings)
                except Killed:
                    killed = True
            ship(spool, settings)
            assert seqs_of(lake) == list(range(events)), at
            assert len(marks(spool)) == events // 10
            kills += killed
            at += 1
    said = []
    assert verify.run(None, Pipeline(spool, settings), say=said.append, anchors=tmp_path / "anchors") == 0, said
    assert f"log: {events // 10} entries, klamm" in said
    assert kills > 20


@pytest.mark.parametrize("commits", [12, 120])
def test_an_append_that_the_ledger_lacks_is_found_among_commits_of_others(ship, tmp_path, monkeypatch, commits):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    write_sample_spool(spool, sample_events(50))
    ship(spool, settings)
    write_sample_spool(spool, sample_events(50, first_seq=50))
    kill_at(monkeypatch, "before the ledger", ship, spool, settings)
    for number in range(commits):
        lake.table().alter.set_table_description(str(number))
    assert "shipped 0 events" in "\n".join(ship(spool, settings))
    assert seqs_of(lake) == list(range(100))
    assert sorted(read_seals(lake).seals) == sorted(path.stem for path in spool.rglob("*.jsonl"))


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_lost_ledger_is_restored(ship, tmp_path, left):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    for number in range(3):
        write_sample_spool(spool, sample_events(10, first_seq=10 * number))
        ship(spool, settings)
    files = sorted(lake.seals.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    for file in files[: 3 - left]:
        file.unlink()
    write_sample_spool(spool, sample_events(10, first_seq=30))
    assert "shipped 10 events" in "\n".join(ship(spool, settings))
    assert seqs_of(lake) == list(range(40))
    said = []
    assert verify.run(None, Pipeline(spool, settings), say=said.append) == 0, said


class Unread:
    """A reader of sealed segments that fails once."""

    def __init__(self):
        self.failed = False

    def __call__(self, segment, reader):
        if not self.failed:
            self.failed = True
            raise OSError(5, "Input/output error")
        return read_sealed(segment, reader)


def test_a_segment_that_is_unreadable_after_a_kill_is_not_appended_twice(ship, tmp_path, monkeypatch):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    write_sample_spool(spool, sample_events(10))
    kill_at(monkeypatch, "before the ledger", ship, spool, settings)
    unread = Unread()
    with monkeypatch.context() as patch:
        patch.setattr("klamm_spark.lake.appends.read_sealed", unread)
        write_sample_spool(spool, sample_events(10, node="other"))
        # The same run reads the segment again.
        assert "shipped 10 events in 1 batches" in "\n".join(ship(spool, settings))
    assert unread.failed
    assert "shipped 0 events" in "\n".join(ship(spool, settings))
    assert seqs_of(lake) == sorted(2 * [*range(10)])
    assert len(marks(spool)) == 2
    said = []
    assert verify.run(None, Pipeline(spool, settings), say=said.append) == 0, said


def test_a_lost_ledger_file_of_a_quiet_server_repeats_nothing(ship, tmp_path):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    write_sample_spool(spool, sample_events(10, node="busy"))
    ship(spool, settings)
    before = set(lake.seals.glob("*.parquet"))
    write_sample_spool(spool, sample_events(10, first_seq=10, node="quiet"))
    ship(spool, settings)
    (quiet,) = set(lake.seals.glob("*.parquet")) - before
    write_sample_spool(spool, sample_events(10, first_seq=20, node="busy"))
    ship(spool, settings)
    quiet.unlink()
    assert "shipped 0 events" in "\n".join(ship(spool, settings))
    assert seqs_of(lake) == list(range(30))
    # An unreadable ledger file is named, and its segments are added to the ledger again.
    quiet = min(lake.seals.glob("*.parquet"))
    quiet.write_bytes(b"")
    said = ship(spool, settings)
    assert any(line.startswith(f"{quiet} cannot be read: ") for line in said), said
    assert seqs_of(lake) == list(range(30))


def test_a_damaged_ledger_of_an_earlier_klamm_repeats_nothing(ship, tmp_path, monkeypatch):
    """The commits of an earlier klamm do not say how far the ledger had come."""
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    with monkeypatch.context() as patch:
        patch.setattr(Named, "to_json", lambda self: json.dumps({"klamm_audit_segments": list(self.segments)}))
        write_sample_spool(spool, sample_events(10, node="quiet"))
        ship(spool, settings)
        (quiet,) = lake.seals.glob("*.parquet")
        write_sample_spool(spool, sample_events(10, first_seq=10, node="busy"))
        ship(spool, settings)
    quiet.write_bytes(b"")
    assert "shipped 0 events" in "\n".join(ship(spool, settings))
    assert seqs_of(lake) == list(range(20))


@pytest.mark.parametrize("said", ["5", "[5]", "{}", '"x"', "null", "[" * 100_000])
def test_ship_starts_whatever_commits_of_others_contain(ship, tmp_path, said):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    write_sample_spool(spool, sample_events(10))
    ship(spool, settings)
    for text in (said, f'{{"klamm_audit_segments": {said}}}'):
        properties = CommitProperties({"userMetadata": text})
        lake.table().alter.set_table_description("theirs", commit_properties=properties)
    assert "shipped 0 events" in "\n".join(ship(spool, settings))


def test_a_first_commit_that_was_only_staged_is_no_table(ship, tmp_path):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    write_sample_spool(spool, sample_events(10))
    staged = lake.events / "_delta_log" / "00000000000000000000.json#1"
    staged.parent.mkdir(parents=True)
    staged.write_bytes(b"{}")
    assert not lake.has_events()
    ship(spool, settings)
    assert seqs_of(lake) == list(range(10))
    assert lake.table().metadata().configuration == {"delta.logRetentionDuration": "interval 100 days"}


LIMITED = """\
import resource, runpy
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
runpy.run_module("klamm", run_name="__main__")
"""


def test_a_batch_of_many_hours_opens_few_files_at_a_time(ship, tmp_path):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    write_sample_spool(spool, sample_events(300, step_us=3_600_000_000))
    command = [sys.executable, "-c", LIMITED, "audit", "ship", "--once", "--master", "none"]
    command += ["--spool", str(spool), "--lake", str(lake.root)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert seqs_of(lake) == list(range(300))
    said = []
    assert verify.run(None, Pipeline(spool, settings), say=said.append) == 0, said


def test_the_disk_has_the_rows_before_the_ledger_and_the_ledger_before_the_marks(ship, tmp_path, monkeypatch):
    spool, lake, states = tmp_path / "spool", Lake(tmp_path / "lake"), []
    write_sample_spool(spool, sample_events(10))

    def sync(folder):
        sync_all(folder)
        states.append((folder, lake.has_events(), len(read_seals(lake).seals), marks(spool)))

    monkeypatch.setattr("klamm_spark.lake.ship.sync_all", sync)
    ship(spool, settings_of(lake.root))
    assert states == [(lake.root, False, 0, []), (lake.root, True, 0, [])]
    assert len(read_seals(lake).seals) == len(marks(spool)) == 1


def test_a_damaged_segment_does_not_stop_the_shipping_of_other_servers(ship, tmp_path):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    for node in ("one", "other"):
        paths = write_sample_spool(spool, sample_events(30, node=node), events_per_segment=10)
        for path in paths:
            path.with_name(f"{path.name}.zst").write_bytes(compress(path.read_bytes(), "zstd"))
            path.unlink()
    damaged = paths[1].with_name(f"{paths[1].name}.zst")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    said = ship(spool, settings, code=1)
    assert [line for line in said if line.startswith(f"{damaged} is set aside: ")]
    assert "1 segments were set aside, and are not in the lake" in said
    counts = Counter(table_of(lake).column("node").to_pylist())
    assert counts == {"one": 30, "other": 20}
    assert paths[1].stem not in marks(spool), "retention must not delete it"
    said = []
    assert verify.run(None, Pipeline(spool, settings), say=said.append) == 1
    assert any(line.startswith(f"broken chain: {damaged} was changed") for line in said)
    # Once it has been restored, it is shipped too.
    damaged.write_bytes(whole)
    ship(spool, settings)
    assert verify.run(None, Pipeline(spool, settings), say=said.append) == 0, said


def test_the_seal_of_an_append_proves_only_its_own_rows(ship, tmp_path, monkeypatch, seed):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    write_sample_spool(spool, sample_events(10))
    ship(spool, settings)
    (path,) = write_sample_spool(spool, sample_events(10, first_seq=10))
    kill_at(monkeypatch, "before the ledger", ship, spool, settings)

    attack = LakeAttack(lake, random.Random(seed))
    attack.files = [
        file for file in attack.files if path.stem in pq.ParquetFile(file).read(["source_file"])[0][0].as_py()
    ]

    attack.change_a_row()
    said = []
    assert verify.run(None, Pipeline(None, settings), say=said.append) == 1
    assert any(line.startswith(f"broken chain: {path.stem}: ") for line in said), said


def test_an_append_that_names_a_segment_without_its_seal_proves_nothing(ship, tmp_path):
    spool, settings, lake = tmp_path / "spool", settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    write_sample_spool(spool, sample_events(10))
    ship(spool, settings)
    (seals,) = lake.seals.glob("*.parquet")
    seals.unlink()
    (stem,) = (path.stem for path in spool.rglob("*.jsonl"))
    for seal in ("", "{}", "x"):
        properties = CommitProperties({"userMetadata": Named({stem: seal}, {}).to_json()})
        lake.table().alter.set_table_description("theirs", commit_properties=properties)
        said = []
        assert verify.run(None, Pipeline(None, settings), say=said.append) == 1
        assert f"broken chain: {stem}: 10 rows, and the lake has no seal of it" in said


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_segment_that_unpacks_to_more_than_its_seal_says_is_set_aside_alone(ship, tmp_path, is_sealed):
    """This also holds if the seal states the large size."""
    spool, settings = tmp_path / "spool", settings_of(tmp_path / "lake")
    paths = write_sample_spool(spool, sample_events(30), events_per_segment=10)
    packed = Compressor("zstd")
    for _ in range(1100 if is_sealed else 64):
        packed.add(bytes(1 << 20))
    bomb, seal = paths[1].with_name(f"{paths[1].name}.zst"), paths[1].with_suffix(".seal")
    bomb.write_bytes(packed.finish())
    paths[1].unlink()
    size_bytes = Seal.read(seal).size_bytes
    if is_sealed:
        seal.write_bytes(replace(Seal.read(seal), size_bytes=1100 << 20).to_json())
        size_bytes = 1 << 30
    said = ship(spool, settings, code=1)
    assert f"{bomb} is set aside: it unpacks to more than {size_bytes:,} bytes" in said
    assert seqs_of(Lake(tmp_path / "lake")) == [*range(10), *range(20, 30)]
    said = []
    assert verify.run(None, Pipeline(spool, settings), say=said.append) == 1
    assert f"broken chain: {bomb} was changed: its SHA-256 differs from its seal" in said
