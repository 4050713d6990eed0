"""Tests of configs that AlterConfigs changes while a server runs: their effect, refused values, and restarts."""

import logging
import ssl
import threading

import pytest

from klamm import ErrorCode
from klamm.network.acceptor_thread import AcceptorThread
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.tls_files import TlsFiles
from tests.waiting import klamm_threads, wait_until

BROKER, LOGGER = 4, 8
SET, DELETE = 0, 1
DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 2, 3, 4, 5


@pytest.fixture
def client_of():
    """Yield a function that opens a connection. The connections are closed at the end of the test."""
    clients = []

    def connect(server, listener="default", **options):
        clients.append(RawClient(server.address(listener), **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def alter(client, *changes, name="1", kind=BROKER, validate_only=False):
    resource = AlterConfigsResource(kind, name, [AlterableConfig(*change) for change in changes])
    request = IncrementalAlterConfigsRequest([resource], validate_only)
    (result,) = client.call(request, 1).responses
    return result.error_code


def described(client, key, *, name="1", kind=BROKER):
    resource = DescribeConfigsResource(kind, name, None if key is None else [key])
    (result,) = client.call(DescribeConfigsRequest([resource], True, True), 4).results
    return result.configs


def reported(client, key, *, name="1"):
    (config,) = described(client, key, name=name)
    assert config.documentation
    return config.value, config.config_source, [(each.value, each.source) for each in config.synonyms]


def threads_of(kind):
    return sum(kind in thread.name for thread in threading.enumerate())


def test_changed_numbers_of_threads_survive_a_restart(tmp_path, client_of):
    before = threads_of("klamm-handler")
    with EmbeddedServer(["num.io.threads=3"], data_dir=tmp_path) as server:
        client = client_of(server)
        assert reported(client, "num.io.threads") == ("3", STATIC, [("3", STATIC), ("8", DEFAULT)])
        assert alter(client, ("num.io.threads", SET, "5"), ("num.network.threads", SET, "2")) == 0
        assert alter(client, ("num.io.threads", SET, "4"), name="") == 0
        wait_until(lambda: threads_of("klamm-handler") == before + 5)
        wait_until(lambda: len(server.server.listeners[0].processors) == 2)
        layers = [("5", DYNAMIC_BROKER), ("4", DYNAMIC_DEFAULT), ("3", STATIC), ("8", DEFAULT)]
        assert reported(client, "num.io.threads") == ("5", DYNAMIC_BROKER, layers)
        assert [each.value for each in described(client, "num.io.threads", name="")] == ["4"]
    with EmbeddedServer(["num.io.threads=3"], data_dir=tmp_path) as server:
        client = client_of(server)
        assert threads_of("klamm-handler") == before + 5
        assert len(server.server.listeners[0].processors) == 2
        assert reported(client, "num.io.threads")[:2] == ("5", DYNAMIC_BROKER)
        assert alter(client, ("num.io.threads", DELETE, None)) == 0
        wait_until(lambda: threads_of("klamm-handler") == before + 4)
        assert alter(client, ("num.io.threads", DELETE, None), name="") == 0
        wait_until(lambda: threads_of("klamm-handler") == before + 3)


def test_a_stop_waits_for_a_running_change(client_of, monkeypatch):
    before = klamm_threads()
    started, stopping = threading.Event(), threading.Event()
    start = AcceptorThread.start

    def start_late(thread):
        started.set()
        stopping.wait(0.2)
        start(thread)

    monkeypatch.setattr(AcceptorThread, "start", start_late)
    with EmbeddedServer() as server:
        assert alter(client_of(server), ("num.network.threads", SET, "2")) == 0
        assert started.wait(60)
    stopping.set()
    assert klamm_threads() == before


def test_a_listener_keeps_its_own_value_of_a_config(client_of):
    settings = ["listeners.default.bind=127.0.0.1:0", "listeners.other.bind=127.0.0.1:0"]
    with EmbeddedServer(settings) as server:
        client = client_of(server)
        changes = [("num.network.threads", SET, "2"), ("listener.name.other.num.network.threads", SET, "3")]
        assert alter(client, *changes) == 0
        wait_until(lambda: [len(each.processors) for each in server.server.listeners] == [2, 3])
        assert reported(client, "listener.name.other.num.network.threads")[:2] == ("3", DYNAMIC_BROKER)
        assert described(client, "listener.name.default.num.network.threads") == []
        assert alter(client, ("listener.name.nope.num.network.threads", SET, "3")) == ErrorCode.INVALID_REQUEST


def test_changed_connection_limit_applies_at_once(client_of):
    with EmbeddedServer() as server:
        client = client_of(server)
        assert alter(client, ("max.connections.per.ip", SET, "1")) == 0

        def is_refused():
            with RawClient(server.address(), timeout_s=60) as other:
                try:
                    other.call(ApiVersionsRequest(), 0)
                except OSError:
                    return True
            return False

        wait_until(is_refused)
        assert alter(client, ("max.connections.per.ip.overrides", SET, "127.0.0.1:2")) == 0
        wait_until(lambda: not is_refused())
        assert reported(client, "max.connections.per.ip.overrides")[:2] == ("127.0.0.1:2", DYNAMIC_BROKER)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.io.threads", "0"),
        ("num.io.threads", "many"),
        ("max.connections.per.ip.overrides", "nowhere:1"),
        ("producer.id.expiration.ms", "0"),
        ("queued.max.requests", "1"),
        ("log.cleaner.enable", "false"),
        ("nope", "1"),
    ],
)
def test_one_bad_value_changes_nothing(key, value, client_of):
    with EmbeddedServer() as server:
        client = client_of(server)
        changes = [("max.connections", SET, "77"), (key, SET, value)]
        assert alter(client, *changes) == ErrorCode.INVALID_REQUEST
        assert reported(client, "max.connections")[1] == DEFAULT
        assert alter(client, changes[0], validate_only=True) == 0
        assert reported(client, "max.connections")[1] == DEFAULT


