"""Tests of start and stop: failed starts, signals, the ready file, and what the process logs."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest

from klamm import ApiSet, Provider, ServerExtension, hookimpl, setting
from klamm.server.server import StartError
from klamm.server.serving import banner
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.metadata import MetadataRequest
from klamm_dispatch.schedulers import Fifo
from klamm_plaintext.transport import PlaintextTransport
from klamm_sasl.factory import SaslAuthenticatorFactory
from tests.contract.api_sets import Plugin
from tests.waiting import klamm_threads, wait_until

TWO_LISTENERS = """
[listeners.one]
bind = "127.0.0.1:0"
api_set = "echo"

[listeners.two]
bind = "127.0.0.1:{port}"
api_set = "echo"
"""


@pytest.fixture
def taken_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_failed_bind_is_reported_with_host_port_and_cause_and_leaves_no_thread(tmp_path, taken_port):
    before = klamm_threads()
    file = tmp_path / "klamm.toml"
    file.write_text(TWO_LISTENERS.format(port=taken_port))
    server = EmbeddedServer(file=file)
    with pytest.raises(StartError, match=rf"listener two: cannot bind 127.0.0.1:{taken_port}: Address already in use"):
        server.start()
    host, port = server.address("one")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port), timeout=60)
    assert klamm_threads() == before


class Broken(ApiSet):
    """A handler set that cannot open."""

    def open(self, server):
        raise OSError("the disk is on fire")


class BrokenPlugin:
    @hookimpl
    def klamm_api_sets(self):
        yield Provider("broken", "tests.contract.test_lifecycle:Broken")


class TakesSettings:
    """A part that applies settings at once if their number is even."""

    opened = []

    def open(self, host):
        super().open(host)
        self.opened.append(self)

    def reconfigure(self, settings):
        if settings.number % 2 == 0:
            self.settings = settings
            return True
        return False


class TakingScheduler(TakesSettings, Fifo):
    pass


class TakingSet(TakesSettings, ApiSet):
    pass


class TakingExtension(TakesSettings, ServerExtension):
    pass


@dataclass(frozen=True, slots=True)
class Number:
    number: int = setting(0, doc="A number.")


class TakingPlugin:
    @hookimpl
    def klamm_request_schedulers(self):
        yield Provider("queue", f"{__name__}:TakingScheduler", settings=Number)

    @hookimpl
    def klamm_api_sets(self):
        yield Provider("answers", f"{__name__}:TakingSet", settings=Number)

    @hookimpl
    def klamm_extensions(self):
        yield Provider("beside", f"{__name__}:TakingExtension", settings=Number)


def test_schedulers_handler_sets_and_extensions_accept_settings_while_the_server_runs(monkeypatch):
    monkeypatch.setattr(TakesSettings, "opened", [])

    def build(number):
        settings = [
            "listeners.default.api_set=answers",
            'server.extensions=["beside"]',
            "server.request_scheduler=queue",
        ]
        settings += [f"{table}.number={number}" for table in ("server.queue", "answers", "beside")]
        return EmbeddedServer(settings, plugins=[TakingPlugin()])

    with build(1) as embedded:
        server, parts = embedded.server, TakesSettings.opened
        assert [type(part) for part in parts] == [TakingScheduler, TakingSet, TakingExtension], "in this order"
        assert server.reconfigure(build(3).plan) == ([], [])
        assert [part.settings.number for part in parts] == [1, 1, 1]
        tables = ["[server.queue] number", "[answers] number", "[beside] number"]
        assert server.reconfigure(build(4).plan) == (tables, [])
        assert [part.settings.number for part in parts] == [4, 4, 4]
        assert server.reconfigure(build(4).plan) == ([], []), "the plan has what counts"


class ClosingSet(ApiSet):
    closed = []

    def connection_closed(self, connection):
        self.closed.append(connection)


class ClosingPlugin:
    @hookimpl
    def klamm_api_sets(self):
        yield Provider("closing", f"{__name__}:ClosingSet")


def test_a_handler_set_is_notified_once_of_each_closed_connection(monkeypatch):
    monkeypatch.setattr(ClosingSet, "closed", closed := [])
    with EmbeddedServer(["listeners.default.api_set=closing"], plugins=[ClosingPlugin()]) as embedded:
        first, second = (RawClient(embedded.address()) for _ in range(2))
        for client in (first, second):
            client.call(ApiVersionsRequest(), 0)
        assert not closed
        first.close()
        wait_until(lambda: len(closed) == 1)
        assert closed[0].client_address.port != second.socket.getsockname()[1]
    assert len(closed) == len({connection.connection_id for connection in closed}) == 2, "the stop closes the other"


def test_a_handler_set_that_cannot_open_stops_the_start(tmp_path):
    before = klamm_threads()
    server = EmbeddedServer(["listeners.default.api_set=broken"], plugins=[BrokenPlugin()])
    with pytest.raises(StartError, match="api set broken .*: the disk is on fire"):
        server.start()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(server.address(), timeout=60)
    assert klamm_threads() == before


class BrokenTransport(PlaintextTransport):
    """A transport that cannot open."""

    def open(self, listener):
        raise OSError("no certificate")


class BrokenTransportPlugin:
    @hookimpl
    def klamm_transports(self):
        yield Provider("broken", "tests.contract.test_lifecycle:BrokenTransport")


def test_a_part_that_cannot_open_stops_the_start():
    before = klamm_threads()
    settings = ["listeners.default.api_set=echo", "listeners.default.transport=broken"]
    server = EmbeddedServer(settings, plugins=[BrokenTransportPlugin()])
    with pytest.raises(
        StartError, match=r"listener default: transport broken .*BrokenTransport\): no certificate \(OSError at "
    ):
        server.start()
    assert klamm_threads() == before


def test_no_client_is_answered_before_every_handler_set_is_open():
    opening, opened = threading.Event(), threading.Event()

    class Slow(ApiSet):
        def open(self, server):
            opening.set()
            assert opened.wait(60)

    class SlowPlugin:
        @hookimpl
        def klamm_api_sets(self):
            yield Provider("slow", f"{__name__}:slow_factory")

    globals()["slow_factory"] = Slow
    server = EmbeddedServer(["listeners.default.api_set=slow"], plugins=[SlowPlugin()])
    starting = threading.Thread(target=server.start)
    starting.start()
    assert opening.wait(60)
    with RawClient(server.address(), timeout_s=0.3) as client:
        client.send_bytes(b"\0\0\0\3abc")
        with pytest.raises(TimeoutError):
            client.at_end()
        opened.set()
        starting.join(60)
        client.socket.settimeout(10)
        assert client.at_end()
    server.stop()


def test_stop_ends_every_thread_and_closes_every_socket():
    before = klamm_threads()
    with EmbeddedServer(["listeners.default.api_set=echo"]) as server:
        assert set(klamm_threads()) > set(before)
        address = server.address()
    assert klamm_threads() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=60)


@pytest.fixture
def serve(tmp_path):
    """Yield `serve(arguments…)`, which starts `klamm serve`.

    It returns the process and the content of its ready file.
    """
    processes = []

    def start(*arguments):
        ready = tmp_path / "ready.json"
        command = [sys.executable, "-m", "klamm", "serve", *arguments, "--ready-file", str(ready)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        processes.append(process)
        pause = threading.Event()
        for _ in range(400):
            if ready.exists():
                break
            assert process.poll() is None, process.stdout.read()
            pause.wait(0.025)
        return process, json.loads(ready.read_text())

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait(60)
        process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_and_exits_with_0(serve, tmp_path, number):
    file = tmp_path / "klamm.toml"
    file.write_text(TWO_LISTENERS.format(port=0))
    process, ready = serve(str(file))
    assert ready["pid"] == process.pid
    assert list(ready["listeners"]) == ["one", "two"]
    for address in ready["listeners"].values():
        host, port = address.split(":")
        with RawClient((host, int(port))) as client:
            assert client.call(MetadataRequest(topics=None), 12).cluster_id == "klamm-echo"
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "one   127.0.0.1:" in output
    assert "plaintext   echo" in output
    assert "ready in" in output
    assert signal.Signals(number).name in output
    assert list(tmp_path.glob("ready.json*")) == [], "the ready file is removed"


def test_a_group_id_forges_no_line_of_the_log(serve):
    process, ready = serve(
        "--bind", "127.0.0.1:0", "--log-level", "INFO", "--set", "group.initial.rebalance.delay.ms=0"
    )
    host, port = ready["listeners"]["default"].split(":")
    request = JoinGroupRequest(
        group_id="g\n2026-01-01 00:00:00,000 INFO klamm.authorizer forged",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    with RawClient((host, int(port))) as client:
        assert client.call(request, 2).error_code == 0
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    lines = output.splitlines()
    assert any("group g\\n2026-01-01" in line for line in lines)
    assert not any(line.endswith("klamm.authorizer forged") or line.startswith("2026-01-01 00:00:00") for line in lines)


def test_only_its_user_can_read_the_files_that_serve_writes(serve, tmp_path):
    file = tmp_path / "klamm.toml"
    file.write_text(
        f"""[server]
