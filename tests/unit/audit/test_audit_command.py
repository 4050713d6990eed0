"""Tests of `klamm audit` that need no Spark."""

import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from klamm import ConfigError
from klamm.config import check_table
from klamm_spark import cli
from klamm_spark.cli import _ages, main, parser, shipping_arguments
from klamm_spark.settings.audit import check_spool
from klamm_spark.settings.moments import parse_since
from klamm_spark.settings.spark import SparkSettings, read_pipeline
from klamm_spark.spark import session
from klamm_spark.spark.session import SparkUnavailableError
from klamm_spark.storage.filesystems import (
    SPOOL_IS_A_FILE,
    check_location,
    is_uri,
    parse_location,
)

FILE = """\
[listeners.internal.audit]
spool = "spool"

[audit.spark]
lake = "lake"
driver_memory = "1g"
conf = { "spark.jars.ivy" = "/tmp/ivy" }
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "klamm.toml"
    path.write_text(FILE)
    return path


def test_settings_come_from_the_file_and_arguments_override_them(file, tmp_path):
    pipeline = read_pipeline(file, {"driver_memory": None, "master": "local[1]"})
    assert pipeline.spool == tmp_path / "spool"
    assert pipeline.settings.lake == tmp_path / "lake"
    assert (pipeline.settings.driver_memory, pipeline.settings.master) == ("1g", "local[1]")
    assert read_pipeline(file, {"spool": tmp_path / "other"}).spool == tmp_path / "other"


def test_without_a_file_there_are_defaults():
    assert read_pipeline(None, {}).settings == SparkSettings()


def test_a_wrong_setting_is_reported_with_its_line(file):
    file.write_text(FILE.replace("driver_memory", "driver_memery"))
    with pytest.raises(ConfigError, match=r'klamm\.toml:6:1  audit\.spark\.driver_memery: .*mean "driver_memory"'):
        read_pipeline(file, {})


def test_spool_and_lake_may_be_uris(file, tmp_path):
    file.write_text(
        FILE.replace('lake = "lake"', 'lake = "s3a://bucket/lake"\nspool = "abfss://spool@account.host/a folder"')
    )
    pipeline = read_pipeline(file, {})
    assert (pipeline.spool, pipeline.settings.lake) == ("abfss://spool@account.host/a folder", "s3a://bucket/lake")
    file.write_text(FILE.replace('"lake"', '"file:///var/lake"\nspool = "shipped"'))
    pipeline = read_pipeline(file, {"lake": None})
    assert (pipeline.spool, pipeline.settings.lake) == (tmp_path / "shipped", Path("/var/lake"))
    pipeline = read_pipeline(file, {"spool": "hdfs://host/spool", "lake": Path("here")})
    assert (pipeline.spool, pipeline.settings.lake) == ("hdfs://host/spool", Path("here"))


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("", "must be a folder or a URI, not empty"),
        ("s3a:/bucket/lake", '"s3a:/bucket/lake" has one slash: did you mean s3a://bucket/lake'),
        ("s3a:///lake", '"s3a:///lake" names no bucket: s3a://BUCKET/FOLDER'),
        ("file://lake", '"file://lake" names a host; a folder of this machine is file:///FOLDER'),
    ],
)
def test_a_wrong_location_is_reported_with_its_line(file, capsys, location, message):
    file.write_text(FILE.replace('"lake"', f'"{location}"'))
    with pytest.raises(ConfigError, match=rf"klamm\.toml:5:1  audit\.spark\.lake: {message}"):
        read_pipeline(file, {})
    with pytest.raises(SystemExit):
        main(["ship", "--lake", location])
    assert re.search(f"argument --lake: {message}", capsys.readouterr().err)


def test_a_server_writes_its_spool_to_a_folder(file):
    file.write_text('[audit]\nspool = "s3a://bucket/spool"\n')
    with pytest.raises(
        ConfigError, match=r"klamm\.toml:2:1  audit\.spool: must be a folder of this machine, not a URI"
    ):
        read_pipeline(file, {})
    assert check_spool(Path("/var/a:b/spool")) is None


def test_a_spool_that_is_a_file_is_reported(file, capsys):
    (file.parent / "spool").write_text("")
    with pytest.raises(ConfigError, match=r"klamm\.toml:2:1 .*spool: is a file; a spool is a folder"):
        read_pipeline(file, {})
    for command in ("tail", "report", "detect"):
        assert main([command, "--spool", str(file)]) == 2
        assert capsys.readouterr().err == f"klamm audit {command}: {file} {SPOOL_IS_A_FILE}\n"


@pytest.mark.parametrize("location", ["lake", "/lake", "a:b/lake", "~/lake", "file:/lake", "file:///lake"])
def test_settings_for_folders_accept_no_uris(location):
    assert check_location(location) is None
    assert not is_uri(location)
    assert isinstance(parse_location(location, Path("/base")), Path)


@pytest.mark.parametrize("location", ["s3a://bucket", "hdfs:///lake", "viewfs://cluster/lake", "gs://bucket/a b"])
def test_settings_for_locations_accept_uris(location):
    assert check_location(location) is None
    assert is_uri(location)
    assert parse_location(location, Path("/base")) == location


def test_submit_passes_uris_on_unchanged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = parser().parse_args(["submit", "--spool", "s3a://bucket/spool", "--lake", "lake", "--once"])
    wanted = ["--spool", "s3a://bucket/spool", "--lake", str(tmp_path / "lake"), "--once"]
    assert shipping_arguments(options) == wanted


def test_loading_the_plugin_imports_no_spark():
    program = """
