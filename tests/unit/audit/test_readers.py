"""Tests of rights on the trail: each reader has a folder with a part of it, and no command shows more."""

import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import pytest

from klamm_spark.cli import main
from klamm_spark.errors import LakeError
from klamm_spark.events.pseudonyms import KINDS, Pseudonyms
from klamm_spark.settings.audit import AuditSettings
from klamm_spark.settings.readers import ReaderSettings, read_readers
from klamm_spark.spool.compression import decompress
from klamm_spark.spool.layout import SEAL_SUFFIX, sealed_segments
from klamm_spark.spool.signatures import write_key
from klamm_spark.terminal.rights import Reader, publish
from tests.audit_samples import sample_events, write_sample_spool

EVENTS = list(sample_events(400))


@pytest.fixture
def spool(tmp_path):
    write_sample_spool(tmp_path / "spool", EVENTS, events_per_segment=100)
    return tmp_path / "spool"


@pytest.fixture
def part(tmp_path, spool):
    """Return `part(rules)`, which returns the events of a reader with these rules."""

    def read(**rules):
        folder = tmp_path / "part"
        list(publish(spool, [Reader("r", ReaderSettings(folder=folder, **rules), spool)]))
        return events_in(folder)

    return read


def events_in(folder):
    found = []
    for node in folder.iterdir():
        for path in sealed_segments(node) if node.is_dir() else ():
            found += map(json.loads, decompress(path.read_bytes(), path.suffix).splitlines())
    return found


def test_a_reader_without_rules_gets_all_lines_unchanged(tmp_path, spool, part):
    assert part() == EVENTS
    lines = [path.read_bytes() for path in sealed_segments(spool / "node-1")]
    copies = [decompress(path.read_bytes(), path.suffix) for path in sealed_segments(tmp_path / "part" / "node-1")]
    assert copies == lines


def test_rules_select_kinds_and_accounts(part):
    assert part(kinds=("authentication", "connection")) == [
        event for event in EVENTS if event["kind"] in ("authentication", "connection")
    ]
    own = part(principals=("User:user-1?",))
    assert own == [
        event
        for event in EVENTS
        if event.get("principal", "").startswith("User:user-1") and len(event["principal"]) == 12
    ]
    assert own


def test_a_reader_gets_only_its_own_topics_of_an_event(tmp_path, part, spool):
    mixed = next(dict(event) for event in EVENTS if event.get("resources")) | {
        "resources": [{"type": "TOPIC", "name": name} for name in ("payroll", "orders-1", "orders-2")]
        + [{"type": "GROUP", "name": "orders-1"}],
        "seq": 400,
        "event_id": "node-1/019b8ff8d000c0ffee00/400",
    }
    write_sample_spool(spool, [mixed])
    own = part(topics=("orders-1", "x*"))
    assert {one["name"] for event in own for one in event["resources"]} == {"orders-1"}
    assert own[-1] == mixed | {"resources": [{"type": "TOPIC", "name": "orders-1"}]}
    assert len(own) == 1 + sum(any(one["name"] == "orders-1" for one in event.get("resources", ())) for event in EVENTS)


def test_a_reader_may_get_pseudonyms_instead_of_names(tmp_path, part):
    write_key(tmp_path / "key")
    names = Pseudonyms(KINDS, (tmp_path / "key").read_bytes())
    own = part(pseudonyms=KINDS, pseudonym_key=tmp_path / "key", topics=("orders-*",))
    event = next(one for one in EVENTS if one.get("resources"))
    assert own[0]["principal"] == names.account(event["principal"])
    assert own[0]["client_address"] == names.address(event["client_address"])
    assert not any("user-" in json.dumps(one) or "10.0." in json.dumps(one) for one in own)


def test_new_segments_are_added_and_expired_ones_removed(tmp_path, spool, part):
    part()
    write_sample_spool(spool, sample_events(100, first_seq=400))
    assert len(part()) == 500
    oldest = sealed_segments(spool / "node-1")[0]
    oldest.unlink()
    oldest.with_suffix(SEAL_SUFFIX).unlink()
    assert {event["seq"] for event in part()} == set(range(100, 500))


def test_changed_rules_remove_all_that_was_allowed_before(tmp_path, part):
    assert len(part()) == 400
    assert {event["kind"] for event in part(kinds=("connection",))} == {"connection"}
    write_key(tmp_path / "key")
    before = part(pseudonyms=KINDS, pseudonym_key=tmp_path / "key")
    (tmp_path / "key").unlink()
    write_key(tmp_path / "key")
    after = part(pseudonyms=KINDS, pseudonym_key=tmp_path / "key")
    assert len(before) == len(after)
    assert {event.get("principal") for event in before} & {event.get("principal") for event in after} <= {
        None,
        "User:ANONYMOUS",
    }


