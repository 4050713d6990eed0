"""Tests of the extension `control`: its paths, the clients that it answers, and `klamm serve --ephemeral`."""

import http.client
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from urllib.parse import quote

import pytest

from klamm import __version__
from klamm.cli.main import main
from klamm.testing import EmbeddedServer, MovingClock, RawClient
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


class Control:
    """A client of the HTTP API."""

    def __init__(self, url, token):
        self.host = url.removeprefix("http://")
        self.token = token

    def __call__(self, method, path, body=None, *, token=None, headers=None):
        connection = http.client.HTTPConnection(self.host, timeout=60)
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        shown = {"Authorization": f"Bearer {token or self.token}", **(headers or {})}
        connection.request(method, path, content, shown)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        connection.close()
        return answer.status, found


@pytest.fixture(scope="module")
def server():
    settings = ['server.extensions=["control"]', "control.token=sesame"]
    with EmbeddedServer(settings, faults=True, recording=True, clock=MovingClock()) as server:
        yield server


@pytest.fixture
def control(server):
    (extension,) = server.server.extensions
    control = Control(extension.url, "sesame")
    assert control("POST", "/reset") == (200, {})
    return control


def test_topics_and_records_are_created_and_read_over_http(server, control):
    about = {"version": __version__, "bootstrap": server.bootstrap, "listeners": {"default": server.bootstrap}}
    assert control("GET", "/") == (200, about)
    assert control("POST", "/topics", {"name": "orders", "partitions": 2}) == (200, {"name": "orders"})
    status, made = control("POST", "/topics")
    assert (status, made["name"].startswith("topic-")) == (200, True)
    assert control("GET", "/topics") == (200, {"orders": 2, made["name"]: 1})
    assert control("POST", "/topics/orders/records", {"values": ["one", None], "key": "k"}) == (200, {"offset": 0})
    status, records = control("GET", "/topics/orders/records?count=2&timeout_s=5")
    assert [(one["offset"], one["key"], one["value"]) for one in records] == [(0, "k", "one"), (1, "k", None)]
    assert control("GET", "/topics/orders/records?count=3&timeout_s=0.2")[0] == 408
    assert control("DELETE", "/topics/orders") == (200, {})
    assert control("GET", f"/topics/{quote('no such')}/records")[0] == 409


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/topics", {"nmae": "x"}, 'there is no "nmae" here; did you mean "name"?'),
        ("/topics/t/records", {}, '"values" is required'),
        ("/topics", b"{", "the body must be a JSON object"),
        ("/topics", b"[]", "the body must be a JSON object"),
        ("/leaders/t", {"partition": 0}, '"node" is required'),
    ],
)
def test_an_invalid_argument_is_named(control, path, body, said):
    assert control("POST", path, body) == (400, {"error": said})


def test_faults_are_added_over_http(server, control):
    assert control("GET", "/faults") == (200, [])
    rule = {"kind": "error", "api": "FindCoordinator", "error": "COORDINATOR_NOT_AVAILABLE", "count": 1, "name": "mine"}
    assert control("POST", "/faults", rule) == (200, {"name": "mine", "kind": "error", "fired": 0})

    def ask():
        with RawClient(server.address()) as client:
            return client.call(FindCoordinatorRequest("g"), 1).error_code

    timer = threading.Timer(0.05, ask)
    timer.start()
    assert control("GET", "/faults/mine?wait=1") == (200, {"name": "mine", "kind": "error", "fired": 1})
    timer.join()
    assert ask() == 0
    assert control("GET", "/faults/mine?wait=2&timeout_s=0.01")[0] == 408
    assert control("DELETE", "/faults/mine")[0] == 200
    assert control("GET", "/faults/mine") == (404, {"error": 'there is no fault "mine"'})
    status, answer = control("POST", "/faults", {"kind": "error"})
    assert (status, answer) == (400, {"error": 'the kind "error" needs an error'})
    assert control("DELETE", "/faults") == (200, {})


