"""A power cut leaves files of a lake's logs empty, cut off or with NULs: `recover` takes them out.

Without Spark. `tests/spark/test_recover.py` ships on after each.
"""

import zlib

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import COMMIT_LOG, Lake, committed_files, write_log
from klamm_spark.lake.torn import is_torn, torn_in_delta_log, torn_in_log

OFFSET = 'v1\n{"batchWatermarkMs":0}\n{"logOffset":0}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
ENTRIES = 'v1\n{"path":"file:///a"}\n{"path":"file:///b"}'


@pytest.fixture
def recover():
    """The module, which imports PySpark."""
    pytest.importorskip("pyspark")
    from klamm_spark.lake import recover

    return recover


def cuts(data):
    """What is left of a file, or what stands in it."""
    yield from (data[:end] for end in range(len(data)))
    yield from (data[:end] + bytes(len(data) - end) for end in range(len(data) - 1))
    yield bytes(4096)


def checksum(path, size_bytes=16):
    data = path.read_bytes()
    sums = [zlib.crc32(data[at : at + size_bytes]).to_bytes(4, "big") for at in range(0, len(data), size_bytes)]
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + size_bytes.to_bytes(4, "big") + b"".join(sums))


@pytest.mark.parametrize(("text", "lines"), [(OFFSET, 3), (COMMIT, 2), (OFFSET + "\n-", 3), ('{"add":{}}\n', 1)])
def test_a_file_that_is_cut_anywhere_is_torn(tmp_path, text, lines):
    path = tmp_path / "0"
    path.write_text(text)
    assert not is_torn(path, lines)
    for data in cuts(text.strip().encode()):
        if data not in (OFFSET.encode(), f"{OFFSET}\n".encode()):
            path.write_bytes(data)
            assert is_torn(path, lines), data


def test_a_file_that_is_cut_at_the_end_of_a_line_differs_from_its_checksum(tmp_path):
    path = tmp_path / "0"
    path.write_text(ENTRIES)
    checksum(path)
    assert not is_torn(path)
    for data in cuts(ENTRIES.encode()):
        path.write_bytes(data)
        assert is_torn(path), data
    path.write_text(ENTRIES)
    # Hadoop reads a file whose checksums have no head.
    path.with_name(".0.crc").write_bytes(b"")
    assert not is_torn(path)
    assert not is_torn(tmp_path / "gone")


def test_only_what_a_log_is_read_from_is_looked_at(tmp_path):
    for name in ("0", "1", "2.compact", "2", "3", ".4.tmp", "x"):
        (tmp_path / name).write_text("v1" if name == "2.compact" else "")
    assert list(torn_in_log(tmp_path)) == [tmp_path / "3"]
    (tmp_path / "2.compact").write_text("")
    assert list(torn_in_log(tmp_path)) == [tmp_path / "2.compact", tmp_path / "3"]
    assert list(torn_in_log(tmp_path / "nowhere")) == []


def test_commits_of_delta_are_looked_at_from_the_newest_whole_checkpoint_on(tmp_path):
    commits = [tmp_path / f"{number:020d}.json" for number in range(6)]
    for path in commits:
        path.write_text('{"add":')
    assert list(torn_in_delta_log(tmp_path)) == commits
    commits[1].with_name(f"{1:020d}.checkpoint.parquet").write_bytes(b"PAR1 PAR1")
    commits[4].with_name(f"{4:020d}.checkpoint.parquet").write_bytes(b"PAR1 PA")
    assert list(torn_in_delta_log(tmp_path)) == commits[2:]
    commits[3].write_text('{"commitInfo":{}}\n{"add":{}}\n')
    assert list(torn_in_delta_log(tmp_path)) == [commits[2], *commits[4:]]


@pytest.fixture
def lake(tmp_path):
    """A Parquet lake as Spark leaves it: `3.compact` sums up the batches before it, which are still there."""
    lake = Lake(tmp_path / "lake", "parquet")
    log = lake.events / COMMIT_LOG
    log.mkdir(parents=True)
    batches = {"1": "b", "2": "c", "3.compact": "abcd", "4": "e", "5": "f", "0": "a"}
    for batch, names in batches.items():
        write_log(log / batch, [{"path": (lake.events / name).as_uri()} for name in names])
    for name, text in (("offsets/5", OFFSET), ("commits/5", COMMIT), ("sources/0/5", ENTRIES), ("metadata", "{}")):
        path = lake.ship_checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return lake


