"""What the rules of the audit find, in the console."""

import json
import subprocess
import sys
import tempfile

import pytest

from klamm import ServerServices
from klamm.testing import EmbeddedServer
from klamm.workers.calls import WorkerCalls
from klamm_console import findings, trail
from klamm_console.findings import Findings
from tests.unit.console.conftest import CONSOLE, HOSTILE, Browser
from tests.waiting import wait_until

# Code that prints half a line.
TORN = "print('{\"severity_id\": 4, ', end='', flush=True)"


@pytest.fixture
def audited(tmp_path):
    settings = ['listeners.default.observers=["audit"]', f"listeners.default.audit.spool={tmp_path}"]
    with EmbeddedServer([*CONSOLE, *settings]) as running:
        yield running


def finding(number, severity_id=4, name=HOSTILE):
    return json.dumps(
        {
            "severity_id": severity_id,
            "message": f"{name} {number}",
            "count": 7,
            "start_time": 1_000,
            "end_time": 2_000,
            "finding_info": {"title": "a title", "desc": "what it means"},
            "evidences": [{"actor": {"user": {"uid": "User:alice"}}, "src_endpoint": {"ip": "192.0.2.1"}}],
            "resources": [{"name": "orders"}],
        }
    )


class Program:
    """Stands for `klamm audit detect`: runs this Python code instead, and remembers the commands."""

    def __init__(self, monkeypatch, tmp_path):
        self.commands = []
        self.code = ""
        real = subprocess.Popen

        def popen(command, **options):
            self.commands.append(command)
            return real([sys.executable, "-c", self.code], **options)

        monkeypatch.setattr(subprocess, "Popen", popen)
        monkeypatch.setattr(findings, "spool_of", lambda _services: str(tmp_path))

    def prints(self, *lines, then=""):
        self.code = f"import sys\nfor line in {list(lines)!r}: print(line, flush=True)\n{then}"


@pytest.fixture
def program(monkeypatch, tmp_path):
    return Program(monkeypatch, tmp_path)


def test_the_rules_find_what_is_in_the_spool(audited):
    pytest.importorskip("duckdb")
    page = Browser(audited)
    page.log_in()
    audited.create_topic("orders")
    wait_until(lambda: any(row.get("api_name") == "CreateTopics" for row in page("audit")[1]))
    found = Findings(audited.server.services, within_s=600.0).look(1)
    assert (found["problem"], found["is_cut"], found["hours"]) == ("", False, 1)
    # The listener does not know its clients, and one has made a topic.
    (row,) = [each for each in found["findings"] if "orders" in each["objects"]]
    assert row["principal"] == "User:ANONYMOUS"


def test_without_duckdb_the_page_says_what_to_install(program):
    program.code = "import sys; sys.exit(\"klamm audit detect: a report needs DuckDB: pip install 'klamm[report]'\")"
    found = Findings(ServerServices()).look(24)
    assert (found["findings"], "pip install 'klamm[report]'" in found["problem"]) == ([], True)


def test_without_an_audit_the_page_says_so(browser):
    assert browser("findings")[1]["problem"] == "no listener has the observer audit"


def test_findings_have_what_the_page_shows(program, tmp_path):
    program.prints(finding(1, 5), finding(2))
    found = Findings(ServerServices()).look(168)
    assert [row["severity"] for row in found["findings"]] == ["critical", "high"]
    assert found["findings"][0] == {
        "severity": "critical",
        "title": "a title",
        "about": "what it means",
        "message": f"{HOSTILE} 1",
        "principal": "User:alice",
        "address": "192.0.2.1",
        "objects": ["orders"],
        "count": 7,
        "first_ms": 1_000,
        "last_ms": 2_000,
    }
    (command,) = program.commands
    assert command[1:] == [
        *["-P", "-m", "klamm", "audit", "detect", "--spool", str(tmp_path), "--since", "168h"],
        *["--format", "ocsf", "--memory-limit", "256MB"],
    ]


