"""Tests of `klamm audit tail`, `sql` and `export`, which read a spool while it grows, without Spark."""

import errno
import io
import json
import os
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_spark.cli import parser
from klamm_spark.errors import LakeError
from klamm_spark.events.event import FIELD_NAMES
from klamm_spark.events.lineage import open_lineage
from klamm_spark.settings.spark import read_pipeline
from klamm_spark.spool.compression import compress
from klamm_spark.spool.layout import open_segments, sealed_segments
from klamm_spark.terminal.commands import run
from klamm_spark.terminal.event_table import EventTable, QueryError
from klamm_spark.terminal.formats import FORMATS, cef, text
from klamm_spark.terminal.spool_lines import SpoolLines
from tests.audit_samples import sample_events, write_sample_spool
from tests.unit.audit.test_spool import Writer

EVENTS = list(sample_events(400))


@pytest.fixture
def spool(tmp_path):
    write_sample_spool(tmp_path / "spool", EVENTS, events_per_segment=90)
    return tmp_path / "spool"


def audit(*arguments, sleep=None):
    """Return what a command prints."""
    options = parser().parse_args([str(argument) for argument in arguments])
    out = io.StringIO()
    code = run(options, read_pipeline(None, {"spool": options.spool}), out, sleep or pytest.fail)
    assert code == 0
    return out.getvalue().splitlines()


STEPS = st.lists(st.sampled_from(["write", "seal", "crash", "read"]), max_size=30)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@given(steps=STEPS)
@settings(max_examples=60)
def test_each_event_is_read_once_however_the_spool_grows(tmp_path_factory, codec, steps):
    spool = tmp_path_factory.mktemp("spool")
    writer = Writer(spool / "n", compression=codec)
    writer.start("0" * 8)
    reader, found, written = SpoolLines(spool), [], []
    for number, step in enumerate(steps):
        if step == "write":
            written.append((writer.spool.boot, writer.seq))
            writer.write()
        elif step == "read":
            found += reader.new_lines()
        else:
            if step == "seal":
                writer.spool.close()
            else:
                # A killed server leaves an incomplete line, which the next start removes.
                for path in open_segments(writer.folder):
                    with path.open("ab") as file:
                        file.write(b'{"seq": 9')
                    found += reader.new_lines()
                os.close(writer.spool._lock)
            writer.start(f"{number + 1:08d}")
    found += reader.new_lines()
    found += reader.new_lines()
    assert [(event["boot"], event["seq"]) for event in map(json.loads, found)] == written
    assert reader.problems == []
    reader.close()
    writer.spool.close()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_lines_are_read_even_if_they_are_sealed_and_deleted_between_two_reads(tmp_path, codec):
    writer = Writer(tmp_path / "n", compression=codec)
    writer.start("0" * 8)
    writer.write(2)
    reader = SpoolLines(tmp_path)
    assert len(list(reader.new_lines())) == 2
    writer.write(3)
    writer.spool.close()
    for path in (*sealed_segments(writer.folder), *writer.folder.rglob("*.seal")):
        path.unlink()
    writer.start("1" * 8)
    writer.write()
    found = [json.loads(line)["seq"] for line in (*reader.new_lines(), *reader.new_lines())]
    assert found == [2, 3, 4, 0]
    writer.spool.close()
    assert list(reader.new_lines()) == []
    assert open_in(tmp_path) == []
    reader.close()