def test_a_folder_with_other_files_or_within_the_spool_is_refused(tmp_path, spool):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("x")
    with pytest.raises(LakeError, match="has something else than the part of a reader: precious"):
        list(publish(spool, [Reader("r", ReaderSettings(folder=tmp_path / "other"), spool)]))
    for folder in (spool, spool / "node-1", tmp_path):
        with pytest.raises(LakeError, match="must be apart from the spool"):
            Reader("r", ReaderSettings(folder=folder), spool)


def test_no_reader_gets_lines_that_are_no_events(tmp_path, spool, part):
    path = sealed_segments(spool / "node-1")[0]
    path.write_bytes(b'no JSON\n[1]\n"x"\n{"kind":"connection"}\n' + path.read_bytes())
    assert len(part()) == 401


def test_the_command_writes_folders_that_all_commands_read(tmp_path, spool):
    write_key(tmp_path / "key")
    file = tmp_path / "klamm.toml"
    file.write_text(
        '[audit]\nspool = "spool"\n[audit.readers.desk]\nfolder = "desk"\nkinds = ["authentication"]\n'
        '[audit.readers.orders]\nfolder = "orders"\ntopics = ["orders-1"]\npseudonyms = ["principal"]\n'
        'pseudonym_key = "key"\n'
    )
    assert set(read_readers(file)) == {"desk", "orders"}
    before = os.umask(0)
    try:
        assert main(["publish", str(file), "--once"]) == 0
    finally:
        os.umask(before)
    written = list((tmp_path / "orders").rglob("*.zst"))
    assert len(written) == 4
    assert {path.stat().st_mode & 0o777 for path in written} == {0o640}
    query = ["sql", "select kind, count(*) from events group by 1", "--format", "csv"]
    out = StringIO()
    with redirect_stdout(out):
        assert main([*query, "--spool", str(tmp_path / "desk")]) == 0
    wanted = sum(event["kind"] == "authentication" for event in EVENTS)
    assert out.getvalue() == f"kind,count(*)\nauthentication,{wanted}\n"


def test_a_report_about_a_part_contains_only_the_part(tmp_path, spool, part, capsys):
    pytest.importorskip("duckdb")
    head = {name: EVENTS[0][name] for name in ("schema_version", "node", "boot", "time_us")}
    started = {"seq": 400, "event_id": "node-1/x/400", "kind": "admin", "action": "server_started", "outcome": "ok"}
    write_sample_spool(spool, [head | started])
    assert part(kinds=("admin",))[-1] == head | started
    # Most of the reader's segments are empty.
    assert main(["report", "--spool", str(tmp_path / "part")]) == 0
    part(topics=("orders-1",))
    capsys.readouterr()
    assert main(["report", "--spool", str(tmp_path / "part")]) == 0
    said = capsys.readouterr().out
    assert "orders-1" in said
    assert "orders-2" not in said


def test_wrong_settings_are_named(tmp_path, spool, capsys):
    settings = AuditSettings(
        spool=tmp_path, pseudonyms=("principal",), readers={"a": {"folder": "x", "kinds": ["y"]}, "b": {}, "c": 1}
    )
    problems = dict(settings.problems())
    assert problems.keys() >= {"pseudonyms", "readers.a.kinds", "readers.b.folder"}
    assert '"y" is no kind of event' in problems["readers.a.kinds"]
    (tmp_path / "klamm.toml").write_text('[audit]\nspool = "spool"\n')
    assert main(["publish", str(tmp_path / "klamm.toml"), "--once"]) == 2
    assert "has no [audit.readers.NAME]" in capsys.readouterr().err
    assert main(["publish", "--once", "--spool", str(spool)]) == 2


def test_the_command_runs_until_a_signal(tmp_path, spool):
    (tmp_path / "klamm.toml").write_text('[audit]\nspool = "spool"\n[audit.readers.all]\nfolder = "all"\n')
    command = [sys.executable, "-m", "klamm", "audit", "publish", str(tmp_path / "klamm.toml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = [process.stderr.readline() for _ in range(4)]
            assert said[-1].endswith(": all 100\n"), said
            process.terminate()
            assert process.wait(60) == 143
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