def test_requests_are_listed_over_http(server, control):
    with RawClient(server.address(), client_id="mine") as client:
        client.call(FindCoordinatorRequest("g"), 1)
    server.wait_until(server.requests)
    status, (one,) = control("GET", "/requests?api=FindCoordinator")
    assert (status, one["client_id"], one["request"]) == (200, "mine", {"key": "g"})
    assert control("GET", "/requests?api=Nothing")[0] == 400
    assert control("DELETE", "/requests") == (200, {})
    assert control("GET", "/requests") == (200, [])


def test_time_is_advanced_over_http(control):
    before = time.time_ns() // 1_000_000
    status, answer = control("POST", "/time", {"advance_ms": 3_600_000})
    assert status == 200
    assert answer["wall_ms"] >= before + 3_600_000
    assert control("POST", "/time", {"advance_ms": -1}) == (400, {"error": "time does not go back: -1"})


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nothing", None, 404),
        ("POST", "/requests", None, 405),
        ("POST", "/topics", b"{", 400),
        ("POST", "/topics", b"[]", 400),
        ("POST", "/topics", {"nmae": "x"}, 400),
        ("POST", "/topics", {"name": "a b"}, 409),
    ],
)
def test_invalid_requests_get_an_error(control, method, path, body, status):
    found, answer = control(method, path, body)
    assert found == status
    assert answer["error"]


def test_requests_without_the_token_get_401(control):
    assert control("GET", "/", token="sesam")[0] == 401
    assert control("DELETE", "/topics/orders", token=" ")[0] == 401


def test_a_body_that_is_too_large_is_not_read(control):
    assert control("POST", "/topics", headers={"Content-Length": str(1 << 40)})[0] == 413
    assert control("POST", "/topics", headers={"Content-Length": "9\N{SUPERSCRIPT TWO}"})[0] == 400


def test_the_http_api_listens_only_on_this_machine(capsys):
    settings = ["--set", 'server.extensions=["control"]', "--set", "control.bind=0.0.0.0:0"]
    assert main(["check", *settings]) == 2
    assert 'control.bind: must be a loopback address and a port, e.g. 127.0.0.1:0, not "0.0.0.0:0"' in (
        capsys.readouterr().err
    )


def test_a_request_for_a_missing_part_gets_an_error_that_says_so():
    with EmbeddedServer(['server.extensions=["control"]']) as server:
        (extension,) = server.server.extensions
        control = Control(extension.url, extension.ready_file_entries()["token"])
        assert control("GET", "/faults") == (404, {"error": 'no listener has the part "faults" in filters'})
        assert control("POST", "/time", {"advance_ms": 1})[0] == 404
        assert control("POST", "/reset") == (200, {})


