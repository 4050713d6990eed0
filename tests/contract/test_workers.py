"""Tests of `[server] workers` with real processes: a crash, a reload or a stop affects as few clients as possible."""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from klamm import ConfigError
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.metadata import MetadataRequest
from klamm_metrics.running_server import UnreachableError, find
from tests.audit_spool import read_segment
from tests.contract.gateway_nodes import free_ports
from tests.contract.worker_server import ECHO
from tests.tls_files import TlsFiles
from tests.waiting import wait_until

CLIENTS = 30


def answers(client):
    return client.call(MetadataRequest(topics=None), 12).cluster_id == "klamm-echo"


def lost(clients):
    """Return the clients whose connection is closed."""
    gone = []
    for client in clients:
        try:
            assert answers(client)
        except (OSError, EOFError, ConnectionError):
            gone.append(client)
    return gone


def requests_counted(serving):
    return serving.metric("kafka_network_requestmetrics_requests_total")


def test_a_killed_worker_closes_only_its_own_connections(serve):
    serving = serve()
    before = serving.workers()
    assert len(before) == 3
    clients = [serving.connect() for _ in range(CLIENTS)]
    assert lost(clients) == []
    counted = requests_counted(serving)
    assert counted >= CLIENTS
    assert serving.page("/ready") == (200, "ready\n")
    os.kill(before[1], signal.SIGKILL)
    serving.wait_for_line(f"worker 2 (process {before[1]}) ended by SIGKILL")
    gone = lost(clients)
    # Each worker has about a third of the connections.
    assert CLIENTS // 6 <= len(gone) <= CLIENTS // 2
    assert answers(serving.connect())
    wait_until(lambda: serving.metric("klamm_workers_ready") == 3, "it is not started again")
    assert {before[0], before[2]} < set(serving.workers())
    assert serving.metric("klamm_workers_restarts_total") == 1
    assert requests_counted(serving) >= counted
    assert serving.page("/live") == (200, "alive\n")
    assert serving.end() == 0
    assert serving.lines[-1] == "klamm: SIGTERM: stopping"
    assert not serving.ready_file.exists()


class Storm:
    """Clients that connect, send a request and close, again and again, each on its own thread."""

    def __init__(self, serving, threads=3):
        self._serving = serving
        self._ending = threading.Event()
        self.served = 0
        self.failures = []
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def _run(self):
        while not self._ending.is_set():
            try:
                with self._serving.connect() as client:
                    assert answers(client)
                self.served += 1
            except ConnectionRefusedError as error:
                self.failures.append(error)
            except (ConnectionError, EOFError):
                # A worker that drains may close a connection before its first request arrives.
                pass
            except OSError as error:
                self.failures.append(error)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self._ending.set()
        for thread in self._threads:
            thread.join(60)


def test_connections_of_all_workers_are_shown_and_closed(serve, tmp_path):
    (tmp_path / "token").write_text("a secret")
    text = ECHO.replace(
        'bind = "127.0.0.1:0"\n\n[listeners', f'bind = "127.0.0.1:0"\ntoken_file = "{tmp_path}/token"\n\n[listeners'
    )
    serving = serve(text)
    server = find(serving.exporter(), tmp_path / "token")
    clients = [serving.connect() for _ in range(CLIENTS)]
    assert not lost(clients)
    wait_until(lambda: len(server.connections()["connections"]) == CLIENTS)
    seen = server.connections()
    assert seen["unanswered"] == []
    assert {row["worker"] for row in seen["connections"]} == {1, 2, 3}
    for row in seen["connections"][:5]:
        server.act("close", id=row["id"])
    wait_until(lambda: len(server.connections()["connections"]) == CLIENTS - 5)
    assert len(lost(clients)) == 5
    with pytest.raises(UnreachableError, match="there is no connection"):
        server.act("close", id=seen["connections"][0]["id"])


def test_a_rolling_reload_refuses_no_connection(serve):
    serving = serve()
    before = serving.workers()
    with Storm(serving) as storm:
        wait_until(lambda: storm.served > 20, "no client is served")
        serving.file.write_text(ECHO + "max_connection_age_ms = 3600000\n")
        serving.process.send_signal(signal.SIGHUP)
        serving.wait_for_line("reload: done")
        served = storm.served
        wait_until(lambda: storm.served > served + 20, "no client is served")
    assert storm.failures == []
    assert set(serving.workers()).isdisjoint(before)
    assert any(
        "[listeners.front] max_connection_age_ms has changed; the workers are replaced" in line
        for line in serving.lines
    )
    assert serving.metric("klamm_workers_restarts_total") == 0
    # The requests that ended workers have counted are still in the sum.
    assert requests_counted(serving) >= storm.served
    assert serving.end() == 0


MORE = """
[listeners.more]
bind = "127.0.0.1:{port}"
api_set = "echo"
"""


