"""Tests of `klamm audit report` on a spool, without Spark and lake."""

import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from klamm_spark.cli import main
from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import Lake
from klamm_spark.queries.event_views import DuckDbViews, Period
from klamm_spark.report.command import Asked, answer, answer_one
from klamm_spark.report.queries import ORDER, questions
from klamm_spark.spool.compression import compress
from klamm_spark.spool.layout import COMPRESSED_SUFFIXES
from tests.audit_samples import sample_events, write_sample_spool

EVENTS = list(sample_events(3000))


@pytest.fixture(scope="module")
def spool(tmp_path_factory):
    path = tmp_path_factory.mktemp("spool")
    write_sample_spool(path, EVENTS, events_per_segment=900)
    return path


@pytest.fixture(scope="module")
def views(spool):
    made = DuckDbViews(spool, Period())
    yield made
    made.close()


@pytest.fixture(scope="module")
def report(spool, views):
    return answer(views, str(spool))


def test_every_question_has_its_table(report):
    assert list(report.tables) == ["findings", *ORDER]
    assert all(question.title.endswith("?") for question in questions())
    files = {question.key for question in questions()}
    assert files == set(ORDER)


def test_the_counts_are_those_of_the_events(report):
    requests = sum(event.get("repeat_count", 1) for event in EVENTS if event["kind"] == "request")
    assert report.totals["requests"] == requests
    assert report.totals["events"] == len(EVENTS)
    assert sum(row[2] for row in report.tables["apis"].rows) == requests
    denied = sum(event["outcome"] == "denied" and event["kind"] == "request" for event in EVENTS)
    assert sum(row[7] for row in report.tables["denials"].rows) <= denied == report.totals["denied"]


def test_compressed_segments_are_counted_like_others(tmp_path):
    for number, path in enumerate(write_sample_spool(tmp_path, EVENTS, events_per_segment=900)):
        if number:
            codec = ("zstd", "gzip")[number % 2]
            path.with_suffix(f".jsonl{COMPRESSED_SUFFIXES[codec]}").write_bytes(compress(path.read_bytes(), codec))
            path.unlink()
    views = DuckDbViews(tmp_path, Period())
    found = views.query("SELECT count(*), count(DISTINCT event_id) FROM events").rows
    views.close()
    assert found == [(len(EVENTS), len(EVENTS))]


def test_the_table_of_access_names_clients_that_read_and_that_were_denied(report):
    table = report.tables["access"]
    names = [column.title for column in table.columns]
    expected = {}
    for event in EVENTS:
        for one in event.get("resources", ()):
            if event["api_name"] == "Produce":
                key = one["name"], event["principal"]
                allowed, refused = expected.get(key, (0, 0))
                count = event.get("repeat_count", 1)
                denied = one.get("granted") is False
                expected[key] = (allowed + (0 if denied else count), refused + (count if denied else 0))
    found = {(row[0], row[1]): (row[3], row[4]) for row in table.rows if row[2] == "Produce"}
    places = {
        (event["principal"], event["client_address"], event["listener"]) for event in EVENTS if "api_key" in event
    }
    assert {(row[1], row[5], row[6]) for row in table.rows} == places
    assert names[3:5] == ["allowed", "denied"]
    assert found == expected
    assert table.marked == {index for index, row in enumerate(table.rows) if row[4]}


def test_a_period_is_compared_with_the_one_before(spool):
    middle, last = EVENTS[2000]["time_us"], EVENTS[-1]["time_us"] + 1
    views = DuckDbViews(spool, Period(middle, before_us=EVENTS[1000]["time_us"]))
    since = datetime.fromtimestamp(middle / 1e6, UTC)
    report = answer(views, "x", since)
    views.close()
    assert report.totals["events"] == 1000
    assert report.earlier["events"] == 1000
    assert Period.since(middle, last) == Period(middle, before_us=middle - (last - middle))
    assert report.tables["new_clients"].rows == ()


def test_report_names_new_clients(tmp_path):
    new = [{**event, "client_software_version": "9.9"} for event in EVENTS[2000:] if "client_software_version" in event]
    for seq, event in enumerate(new, 2000):
        event.update(seq=seq, event_id=f"e/{seq}")
    write_sample_spool(tmp_path, [*EVENTS[:2000], *new])
    views = DuckDbViews(tmp_path, Period(EVENTS[2000]["time_us"]))
    rows = answer(views, "x", datetime.now(UTC)).tables["new_clients"].rows
    views.close()
    assert {row[0] for row in rows} == {"software"}
    assert {row[1].split()[1] for row in rows} == {"9.9"}


@pytest.mark.parametrize("question", ORDER)
def test_a_single_question_prints_all_rows(report, views, capsys, monkeypatch, question):
    monkeypatch.setenv("COLUMNS", "220")
    assert answer_one(views, Asked(question)) == 0
    printed = capsys.readouterr().out
    table = report.tables[question]
    assert table.title in printed
    if question == "access":
        assert printed.count(" Produce ") == sum(row[2] == "Produce" for row in table.rows)