def test_server_starts_for_tests_in_any_language(tmp_path):
    ready = tmp_path / "ready.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "klamm", "serve", "--ephemeral", "--ready-file", str(ready)]
    process = subprocess.Popen([*command, "--set", "num.partitions=2"], env=environment, stdout=subprocess.PIPE)
    try:
        EmbeddedServer.wait_until(ready.exists, "the server does not start", timeout_s=30)
        assert stat.S_IMODE(ready.stat().st_mode) == 0o600
        found = json.loads(ready.read_text())
        control = Control(found["control"], found["token"])
        about = control("GET", "/")[1]
        assert (about["listeners"], about["bootstrap"]) == (found["listeners"], found["bootstrap"])
        assert control("POST", "/faults", {"kind": "disconnect"})[0] == 200
        assert control("GET", "/requests") == (200, [])
        assert control("POST", "/time", {"advance_ms": 5})[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not ready.exists()
    finally:
        process.kill()
        process.stdout.close()


def test_a_server_with_users_stops_with_its_parent_process(tmp_path):
    ready = tmp_path / "ready.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "klamm", "serve", "--ephemeral", "--secure", "--stop-at-eof"]
    process = subprocess.Popen([*command, "--ready-file", str(ready)], env=environment, stdin=subprocess.PIPE)
    try:
        EmbeddedServer.wait_until(ready.exists, "the server does not start", timeout_s=30)
        found = json.loads(ready.read_text())
        control = Control(found["control"], found["token"])
        assert found["bootstrap"] == found["listeners"]["secure"]
        assert control("POST", "/users", {"name": "alice"}) == (200, {"name": "alice", "password": "secret"})
        control("POST", "/topics", {"name": "orders"})
        rule = {"user": "alice", "operation": "DESCRIBE", "resource_type": "TOPIC", "name": "orders"}
        assert control("POST", "/acls/allow", rule)[1]["principal"] == "User:alice"
        status, settings = control("GET", "/client-settings/confluent-kafka?user=alice")
        assert (status, settings["bootstrap.servers"]) == (200, found["bootstrap"])
        admin = pytest.importorskip("confluent_kafka.admin")
        assert [*admin.AdminClient(settings).list_topics(timeout=20).topics] == ["orders"]
        assert control("GET", "/client-settings/java?user=bob") == (
            404,
            {"error": 'there is no user "bob"; add_user makes one'},
        )
        process.stdin.close()
        assert process.wait(60) == 0
        assert not os.path.exists(settings["ssl.ca.location"])
    finally:
        process.kill()
        process.wait()


def test_a_listener_with_users_requires_a_server_for_tests(capsys):
    assert main(["serve", "--secure"]) == 2
    assert capsys.readouterr().err == "--secure: needs --ephemeral, and cannot be used with a file\n"


def test_a_seed_requires_a_server_for_tests(capsys):
    assert main(["serve", "--seed", "7"]) == 2
    assert capsys.readouterr().err == "--seed: needs --ephemeral: keys and salts made from a seed can be guessed\n"


def test_a_seed_repeats_the_ids_of_a_server(tmp_path):
    def cluster_id(name):
        ready = tmp_path / name
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "klamm", "serve", "--ephemeral", "--seed", "7", "--stop-at-eof"]
        process = subprocess.Popen([*command, "--ready-file", str(ready)], env=environment, stdin=subprocess.PIPE)
        try:
            EmbeddedServer.wait_until(ready.exists, "the server does not start", timeout_s=60)
            host, _, port = json.loads(ready.read_text())["bootstrap"].rpartition(":")
            with RawClient((host, int(port))) as client:
                found = client.call(MetadataRequest(None), 12).cluster_id
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
        return found

    assert cluster_id("first") == cluster_id("second")


def test_records_may_have_any_bytes(control):
    control("POST", "/topics", {"name": "bytes"})
    body = {"values": ["/w=="], "key": "", "headers": [["h", "AA=="], ["none", None]], "encoding": "base64"}
    assert control("POST", "/topics/bytes/records", {**body, "timestamp_ms": 7}) == (200, {"offset": 0})
    _, (one,) = control("GET", "/topics/bytes/records?encoding=base64")
    assert (one["key"], one["value"], one["timestamp_ms"]) == ("", "/w==", 7)
    assert one["headers"] == [["h", "AA=="], ["none", None]]
    assert control("GET", "/topics/bytes/records")[1][0]["value"] == "\ufffd"
    assert control("POST", "/topics/bytes/records", {"values": ["x"], "encoding": "base64"})[0] == 400
    assert control("POST", "/topics/bytes/records", {"values": ["x"], "headers": [["h"]]})[0] == 400


def test_groups_are_listed_over_http(server, control):
    control("POST", "/topics", {"name": "read"})
    control("POST", "/topics/read/records", {"values": ["one", "two"]})
    partition = OffsetCommitRequestPartition(0, committed_offset=1)
    request = OffsetCommitRequest("readers", topics=[OffsetCommitRequestTopic("read", partitions=[partition])])
    server.admin.call(request, 8)
    assert control("GET", "/groups") == (200, {"readers": "Empty"})
    status, found = control("GET", "/groups/readers?lag=1")
    assert (status, found["state"], found["members"], found["lag"]) == (200, "Empty", [], 1)
    assert found["partitions"] == [{"topic": "read", "partition": 0, "committed": 1, "lag": 1}]
    assert control("GET", "/groups/readers?members=1&timeout_s=0.05")[0] == 408
    assert control("DELETE", "/groups/readers") == (200, {})
    assert control("GET", "/groups/readers")[1]["state"] == "Dead"


