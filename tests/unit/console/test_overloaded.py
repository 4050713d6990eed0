"""Tests of the console of a server whose listener does not answer: the token shows data that need no answer."""

import ssl

import pytest

from klamm import Address, ListenerContext, ServerServices
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.workers.calls import WorkerCalls
from klamm_console import access, api, cluster, entry
from tests.contract.api_sets import Plugin
from tests.unit.console.conftest import CONSOLE, Browser

TRYING = "listeners.default.api_set=trying"


@pytest.fixture
def browser():
    settings = [*CONSOLE, TRYING, "server.queued_max_request_bytes=100000", "server.queued_max_requests=9"]
    with EmbeddedServer(settings, plugins=[Plugin()]) as server:
        yield Browser(server), server


def shown(browser):
    assert browser.log_in()[0] == 200
    status, found = browser("server")
    assert status == 200
    assert browser("connections")[0] == 200
    return found


def test_a_listener_without_an_answer_is_named_beside_the_stages(browser):
    page, _server = browser
    found = shown(page)
    assert "closed" in found["cluster"]["unanswered"]
    assert found["stages"]["queue_capacity"] == 9


def test_a_server_without_memory_is_shown(browser, monkeypatch):
    monkeypatch.setattr(entry, "_ASK_S", 0.2)
    page, server = browser
    clients = [RawClient(server.address()) for _ in range(4)]
    for client in clients:
        client.send(HeartbeatRequest(group_id="x" * 30_000 + ".block"), 4)
    try:
        assert shown(page)["cluster"]["unanswered"]
    finally:
        server.api_set("trying").release.set()


def test_a_wrong_token_sees_nothing(browser):
    page, _server = browser
    page.token = "wrong"
    assert page.log_in()[0] == 401
    assert page("server")[0] == 401


def test_without_the_right_the_stages_are_not_shown():
    settings = [*CONSOLE, TRYING, "listeners.default.authorizer=acl"]
    with EmbeddedServer(settings, plugins=[Plugin()]) as server:
        page = Browser(server)
        assert page.log_in()[0] == 200
        assert page("server")[0] == 403


def wrong_certificate():
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.reason = "CERTIFICATE_VERIFY_FAILED"
    return error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (wrong_certificate(), 502),
        (FileNotFoundError("ca.pem"), 502),
        (ConnectionResetError("reset"), 200),
        (ConnectionRefusedError("refused"), 200),
        (TimeoutError("timed out"), 200),
        (EOFError("closed"), 200),
    ],
    ids=str,
)
def test_the_check_of_rights_is_skipped_only_if_the_listener_does_not_answer(monkeypatch, error, status):
    def about(_probe):
        raise error

    with EmbeddedServer(CONSOLE) as server:
        page = Browser(server)
        monkeypatch.setattr(cluster, "about", about)
        found = page.log_in()
    assert found[0] == status
    assert ("ca_file" in str(found[1])) == isinstance(error, ssl.SSLError)


def test_an_action_that_the_audit_has_not_recorded_is_named(monkeypatch):
    with EmbeddedServer(CONSOLE) as server, RawClient(server.address()) as client:
        client.call(MetadataRequest(None), 8)
        page = Browser(server)
        page.log_in()
        own = f":{client.socket.getsockname()[1]}"
        rows = page("connections")[1]["connections"]
        (there,) = [each["id"] for each in rows if each["client_address"].endswith(own)]
        monkeypatch.setattr(api, "emit", lambda *_arguments, **_options: False)
        status, found = page("close_connection", {"id": there})
        assert client.at_end()
    assert (status, "it is done" in found["error"]) == (503, True)


def test_a_worker_that_has_no_answer_may_have_failed():
    listener = ListenerContext("default", Address("127.0.0.1", 1), Address("127.0.0.1", 1))
    services = ServerServices()
    services.workers = WorkerCalls(lambda *_arguments, **_options: {1: None})
    with pytest.raises(TimeoutError, match="its log has the reason"):
        access.rights_on_cluster(services, listener, "ANONYMOUS", "127.0.0.1")