def open_in(folder):
    """Return the files below a folder that this process has open."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [to for link in links if os.path.islink(link) and (to := os.readlink(link)).startswith(str(folder))]


def test_a_sealed_segment_that_failed_is_read_again(tmp_path):
    (path,) = write_sample_spool(tmp_path, EVENTS[:10])
    lines = path.read_bytes()
    path.with_suffix(".jsonl.zst").write_bytes(b"garbage")
    path.unlink()
    path = path.with_suffix(".jsonl.zst")
    reader = SpoolLines(tmp_path)
    assert [list(reader.new_lines()) for _ in range(3)] == [[], [], []]
    assert len(reader.problems) == 1
    path.write_bytes(compress(lines, "zstd"))
    assert b"".join(line + b"\n" for line in reader.new_lines()) == lines
    assert list(reader.new_lines()) == []
    assert len(reader.problems) == 1


def test_a_segment_whose_file_cannot_be_opened_once_is_read_later(tmp_path, monkeypatch):
    write_sample_spool(tmp_path, EVENTS[:10])
    reader = SpoolLines(tmp_path)

    def fails(path):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    with monkeypatch.context() as patch:
        patch.setattr("klamm_spark.terminal.spool_lines.read_file", fails)
        assert list(reader.new_lines()) == []
    assert len(list(reader.new_lines())) == 10


def test_older_segments_are_left_out(spool):
    paths = sealed_segments(spool / "node-1")
    assert len(list(SpoolLines(spool, newest=1).new_lines())) == 400 % 90
    assert len(list(SpoolLines(spool, newest=41).new_lines())) == 90 + 400 % 90
    assert len(list(SpoolLines(spool, since_us=1 << 61).new_lines())) == 0
    assert len(paths) == 5


def test_a_damaged_segment_is_reported_and_the_others_are_read(spool, capsys):
    (spool / "node-1" / f"{'f' * 20}-{0:020d}.jsonl.zst").write_bytes(b"garbage")
    options = parser().parse_args(["export", "--spool", str(spool)])
    out = io.StringIO()
    assert run(options, read_pipeline(None, {"spool": options.spool}), out) == 1
    assert len(out.getvalue().splitlines()) == 400
    assert "jsonl.zst cannot be read" in capsys.readouterr().err


def test_export_prints_the_events_unchanged(spool):
    assert [json.loads(line) for line in audit("export", "--spool", spool)] == EVENTS


@pytest.mark.parametrize("name", FORMATS)
def test_every_event_can_be_exported_in_every_format(spool, name):
    lines = audit("export", "--spool", spool, "--format", name)
    taken = {
        "kip673": [event for event in EVENTS if event["kind"] == "request"],
        "openlineage": [event for event in EVENTS if open_lineage(event)],
    }.get(name, EVENTS)
    assert len(lines) == len(taken) > 0
    if name not in ("text", "cef", "syslog"):
        assert all(isinstance(json.loads(line), dict) for line in lines)


def test_export_selects_by_condition_and_time(spool):
    middle = datetime.fromtimestamp(EVENTS[200]["time_us"] / 1e6, UTC).isoformat()
    denied = [event for event in EVENTS if event["outcome"] == "denied"]
    where = ("--where", "outcome = 'denied' -- and nothing else")
    assert [json.loads(line) for line in audit("export", "--spool", spool, *where)] == denied
    first, last = (audit("export", "--spool", spool, side, middle) for side in ("--until", "--since"))
    assert [json.loads(line) for line in first + last] == EVENTS
    assert len(first) == 200


def test_tail_prints_the_newest(spool):
    lines = audit("tail", "-n", 3, "--spool", spool)
    assert lines == [text(event) for event in EVENTS[-3:]]
    (line,) = audit("tail", "-n", 1, "--spool", spool, "--where", "api_name = 'CreateTopics'", "--format", "jsonl")
    assert json.loads(line) == [event for event in EVENTS if event.get("api_name") == "CreateTopics"][-1]


def test_tail_follows_until_it_is_interrupted(tmp_path):
    writer = Writer(tmp_path / "n")
    writer.start("0" * 8)
    steps = [lambda: writer.write(2), lambda: (writer.spool.close(), writer.start("1" * 8), writer.write())]

    def sleep(seconds):
        assert 0 < seconds < 1
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    out = io.StringIO()
    options = parser().parse_args(["tail", "-f", "--spool", str(tmp_path), "--format", "jsonl", "--where", "seq < 2"])
    assert run(options, read_pipeline(None, {"spool": options.spool}), out, sleep) == 0
    assert [json.loads(line)["seq"] for line in out.getvalue().splitlines()] == [0, 1, 0]


@pytest.mark.parametrize("command", [["export"], ["export", "--format", "cef"], ["tail"], ["sql", "select 1"]])
def test_an_interrupted_export_raises_the_interrupt(spool, command):
    class Interrupted(io.StringIO):
        def write(self, text):
            raise KeyboardInterrupt

    options = parser().parse_args([*command, "--spool", str(spool)])
    with pytest.raises(KeyboardInterrupt):
        run(options, read_pipeline(None, {"spool": options.spool}), Interrupted())


def test_tail_reports_at_once_what_it_cannot_read(spool, capsys):
    said = []

    def sleep(seconds):
        said.append(capsys.readouterr().err)
        if len(said) == 3:
            raise KeyboardInterrupt
        if len(said) == 1:
            (spool / "node-1" / f"{'f' * 20}-{0:020d}.jsonl.zst").write_bytes(b"garbage")

    options = parser().parse_args(["tail", "-f", "--spool", str(spool)])
    assert run(options, read_pipeline(None, {"spool": options.spool}), io.StringIO(), sleep) == 1
    assert ["cannot be read" in each for each in said] == [False, True, False]


def test_sql_reads_events_resources_and_attributes(spool, tmp_path):
    change = {
        **EVENTS[-1],
        "event_id": "node-1/x/0",
        "resources": [{"type": "TOPIC", "name": "t", "attributes": [{"name": "partitions", "value": "3"}]}],
    }
    write_sample_spool(spool, [{**change, "node": "node-2"}])
    query = "SELECT kind, count(*) AS events FROM events GROUP BY kind ORDER BY kind"
    rows = [line.split() for line in audit("sql", query, "--spool", spool)]
    assert rows[0] == ["kind", "events"]
    assert sum(int(row[1]) for row in rows[2:]) == 401
    query = "SELECT r.name, a.name AS attribute, a.value FROM resources r JOIN attributes a USING (event_id, position)"
    assert audit("sql", query, "--spool", spool, "--format", "csv") == ["name,attribute,value", "t,partitions,3"]
    (line,) = audit("sql", "SELECT time FROM events ORDER BY seq LIMIT 1", "--spool", spool, "--format", "jsonl")
    assert json.loads(line) == {"time": "2026-01-01T00:00:00.000000Z"}


def test_the_tables_have_all_fields():
    table = EventTable()
    names, _ = table.select("SELECT * FROM events")
    assert set(FIELD_NAMES) < set(names)
    table.close()


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM lines",
        "DROP VIEW events",
        "ATTACH 'x.db' AS x",
        "PRAGMA journal_mode = DELETE",
        "SELECT load_extension('x')",
        "SELECT nothing FROM events",
        "SELECT 1; SELECT 2",
        "VACUUM INTO 'x.db'",
        "",
    ],
)
def test_a_query_that_is_wrong_or_writes_is_refused(spool, query):
    with pytest.raises(LakeError, match="the query is wrong"):
        audit("sql", query, "--spool", spool)
    table = EventTable()
    table.add([b"{}"])
    with pytest.raises(QueryError):
        list(table.select(query)[1])
    assert table.add([b"{}", b"no json"]) == 1
    table.close()


@pytest.mark.parametrize("render", [text, cef, FORMATS["syslog"]])
def test_clients_cannot_forge_a_line_of_the_output(render):
    forged = "x\n2026-01-01T00:00:00Z node-1 CreateAcls v3 ok|CEF:0|a=b\\ \u2028\x1b[31m"
    for event in EVENTS[:80]:
        hostile = {key: forged if isinstance(value, str) and key != "kind" else value for key, value in event.items()}
        line = render({**hostile, "time_us": event["time_us"]})
        assert line.isprintable()
    if render is cef:
        head = line.split(" cat=")[0]
        assert len(re.split(r"(?<!\\)\|", head)) == 8


def test_cef_has_account_address_and_action():
    event = next(e for e in EVENTS if e["outcome"] == "denied" and e["kind"] == "request")
    line = cef({**event, "client_id": "a=b|c"})
    assert line.startswith("CEF:0|klamm|klamm|")
    assert f"|request.completed|{event['api_name']}|7|rt={event['time_us'] // 1000} cat=request" in line
    assert f" src={event['client_address']} " in line
    assert " cs1Label=clientId cs1=a\\=b|c " in line


def test_a_spool_must_be_a_folder_of_this_machine(tmp_path):
    with pytest.raises(LakeError, match="there is no spool"):
        audit("tail", "--spool", tmp_path / "none")
    with pytest.raises(LakeError, match="reads a folder of this machine"):
        audit("tail", "--spool", "s3a://bucket/spool")