import sys
from klamm.config.plugin_registry import PluginRegistry, load_factory
from klamm.api.provider import ProviderKind
registry = PluginRegistry()
load_factory(registry.resolve(ProviderKind.COMMAND, "audit"))
load_factory(registry.resolve(ProviderKind.REQUEST_OBSERVER, "audit"))
heavy = {"pyspark", "pandas", "pyarrow", "duckdb", "deltalake", "rich"} & sys.modules.keys()
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("pyspark", "this command needs pyspark: pip install 'klamm[spark]', or ship without Spark: --master none"),
        ("deltalake", "a lake needs deltalake: pip install 'klamm[lake]'"),
    ],
)
def test_missing_packages_are_reported_in_one_sentence(monkeypatch, tmp_path, capsys, missing, said):
    pytest.importorskip("deltalake")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == missing else object())
    assert main(["ship", "--spool", str(tmp_path), "--master", "local[1]"]) == 2
    assert capsys.readouterr().err == f"klamm audit ship: {said}\n"


def test_submit_needs_a_master(tmp_path, capsys):
    assert main(["submit", "--spool", str(tmp_path), "--archive", str(tmp_path / "a.zip")]) == 2
    assert capsys.readouterr().err == "klamm audit submit: which cluster? Give its --master, e.g. spark://HOST:7077\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ship"], "no spool is configured: give a file that has [audit] spool, or --spool DIR"),
        (["ship", "--spool", "absent"], "there is no spool at absent"),
        (["verify", "--spool", "absent"], "there is no spool at absent"),
        (["ship", "--spool", ".", "--max-bytes-per-trigger", "0"], "--max-bytes-per-trigger must be at least 1, not 0"),
        (["ship", "--spool", ".", "--trigger-interval-ms", "-1"], "--trigger-interval-ms must be at least 0, not -1"),
        (["report", "--html", "absent/report.html"], "--html absent/report.html cannot be written: no such folder"),
        (["report", "--html", "."], "--html . cannot be written: is a folder"),
    ],
)
def test_problems_are_reported_before_spark_is_called(monkeypatch, tmp_path, capsys, arguments, message):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(session, "open_session", pytest.fail)
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"klamm audit {arguments[0]}: {message}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "--since", "yesterday"], 'takes e.g. 24h, 7d, 2026-01-31 or 2026-01-31T12:00, not "yesterday"'),
        (["compact", "--keep-hours", "167.5"], "must be at least 168: Delta deletes no younger files"),
        (["compact", "--keep-hours", "nan"], "must be at least 168: Delta deletes no younger files"),
        (["compact", "--keep-hours", "inf"], "must be at most 1,000,000"),
        (["compact", "--keep-hours", "soon"], "invalid"),
    ],
)
def test_invalid_arguments_are_reported(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", [None, "/lake/seals/x"])
def test_a_full_disk_is_reported_in_one_line(monkeypatch, tmp_path, capsys, name):
    pytest.importorskip("deltalake")

    def full(*given, **named):
        raise OSError(28, "No space left on device", name)

    monkeypatch.setattr("klamm_spark.lake.ship.run", full)
    assert main(["ship", "--spool", str(tmp_path), "--master", "none"]) == 2
    said = f"{name}: No space left on device" if name else "[Errno 28] No space left on device"
    assert capsys.readouterr().err == f"klamm audit ship: {said}\n"


@pytest.mark.parametrize(("text", "said"), [(FILE, 1), (FILE.replace("conf =", "# "), 0)])
def test_settings_of_spark_without_effect_are_reported_in_one_line(file, monkeypatch, capsys, text, said):
    pytest.importorskip("deltalake")
    monkeypatch.setattr("klamm_spark.lake.ship.run", lambda *given, **named: 0)
    file.write_text(text)
    (file.parent / "spool").mkdir(exist_ok=True)
    assert main(["ship", str(file), "--master", "none"]) == 0
    lines = ["conf in [audit.spark] changes nothing: threads of this process ship, because master is none\n"]
    assert capsys.readouterr().err.splitlines(keepends=True) == lines * said


def test_a_closed_pipe_raises_broken_pipe_error(monkeypatch, tmp_path):
    pytest.importorskip("deltalake")

    def closed(*given, **named):
        raise BrokenPipeError

    monkeypatch.setattr("klamm_spark.lake.ship.run", closed)
    with pytest.raises(BrokenPipeError):
        main(["ship", "--spool", str(tmp_path), "--master", "none"])


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90m", datetime(2026, 5, 1, 10, 30, tzinfo=UTC)),
        ("2d", datetime(2026, 4, 29, 12, tzinfo=UTC)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
    ],
)
def test_since_accepts_ages_dates_and_times(text, moment):
    assert parse_since(text, datetime(2026, 5, 1, 12, tzinfo=UTC)) == moment


