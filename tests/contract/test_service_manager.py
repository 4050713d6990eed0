"""Tests of a server that systemd manages: passed sockets that outlast a restart, notifications, and the watchdog."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from klamm.server.activation import passed_sockets
from klamm.server.parts import StartError
from klamm.server.service_manager import ServiceManager
from klamm.server.serving import report_to
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from tests.waiting import wait_until

ECHO = '[server]\nworkers = {workers}\n[listeners.front]\nbind = "127.0.0.1:1"\napi_set = "echo"\n'
# systemd passes sockets from descriptor 3 on, and names the process id of the server itself.
LAUNCHER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "front"}
os.execv(sys.executable, [sys.executable, "-m", "klamm", "serve", sys.argv[2]])
"""
CLIENTS = 40


class Manager:
    """A service manager that starts a server as systemd does, and receives its notifications."""

    def __init__(self, folder, workers):
        self.file = folder / "klamm.toml"
        self.file.write_text(ECHO.format(workers=workers))
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.path = str(folder / "notify")
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notified.bind(self.path)
        self.notified.settimeout(120)
        self.process = None

    def start(self):
        number = self.listening.fileno()
        environment = {**os.environ, "NOTIFY_SOCKET": self.path, "WATCHDOG_USEC": "2000000"}
        command = [sys.executable, "-c", LAUNCHER, str(number), str(self.file)]
        self.process = subprocess.Popen(command, pass_fds=[number], env=environment, stdout=subprocess.DEVNULL)
        self.hear("READY=1")

    def hear(self, wanted):
        """Wait for a notification, and skip at most a hundred others."""
        heard = (self.notified.recv(4096).decode() for _ in range(100))
        assert any(text.startswith(wanted) for text in heard), wanted

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.hear("STOPPING=1")
        assert self.process.wait(120) == 0

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        self.listening.close()
        self.notified.close()


@pytest.fixture(params=[1, 2], ids=["one", "workers"])
def manager(request, tmp_path):
    made = Manager(tmp_path, request.param)
    yield made
    made.close()


class Clients:
    """Threads that connect and send a request, again and again.

    `answers` counts the responses of each thread, and `refused` has the errors of refused connections.
    """

    def __init__(self, address):
        self.address = address
        self.answers = [0] * CLIENTS
        self.refused = []
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, number):
        while not self._ending.is_set():
            try:
                with RawClient(self.address, timeout_s=120) as client:
                    client.call(ApiVersionsRequest(), 0)
                self.answers[number] += 1
            except ConnectionRefusedError as error:
                self.refused.append(error)
            except (OSError, EOFError):
                # The server closes its accepted connections when it ends, and the client connects again.
                continue

    def wait_for_each(self):
        """Wait until each thread has got a further response."""
        before = self.answers[:]
        wait_until(lambda: all(now > then for now, then in zip(self.answers, before, strict=True)))

    def stop(self):
        self._ending.set()
        for thread in self._threads:
            thread.join(120)


def test_no_client_is_refused_while_a_server_with_passed_sockets_restarts(manager):
    manager.start()
    clients = Clients(manager.listening.getsockname())
    try:
        for _ in range(2):
            clients.wait_for_each()
            manager.stop()
            manager.start()
        clients.wait_for_each()
    finally:
        clients.stop()
    assert clients.refused == []


def test_the_service_manager_is_notified_of_the_watchdog_a_reload_and_the_stop(manager):
    manager.start()
    manager.hear("WATCHDOG=1")
    manager.process.send_signal(signal.SIGHUP)
    manager.hear("RELOADING=1\nMONOTONIC_USEC=")
    manager.hear("READY=1")
    manager.hear("WATCHDOG=1")
    manager.stop()


class Listening:
    """A stand-in for `ServiceManager` that records the notifications."""

    watchdog_ms = 1000

    def __init__(self):
        self.said = []

    def ready(self, status):
        self.said.append("ready")

    def alive(self):
        self.said.append("alive")


def test_the_watchdog_gets_no_notification_while_a_processor_is_stuck(monkeypatch):
    with EmbeddedServer(["listeners.default.api_set=echo"]) as embedded:
        server, manager, looks = embedded.server, Listening(), []
        monkeypatch.setattr(server.scheduler, "every", lambda period_ms, look: looks.append((period_ms, look)))
        report_to(manager, server)
        assert manager.said == ["ready", "alive"]
        ((period_ms, look),) = looks
        assert period_ms == 500
        monkeypatch.setattr(server, "longest_turn_ms", lambda: 1000.0)
        look()
        assert manager.said == ["ready", "alive"]
        monkeypatch.undo()
        server.stop()
        assert server.longest_turn_ms() == 0, "a stop may take longer than a turn"


def test_a_server_without_a_service_manager_sends_nothing():
    manager = ServiceManager({})
    assert manager.watchdog_ms is None
    manager.ready("serving")


def test_child_processes_do_not_inherit_the_service_managers_variables():
    environment = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}
    manager = ServiceManager(environment)
    manager.ready("to a socket that is not there")
    assert (environment, manager.watchdog_ms) == ({}, None), "the watchdog is another process's"


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("other", 'a passed socket is named "other", but the listeners are default'),
        ("default:default", "listener default: 2 sockets were passed, but it has 1 ports"),
    ],
)
def test_a_server_does_not_start_if_a_passed_socket_fits_no_listener(names, problem, monkeypatch):
    plan = EmbeddedServer(["listeners.default.api_set=echo"]).plan
    sockets = [socket.socket() for _ in names.split(":")]
    first = sockets[0].fileno()
    monkeypatch.setattr("klamm.server.activation._FIRST_DESCRIPTOR", first)
    monkeypatch.setattr(socket, "socket", lambda fileno: sockets[fileno - first])
    environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": names}
    with pytest.raises(StartError, match=problem):
        passed_sockets(plan, environment)
    assert environment == {}


def test_sockets_for_another_process_are_not_used():
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "default"}
    assert passed_sockets(EmbeddedServer(["listeners.default.api_set=echo"]).plan, environment) == {}
