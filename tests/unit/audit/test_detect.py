"""Tests of `klamm audit detect` over a spool, once and repeatedly, without Spark."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from klamm_spark.cli import main
from klamm_spark.findings import command
from klamm_spark.findings.log import FindingLog
from klamm_spark.findings.outputs import Deliveries
from klamm_spark.findings.watch import SpoolWatch, follow
from klamm_spark.lake.layout import Lake
from klamm_spark.queries.event_views import Period
from klamm_spark.spool.layout import OPEN_SUFFIX, SEALED_SUFFIX, SegmentName
from tests.unit.audit.test_detections import BOOT, START_S, failures, fetch, grant, login

HOUR_US = 3_600_000_000
ATTACK = [*failures(6, names="abcdef"), login(61, principal="User:a")]
NAMES = ["success_after_failures", "brute_force", "password_spraying"]


class Spool:
    """A spool whose server writes the events that a test chooses."""

    def __init__(self, path):
        self.path = path
        self._folder = path / "n"
        self._folder.mkdir(parents=True)
        self._seq = self._first = 0

    def write(self, events, end=""):
        with (self._folder / (SegmentName(BOOT, self._first).stem + OPEN_SUFFIX)).open("a") as file:
            for event in events:
                file.write(json.dumps({**event, "seq": self._seq, "event_id": f"n/{BOOT}/{self._seq}"}) + "\n")
                self._seq += 1
            file.write(end)

    def seal(self):
        path = self._folder / (SegmentName(BOOT, self._first).stem + OPEN_SUFFIX)
        path.rename(path.with_suffix(SEALED_SUFFIX))
        self._first = self._seq


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool")


@pytest.fixture
def watch(spool, tmp_path):
    """Return a watch. Its findings are in `watch.found`, and its time is `watch.now_s` after the first event."""
    log = FindingLog(tmp_path / "findings.jsonl", 2 * HOUR_US)
    found = []
    made = SpoolWatch(
        spool.path,
        log,
        Deliveries(log, [], print),
        lambda one: found.append(one["metadata"]["event_code"]),
        window_us=2 * HOUR_US,
        wall_us=lambda: round((START_S + made.now_s) * 1e6),
    )
    made.found, made.now_s = found, 0
    yield made
    made.close()
    log.close()


def test_findings_appear_when_their_events_are_written(watch, spool):
    assert not watch.step()
    spool.write(ATTACK[:4])
    assert watch.step()
    assert watch.found == []
    spool.write(ATTACK[4:6], end='{"torn')
    watch.step()
    assert watch.found == ["brute_force", "password_spraying"]
    assert not watch.step()


def test_a_segment_that_is_sealed_meanwhile_is_read_once(watch, spool):
    spool.write(ATTACK[:3])
    watch.step()
    spool.write(ATTACK[3:])
    spool.seal()
    spool.write([grant(100)])
    watch.step()
    assert watch.found == NAMES
    spool.write([fetch(101)])
    watch.step()
    assert watch.found == [*NAMES, "grant_then_read"]
    assert watch._views.query("SELECT count(*) FROM events").rows == [(9,)]


def test_old_events_leave_the_window_after_they_were_seen(watch, spool):
    watch.now_s = 10 * 3600
    spool.write(ATTACK)
    watch.step()
    assert watch.found == NAMES
    assert watch._views.query("SELECT count(*) FROM events").rows == [(0,)]
    spool.write([login(9 * 3600)])
    watch.step()
    assert watch.found == NAMES
    assert watch._views.query("SELECT count(*) FROM events").rows == [(1,)]


def test_the_watch_pauses_as_long_as_it_has_worked():
    class Slow:
        problems = ()

        def step(self):
            clock[0] += 7

    clock, waits = [0.0], []
    follow(Slow(), 1, lambda seconds: waits.append(seconds) or len(waits) > 2, lambda: clock[0])
    assert waits == [0, 7, 7]


def test_an_unreadable_segment_is_reported_at_once(watch, spool):
    damaged = spool.path / "node-1" / f"{'f' * 20}-{0:020d}.jsonl.zst"
    events, at = [], []

    def stopped(seconds):
        at.append(len(events))
        if len(at) == 2:
            damaged.parent.mkdir(exist_ok=True)
            damaged.write_bytes(b"garbage")
        return len(at) == 4

    follow(watch, 1, stopped, say=events.append)
    assert at == [0, 0, 1, 1]
    assert f"{damaged} cannot be read" in events[0]


def detect(capsys, *arguments):
    code = main(["detect", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_detect_reports_each_finding_once(capsys, spool, tmp_path):
    spool.write(ATTACK)
    code, out, _ = detect(capsys, spool.path)
    assert code == 0
    assert [line.split(" ", 2)[1] for line in out.splitlines()] == ["critical", "high", "high"]
    assert "User:a 10.0.0.1 front x1 Login after many failures: after 6 failed logins" in out
    path = tmp_path / "findings.jsonl"
    code, out, _ = detect(capsys, spool.path, "--findings", path, "--format", "ocsf")
    assert [json.loads(line)["metadata"]["event_code"] for line in out.splitlines()] == NAMES
    assert out == "".join(json.dumps(json.loads(line)) + "\n" for line in path.read_text().splitlines())
    assert detect(capsys, spool.path, "--findings", path) == (0, "", "")
    assert detect(capsys, spool.path, "--since", "1h") == (0, "", "")


def test_memory_can_be_limited(capsys, spool):
    spool.write(ATTACK)
    code, out, _ = detect(capsys, spool.path, "--memory-limit", "64MB")
    assert (code, len(out.splitlines())) == (0, 3)
    with pytest.raises(SystemExit):
        detect(capsys, spool.path, "--memory-limit", "64MB'; DROP TABLE kept; --")
    assert "is not a size" in capsys.readouterr().err


def test_faults_are_reported(capsys, spool, tmp_path):
    assert "--findings FILE" in detect(capsys, spool.path, "--follow")[2]
    assert "--findings FILE" in detect(capsys, spool.path, "--webhook", "http://x")[2]
    findings = "--findings", tmp_path / "f"
    assert '--webhook "ftp://x" is not a URL' in detect(capsys, spool.path, *findings, "--webhook", "ftp://x")[2]
    assert 'topic needs kafka = { "bootstrap.servers"' in detect(capsys, spool.path, *findings, "--topic", "t")[2]
    assert "there is no spool at" in detect(capsys, "--spool", tmp_path / "none")[2]
    (tmp_path / "f").write_text("damaged\n")
    code, _, err = detect(capsys, spool.path, *findings)
    assert (code, "cannot be read" in err) == (2, True)


def test_a_disk_that_fails_while_the_findings_are_closed_is_reported(capsys, spool, tmp_path, monkeypatch):
    state = tmp_path / "f.state"

    def replace_state(finding):
        if state.is_file():
            state.unlink()
            state.mkdir()

    monkeypatch.setitem(command._FORMATS, "text", replace_state)
    spool.write(ATTACK)
    code, _, err = detect(capsys, spool.path, "--findings", tmp_path / "f")
    assert (code, err.startswith("klamm audit detect: "), err.count("\n")) == (2, True, 1)
    assert "Is a directory" in err


def test_detections_also_see_the_events_around_a_batch():
    assert Period.around(100, 120, 30, 0) == Period(70, 151, 70)
    assert Period.around(10, 20, 30, 0) == Period(0, 51, 0)
    assert Period.around(100, 120, 30, 90) == Period(90, 151, 90)


def test_a_spool_is_followed_unless_a_lake_is_given(spool, tmp_path, monkeypatch):
    pytest.importorskip("deltalake")
    followed = []
    monkeypatch.setattr("klamm_spark.findings.command.run", lambda _options, place, _say: followed.append(place) or 0)
    lake = tmp_path / "lake"
    (lake / "events").mkdir(parents=True)
    file = tmp_path / "klamm.toml"
    file.write_text('[audit]\nspool = "spool"\n[audit.spark]\nlake = "lake"\n')
    for arguments in ([str(file)], [str(file), "--lake", str(lake)], [str(lake)]):
        assert main(["detect", "--follow", *arguments]) == 0
    file.write_text('[audit.spark]\nlake = "lake"\n')
    assert main(["detect", str(file), "--follow"]) == 0
    assert followed == [tmp_path / "spool", *[Lake(lake)] * 3]


def test_the_command_runs_until_it_is_stopped(spool, tmp_path):
    findings, file = tmp_path / "findings.jsonl", tmp_path / "klamm.toml"
    file.write_text('[audit]\nspool = "spool"\n[audit.detect]\nfindings = "findings.jsonl"\npoll_interval_ms = 20\n')
    command = [sys.executable, "-m", "klamm_spark", "detect", str(file), "--follow"]
    environment = os.environ | {"PATH": "/nowhere", "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        spool.write(ATTACK)
        until = time.monotonic() + 60
        while not findings.exists() or len(findings.read_text().splitlines()) < len(NAMES):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, len(out.splitlines())) == (0, 3)
    assert b"findings of" in err