def test_a_master_that_does_not_answer_is_reported_at_once(free_port):
    with pytest.raises(SparkUnavailableError, match=f"nothing answers at spark://127.0.0.1:{free_port}"):
        session.require_reachable(f"spark://127.0.0.1:{free_port}")


@pytest.fixture
def free_port():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        # The port is bound, but no process listens. So connections are certainly refused, and no other process uses the
        # port.
        yield taken.getsockname()[1]


def test_one_reachable_master_of_several_is_enough(free_port):
    import socket

    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        there.listen()
        answering = f"127.0.0.1:{there.getsockname()[1]}"
        session.require_reachable(f"spark://127.0.0.1:{free_port},{answering}")
        session.require_reachable(f"spark://{answering},127.0.0.1:{free_port}")
    one = f"nothing answers at spark://127.0.0.1:{free_port}: Connection refused"
    with pytest.raises(SparkUnavailableError, match=f"^{one}; {one}$"):
        session.require_reachable(f"spark://127.0.0.1:{free_port},127.0.0.1:{free_port}")


@pytest.mark.parametrize("url", ["local[2]", "yarn", "k8s://https://example.org"])
def test_masters_of_other_kinds_are_not_checked(url):
    session.require_reachable(url)


def test_control_characters_in_names_do_not_hide_the_report(capsys):
    for say in (cli.say, cli._print):
        say("\x1b[2K\r2 rows \ud800")
    said = capsys.readouterr()
    assert (said.out, said.err) == (2 * ("\\x1b[2K\\r2 rows \\ud800\n",))


def test_a_query_after_the_file_is_an_error_that_shows_the_order(file, capsys):
    with pytest.raises(SystemExit):
        main(["sql", str(file), "SELECT 1"])
    assert f"the QUERY comes before the FILE: klamm audit sql QUERY {file}" in capsys.readouterr().err


_WAITS = """
import sys, tempfile, threading
from klamm_spark import cli
from klamm_spark.queries.event_views import DuckDbViews, Period

def run(options, pipeline):
    views = DuckDbViews(None, Period())
    try:
        with tempfile.NamedTemporaryFile():
            print("ready", flush=True)
            {wait}
    finally:
        views.close()

cli._run = run
sys.exit(cli.main(["report", "--spool", "spool"]))
"""


@pytest.mark.parametrize("wait", ["threading.Event().wait(60)", 'views.query("SELECT sum(range) FROM range(1 << 50)")'])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_command_without_its_temporary_files(tmp_path, number, wait):
    pytest.importorskip("duckdb")
    environment = {"PYTHONPATH": ":".join(sys.path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _WAITS.format(wait=wait)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=tmp_path, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            assert list(tmp_path.iterdir()) != []
            os.kill(process.pid, number)
            assert (process.communicate(timeout=60)[1], process.returncode) == ("", 128 + number)
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def test_the_maximum_age_of_events_can_be_set_by_kind(tmp_path, capsys):
    options = parser().parse_args(["forget", "--kind", "admin", "--kind", "request"])
    keep = {"connection": "30d", "admin": "400d", "request": "400d"}
    ((before, kinds),) = _ages(options, SparkSettings(keep=keep)).items()
    assert kinds == ["admin", "request"]
    assert datetime.now(UTC) - before > timedelta(days=399)
    given = parser().parse_args(["forget", "--older-than", "2026-01-31"])
    assert _ages(given, SparkSettings(keep=keep)) == {datetime(2026, 1, 31, tzinfo=UTC): []}
    assert len(_ages(parser().parse_args(["forget"]), SparkSettings(keep=keep))) == 2
    assert main(["forget", "--lake", str(tmp_path)]) == 2
    assert "Give --older-than, or keep in [audit.spark]" in capsys.readouterr().err
    for wrong in ({"audit_gap": "30d"}, {"request": "soon"}):
        ((key, _),) = check_table(SparkSettings, {"keep": wrong})
        assert key == "keep"