def test_a_question_accepts_a_condition_on_its_columns(report, spool, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "220")
    where = ["--where", "principal = 'User:user-3' AND denied > 0 -- no more"]
    assert main(["report", str(spool), "--question", "access", *where]) == 0
    printed = capsys.readouterr().out
    wanted = [row for row in report.tables["access"].rows if row[1] == "User:user-3" and row[4]]
    assert wanted
    assert printed.count("User:user-") == len(wanted) == printed.count("User:user-3 ")
    assert main(["report", str(spool), "--question", "access", "--where", "no_column = 1"]) == 2
    assert "the condition is wrong" in capsys.readouterr().err


def test_the_commands_for_spools_need_only_duckdb(spool, tmp_path):
    """Each command for spools, except the pipeline's, works without packages that only the pipeline needs."""
    commands = {
        "tail": [],
        "export": ["--format", "ocsf"],
        "sql": ["SELECT count(*) FROM events"],
        "report": ["--html", str(tmp_path / "report.html")],
        "detect": ["--findings", str(tmp_path / "findings")],
    }
    program = """
import sys
missing = ("pyspark", "py4j", "pandas", "pyarrow", "delta", "numpy", "matplotlib")
sys.modules.update(dict.fromkeys(missing))
from klamm_spark.cli import main
sys.exit(any(main(command.split("|")) for command in sys.argv[1:]))
"""
    given = ["|".join([name, *arguments, "--spool", str(spool)]) for name, arguments in commands.items()]
    done = subprocess.run(
        [sys.executable, "-c", program, *given],
        capture_output=True,
        text=True,
        env={"PATH": "/nowhere", "PYTHONPATH": ":".join(sys.path)},
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr.count("Error")) == (0, 0), done.stderr
    assert (tmp_path / "report.html").exists()


def test_the_command_needs_no_java(spool, tmp_path):
    html = tmp_path / "report.html"
    environment = {"PATH": "/nowhere", "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-m", "klamm_spark", "report", str(spool), "--html", str(html)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "What needs attention?" in done.stdout
    assert html.stat().st_size > 50_000


def test_a_report_leaves_no_files_and_reports_a_lack_of_room(spool, tmp_path):
    (tmp_path / "t").mkdir()
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0})); "
    run = f"from klamm_spark.__main__ import main; sys.exit(main(['report', {str(spool)!r}]))"
    environment = {"PYTHONPATH": ":".join(sys.path), "TMPDIR": str(tmp_path / "t")}
    results = []
    for start in ("", limit.format(100_000)):
        command = [sys.executable, "-c", f"import sys; {start}{run}"]
        results.append(
            subprocess.run(
                command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=60, check=False
            )
        )
        assert list(tmp_path.rglob("*")) == [tmp_path / "t"]
    assert [done.returncode for done in results] == [0, 2], results
    assert "TMPDIR names another place" in results[1].stderr
    assert "Traceback" not in results[1].stderr


def test_an_empty_spool_has_no_report(tmp_path, capsys):
    (tmp_path / "spool").mkdir()
    assert main(["report", "--spool", str(tmp_path / "spool")]) == 2
    assert "there are no events" in capsys.readouterr().err
    assert main(["report", "--spool", str(tmp_path / "none")]) == 2
    assert "there is no spool" in capsys.readouterr().err
    with pytest.raises(LakeError, match="there is no spool"):
        DuckDbViews(tmp_path / "none", Period())


def test_a_lake_is_preferred_if_there_is_one(tmp_path, spool, monkeypatch):
    pytest.importorskip("deltalake")
    asked = []
    monkeypatch.setattr("klamm_spark.report.command.run", lambda place, **_: asked.append(place) or 0)
    file, lake = tmp_path / "klamm.toml", tmp_path / "lake"
    file.write_text(f'[audit]\nspool = {json.dumps(str(spool))}\n[audit.spark]\nlake = "lake"\n')
    assert main(["report", str(file)]) == 0
    (lake / "events").mkdir(parents=True)
    for arguments in ([str(file), "--spool", str(spool)], [str(file)], [str(lake)]):
        assert main(["report", *arguments]) == 0
    assert asked == [spool, spool, Lake(lake), Lake(lake)]


def test_a_segment_with_one_endless_line_is_reported_in_one_sentence(tmp_path):
    (path,) = write_sample_spool(tmp_path, EVENTS[:10])
    path.with_name(f"{path.name}.zst").write_bytes(compress(bytes(64 << 20), "zstd"))
    path.unlink()
    with pytest.raises(LakeError, match=r"the spool cannot be read: .*jsonl\.zst"):
        DuckDbViews(tmp_path, Period())