def names_in(lake):
    return "".join(sorted(path.name for path in committed_files(lake.events)))


@pytest.mark.parametrize("content", [b"", b"v", b'v1\n{"path"', bytes(100)])
@pytest.mark.parametrize("name", ["offsets/5", "commits/5", "sources/0/5", "metadata"])
def test_a_torn_file_of_the_checkpoint_is_a_lost_checkpoint(lake, name, content):
    assert lake.checkpoint_problem() is None
    (lake.ship_checkpoint / name).write_bytes(content)
    with pytest.raises(LakeError, match=f"{name} is torn, as a power cut leaves a file.*run klamm audit recover"):
        lake.require_checkpoint()


@pytest.mark.parametrize(
    ("torn", "left"),
    [(["5"], "abcde"), (["4"], "abcdf"), (["4", "5"], "abcd"), (["3.compact"], "abcef"), (["3.compact", "5"], "abce")],
)
def test_a_torn_file_of_the_commit_log_is_left_out_and_the_checkpoint_with_it(lake, torn, left, recover):
    for name in torn:
        (lake.events / COMMIT_LOG / name).write_bytes(b"")
    with pytest.raises(LakeError, match=r"is torn.*run klamm audit recover"):
        lake.require_checkpoint()
    with pytest.raises(LakeError, match=r"is torn.*run klamm audit recover"):
        lake.require_events()
    said = []
    recover._mend(lake, said.append)
    assert [line.partition(" is torn")[0] for line in said] == [str(lake.events / COMMIT_LOG / name) for name in torn]
    assert names_in(lake) == left
    lake.require_events()
    with pytest.raises(LakeError, match=r"checkpoints/ship was lost"):
        lake.require_checkpoint()


def test_what_a_torn_file_sums_up_must_be_there(lake, recover):
    (lake.events / COMMIT_LOG / "3.compact").write_bytes(b"")
    (lake.events / COMMIT_LOG / "1").unlink()
    with pytest.raises(LakeError, match=r"3.compact is torn, and files of the log before it are gone"):
        recover._mend(lake, print)


def test_nothing_is_changed_where_nothing_is_torn(lake, recover):
    recover._mend(lake, pytest.fail)
    assert names_in(lake) == "abcdef"
    lake.require_checkpoint()
    with pytest.raises(LakeError, match="was written by the sink parquet, not delta"):
        recover._mend(Lake(lake.root, "delta"), pytest.fail)
    assert lake.checkpoint_problem() is None


def test_a_torn_checkpoint_of_a_lake_without_a_commit_is_deleted(tmp_path, recover):
    lake = Lake(tmp_path, "parquet")
    (lake.ship_checkpoint / "offsets").mkdir(parents=True)
    (lake.ship_checkpoint / "offsets" / "0").touch()
    with pytest.raises(LakeError, match=r"offsets/0 is torn.*run klamm audit recover"):
        lake.require_checkpoint()
    recover._mend(lake, print)
    lake.require_checkpoint()


def test_a_torn_commit_of_delta_becomes_one_of_nothing(tmp_path, recover):
    lake = Lake(tmp_path, "delta")
    log = lake.events / "_delta_log"
    log.mkdir(parents=True)
    for number in range(4):
        (log / f"{number:020d}.json").write_text('{"add":{}}\n')
        (log / f"{number:020d}.crc").write_text("{}")
    (log / f"{2:020d}.json").write_bytes(b"")
    recover._mend(lake, print)
    assert lake.torn_commits() == []
    assert (log / f"{2:020d}.json").read_text().startswith('{"commitInfo": ')
    assert sorted(path.name for path in log.glob("*.crc")) == [f"{number:020d}.crc" for number in (0, 1)]
    (log / f"{0:020d}.json").write_bytes(b"")
    with pytest.raises(LakeError, match="nothing of the table can be read: move .* away, and klamm audit ship"):
        recover._mend(lake, print)
