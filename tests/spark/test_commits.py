"""`verify` names wrong entries in the table's log that would give different readers different rows."""

import json
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake.commits import with_statements
from klamm_spark.lake.files import files_of
from klamm_spark.lake.layout import COMMITS, Lake
from klamm_spark.settings.spark import Pipeline
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of
from tests.spark.lake_attacks import change_commits
from tests.spark.sealed_lake import verified


@pytest.fixture
def lake(ship, tmp_path):
    write_sample_spool(tmp_path / "spool", sample_events(20))
    ship(tmp_path / "spool", settings_of(tmp_path / "lake"))
    return Lake(tmp_path / "lake")


def say(lake, **changes):
    """Change what the commits say about the only file."""
    (path,) = lake.events.rglob("part-*.parquet")
    change_commits(lake, path, lambda add: add.update(changes))
    return path


def unread(lake):
    return [line.rpartition(" may: ")[2] for line in with_statements(lake, files_of(lake)).problems]


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
def test_statistics_that_verify_does_not_read_are_named(lake, text, names):
    say(lake, stats=text)
    assert unread(lake) == names


def test_unread_statistics_in_a_checkpoint_are_named(lake):
    say(lake, stats='{"numRecords":20,"nullCount":{"resources":20}}')
    lake.table().create_checkpoint()
    for commit in (lake.events / COMMITS).glob("*.json"):
        commit.unlink()
    assert unread(lake) == ["nullCount.resources"]


def put_into_a_checkpoint(lake, **columns):
    """Add columns to the checkpoint's entry for the only file, as programs do that write statistics in columns."""
    lake.table().create_checkpoint()
    (path,) = (lake.events / COMMITS).glob("*.checkpoint.parquet")
    table = pq.read_table(path)
    adds = table.column("add").combine_chunks()
    fields = [field.with_nullable(True) for field in adds.type]
    fields += [pa.field(name, value.type) for name, value in columns.items()]
    there = [pa.repeat(value, len(adds)) for value in columns.values()]
    with_more = pa.StructArray.from_arrays([*adds.flatten(), *there], fields=fields, mask=adds.is_null())
    pq.write_table(table.set_column(table.schema.get_field_index("add"), "add", with_more), path)


def statistics(**values):
    return pa.scalar({"numRecords": 20, **values})


EARLY = datetime(1999, 1, 1)
"""A time without a zone, as in Spark's INT96."""
FAR = pa.scalar(
    {"numRecords": 20, "minValues": {"time": 1 << 62}},
    pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("time", pa.timestamp("us", "UTC"))]))]),
)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"stats_parsed": statistics(minValues={"seq": 0}, maxValues={"seq": 19}, nullCount={"seq": 0})}, ""),
        ({"stats_parsed": statistics(maxValues={"seq": 18})}, "wrong about seq"),
        ({"stats_parsed": statistics(minValues={"principal": "z"})}, "wrong about principal"),
        ({"stats_parsed": statistics(nullCount={"resources": 20})}, "wrong about resources"),
        ({"stats_parsed": pa.scalar({"numRecords": 0})}, "wrong about the number of rows"),
        ({"stats_parsed": FAR}, "readers may: stats_parsed"),
        ({"stats_parsed": statistics(maxValues={"SEQ": 18})}, "readers may: maxValues.SEQ"),
        ({"stats_parsed": statistics(rows=0)}, "readers may: rows"),
        ({"stats_parsed": pa.scalar(7)}, "readers may: stats_parsed"),
        ({"stats_parsed": statistics(minValues="x")}, "readers may: minValues"),
        ({"stats_parsed": statistics(minValues=[1, 2])}, "readers may: minValues"),
        ({"stats_parsed": statistics(minValues={"time": EARLY})}, ""),
        ({"partitionValues_parsed": pa.scalar({"date": date(2026, 1, 1), "hour": 0})}, ""),
        ({"partitionValues_parsed": pa.scalar({"date": date(2026, 1, 1), "hour": 1})}, "wrong about date and hour"),
        ({"partitionValues_parsed": pa.scalar({"date": "2026-01-01"})}, "wrong about date and hour"),
    ],
)
def test_a_checkpoints_statistics_in_columns_are_compared_with_the_rows(lake, columns, said):
    put_into_a_checkpoint(lake, **columns)
    code, lines = verified(Pipeline(None, settings_of(lake.root)))
    named = [line for line in lines if line.startswith("broken chain: ")]
    assert (code, len(named)) == ((1, 1) if said else (0, 0)), named
    assert all(said in line for line in named)


def test_a_checkpoint_entry_whose_path_is_no_text_belongs_to_no_file(lake):
    path = lake.events / COMMITS / "00000000000000000000.checkpoint-old.parquet"
    pq.write_table(pa.table({"add": pa.array([{"path": 5, "stats": "{}"}])}), path)
    assert unread(lake) == []


def test_statistics_that_are_no_text_are_named(lake):
    say(lake, stats=5)
    assert unread(lake) == ["stats"]


@pytest.mark.parametrize("line", ['{"add":\r%s}', '{"zz":1,"zz":2,"add":%s}', '{"zz":%s,"add":%%s}' % ("[" * 100_000)])
def test_a_line_that_only_other_readers_accept_is_named(lake, line):
    """Other readers would accept the line's statistics, and skip rows because of them."""
    add = {"path": next(lake.events.rglob("part-*.parquet")).relative_to(lake.events).as_posix(), "stats": '{"x":1}'}
    # deltalake does not read these, because it would refuse some of them.
    (lake.events / COMMITS / "0.compacted.json").write_text(line % json.dumps(add) + "\n", encoding="utf-8")
    (problem,) = with_statements(lake, files_of(lake)).problems
    assert "no object of JSON" in problem or problem.endswith("readers may: x")


def test_a_commit_that_is_removed_meanwhile_is_ignored(lake, monkeypatch):
    gone = lake.events / COMMITS / "00000000000000009999.json"
    there = Path.glob
    monkeypatch.setattr(
        Path, "glob", lambda self, pattern: [*there(self, pattern), *([gone] if pattern == "*.json" else [])]
    )
    assert unread(lake) == []


def test_lines_of_a_log_that_are_no_actions_are_named(lake):
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
    path = log / "00000000000000000000.00000000000000000001.compacted.json"
    path.write_bytes(b"\n".join(lines))
    assert unread(lake) == [f"{path}: a line is no object of JSON, or has a name twice"]


@pytest.mark.parametrize(
    "path", ["part-%41.parquet", "a//b", "../a", "./a", "a/..", "/a", "file:///a", "ä", "a b", "a?b"]
)
def test_a_path_that_readers_may_read_as_another_is_named(lake, path):
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
def test_a_file_that_ship_has_written_has_no_problems(lake, hour):
    say(lake, partitionValues={"date": "2026-01-01", "hour": hour})
    assert [file.problems for file in files_of(lake)] == [()]


def test_unreadable_commits_are_reported_in_one_sentence(lake):
    commit = lake.events / COMMITS / f"{0:020d}.json"
    actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["partitionColumns"] = []
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises(LakeError, match="cannot be read"):
        files_of(lake)


def test_an_open_table_keeps_the_files_of_its_version(ship, lake, tmp_path):
    table = lake.table()
    write_sample_spool(tmp_path / "spool", sample_events(5, first_seq=20))
    ship(tmp_path / "spool", settings_of(tmp_path / "lake"))
    assert (len(files_of(lake, table=table)), len(files_of(lake))) == (1, 2)
