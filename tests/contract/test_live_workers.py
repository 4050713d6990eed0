"""Twenty changes of a running server with several workers, under load: each request is answered, none is refused."""

import signal
import ssl
import threading

import pytest

from klamm.testing import RawClient
from klamm.wire.messages.metadata import MetadataRequest
from tests.contract.gateway_nodes import free_ports
from tests.contract.worker_server import Serving
from tests.tls_files import TlsFiles
from tests.waiting import wait_until

CLIENTS = 3
REQUESTS_A_CHANGE = 20


class Load:
    """Clients that send one request after the other, each on a thread of its own.

    If a connection is closed, a client connects again and repeats the request, as Kafka's clients do.
    """

    def __init__(self, connect):
        self._connect = connect
        self._ending = threading.Event()
        self.answered = [0] * CLIENTS
        self.closed = 0
        self.failures = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]

    def _run(self, number):
        client = None
        while not self._ending.is_set():
            try:
                client = client or self._connect()
                assert client.call(MetadataRequest(topics=None), 12).cluster_id == "klamm-echo"
                self.answered[number] += 1
            except (ConnectionError, EOFError, ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
                if isinstance(error, ConnectionRefusedError):
                    self.failures.append(error)
                self.closed += 1
                client = client and client.close()
            except Exception as error:
                self.failures.append(error)
                return
        if client is not None:
            client.close()

    def go_on(self):
        """Wait until each client has had further answers."""
        wanted = [count + REQUESTS_A_CHANGE for count in self.answered]
        wait_until(lambda: self.failures or all(a >= b for a, b in zip(self.answered, wanted, strict=True)))
        assert self.failures == []

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        self.go_on()
        return self

    def __exit__(self, *exception):
        self._ending.set()
        for thread in self._threads:
            thread.join(60)


class Live:
    """A server with two workers, from a file that the changes edit: keys of its tables."""

    def __init__(self, folder):
        self.tls = TlsFiles(folder / "tls")
        self.more_port = free_ports(1)
        self.tables = {
            "server": {"workers": "2"},
            "listeners.front": {
                "bind": '"127.0.0.1:0"',
                "api_set": '"echo"',
                "authorizer": '"static"',
                "gates": '["connection_quota", "creation_rate"]',
            },
            "listeners.secure": {
                "bind": '"127.0.0.1:0"',
                "api_set": '"echo"',
                "authorizer": '"acl"',
                "transport": '"ssl"',
            },
            "listeners.secure.ssl": {
                "certificate": f'"{self.tls.server.certificate}"',
                "private_key": f'"{self.tls.server.key}"',
                "reload_interval_ms": "0",
            },
            "static": {"rules": '["allow User:* ALL topic:*", "allow User:* ALL cluster"]'},
            "acl": {"super_users": '["User:ANONYMOUS"]'},
        }
        self.file = folder / "klamm.toml"
        self._write()
        self.serving = Serving(self.file, folder / "ready.json")
        self._reloads = 0

    def _write(self):
        self.file.write_text(
            "".join(
                f"[{table}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
                for table, keys in self.tables.items()
            )
        )

    def reload(self, replaces):
        """Reload the file, and wait until every change is in force."""
        self._write()
        self._reloads += 1
        before, said = self.serving.workers(), len(self.serving.lines)
        self.serving.process.send_signal(signal.SIGHUP)
        wait_until(lambda: sum("reload: done" in line for line in self.serving.lines) >= self._reloads)
        lines = [line for line in self.serving.lines[said:] if "next start" in line or "nothing changed" in line]
        assert lines == []
        assert set(self.serving.workers()).isdisjoint(before) is replaces

    def served_certificate(self):
        return ssl.get_server_certificate(self.serving.address("secure"), timeout=60)


CHANGES = {}


def change(replaces=False):
    """Put a change into the registry. `replaces` is True if only new processes can apply it."""

    def register(function):
        CHANGES[function.__name__] = (function, replaces)
        return function

    return register


def key(name, table, value, replaces=False):
    """Put a change of one key into the registry."""
    field, _, _ = name.partition(" ")

    def edit(live):
        live.tables.setdefault(table, {})[field] = value

    CHANGES[f"{name} of {table}"] = (edit, replaces)


key("log_level", "server", '"ERROR"')
key("log_levels", "server", '{ "klamm.authorizer" = "INFO" }')
key("io_threads", "server", "3")
key("processors (more)", "listeners.front", "3")
key("processors (fewer)", "listeners.front", "1")
key("super_users", "acl", '["User:ANONYMOUS", "User:root"]')
key("rules", "static", '["allow User:* ALL topic:*", "allow User:* ALL cluster", "allow User:a READ group:*"]')
key("super_users", "static", '["User:root"]')
key("max_connections_per_ip", "connection_quota", "500")
key("max_connection_creation_rate", "creation_rate", "5000")
key("protected", "creation_rate", "true")
key("principal_mapping_rules", "listeners.secure.ssl", '"RULE:^CN=(.*?),.*$/$1/"')
key("io_threads (fewer)", "server", "2")
key("queued_max_requests", "server", "100", replaces=True)
key("connections_max_idle_ms", "listeners.front", "300000", replaces=True)
key("ipv6_prefix_length", "connection_quota", "56", replaces=True)


@change()
def the_certificate(live):
    live.tls.issue("server", "CN=localhost", hosts=("localhost", "127.0.0.1", "::1"))


@change(replaces=True)
def a_listener_is_added(live):
    live.tables["listeners.more"] = {"bind": f'"127.0.0.1:{live.more_port}"', "api_set": '"echo"'}


@change(replaces=True)
def its_port_passes_to_another_listener(live):
    live.tables["listeners.other"] = live.tables.pop("listeners.more")


@change(replaces=True)
def the_listener_is_removed(live):
    del live.tables["listeners.other"]


@pytest.fixture
def live(tmp_path):
    made = Live(tmp_path)
    yield made
    if made.serving.process.poll() is None:
        made.serving.process.kill()
    made.serving.process.wait(60)
    made.serving.process.stdout.close()


def is_served(port):
    with RawClient(("127.0.0.1", port), timeout_s=60) as client:
        return client.call(MetadataRequest(topics=None), 12).cluster_id == "klamm-echo"


def test_twenty_changes_under_load_lose_no_request(live):
    assert len(CHANGES) >= 20
    front, secure = live.serving.address("front"), live.serving.address("secure")
    context = live.tls.client_context()
    certificate = live.served_certificate()
    with (
        Load(lambda: RawClient(front, timeout_s=60)) as load,
        Load(lambda: RawClient(secure, timeout_s=60, ssl_context=context)) as load_with_tls,
    ):
        for name, (edit, replaces) in CHANGES.items():
            closed = load.closed + load_with_tls.closed
            edit(live)
            live.reload(replaces)
            load.go_on()
            load_with_tls.go_on()
            assert replaces or load.closed + load_with_tls.closed == closed, f"{name} has closed connections"
            if {"listeners.more", "listeners.other"} & live.tables.keys():
                assert is_served(live.more_port)
    assert load.failures == load_with_tls.failures == []
    assert live.served_certificate() != certificate
    with pytest.raises(ConnectionRefusedError):
        is_served(live.more_port)
    assert live.serving.end() == 0
