"""Tests of the Schema Registry as a server: connections, limits, settings, restarts, metrics."""

import contextlib
import http.client
import json
import socket
import threading

import pytest

import klamm.http
from klamm.config.problems import ConfigError
from klamm.testing import EmbeddedServer
from klamm_schema_registry import http as registry_http
from tests.registry_client import Rest

LONG = '"long"'
TWO = {"type": "record", "name": "Two", "fields": [{"name": "a", "type": "int"}]}
MORE = {**TWO, "fields": [*TWO["fields"], {"name": "b", "type": "int"}]}
SPARE = {**TWO, "fields": [*TWO["fields"], {"name": "b", "type": "int", "default": 0}]}


@pytest.fixture(scope="module")
def server():
    with EmbeddedServer(schema_registry=True) as server:
        yield server


@pytest.fixture
def rest(server):
    server.reset()
    return Rest(server.schema_registry_url)


def sent(rest, content):
    """Return the answer to bytes after which the client sends nothing more."""
    host, port = rest.host.split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"POST /subjects/s HTTP/1.1\r\nContent-Length: 0000000000001073741824\r\n\r\n{}", 422),
        (b"POST /subjects/s HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (b"POST /subjects/s HTTP/1.1\r\nContent-Length: 7\r\n\r\n{}", 400),
        ("POST /subjects/s HTTP/1.1\r\nContent-Length: \u00b2\r\n\r\n{}".encode("latin-1"), 411),
        (b"GET http://[ HTTP/1.1\r\n\r\n", 400),
        (b"GET /subjects HTTP/1.1\r\nContent-Length: 000\r\n\r\n", 200),
    ],
    ids=["zeros before a length", "two lengths", "ends early", "no digits", "no path", "a length of zeros"],
)
def test_malformed_requests_are_refused(rest, content, status):
    answer = sent(rest, content)
    assert answer.startswith(b"HTTP/1.1 %d" % status)
    assert status != 422 or b"42209" in answer


@pytest.mark.parametrize("error", [TimeoutError, ConnectionResetError])
def test_an_incomplete_body_does_not_count_as_a_failure(rest, caplog, monkeypatch, error):
    def stops(handler):
        raise error

    monkeypatch.setattr(registry_http._Handler, "_body", stops)
    assert sent(rest, b"GET /subjects HTTP/1.1\r\n\r\n") == b""
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_schemas_survive_a_restart():
    with EmbeddedServer(schema_registry=True) as server:
        rest = Rest(server.schema_registry_url)
        rest.register("s", TWO)
        rest.register("s", SPARE)
        rest.register("gone", LONG)
        rest("DELETE", "/subjects/gone")
        rest("PUT", "/config/s", {"compatibility": "FULL"})
        rest("PUT", "/mode", {"mode": "READONLY"})
        paths = ("/schemas?deleted=true", "/subjects", "/config/s", "/mode", "/schemas/ids/2")
        before = [rest("GET", path) for path in paths]
        server.restart()
        rest = Rest(server.schema_registry_url)
        assert [rest("GET", path) for path in paths] == before
        rest("PUT", "/mode", {"mode": "READWRITE"})
        assert rest.register("new", '"int"')[1]["id"] == 4


def test_without_an_open_listener_the_error_says_which_is_missing():
    settings = ["listeners.default.authenticator=sasl", 'listeners.default.sasl.mechanisms=["SCRAM-SHA-256"]']
    with EmbeddedServer(settings, schema_registry=True) as server:
        answer = Rest(server.schema_registry_url)("GET", "/subjects")[1]
    assert answer["error_code"] == 50001
    assert "no listener is open to every client" in answer["message"]


def test_requests_above_the_limits_are_refused():
    settings = [f"schema_registry.{each}" for each in ("max_schemas=3", "max_subjects=2", "max_schema_bytes=1024")]
    with EmbeddedServer(['server.extensions=["schema_registry"]', *settings]) as server:
        rest = Rest(server.schema_registry_url)
        assert rest.register("a", TWO)[0] == rest.register("b", TWO)[0] == 200
        assert "2 subjects at most" in rest.register("c", TWO)[1]["message"]
        assert rest.register("a", SPARE)[0] == 200
        assert "3 schemas at most" in rest.register("b", SPARE)[1]["message"]
        assert rest.register("a", TWO)[0] == 200
        assert rest.register("a", json.dumps({**TWO, "doc": "x" * 1024}))[1]["error_code"] == 42209
        for subject in "abc":
            last = rest("PUT", f"/config/{subject}", {"compatibility": "NONE"})
        assert "settings of 2 subjects at most" in last[1]["message"]