data_dir = "data"
[listeners.a]
bind = "127.0.0.1:0"
observers = ["audit"]
[audit]
spool = "{tmp_path}/spool"
"""
    )
    process, ready = serve(str(file))
    host, port = ready["listeners"]["a"].split(":")
    with RawClient((host, int(port))) as client:
        topics = [CreatableTopic("t", num_partitions=1, replication_factor=1)]
        assert client.call(CreateTopicsRequest(topics=topics), 7).topics[0].error_code == 0
    wait_until(lambda: list((tmp_path / "data" / "t-0").glob("*.log")), "the topic's log is made after the answer")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    found = [path for folder in ("data", "spool") for path in (tmp_path / folder, *(tmp_path / folder).rglob("*"))]
    assert {"klamm.db", "t-0"} <= {path.name for path in found}
    assert any(path.suffix == ".log" for path in found)
    assert any("spool" in path.parts and path.is_file() for path in found)
    assert [f"{path} {path.stat().st_mode:o}" for path in found if path.stat().st_mode & 0o077] == []


def test_an_embedded_server_makes_private_directories_and_database(tmp_path):
    umask = os.umask(0o022)
    try:
        with EmbeddedServer(data_dir=tmp_path / "data"):
            made = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").glob("klamm.db*")}
            assert made["klamm.db"] == 0o600
            assert set(made.values()) == {0o600}
            assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(umask)


def test_sighup_reports_changes_that_take_effect_at_the_next_start(serve, tmp_path):
    file = tmp_path / "klamm.toml"
    text = TWO_LISTENERS.format(port=0)
    file.write_text(text)
    process, ready = serve(str(file))
    lines = iter(process.stdout.readline, "")
    while "ready in" not in next(lines):
        pass
    file.write_text(text.replace("[listeners.two]", "[listeners.two]\nbacklog = 7"))
    process.send_signal(signal.SIGHUP)
    why = "a listener keeps its socket and its parts"
    assert f"[listeners.two] backlog has changed; this takes effect at the next start: {why}" in next(lines)
    assert "reload: done" in next(lines)
    file.write_text(f'[server]\nlog_level = "INFO"\n{text}')
    process.send_signal(signal.SIGHUP)
    assert "reload: [server] log_level: WARNING before, INFO now" in next(lines)
    assert "reload: done" in next(lines)
    file.write_text("[listeners.one]\nbacklogg = 1\n")
    process.send_signal(signal.SIGHUP)
    assert 'did you mean "backlog"?' in next(lines)
    host, port = ready["listeners"]["two"].split(":")
    with RawClient((host, int(port))) as client:
        assert client.call(MetadataRequest(topics=None), 12).cluster_id == "klamm-echo"


def test_a_ready_file_that_a_reload_cannot_write_is_written_by_the_next_one(serve, tmp_path):
    file = tmp_path / "klamm.toml"
    text = TWO_LISTENERS.format(port=0)
    file.write_text(text)
    process, _ready = serve(str(file))
    lines = iter(process.stdout.readline, "")
    while "ready in" not in next(lines):
        pass
    ready_file = tmp_path / "ready.json"
    ready_file.unlink()
    # A file cannot replace a folder.
    ready_file.mkdir()
    file.write_text(text.replace("[listeners.two]", "[listeners.three]"))
    process.send_signal(signal.SIGHUP)
    assert "reload: the ready file cannot be written: Is a directory" in next(lines)
    assert "reload: [listeners.three] listens on 127.0.0.1:" in next(lines)
    assert "reload: [listeners.two] is removed; its connections end" in next(lines)
    assert "reload: done" in next(lines)
    ready_file.rmdir()
    process.send_signal(signal.SIGHUP)
    assert "reload: done" in next(lines)
    assert list(json.loads(ready_file.read_text())["listeners"]) == ["one", "three"]


def test_sighup_adds_and_removes_listeners_and_the_ready_file_follows(serve, tmp_path):
    file = tmp_path / "klamm.toml"
    text = TWO_LISTENERS.format(port=0)
    file.write_text(text)
    process, ready = serve(str(file))
    lines = iter(process.stdout.readline, "")
    while "ready in" not in next(lines):
        pass
    file.write_text(text.replace("[listeners.two]", "[listeners.three]"))
    process.send_signal(signal.SIGHUP)
    assert "reload: [listeners.three] listens on 127.0.0.1:" in next(lines)
    assert "reload: [listeners.two] is removed; its connections end" in next(lines)
    assert "reload: done" in next(lines)
    ready_file = tmp_path / "ready.json"
    wait_until(lambda: json.loads(ready_file.read_text()) != ready)
    now = json.loads(ready_file.read_text())["listeners"]
    assert list(now) == ["one", "three"]
    assert now["one"] == ready["listeners"]["one"]
    host, port = now["three"].split(":")
    with RawClient((host, int(port))) as client:
        assert client.call(MetadataRequest(topics=None), 12).cluster_id == "klamm-echo"


def test_serve_ends_with_a_clear_message_if_a_port_is_taken(tmp_path, taken_port):
    file = tmp_path / "klamm.toml"
    file.write_text(TWO_LISTENERS.format(port=taken_port))
    done = subprocess.run(
        [sys.executable, "-m", "klamm", "serve", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"klamm: listener two: cannot bind 127.0.0.1:{taken_port}: Address already in use\n"


def test_serve_removes_an_old_ready_file_before_it_listens(tmp_path, taken_port):
    file, ready = tmp_path / "klamm.toml", tmp_path / "ready.json"
    file.write_text(TWO_LISTENERS.format(port=taken_port))
    ready.write_text("of one that was killed")
    command = [sys.executable, "-m", "klamm", "serve", str(file), "--ready-file", str(ready)]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 1
    assert not ready.exists()


@pytest.mark.parametrize("where", ["missing/ready.json", "directory"])
def test_serve_ends_before_it_listens_if_it_cannot_write_the_ready_file(tmp_path, taken_port, where):
    (tmp_path / "directory").mkdir()
    file, ready = tmp_path / "klamm.toml", tmp_path / where
    file.write_text(TWO_LISTENERS.format(port=taken_port))
    command = [sys.executable, "-m", "klamm", "serve", str(file), "--ready-file", str(ready)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # The port is taken, so an attempt to listen would end with exit code 1.
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"klamm: ready file {ready}: ")
    assert done.stderr.count("\n") == 1


def test_the_banner_names_all_parts_and_their_packages(tmp_path):
    file = tmp_path / "klamm.toml"
    file.write_text(
        '[server]\nextensions = ["prometheus"]\n[prometheus]\nbind = "127.0.0.1:0"\n'
        '[listeners.one]\nbind = "127.0.0.1:0"\napi_set = "trying"\nobservers = ["tell_tale"]\n'
    )
    with EmbeddedServer(file=file, plugins=[Plugin()]) as server:
        (exporter,) = server.server.extensions
        _, listener, beside, end = banner(server.server, 12.3).splitlines()
        assert listener == (
            f"  one   {server.bootstrap}   plaintext   trying (embedded-0)"
            "   tell_tale (embedded-0), assigner round_robin"
        )
        assert beside == f"  request scheduler fifo, prometheus 127.0.0.1:{exporter.address[1]}"
        assert end == "ready in 12 ms"


def test_a_part_that_raises_on_new_settings_keeps_the_old_ones(monkeypatch):

    def build(audience):
        return EmbeddedServer(
            [
                "listeners.default.authenticator=sasl",
                'listeners.default.sasl.mechanisms=["OAUTHBEARER"]',
                "listeners.default.sasl.OAUTHBEARER.unsecured_development_tokens=true",
                f'listeners.default.sasl.OAUTHBEARER.expected_audience=["{audience}"]',
            ]
        )

    def fail(*_arguments):
        raise ZeroDivisionError("on purpose")

    with build("here") as embedded:
        server = embedded.server
        before = server.listeners[0].plan
        monkeypatch.setattr(SaslAuthenticatorFactory, "reconfigure_parts", fail)
        assert server.reconfigure(build("there").plan) == (
            [],
            ["[listeners.default.sasl] stays as it was: on purpose"],
        )
        assert server.listeners[0].plan == before
        with RawClient(embedded.address()) as client:
            assert client.call(ApiVersionsRequest("test", "1"), 3).error_code == 0
