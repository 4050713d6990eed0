"""What the log of the table says so that readers differ about it is named."""

import json

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake.commits import unread_statistics
from klamm_spark.lake.files import files_of
from klamm_spark.lake.layout import COMMITS, Lake
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of
from tests.spark.lake_attacks import change_commits


@pytest.fixture
def lake(ship, tmp_path):
    write_sample_spool(tmp_path / "spool", sample_events(20))
    ship(tmp_path / "spool", settings_of(tmp_path / "lake"))
    return Lake(tmp_path / "lake")


def say(lake, **changes):
    """Change what the commits say of the only file."""
    (path,) = lake.events.rglob("part-*.parquet")
    change_commits(lake, path, lambda add: add.update(changes))
    return path


def unread(lake):
    return [line.rpartition(" may: ")[2] for line in unread_statistics(lake, files_of(lake))]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"numRecords":20}', []),
        ('{"numRecords":20,"tightBounds":true,"minValues":{"seq":0,"time":null},"nullCount":{}}', []),
        ('{"numRecords":20,"minValues":{"time":"+12026-01-01T00:00:00.000Z"}}', ["minValues.time"]),
        ('{"numRecords":20,"nullCount":{"resources":20,"seq":0}}', ["nullCount.resources"]),
        ('{"numRecords":20,"maxValues":{"seq":"x"}}', ["maxValues.seq"]),
        ('{"numRecords":20,"maxValues":[]}', []),
        ('{"numRecords":20,"maxValues":[1]}', ["maxValues"]),
        ('{"numRecords":20,"numrecords":1}', ["numrecords"]),
        ('{"numRecords":20,"numRecords":1}', ["no object of JSON, or one that has a name twice"]),
        ("7", ["no object of JSON, or one that has a name twice"]),
    ],
)
def test_statistics_that_nothing_has_compared_are_named(lake, text, names):
    say(lake, stats=text)
    assert unread(lake) == names


def test_a_checkpoint_has_statistics_too(lake):
    say(lake, stats='{"numRecords":20,"nullCount":{"resources":20}}')
    lake.table().create_checkpoint()
    for commit in (lake.events / COMMITS).glob("*.json"):
        commit.unlink()
    assert unread(lake) == ["nullCount.resources"]


def test_lines_of_a_log_that_are_no_actions_say_nothing(lake):
    log = lake.events / COMMITS
    lines = [
        b"",
        b"7",
        b"[]",
        b'{"add":7}',
        b'{"add":{"path":[],"stats":""}}',
        b'{"add":{"path":"a"}}',
        b"\xff",
        b"[" * 99,
    ]
    (log / "00000000000000000000.00000000000000000001.compacted.json").write_bytes(b"\n".join(lines))
    assert unread(lake) == []


@pytest.mark.parametrize(
    "path", ["part-%41.parquet", "a//b", "../a", "./a", "a/..", "/a", "file:///a", "ä", "a b", "a?b"]
)
def test_a_path_that_readers_may_take_for_another_is_named(lake, path):
    say(lake, path=path)
    (file,) = files_of(lake)
    assert file.problems == ("its commit writes its path so that readers may open another file",)


@pytest.mark.parametrize(
    ("date", "hour"), [("2025-12-31", "24"), ("2026-01-02", "-24"), ("2026-01-01", None), (None, "0"), (None, "24")]
)
def test_an_hour_that_no_day_has_is_named(lake, date, hour):
    say(lake, partitionValues={"date": date, "hour": hour})
    (file,) = files_of(lake)
    assert file.problems == ("its commit is wrong about date and hour, and a query may skip rows",)


@pytest.mark.parametrize("hour", ["0", "7", "23"])
def test_a_file_as_ship_has_written_it_has_no_problems(lake, hour):
    say(lake, partitionValues={"date": "2026-01-01", "hour": hour})
    assert [file.problems for file in files_of(lake)] == [()]


def test_commits_that_cannot_be_read_are_one_sentence(lake):
    commit = lake.events / COMMITS / f"{0:020d}.json"
    actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["partitionColumns"] = []
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises(LakeError, match="cannot be read"):
        files_of(lake)


def test_a_table_that_is_open_has_the_files_of_its_version(ship, lake, tmp_path):
    table = lake.table()
    write_sample_spool(tmp_path / "spool", sample_events(5, first_seq=20))
    ship(tmp_path / "spool", settings_of(tmp_path / "lake"))
    assert (len(files_of(lake, table=table)), len(files_of(lake))) == (1, 2)