def test_a_reload_adds_and_removes_listeners_of_all_workers(serve):
    serving = serve()
    before, taken = serving.workers(), free_ports(2)
    port = taken + 1
    with socket.socket() as there:
        there.bind(("127.0.0.1", taken))
        there.listen()
        serving.file.write_text(ECHO + MORE.format(port=taken))
        serving.process.send_signal(signal.SIGHUP)
        serving.wait_for_line("klamm.toml:14:1  listeners.more.bind: listener more: cannot bind")
    assert serving.workers() == before
    with Storm(serving) as storm:
        serving.file.write_text(ECHO + MORE.format(port=port))
        serving.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "more" in json.loads(serving.ready_file.read_text())["listeners"])
        assert set(serving.workers()).isdisjoint(before)
        assert serving.address("more") == ("127.0.0.1", port)
        with RawClient(("127.0.0.1", port), timeout_s=60) as client:
            answers(client)
        # The port of the removed listener moves to another listener.
        serving.file.write_text(ECHO + MORE.format(port=port).replace("more", "other"))
        serving.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "other" in json.loads(serving.ready_file.read_text())["listeners"])
        with RawClient(("127.0.0.1", port), timeout_s=60) as client:
            answers(client)
        serving.file.write_text(ECHO)
        serving.process.send_signal(signal.SIGHUP)
        wait_until(lambda: list(json.loads(serving.ready_file.read_text())["listeners"]) == ["front"])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=60)
    assert storm.failures == []
    assert serving.end() == 0


def test_a_ready_file_that_a_reload_cannot_write_is_written_by_the_next_one(serve):
    serving = serve()
    serving.ready_file.unlink()
    # A file cannot replace a folder.
    serving.ready_file.mkdir()
    serving.file.write_text(ECHO + MORE.format(port=0))
    serving.process.send_signal(signal.SIGHUP)
    serving.wait_for_line("reload: done")
    assert "klamm: reload: the ready file cannot be written: Is a directory" in serving.lines
    serving.ready_file.rmdir()
    serving.process.send_signal(signal.SIGHUP)
    wait_until(serving.ready_file.exists, "the file is not written")
    assert list(json.loads(serving.ready_file.read_text())["listeners"]) == ["front", "more"]
    assert serving.end() == 0


def test_a_reload_without_changes_keeps_the_processes_and_their_connections(serve):
    serving = serve()
    before, clients = serving.workers(), [serving.connect() for _ in range(6)]
    assert lost(clients) == []
    serving.process.send_signal(signal.SIGHUP)
    serving.wait_for_line("reload: done")
    serving.file.write_text(ECHO + "backlogg = 1\n")
    serving.process.send_signal(signal.SIGHUP)
    serving.wait_for_line('did you mean "backlog"?')
    serving.file.write_text(ECHO.replace("backlog = 500", "backlog = 501"))
    serving.process.send_signal(signal.SIGHUP)
    why = "a listener keeps its socket and its parts"
    serving.wait_for_line(f"[listeners.front] backlog has changed; this takes effect at the next start: {why}")
    assert (serving.workers(), lost(clients)) == (before, [])
    assert serving.end(signal.SIGINT) == 0


def test_a_reload_gives_the_parents_exporter_other_settings(serve):
    serving = serve()
    before = serving.workers()
    serving.file.write_text(
        ECHO.replace('bind = "127.0.0.1:0"\n', 'bind = "127.0.0.1:0"\nlabels = { site = "a" }\n', 1)
    )
    serving.process.send_signal(signal.SIGHUP)
    serving.wait_for_line("reload: done")
    assert "klamm: reload: [prometheus] labels has changed and is applied" in serving.lines
    assert 'site="a"' in serving.page("/metrics")[1]
    assert serving.workers() == before
    assert serving.end() == 0


@pytest.mark.slow
def test_workers_that_crash_repeatedly_end_the_server_with_an_error(serve):
    serving = serve(ECHO.replace("workers = 3", "workers = 2"))
    deadline = time.monotonic() + 20
    while serving.process.poll() is None and time.monotonic() < deadline:
        for pid in serving.workers():
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    assert serving.process.wait(60) == 1
    wait_until(lambda: "every worker failed at least five times in a row" in serving.lines[-1], "it does not end")
    assert not serving.ready_file.exists()


def test_workers_end_when_their_parent_is_killed(serve):
    serving = serve()
    pids = serving.workers()
    serving.process.kill()
    serving.process.wait(60)

    def alive(pid):
        status = Path(f"/proc/{pid}/status")
        return status.exists() and "zombie" not in status.read_text()

    wait_until(lambda: not any(map(alive, pids)), "it does not end")


def test_a_unix_domain_socket_is_shared_and_removed_once(serve, tmp_path):
    path = tmp_path / "front.sock"
    serving = serve(f'[server]\nworkers = 2\n[listeners.front]\nbind = "unix:{path}"\napi_set = "echo"\n')
    os.kill(serving.workers()[0], signal.SIGKILL)
    serving.wait_for_line("ended by SIGKILL")
    assert path.is_socket()
    with RawClient((f"unix:{path}", 0)) as client:
        assert answers(client)
    assert serving.end() == 0
    assert not path.exists()


