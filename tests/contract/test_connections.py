"""Tests of `klamm connections` with a running server: the command lists, closes and moves connections."""

import json
import threading
from dataclasses import replace

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm_metrics.connections import empty_line, main
from klamm_metrics.rates import with_rates
from klamm_metrics.running_server import find
from tests.contract.api_sets import Plugin
from tests.waiting import wait_until

TOKEN = "let me in"


@pytest.fixture
def start(tmp_path):
    servers = []
    (tmp_path / "token").write_text(f"{TOKEN}\n")

    def start_one(*settings, token=True):
        exporter = ["server.extensions=prometheus", "prometheus.bind=127.0.0.1:0"]
        if token:
            exporter.append(f"prometheus.token_file={tmp_path / 'token'}")
        server = EmbeddedServer(["listeners.default.api_set=trying", *exporter, *settings], plugins=[Plugin()])
        servers.append(server)
        return server.start()

    yield start_one
    for server in servers:
        server.stop()


@pytest.fixture
def run(tmp_path, capsys):
    """Return `run(server, "--json")`, which returns the exit code and what the command printed to stdout and stderr."""

    def run_it(server, *arguments, token="token"):
        host, port = server.server.extensions[0].address
        arguments = (*arguments, "--token-file", str(tmp_path / token)) if token else arguments
        code = main([f"{host}:{port}", "--interval", "0.01", *arguments])
        return code, *capsys.readouterr()

    return run_it


def rows_of(run, server, *arguments):
    code, out, err = run(server, "--json", *arguments)
    assert (code, err) == (0, "")
    return json.loads(out)["connections"]


def test_the_list_shows_a_connections_client_and_what_the_connection_waits_for(start, run):
    server = start()
    trying = server.api_set("trying")
    with RawClient(server.address(), client_id="app") as client, RawClient(server.address(), client_id="idle") as idle:
        client.call(ApiVersionsRequest("librdkafka", "2.5"), 3)
        idle.call(MetadataRequest(topics=None), 12)
        client.send(HeartbeatRequest(group_id="block"), 4)
        assert trying.arrived.acquire(timeout=60)
        by_client = {row["client_id"]: row for row in rows_of(run, server)}
        app = by_client["app"]
        assert app["software"] == "librdkafka 2.5"
        assert app["principal"] == "User:ANONYMOUS"
        assert app["listener"] == "default"
        assert app["processor"] == 0
        assert app["state"] == "READY"
        assert app["mute_state"] == "MUTED_AND_RESPONSE_PENDING"
        assert app["waits_for"] == "handler"
        assert app["api"] == "Heartbeat"
        assert app["in_flight"] == 1
        assert app["in_flight_ms"] > 0
        assert app["held_bytes"] > 0
        # The time of a request counts while the request runs.
        assert app["handler_ms"] > 0
        assert app["requests"] == 2
        assert app["client_address"] == "{}:{}".format(*client.socket.getsockname())
        assert by_client["idle"]["waits_for"] == ""
        assert by_client["idle"]["processor_ms"] > 0
        trying.release.set()
        client.receive_frame()
        wait_until(lambda: rows_of(run, server, "--filter", "client_id=app")[0]["handler_ms"] > 0)


def test_the_command_says_that_a_server_has_no_connections_and_how_many_wait(start, run):
    server = start()
    assert run(server)[1] == "no connections\n"
    assert run(server, "--filter", "client_id=unknown")[1] == "no connections\n"
    with RawClient(server.address(), client_id="app") as client:
        client.call(MetadataRequest(topics=None), 12)
        assert run(server, "--filter", "client_id=unknown")[1] == "no connections match\n"
    waiting = {"connections": [], "listeners": [{"listener": "default", "waiting": 5, "gate": ""}]}
    assert empty_line(waiting) == "no connections; waiting: 5 to be accepted by listener default"
    waiting["listeners"][0].update(gate="held", gate_ms=4_500.0, accepted_on="the processor's thread")
    gate = "gate held of [listeners.default] gates has not returned for 4.5 s, on the processor's thread"
    assert empty_line(waiting) == f"no connections; waiting: 5 to be accepted by listener default; {gate}"


def test_options_sort_filter_and_limit_the_list(start, run):
    server = start()
    clients = [RawClient(server.address(), client_id=f"client-{number}") for number in range(5)]
    for number, client in enumerate(clients):
        for _ in range(1 + 3 * number):
            client.call(MetadataRequest(topics=None), 12)
    rows = rows_of(run, server, "--sort", "age", "--filter", "client_id=client-", "--limit", "3")
    assert len(rows) == 3
    assert [row["age_ms"] for row in rows] == sorted((row["age_ms"] for row in rows), reverse=True)
    assert [row["client_id"] for row in rows_of(run, server, "--filter", "client_id=client-4")] == ["client-4"]
    code, out, _ = run(server)
    assert code == 0
    assert "client-4" in out
    assert out.splitlines()[0].split()[-2:] == ["held", "unsent"]
    with pytest.raises(SystemExit):
        run(server, "--filter", "unknown=4")


def test_the_server_lists_many_connections_in_several_turns(start, run):
    server = start()
    clients = [RawClient(server.address(), client_id="many") for _ in range(230)]
    wait_until(lambda: len(rows_of(run, server, "--limit", "1000")) == len(clients))
    for client in clients:
        client.close()