def test_changed_broker_settings_apply_at_once(client_of):
    with EmbeddedServer() as server:
        client = client_of(server)
        assert alter(client, ("producer.id.expiration.ms", SET, "1234"), ("log.cleaner.backoff.ms", SET, "99")) == 0
        assert server.api_set().live.current.producer_id_expiration_ms == 1234
        assert server.api_set().live.current.log_cleaner_backoff_ms == 99
        assert reported(client, "producer.id.expiration.ms")[:2] == ("1234", DYNAMIC_BROKER)


def test_changed_level_of_a_logger_applies_at_once(client_of):
    name = "klamm.broker.topics"
    logger = logging.getLogger(name)
    before = logger.level
    try:
        with EmbeddedServer() as server:
            client = client_of(server)
            assert alter(client, (name, SET, "DEBUG"), kind=LOGGER) == 0
            assert logger.level == logging.DEBUG
            (config,) = described(client, name, kind=LOGGER)
            assert (config.value, config.read_only) == ("DEBUG", False)
            assert alter(client, (name, SET, "LOUD"), kind=LOGGER) == ErrorCode.INVALID_CONFIG
            assert alter(client, ("klamm.nope", SET, "DEBUG"), kind=LOGGER) == ErrorCode.INVALID_CONFIG
            assert alter(client, ("root", DELETE, None), kind=LOGGER) == ErrorCode.INVALID_REQUEST
            assert alter(client, (name, 2, "DEBUG"), kind=LOGGER) == ErrorCode.INVALID_REQUEST
            assert alter(client, (name, SET, "ERROR"), kind=LOGGER, validate_only=True) == 0
            assert logger.level == logging.DEBUG
            assert alter(client, (name, DELETE, None), kind=LOGGER) == 0
            assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(before)


def test_changed_tls_files_apply_to_new_connections(tmp_path, client_of):
    first, second = TlsFiles(tmp_path / "first"), TlsFiles(tmp_path / "second")
    settings = ["listeners.default.bind=127.0.0.1:0", "listeners.secure.bind=127.0.0.1:0"]
    settings += [each for each in first.server_settings("secure") if "private_key" not in each]
    settings.append(f"listeners.secure.ssl.certificate={first.server.both}")
    with EmbeddedServer(settings) as server:
        client = client_of(server)

        def trusts(files):
            try:
                client_of(server, "secure", ssl_context=files.client_context()).call(ApiVersionsRequest(), 0)
            except ssl.SSLError:
                return False
            return True

        assert trusts(first)
        assert not trusts(second)
        key = "listener.name.secure.ssl.keystore.location"
        path = str(second.server.both)
        assert alter(client, (key, SET, path), name="") == ErrorCode.INVALID_REQUEST
        assert alter(client, (key, SET, "/nowhere.pem")) == ErrorCode.INVALID_REQUEST
        assert alter(client, (key, SET, path)) == 0
        wait_until(lambda: trusts(second))
        assert reported(client, key)[:2] == (path, DYNAMIC_BROKER)


