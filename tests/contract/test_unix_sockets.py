"""Tests of listeners on Unix domain sockets: transports, the socket file, and clients without an IP address."""

import os
import socket
import ssl
import stat

import pytest

from klamm import Address, Provider, RequestObserver, hookimpl
from klamm.acl import AclOperation, AclPermission, PatternType, ResourceType
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.config.problems import ConfigError
from klamm.server.server import StartError
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.describe_groups import DescribeGroupsRequest
from klamm.wire.messages.metadata import MetadataRequest
from tests.sasl_client import log_in, users_setting
from tests.tls_files import TlsFiles
from tests.waiting import wait_until


@pytest.fixture
def path(tmp_path):
    return tmp_path / "k.sock"


def bound_to(path, *more):
    return EmbeddedServer([f"listeners.default.bind=unix:{path}", *more])


def topics(client):
    return [topic.name for topic in client.call(MetadataRequest(topics=None), 12).topics]


@pytest.mark.parametrize("processors", [1, 2])
def test_records_are_sent_through_a_unix_domain_socket(path, processors):
    with bound_to(path, f"listeners.default.processors={processors}") as server:
        topic = server.create_topic("t")
        server.produce(topic, b"x" * 300_000, b"y")
        assert [len(record.value) for record in server.consume(topic, 2)] == [300_000, 1]
        assert (server.bootstrap, server.address()) == (f"unix:{path}", (f"unix:{path}", 0))
        with RawClient(server.address()) as client:
            (broker,) = client.call(MetadataRequest(topics=[]), 12).brokers
            assert (broker.host, broker.port) == (f"unix:{path}", 0)


def test_an_advertised_address_is_what_metadata_returns(path):
    setting = "listeners.default.advertise=kafka.example.com:9092"
    with bound_to(path, setting) as server, RawClient(server.address()) as client:
        (broker,) = client.call(MetadataRequest(topics=[]), 12).brokers
    assert (broker.host, broker.port) == ("kafka.example.com", 9092)


def test_tls_and_sasl_work_and_acls_name_the_host_unix(path, tmp_path):
    files = TlsFiles(tmp_path)
    settings = [f"listeners.secure.bind=unix:{path}", *files.server_settings("secure")]
    settings += ["listeners.secure.authenticator=sasl", f"listeners.secure.{users_setting(ann='secret')}"]
    settings += ['listeners.secure.sasl.mechanisms=["SCRAM-SHA-256"]']
    settings += ["listeners.secure.authorizer=acl", "listeners.default.authorizer=acl"]
    settings += ['listeners.default.acl.super_users=["User:ANONYMOUS"]']
    with EmbeddedServer(settings) as server:
        server.create_topic("t")
        for host in ("127.0.0.1", "unix"):
            creation = AclCreation(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:ann", host)
            creation.operation, creation.permission_type = AclOperation.DESCRIBE, AclPermission.ALLOW
            server.admin.call(CreateAclsRequest([creation]), 2)
            with RawClient(
                server.address("secure"), ssl_context=files.client_context(), server_hostname="localhost"
            ) as client:
                assert isinstance(client.socket, ssl.SSLSocket)
                assert log_in(client, "SCRAM-SHA-256", "ann", "secret").error_code == 0
                assert topics(client) == (["t"] if host == "unix" else [])


def test_a_raw_client_accepts_any_connected_socket(path):
    with bound_to(path) as server:
        server.create_topic("t")
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(path))
        with RawClient(sock) as client:
            assert topics(client) == ["t"]


def test_the_socket_file_has_its_mode_and_is_removed_at_the_stop(path):
    for mode in ("0600", "0666"):
        with bound_to(path, f"listeners.default.unix_socket_mode={mode!r}"):
            assert stat.filemode(path.stat().st_mode) == {"0600": "srw-------", "0666": "srw-rw-rw-"}[mode]
        assert not path.exists()


def test_a_server_can_restart_on_the_same_path(path):
    with bound_to(path) as server:
        server.create_topic("t")
        server.restart(between=lambda: path.exists() and pytest.fail("the file is still there"))
        with RawClient(server.address()) as client:
            assert topics(client) == ["t"]


