"""Tests of the effect of a changed file on a running server, key by key, as `klamm diff` shows it."""

import pytest

from klamm.cli.main import main

OLD = """
[server]
io_threads = 8
extensions = ["prometheus"]

[listeners.a]
bind = "127.0.0.1:9092"
gates = ["connection_quota"]
authorizer = "acl"

[connection_quota]
max_connections_per_ip = 5

[acl]
super_users = ["User:admin"]

[broker]
num.partitions = 1
"""
LISTENER = "at the next start: a listener keeps its socket and its parts"
PART = "at the next start: this part reads it once"
SERVER = "at the next start: a server makes its folders, queues and handler threads once"


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("io_threads = 8", "io_threads = 8", []),
        ("io_threads = 8", 'io_threads = 4\nlog_level = "INFO"', ["[server] io_threads, log_level: takes effect now"]),
        (
            "io_threads = 8",
            'queued_max_requests = 9\nlog_level = "INFO"',
            ["[server] log_level: takes effect now", f"[server] queued_max_requests: takes effect {SERVER}"],
        ),
        (
            "io_threads = 8",
            'io_threads = 8\nlog_file = "other.log"\nmetrics_max_clients = 5\nshutdown_deadline_ms = 5',
            [
                "[server] metrics_max_clients: takes effect at the next start: a server makes its metrics once",
                f"[server] shutdown_deadline_ms: takes effect {SERVER}",
                "[server] log_file: takes effect at the next start: a process opens its log once",
            ],
        ),
        (
            '["prometheus"]',
            "[]",
            ["[server] extensions: takes effect at the next start: a server opens its extensions once"],
        ),
        (":9092", ":9093", [f"[listeners.a] bind: takes effect {LISTENER}"]),
        ("[listeners.a]", "[listeners.a]\nprocessors = 2", ["[listeners.a] processors: takes effect now"]),
        (
            "per_ip = 5",
            "per_ip = 6",
            ["[listeners.a.connection_quota] max_connections_per_ip: takes effect now, if the part accepts the values"],
        ),
        (
            "User:admin",
            "User:root",
            ["[listeners.a.acl] super_users: takes effect now, if the part accepts the values"],
        ),
        ("num.partitions = 1", "num.partitions = 2", [f"[broker] num.partitions: takes effect {PART}"]),
        (
            "[broker]",
            '[prometheus]\nprocess = false\nbind = "127.0.0.1:9405"\n[broker]',
            [
                "[prometheus] process: takes effect now, if the part accepts the values",
                f"[prometheus] bind: takes effect {PART}",
            ],
        ),
        (
            "[broker]",
            '[listeners.b]\nbind = "127.0.0.1:9093"\n[broker]',
            ["[listeners.b]: takes effect now: it starts to listen"],
        ),
        (
            "[listeners.a]",
            '[listeners.old]\nbind = "127.0.0.1:9094"\n[listeners.a]',
            ["[listeners.old]: takes effect now: it starts to listen"],
        ),
        (
            "[broker]",
            '[listeners.b]\nbind = "127.0.0.1:9093"\napi_set = "echo"\n[broker]',
            ["[listeners.b]: takes effect at the next start: a server opens its handler sets once"],
        ),
        (
            "[broker]",
            '[listeners.b]\nbind = "127.0.0.1:9094"\n[broker]\nnodes = 2',
            [
                "[listeners.a-2]: takes effect at the next start: a server opens its handler sets once",
                "[listeners.b]: takes effect at the next start: a server opens its handler sets once",
                "[listeners.b-2]: takes effect at the next start: a server opens its handler sets once",
                f"[broker] nodes: takes effect {PART}",
            ],
        ),
    ],
)
def test_a_difference_says_when_it_takes_effect(tmp_path, capsys, old, new, lines):
    before, after = tmp_path / "old.toml", tmp_path / "new.toml"
    before.write_text(OLD)
    after.write_text(OLD.replace(old, new))
    code = main(["diff", str(before), str(after)])
    assert capsys.readouterr().out.splitlines() == lines
    assert code == any("next start" in line for line in lines)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_removed_listener_is_closed_at_once(tmp_path, capsys, workers):
    before, after = tmp_path / "old.toml", tmp_path / "new.toml"
    text = f'[server]\nworkers = {workers}\n[listeners.a]\nbind = "127.0.0.1:9092"\napi_set = "echo"\n'
    before.write_text(text + '[listeners.b]\nbind = "127.0.0.1:9093"\napi_set = "echo"\n')
    after.write_text(text)
    assert main(["diff", str(before), str(after)]) == 0
    line = "[listeners.b]: takes effect now: its port is closed, and its connections end"
    assert capsys.readouterr().out.splitlines() == [line]


def test_what_only_a_new_process_can_apply_replaces_the_workers(tmp_path, capsys):
    before, after = tmp_path / "old.toml", tmp_path / "new.toml"
    text = (
        '[server]\nworkers = 2\nextensions = ["prometheus"]\n[listeners.a]\nbind = "127.0.0.1:9092"\napi_set = "echo"\n'
    )
    before.write_text(text)
    after.write_text(
        text.replace("workers = 2", "workers = 2\nqueued_max_requests = 9") + "max_connection_age_ms = 9\n"
    )
    replaced = "takes effect now: the workers are replaced one after another"
    assert main(["diff", str(before), str(after)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"[server] queued_max_requests: {replaced}",
        f"[listeners.a] max_connection_age_ms: {replaced}",
    ]
    after.write_text(text + '[prometheus]\nbind = "127.0.0.1:9405"\n')
    assert main(["diff", str(before), str(after)]) == 1
    assert capsys.readouterr().out == f"[prometheus] bind: takes effect {PART}\n"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("backlog = 500", "backlog = 501", "[listeners.a] backlog"),
        (":9092", ":9091", "[listeners.a] bind"),
        ("workers = 2", "workers = 3", "[server] workers"),
        ("workers = 2", 'workers = 2\nlog_file = "klamm.log"', "[server] log_file"),
        ("workers = 2", 'workers = 2\nlog_format = "json"', "[server] log_format"),
        ("workers = 2", "workers = 2\nshutdown_deadline_ms = 60_000", "[server] shutdown_deadline_ms"),
    ],
)
def test_a_listener_waits_if_another_change_keeps_the_workers(tmp_path, capsys, old, new, line):
    before, after = tmp_path / "old.toml", tmp_path / "new.toml"
    text = '[server]\nworkers = 2\n[listeners.a]\nbind = "127.0.0.1:9092"\napi_set = "echo"\nbacklog = 500\n'
    before.write_text(text)
    after.write_text(text.replace(old, new) + '[listeners.b]\nbind = "127.0.0.1:9093"\napi_set = "echo"\n')
    assert main(["diff", str(before), str(after)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(one.startswith(f"{line}: takes effect at the next start: ") for one in lines)
    why = "the workers stay, because another change needs a new parent"
    assert f"[listeners.b]: takes effect at the next start: {why}" in lines