def test_changed_tls_client_auth_and_cipher_suites_apply_to_new_connections(tmp_path, client_of):
    files = TlsFiles(tmp_path)
    settings = ["listeners.default.bind=127.0.0.1:0", "listeners.secure.bind=127.0.0.1:0"]
    settings += files.server_settings("secure")
    with EmbeddedServer(settings) as server:
        client = client_of(server)
        old = files.client_context(version=ssl.TLSVersion.TLSv1_2)

        def is_served(context):
            try:
                client_of(server, "secure", ssl_context=context).call(ApiVersionsRequest(), 0)
            except (ssl.SSLError, ConnectionError):
                return False
            return True

        def cipher():
            return client_of(server, "secure", ssl_context=old).socket.cipher()[0]

        for name in ("ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"):
            suites = f"{name},{name.replace('ECDSA', 'RSA')}"
            assert alter(client, ("listener.name.secure.ssl.cipher.suites", SET, suites)) == 0
            wait_until(lambda name=name: cipher() in (name, name.replace("ECDSA", "RSA")))
        assert alter(client, ("listener.name.secure.ssl.cipher.suites", SET, "no-such-suite")) != 0
        key = "listener.name.secure.ssl.client.auth"
        assert is_served(files.client_context())
        assert alter(client, (key, SET, "sometimes")) == ErrorCode.INVALID_REQUEST
        assert alter(client, (key, SET, "required")) == 0
        wait_until(lambda: not is_served(files.client_context()))
        assert is_served(files.client_context(files.client))
        assert alter(client, (key, DELETE, None)) == 0
        wait_until(lambda: is_served(files.client_context()))


def processors_of(server):
    return [len(each.processors) for each in server.server.listeners]


def test_each_node_shows_the_settings_of_its_own_listeners(client_of, tmp_path):
    with EmbeddedServer(nodes=2, data_dir=tmp_path) as server:
        first, second = client_of(server), client_of(server, "default-2")
        assert alter(second, ("num.network.threads", SET, "3"), name="2") == 0
        wait_until(lambda: processors_of(server) == [1, 3])
        assert alter(first, ("num.network.threads", SET, "2"), name="") == 0
        wait_until(lambda: processors_of(server) == [2, 3])
    with EmbeddedServer(nodes=2, data_dir=tmp_path) as server:
        first, second = client_of(server), client_of(server, "default-2")
        assert processors_of(server) == [2, 3]
        own, both, default = ("3", DYNAMIC_BROKER), ("2", DYNAMIC_DEFAULT), ("1", DEFAULT)
        assert reported(first, "num.network.threads") == (*both, [both, default])
        assert reported(second, "num.network.threads", name="2") == (*own, [own, both, default])
        assert alter(second, ("num.network.threads", DELETE, None), name="2") == 0
        wait_until(lambda: processors_of(server) == [2, 2])
        assert reported(second, "num.network.threads", name="2") == (*both, [both, default])


@pytest.mark.parametrize("key", ["log.retention.ms", "num.io.threads", "log.cleaner.backoff.ms"])
def test_a_node_cannot_have_its_own_value_of_a_shared_setting(client_of, key):
    with EmbeddedServer(nodes=2) as server:
        for listener, node in (("default", "1"), ("default-2", "2")):
            client = client_of(server, listener)
            assert alter(client, (key, SET, "7"), name=node) == ErrorCode.INVALID_CONFIG
        assert alter(client, (key, SET, "7"), name="") == 0
        assert reported(client, key, name="2")[:2] == ("7", DYNAMIC_DEFAULT)


def test_each_node_describes_only_itself(client_of):
    with EmbeddedServer(nodes=2) as server:
        first, second = client_of(server), client_of(server, "default-2")
        for client, other in ((first, "2"), (second, "1"), (second, "3")):
            for kind in (BROKER, LOGGER):
                resource = DescribeConfigsResource(kind, other, None)
                (result,) = client.call(DescribeConfigsRequest([resource]), 4).results
                assert result.error_code == ErrorCode.INVALID_REQUEST
                change = ("klamm", SET, "INFO") if kind == LOGGER else ("num.network.threads", SET, "2")
                assert alter(client, change, name=other, kind=kind) == ErrorCode.INVALID_REQUEST
        for listener, client, node in (("default", first, "1"), ("default-2", second, "2")):
            values = {each.name: each.value for each in described(client, None, name=node)}
            assert (values["node.id"], values["broker.id"]) == (node, node)
            assert values["listeners"] == "DEFAULT://{}:{}".format(*server.address(listener))