def test_the_rules_run_once_a_minute(program):
    program.prints(finding(1))
    services = ServerServices()
    now_ns = services.clock.monotonic_ns()
    services.clock = type("Clock", (), {"monotonic_ns": lambda _self: now_ns, "wall_ms": lambda _self: 0})()
    looks = Findings(services)
    assert looks.look(24) is looks.look(24)
    looks.look(1)
    assert len(program.commands) == 2, "another period is another question"
    now_ns += 60 * 1_000_000_000
    looks.look(1)
    assert len(program.commands) == 3


def test_rules_that_take_too_long_are_ended(program):
    program.prints(finding(1), then=f"{TORN}; import time; time.sleep(600)")
    found = Findings(ServerServices(), within_s=5.0).look(24)
    assert "were ended" in found["problem"]
    assert len(found["findings"]) <= 1


def test_a_command_that_fails_in_the_middle_of_a_line_has_the_lines_before_it(program):
    program.prints(finding(1), finding(2), then=f"{TORN}; sys.exit('out of memory')")
    found = Findings(ServerServices()).look(24)
    assert (found["problem"], len(found["findings"])) == ("out of memory", 2)


def test_a_process_that_is_ended_leaves_no_files(program, monkeypatch, tmp_path):
    monkeypatch.setattr(findings, "_MAX_BYTES", 10_000)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    program.code = f"import tempfile; tempfile.mkdtemp()\nwhile True: print({finding(1)!r})"
    assert Findings(ServerServices()).look(24)["is_cut"]
    assert [*temporary.iterdir()] == []


def test_the_command_takes_no_module_from_the_working_directory(monkeypatch, tmp_path):
    (tmp_path / "argparse.py").write_text("raise SystemExit('taken from the working directory')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(findings, "spool_of", lambda _services: str(tmp_path / "no spool"))
    problem = Findings(ServerServices(), within_s=600.0).look(24)["problem"]
    assert "klamm audit" in problem
    assert "taken" not in problem


def test_a_request_during_the_rules_of_others_is_answered_in_time(program):
    looks = Findings(ServerServices(), within_s=0.01)
    with looks._lock, pytest.raises(TimeoutError, match="still run for others"):
        looks.look(24)


def test_an_answer_without_an_end_is_cut(program, monkeypatch):
    monkeypatch.setattr(findings, "_MAX_BYTES", 10_000)
    program.code = f"line = {finding(1)!r}\nwhile True: print(line)"
    found = Findings(ServerServices()).look(24)
    assert (found["is_cut"], found["problem"]) == (True, "")
    assert 10 < len(found["findings"]) < 100


def test_a_server_that_stops_ends_the_process(program):
    program.prints(then="sys.stdin.close(); import time; time.sleep(600)")
    looks = Findings(ServerServices())
    start = looks._start

    def started(*arguments):
        process = start(*arguments)
        looks.close()
        return process

    looks._start = started
    assert "has ended with" in looks.look(24)["problem"]
    looks._start = start
    assert looks.look(1)["problem"] == "the server stops"


@pytest.mark.parametrize("hours", ["0", "25", "x", "-1"])
def test_other_periods_are_refused(browser, hours):
    assert browser(f"findings?hours={hours}")[0] == 400


def test_it_needs_the_right_to_alter(secure):
    alice = Browser(secure)
    alice.log_in("alice")
    assert alice("findings")[0] == 403


def test_the_parent_of_workers_asks_one_for_the_spool(tmp_path):
    services = ServerServices()
    asked = []
    services.workers = WorkerCalls(lambda *what, **_options: asked.append(what[0]) or {1: None, 2: str(tmp_path)})
    assert trail.spool_of(services) == str(tmp_path)
    assert asked == ["klamm_console.trail:spool_of"]
    services.workers = WorkerCalls(lambda *_what, **_options: {1: "", 2: None})
    assert trail.spool_of(services) == "", "the workers have no audit"
    services.workers = WorkerCalls(lambda *_what, **_options: {1: None, 2: None})
    with pytest.raises(TimeoutError, match="no worker has an answer"):
        trail.spool_of(services)
