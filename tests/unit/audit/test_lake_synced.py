"""Rows that a power cut has cut off are found in the commits that were not synced, and only there. Without Spark."""

import json

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import COMMIT_LOG, Lake, committed_files, read_log, write_log
from klamm_spark.lake.synced import (
    begin_to_remember,
    cut_files,
    remember_synced,
    require_whole_rows,
    tear_unsynced_commits,
    unsynced_commits,
)
from klamm_spark.lake.syncing import LakeSync
from klamm_spark.lake.torn import DELTA_COMMIT

ROWS = b"PAR1 rows PAR1"


class Batches:
    """A lake with a file of rows per batch."""

    def __init__(self, root, sink):
        self.lake = Lake(root, sink)
        self.log = self.lake.events / ("_delta_log" if sink == "delta" else COMMIT_LOG)
        self.log.mkdir(parents=True)

    def rows(self, number):
        return self.lake.events / f"part {number}.parquet"

    def commit(self, number):
        name = DELTA_COMMIT.format(number) if self.lake.sink == "delta" else str(number)
        return self.log / name

    def add(self, number):
        self.rows(number).write_bytes(ROWS)
        entry = {"path": self.rows(number).as_uri(), "size": len(ROWS), "modificationTime": number}
        if self.lake.sink == "delta":
            line = json.dumps({"add": entry}, separators=(",", ":"))
            self.commit(number).write_text(f'{{"commitInfo":{{}}}}\n{line}\n')
        else:
            write_log(self.commit(number), [entry])

    def names(self, commits):
        return [int(path.stem) for path in commits]

    def remember(self, number):
        remember_synced(self.lake, number, [{"modificationTime": number}])


@pytest.fixture(params=["parquet", "delta"])
def batches(request, tmp_path):
    batches = Batches(tmp_path / "lake", request.param)
    for number in range(4):
        batches.add(number)
    return batches


def test_a_file_of_rows_that_is_cut_anywhere_is_found(batches):
    batches.remember(1)
    assert list(cut_files(batches.lake)) == []
    rows = batches.rows(2)
    for length in range(len(ROWS)):
        for data in (ROWS[:length], ROWS[:length] + bytes(len(ROWS) - length)):
            rows.write_bytes(data)
            assert list(cut_files(batches.lake)) == [rows], data
    rows.unlink()
    with pytest.raises(LakeError, match=r"part 2.parquet is cut off, as a power cut .*: run klamm audit recover"):
        require_whole_rows(batches.lake)


def test_a_file_of_a_commit_that_was_synced_is_left_to_verify(batches):
    batches.remember(2)
    batches.rows(2).write_bytes(b"")
    require_whole_rows(batches.lake)
    batches.rows(3).write_bytes(b"")
    assert list(cut_files(batches.lake)) == [batches.rows(3)]


@pytest.mark.parametrize("text", [None, "", "x", "1", "1 x"])
def test_where_the_number_is_not_known_nothing_is_found(batches, text):
    batches.rows(3).write_bytes(b"")
    if text is not None:
        batches.remember(0)
        (batches.lake.ship_checkpoint / "synced").write_text(text)
    require_whole_rows(batches.lake)
    begin_to_remember(batches.lake)
    batches.add(4)
    assert batches.names(unsynced_commits(batches.lake)) == [4]


def test_the_first_batch_of_a_lake_is_looked_at(tmp_path):
    batches = Batches(tmp_path / "lake", "parquet")
    begin_to_remember(batches.lake)
    batches.add(0)
    batches.rows(0).unlink()
    assert list(cut_files(batches.lake)) == [batches.rows(0)]
    # A second start does not take it for synced.
    begin_to_remember(batches.lake)
    assert batches.names(unsynced_commits(batches.lake)) == [0]


def test_what_is_synced_is_remembered(batches):
    pytest.importorskip("pyarrow")
    sync = LakeSync(batches.lake)
    begin_to_remember(batches.lake)
    batches.add(4)
    assert batches.names(unsynced_commits(batches.lake)) == [4]
    sync.run()
    assert unsynced_commits(batches.lake) == []


def test_commits_that_were_not_synced_are_torn_and_leave_the_table(batches):
    recover = pytest.importorskip("klamm_spark.lake.recover")
    batches.remember(1)
    batches.rows(2).write_bytes(b"")
    said = []
    recover._mend(batches.lake, said.append)
    assert [line.partition(" is ")[0] for line in said] == list(
        map(str, (batches.rows(2), batches.commit(2), batches.commit(3)))
    )
    assert list(cut_files(batches.lake)) == batches.lake.torn_commits() == []
    if batches.lake.sink == "delta":
        assert ['"add"' in batches.commit(number).read_text() for number in range(4)] == [True, True, False, False]
    else:
        assert sorted(committed_files(batches.lake.events)) == [batches.rows(0), batches.rows(1)]
    assert not batches.lake.ship_checkpoint.exists()


def sum_up(batches, number):
    """As Spark and Delta do now and then."""
    if batches.lake.sink == "delta":
        (batches.log / f"{number:020d}.checkpoint.parquet").write_bytes(b"PAR1 PAR1")
        (batches.log / "_last_checkpoint").write_text("{}")
        return
    entries = [entry for each in range(number + 1) for entry in read_log(batches.commit(each))]
    write_log(batches.log / f"{number}.compact", entries)
    batches.commit(number).unlink()


def test_what_sums_up_commits_that_were_not_synced_goes_with_them(batches):
    sum_up(batches, 3)
    batches.remember(1)
    batches.rows(2).write_bytes(b"")
    tear_unsynced_commits(batches.lake)
    assert list(batches.log.glob("*checkpoint*")) == []
    if batches.lake.sink == "parquet":
        left = committed_files(batches.lake.events, [batches.commit(2), batches.log / "3.compact"])
        assert sorted(left) == [batches.rows(0), batches.rows(1)]


def test_a_log_that_sums_up_all_commits_is_looked_at_behind_what_was_synced(tmp_path):
    batches = Batches(tmp_path / "lake", "parquet")
    for number in range(4):
        batches.add(number)
    batches.remember(1)
    sum_up(batches, 3)
    for number in range(4):
        batches.commit(number).unlink(missing_ok=True)
        batches.rows(number).unlink()
    assert sorted(set(cut_files(batches.lake))) == [batches.rows(2), batches.rows(3)]


def test_nothing_is_torn_where_the_log_before_it_is_gone(batches):
    sum_up(batches, 3)
    batches.remember(1)
    batches.commit(0).unlink()
    texts = {path: path.read_bytes() for path in batches.log.iterdir()}
    with pytest.raises(LakeError, match="only a copy of it can replace it"):
        tear_unsynced_commits(batches.lake)
    assert {path: path.read_bytes() for path in batches.log.iterdir()} == texts


def test_a_delta_lake_of_which_nothing_was_synced_is_left_to_be_moved_away(tmp_path):
    batches = Batches(tmp_path / "lake", "delta")
    begin_to_remember(batches.lake)
    batches.add(0)
    with pytest.raises(LakeError, match="move .*events and the checkpoint of ship away, and klamm audit ship"):
        tear_unsynced_commits(batches.lake)
    assert '"add"' in batches.commit(0).read_text()