def test_a_connection_is_closed_by_its_id(start, run):
    server = start()
    with RawClient(server.address(), client_id="a") as one, RawClient(server.address(), client_id="b") as other:
        for client in (one, other):
            client.call(MetadataRequest(topics=None), 12)
        (row,) = rows_of(run, server, "--filter", "client_id=a")
        assert run(server, "--close", row["id"])[0] == 0
        assert one.at_end()
        other.call(MetadataRequest(topics=None), 12)
        code, _, err = run(server, "--close", "unknown")
        assert code == 1
        assert "there is no connection unknown" in err


def test_a_connection_is_moved_to_another_processor_of_its_listener(start, run):
    server = start("listeners.default.processors=2")
    with RawClient(server.address(), client_id="a") as client:
        client.call(MetadataRequest(topics=None), 12)
        (row,) = rows_of(run, server)
        target = 1 - row["processor"]
        assert run(server, "--move", row["id"], str(target))[0] == 0
        wait_until(lambda: [one["processor"] for one in rows_of(run, server)] == [target])
        client.call(MetadataRequest(topics=None), 12)
        code, _, err = run(server, "--move", row["id"], "7")
        assert code == 1
        assert "listener default has no processor 7, only 0, 1" in err


def test_a_blocked_processor_is_named_and_the_others_answer(start, run):
    server = start("listeners.default.processors=2")
    with RawClient(server.address()) as one, RawClient(server.address()) as other:
        for client in (one, other):
            client.call(MetadataRequest(topics=None), 12)
        kept = server.server.listeners[0].processors[0]
        started, go_on = threading.Event(), threading.Event()

        def keep(_):
            started.set()
            assert go_on.wait(60)

        kept.inbox.call_soon(kept.channels[0], keep, None)
        assert started.wait(60)
        try:
            code, out, _ = run(server, "--json")
            assert code == 0
            seen = json.loads(out)
            assert [row["processor"] for row in seen["connections"]] == [1]
            (unanswered,) = seen["unanswered"]
            assert unanswered["processor"] == 0
            assert unanswered["turn_ms"] > 1000
        finally:
            go_on.set()


def test_without_the_token_nothing_is_shown_or_closed(start, run, tmp_path):
    server = start()
    (tmp_path / "wrong").write_text("let me out")
    with RawClient(server.address()) as client:
        client.call(MetadataRequest(topics=None), 12)
        (row,) = rows_of(run, server)
        for token in ("wrong", None):
            for arguments in ((), ("--close", row["id"]), ("--move", row["id"], "0")):
                code, out, err = run(server, *arguments, token=token)
                assert (code, out) == (1, "")
                assert "the token is missing or wrong" in err
        client.call(MetadataRequest(topics=None), 12)


def test_a_server_without_a_token_shows_its_connections_and_closes_none(start, run):
    server = start(token=False)
    with RawClient(server.address()) as client:
        client.call(MetadataRequest(topics=None), 12)
        (row,) = rows_of(run, server)
        code, _, err = run(server, "--close", row["id"])
        assert code == 1
        assert "needs [prometheus] token_file" in err
        client.call(MetadataRequest(topics=None), 12)


def test_the_address_and_the_token_come_from_the_file_of_the_server(start, tmp_path, capsys):
    server = start()
    _, port = server.server.extensions[0].address
    file = tmp_path / "klamm.toml"
    file.write_text(f'[prometheus]\nbind = "0.0.0.0:{port}"\ntoken_file = "token"\n')
    with RawClient(server.address(), client_id="app") as client:
        client.call(MetadataRequest(topics=None), 12)
        assert main([str(file), "--interval", "0.01"]) == 0
    assert "app" in capsys.readouterr().out


def test_rates_of_a_connection_that_the_first_sample_lacks_are_0_unless_it_is_new():
    totals = dict.fromkeys(("processor_ms", "handler_ms", "requests", "received_bytes", "sent_bytes"), 3_600_000)
    rows = [{"id": "old", "age_ms": 5_000_000, **totals}, {"id": "new", "age_ms": 900, **totals}]
    old, new = with_rates({"connections": rows}, {"connections": []}, 1.0)["connections"]
    assert (old["processor_share"], new["requests_per_s"]) == (0, 3_600_000)


def test_other_settings_of_the_exporter_are_used_from_a_reload_on(start, run, tmp_path):
    server = start()
    (exporter,) = server.server.extensions
    (tmp_path / "another").write_text("another")
    names = ("klamm_processor_*",)
    other = replace(exporter.settings, token_file=tmp_path / "another", include=names, process=False, labels={"a": "b"})
    assert exporter.reconfigure(other) is True
    assert run(server)[0] == 1
    assert run(server, token="another")[0] == 0
    text = find("{}:{}".format(*exporter.address))
    lines = [line for line in text.read(text.metrics_url).splitlines() if not line.startswith("#")]
    assert {line.startswith("klamm_processor_") and 'a="b"' in line for line in lines} == {True}
    missing = replace(other, token_file=tmp_path / "missing", include=("*",))
    with pytest.raises(OSError, match="missing"):
        exporter.reconfigure(missing)
    assert exporter.settings == other
    assert run(server, token="another")[0] == 0


def test_a_reload_reads_the_token_again_and_keeps_the_old_one_if_it_cannot(start, run, tmp_path):
    server = start()
    (tmp_path / "token").write_text("another\n")
    (exporter,) = server.server.extensions
    exporter.reload()
    assert run(server)[0] == 0
    (tmp_path / "old").write_text(TOKEN)
    assert run(server, token="old")[0] == 1
    (tmp_path / "token").write_text("")
    with pytest.raises(OSError, match="is empty"):
        exporter.reload()
    (tmp_path / "token").write_text("another\n")
    assert run(server)[0] == 0