def test_the_socket_of_a_killed_server_is_replaced(path):
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with bound_to(path) as server, RawClient(server.address()) as client:
        assert topics(client) == []


def test_a_path_of_a_running_server_or_another_file_is_not_replaced(path, tmp_path):
    with bound_to(path) as server:
        with pytest.raises(StartError, match=rf"cannot bind unix:{path}: another server listens there"):
            bound_to(path).start()
        with RawClient(server.address()) as client:
            assert topics(client) == []
    other = tmp_path / "file"
    other.write_text("kept")
    with pytest.raises(StartError, match="exists and is not a socket"):
        bound_to(other).start()
    assert other.read_text() == "kept"
    with pytest.raises(StartError, match="cannot bind unix:.*No such file"):
        bound_to(tmp_path / "missing" / "k.sock").start()


def test_the_stop_does_not_remove_a_file_that_has_replaced_the_socket(path):
    with bound_to(path):
        os.unlink(path)
        path.write_text("another's")
    assert path.read_text() == "another's"


class Noted(RequestObserver):
    seen: list[Address] = []

    def connection_opened(self, connection):
        self.seen.append(connection.client_address)
        self.ids = connection.connection_id


class Plugin:
    @hookimpl
    def klamm_request_observers(self):
        yield Provider("noted", f"{__name__}:Noted")


def test_plugins_see_a_client_without_address(path):
    Noted.seen.clear()
    settings = [f"listeners.default.bind=unix:{path}", 'listeners.default.observers=["noted"]']
    with EmbeddedServer(settings, plugins=[Plugin()]) as server, RawClient(server.address()) as client:
        topics(client)
        observer = server.part("default", "noted")
        assert set(observer.seen) == {Address("unix", 0)}
        assert observer.ids.startswith(f"unix:{path}-unix-")
        assert client.call(DescribeGroupsRequest(["g"]), 5).groups[0].error_code == 0


def may_connect(server):
    with RawClient(server.address()) as client:
        try:
            return topics(client) == []
        except ConnectionError:
            return False


def test_gates_count_all_its_clients_as_one_address(path):
    limit = "listeners.default.connection_quota.max_connections_per_ip=2"
    with bound_to(path, 'listeners.default.gates=["connection_quota"]', limit) as server:
        with RawClient(server.address()) as one, RawClient(server.address()) as two:
            assert topics(one) == topics(two) == []
            with RawClient(server.address()) as third:
                assert third.at_end()
        wait_until(lambda: may_connect(server))


def problems_of(*settings):
    with pytest.raises(ConfigError) as caught:
        load_plan(None, PluginRegistry(), list(settings))
    return str(caught.value)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("bind=unix:relative.sock", "must be unix: and the absolute path of the socket"),
        ("bind=unix:", "must be unix: and the absolute path"),
        (f"bind=unix:/{'x' * 107}", "is longer than 107 bytes"),
        ("advertise=unix:/tmp/k.sock", "must be HOST:PORT: responses cannot name a socket's path"),
        ("unix_socket_mode='rw'", 'must be a mode in octal, e.g. "0660", not "rw"'),
        ("bind=9092", "or unix:/PATH"),
    ],
)
def test_wrong_settings_are_reported(setting, problem):
    assert problem in problems_of(f"listeners.default.{setting}")


def test_settings_that_contradict_each_other_are_reported():
    one, two = "listeners.a.bind=unix:/tmp/k.sock", "listeners.b.bind=unix:/tmp/k.sock"
    assert "unix:/tmp/k.sock is taken by listener a" in problems_of(one, two)
    proxy = ("listeners.a.proxy_protocol=required", 'listeners.a.trusted_proxies=["10.0.0.1"]')
    assert "does not work on a Unix domain socket" in problems_of(one, *proxy)


def test_no_warning_is_logged_because_only_local_clients_can_connect():
    plan = load_plan(None, PluginRegistry(), ["listeners.default.bind=unix:/tmp/k.sock"])
    assert plan.warnings == ()