def test_a_setting_limits_the_size_of_schemas():
    settings = ['server.extensions=["schema_registry"]', "schema_registry.max_schema_bytes=4194304"]
    with EmbeddedServer(settings) as server:
        rest = Rest(server.schema_registry_url)
        assert rest.register("s", {**TWO, "doc": '"' * 900_000})[0] == 200


def test_wrong_settings_are_refused():
    for wrong in ("bind=nowhere", "compatibility=SIDEWAYS", "max_schemas=0"):
        with pytest.raises(ConfigError, match=wrong.partition("=")[0]):
            EmbeddedServer(['server.extensions=["schema_registry"]', f"schema_registry.{wrong}"])


def test_a_server_without_the_registry_has_no_url_of_it():
    with EmbeddedServer() as server, pytest.raises(LookupError, match="schema_registry=True"):
        server.schema_registry_url  # noqa: B018


def test_the_control_api_resets_the_registry():
    with EmbeddedServer(['server.extensions=["control"]', "control.token=t"], schema_registry=True) as server:
        rest = Rest(server.schema_registry_url)
        rest.register("s", TWO)
        control = next(each for each in server.server.extensions if "klamm_control" in type(each).__module__)
        assert Rest(control.url).raw("POST", "/reset", b"", {"Authorization": "Bearer t"})[0] == 200
        assert rest("GET", "/subjects") == (200, [])


def test_many_clients_register_at_once(rest):
    answers = []

    def register(number):
        answers.extend(rest.register(f"s{each}", LONG)[1]["id"] for each in (number, "shared"))

    threads = [threading.Thread(target=register, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [1] * 16
    assert len(rest("GET", "/subjects")[1]) == 9


def test_clients_that_send_nothing_do_not_delay_others(rest):
    silent = [http.client.HTTPConnection(rest.host, timeout=60) for _ in range(20)]
    try:
        for each in silent:
            each.connect()
        assert rest("GET", "/subjects") == (200, [])
    finally:
        for each in silent:
            each.close()


def test_connections_are_closed_when_the_registry_stops():
    with EmbeddedServer(schema_registry=True) as server:
        connection = http.client.HTTPConnection(Rest(server.schema_registry_url).host, timeout=60)

        def ask():
            connection.request("GET", "/subjects")
            return connection.getresponse().read()

        assert ask() == b"[]"
    with contextlib.closing(connection), pytest.raises(ConnectionError):
        ask()


def test_a_connection_that_gets_no_thread_frees_its_place(monkeypatch):
    def no_thread(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(klamm.http, "_CONNECTIONS", 1)
    listening = registry_http.RegistryServer(("127.0.0.1", 0), None, 1024, lambda status, time_us: None)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with contextlib.closing(socket.socket()) as connection:
        for _ in range(3):
            with pytest.raises(RuntimeError, match="new thread"):
                listening.process_request(connection, ("127.0.0.1", 1))
    listening.server_close()


def test_the_ready_file_names_the_registry(server):
    (extension,) = server.server.extensions
    assert extension.ready_file_entries() == {"schema_registry": server.schema_registry_url}
    assert extension.describe() == server.schema_registry_url


def measured(server):
    families = server.server.services.metrics.collect(lambda name: name.startswith("klamm:type=SchemaRegistry"))
    return {
        (family.name.rpartition("=")[2], *sample.labels.values()): getattr(sample.value, "count", sample.value)
        for family in families
        for sample in family.samples
    }


def test_a_failed_write_does_not_change_the_gauges(rest, server):
    rest.register("s", TWO)
    server.admin.delete_topics("_schemas")
    assert rest.register("s", SPARE)[1]["error_code"] == 50001
    assert measured(server)["Schemas",] == 1
    assert rest("GET", "/subjects") == (200, [])
    assert measured(server)["Schemas",] == 0


def test_metrics_count_answers_and_what_the_registry_holds(rest, server):
    before = measured(server)
    rest.register("s", TWO)
    rest.register("s", MORE)
    rest.register("s", SPARE)
    after = measured(server)
    assert (after["Schemas",], after["Subjects",]) == (2, 1)
    assert after["RequestsPerSec", "200"] - before.get(("RequestsPerSec", "200"), 0) == 2
    assert after["RequestsPerSec", "409"] - before.get(("RequestsPerSec", "409"), 0) == 1
    assert after["TotalTimeMs",] - before["TotalTimeMs",] == 3