def test_the_timeline_is_returned_over_http(server, control):
    control("DELETE", "/requests")
    assert control("GET", "/timeline") == (200, {"text": "", "html": ""})
    with RawClient(server.address(), client_id="mine") as client:
        client.call(FindCoordinatorRequest("g"), 1)
    status, found = control("GET", "/timeline?failure=it+failed")
    assert status == 200
    assert "mine" in found["text"]
    assert found["text"].rstrip().endswith("it failed")
    assert "<html" in found["html"]


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory):
    """Yield a server of three nodes, a client of its HTTP API, and a ready file as `klamm serve` writes it."""
    with EmbeddedServer(['server.extensions=["control"]', "control.token=sesame"], nodes=3) as server:
        (extension,) = server.server.extensions
        ready_file = tmp_path_factory.mktemp("nodes") / "ready.json"
        ready_file.write_text(json.dumps({"control": extension.url, "token": "sesame"}))
        yield server, Control(extension.url, "sesame"), ready_file


def test_nodes_are_stopped_over_http(three_nodes):
    server, control, _ = three_nodes
    assert control("GET", "/")[1]["bootstrap"] == server.bootstrap
    server.create_topic("orders", 3)
    assert control("POST", "/topics/orders/records", {"values": ["v"], "partition": 1}) == (200, {"offset": 0})
    status, found = control("POST", "/nodes/2", {"running": False})
    assert (status, [node["running"] for node in found]) == (200, [True, False, True])
    assert control("GET", "/leaders/orders") == (200, {"0": 1, "1": -1, "2": 3})
    assert control("POST", "/nodes/2", {"running": True}) == control("GET", "/nodes")
    assert control("POST", "/leaders/orders", {"partition": 0, "node": 3})[1]["0"] == 3
    assert control("POST", "/leaders/orders", {"partition": 0, "node": None})[1]["0"] == -1
    assert control("POST", "/coordinators/group", {"node": 2}) == (200, {"node": 2})
    assert control("GET", "/coordinators/group") == (200, {"node": 2})
    assert control("GET", "/leaders/none")[0] == 404
    assert control("POST", "/nodes/7", {"running": False})[0] == 404


def test_nodes_are_stopped_from_the_command_line(three_nodes, capsys):
    server, _, ready_file = three_nodes
    server.create_topic("lines")

    def lines(*arguments):
        code = main(["nodes", str(ready_file), *arguments])
        out, err = capsys.readouterr()
        return code, (out if code == 0 else err).splitlines()

    code, listed = lines()
    assert (code, [line.split("  ")[:2] for line in listed]) == (0, [[f"node {n}", "running"] for n in (1, 2, 3)])
    assert lines("stop", "3")[1][2].startswith("node 3  stopped  leads 0  default 127.0.0.1:")
    assert lines("start", "3")[0] == 0
    assert lines("leader", "lines", "0", "2") == (0, ["lines-0  node 2"])
    assert lines("leader", "lines", "0", "none") == (0, ["lines-0  no leader"])
    assert lines("coordinator", "group", "3") == (0, ["group  node 3"])
    assert lines("leader", "none", "0", "1") == (1, ["klamm nodes: there is no partition none-0"])
    ready_file.with_name("other").write_text("{}")
    assert main(["nodes", str(ready_file.with_name("other"))]) == 1
    assert "has no extension `control`" in capsys.readouterr().err
    assert main(["nodes", str(ready_file.with_name("missing"))]) == 1
