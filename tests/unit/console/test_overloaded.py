"""The console of a server whose listener does not answer: a user with the token sees what needs no answer."""

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm_console import entry
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


def test_a_server_without_memory_is_seen(browser, monkeypatch):
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