def test_a_failed_start_is_reported_once(serve, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        serving = serve(f'{ECHO}[listeners.b]\nbind = "127.0.0.1:{port}"\napi_set = "echo"\n')
        assert serving.process.wait(60) == 1
    wait_until(lambda: serving.lines, "nothing was written")
    assert serving.lines == [f"klamm: listener b: cannot bind 127.0.0.1:{port}: Address already in use"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("workers = 0", 'must be at least 1, or "cores", not 0'),
        ('workers = "all"', "must be at least 1, or \"cores\", not 'all'"),
        ("workers = 2", 'must be 1: the api set "broker" keeps its state in one process'),
    ],
)
def test_settings_that_workers_cannot_share_are_refused_with_file_line_and_key(tmp_path, text, problem):
    file = tmp_path / "klamm.toml"
    file.write_text(f'[server]\n{text}\n[listeners.a]\nbind = "127.0.0.1:0"\n')
    with pytest.raises(ConfigError) as raised:
        load_plan(file, PluginRegistry())
    (line,) = map(str, raised.value.problems)
    assert f"{file}:2" in line
    assert "workers" in line
    assert problem in line


LIMITED = """[server]
workers = 2

[listeners.front]
bind = "127.0.0.1:0"
api_set = "echo"
gates = ["connection_quota"]
connection_quota.max_connections_per_ip = 4

[listeners.many]
bind = "127.0.0.1:0"
api_set = "echo"
observers = ["audit"]

[audit]
spool = "{spool}"
node = "edge"
"""


def test_a_limit_for_an_address_holds_over_all_workers_and_a_killed_worker_frees_its_connections(serve, tmp_path):
    serving = serve(LIMITED.format(spool=tmp_path / "spool"))
    clients = [serving.connect() for _ in range(4)]
    assert lost(clients) == []
    assert lost([serving.connect() for _ in range(4)]) != []
    os.kill(serving.workers()[0], signal.SIGKILL)
    serving.wait_for_line("ended by SIGKILL")
    gone = lost(clients)
    assert gone != []
    again = [serving.connect() for _ in gone]
    wait_until(lambda: lost(again) == [], "the connections of the killed worker still count")
    assert serving.end() == 0


def test_each_worker_writes_its_own_audit_spool(serve, tmp_path):
    serving = serve(LIMITED.format(spool=tmp_path / "spool"))
    clients = [RawClient(serving.address("many"), timeout_s=20) for _ in range(8)]
    assert lost(clients) == []
    assert serving.end() == 0
    folders = sorted(path.name for path in (tmp_path / "spool").iterdir())
    assert all(folder.startswith(("edge-worker-1", "edge-worker-2")) for folder in folders)
    for number in (1, 2):
        files = [path for path in (tmp_path / "spool").rglob("*.jsonl*") if f"edge-worker-{number}" in str(path)]
        assert any(b'"Metadata"' in read_segment(path) for path in files)


GATEWAY = """[server]
workers = 2

[listeners.front]
bind = "127.0.0.1:0"
api_set = "gateway"
transport = "ssl"
proxy_protocol = "optional"
trusted_proxies = ["127.0.0.1"]
ssl.certificate = "{files.server.certificate}"
ssl.private_key = "{files.server.key}"

[gateway]
bootstrap = ["{bootstrap}"]
node_ports = "{port}-{port}"
first_node_id = 1
"""


PROXY_HEADER = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 9092\r\n"


def test_a_gateway_shares_node_ports_and_reloads_certificates_in_every_worker(serve, tmp_path):
    files, port = TlsFiles(tmp_path / "tls"), free_ports(1)
    with EmbeddedServer() as broker:
        serving = serve(GATEWAY.format(files=files, bootstrap=broker.bootstrap, port=port))

        def certificates(count=12):
            """Return the serial numbers of the certificates that new connections get at both ports."""
            found = set()
            for index in range(count):
                sock = socket.create_connection(("127.0.0.1", port) if index % 2 else serving.address(), 20)
                sock.sendall(PROXY_HEADER)
                context = files.client_context()
                with RawClient(sock, ssl_context=context, server_hostname="localhost", timeout_s=20) as client:
                    (node,) = client.call(MetadataRequest(topics=None), 12).brokers
                    assert (node.host, node.port) == ("127.0.0.1", port)
                    found.add(client.socket.getpeercert()["serialNumber"])
            return found

        (before,) = certificates()
        files.issue("server", "CN=localhost", hosts=("localhost", "127.0.0.1"))
        serving.process.send_signal(signal.SIGHUP)
        serving.wait_for_line("reload: done")
        (after,) = certificates()
        assert after != before
        assert serving.end() == 0


def test_workers_share_a_log_file_and_reopen_it_when_it_is_moved(serve, tmp_path):
    log = tmp_path / "klamm.log"
    settings = f'[server]\nlog_level = "INFO"\nlog_format = "json"\nlog_file = "{log}"\n'
    serving = serve(ECHO.replace("[server]\n", settings))

    def refused():
        with serving.connect() as client:
            client.send_bytes(b"\0\0\0\3abc")
            assert client.at_end()

    def read():
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    refused()
    wait_until(lambda: any("connection_id" in line for line in read()))
    log.rename(tmp_path / "klamm.log.1")
    refused()
    wait_until(read)
    assert all(line["worker"] in (1, 2, 3) and line["listener"] == "front" for line in read())
