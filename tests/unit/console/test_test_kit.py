"""Tests of the console's page of a server for tests: faults, nodes, time and the timeline."""

import pytest

from klamm.testing import EmbeddedServer, MovingClock, RawClient
from klamm.wire.messages.metadata import MetadataRequest
from tests.unit.console.conftest import CONSOLE, Browser

KIT = [
    *CONSOLE,
    'listeners.default.filters=["faults"]',
    'listeners.default.observers=["recording"]',
]


@pytest.fixture(scope="module")
def kit():
    with EmbeddedServer(KIT, nodes=2, clock=MovingClock()) as running:
        yield running


@pytest.fixture
def page(kit):
    kit.reset()
    made = Browser(kit)
    assert made.log_in()[1]["has_test_kit"]
    return made


def test_a_fault_is_added_fires_and_is_removed(kit, page):
    assert page("add_fault", {"kind": "disconnect", "api": "Metadata", "count": 1, "topic": ""})[0] == 200
    with RawClient(kit.address()) as client:
        client.send(MetadataRequest(None), 8)
        assert client.at_end()
    (fault,) = page("test_kit")[1]["faults"]
    assert (fault["kind"], fault["fired"]) == ("disconnect", 1)
    assert page("add_chaos", {})[0] == 200
    assert len(page("test_kit")[1]["faults"]) > 5
    assert page("clear_faults", {})[0] == 200
    assert page("test_kit")[1]["faults"] == []


def test_a_fault_that_closes_each_connection_can_be_removed(kit, page):
    assert page("add_fault", {"kind": "disconnect"})[0] == 200
    kit.advance_ms(11_000)
    assert page("test_kit")[0] == 200
    assert page("clear_faults", {})[0] == 200
    kit.advance_ms(11_000)
    assert page("server")[0] == 200


def test_the_node_of_the_console_can_be_started_again(kit, page):
    assert page("set_node", {"node": 1, "running": False})[0] == 200
    kit.advance_ms(11_000)
    assert page("set_node", {"node": 1, "running": True})[0] == 200
    assert [row["running"] for row in page("test_kit")[1]["nodes"]] == [True, True]


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({}, "kind"),
        ({"kind": "error"}, "needs an error"),
        ({"kind": "delay", "delay_ms": -1}, "delay_ms"),
        ({"kind": "delay", "delay_ms": "soon"}, "delay_ms"),
        ({"kind": "disconnect", "api": ["Metdata"]}, "did you mean"),
        ({"kind": ["error"]}, "kind"),
        ({"kind": "disconnect", "probability": 2}, "probability"),
    ],
)
def test_an_invalid_rule_is_refused_with_a_reason(page, rule, reason):
    status, answer = page("add_fault", rule)
    assert status == 400
    assert reason in answer["error"]
    assert page("test_kit")[1]["faults"] == []


def test_a_node_stops_and_starts(page):
    assert page("set_node", {"node": 2, "running": False})[0] == 200
    assert [row["running"] for row in page("test_kit")[1]["nodes"]] == [True, False]
    assert page("set_node", {"node": 2, "running": True})[0] == 200
    assert [row["running"] for row in page("test_kit")[1]["nodes"]] == [True, True]


@pytest.mark.parametrize(
    "body", [{}, {"node": "2", "running": True}, {"node": 2, "running": 1}, {"node": 9, "running": True}]
)
def test_an_unknown_node_is_refused(page, body):
    assert page("set_node", body)[0] in (400, 409)


def test_the_time_can_be_moved_forward_only(page):
    before = page("test_kit")[1]["wall_ms"]
    assert page("advance_time", {"advance_ms": 3_600_000})[0] == 200  # The user stays logged in.
    assert page("test_kit")[1]["wall_ms"] >= before + 3_600_000
    for wrong in (0, -1, 1.5, True, "1", 10**20):
        assert page("advance_time", {"advance_ms": wrong})[0] == 400


def test_the_timeline_is_shown(kit, page):
    kit.create_topic("orders")
    kit.produce("orders", "a")
    with RawClient(kit.address()) as client:
        client.call(MetadataRequest(None), 8)
    assert "Metadata" in page("timeline")[1]["text"]


def test_a_server_without_parts_for_tests_says_so(browser):
    assert browser("test_kit")[1]["faults"] is None
    assert browser("test_kit")[1]["has_timeline"] is False
    assert browser("add_fault", {"kind": "disconnect"})[0] == 409
    assert browser("timeline")[1]["text"] == ""


def test_the_page_requires_the_right_to_alter_the_cluster(secure):
    alice, admin = Browser(secure), Browser(secure)
    assert alice.log_in("alice")[0] == 200
    assert admin.log_in("admin")[0] == 200
    seen = []
    secure.server.services.admin_events.subscribe(seen.append)
    before = admin("test_kit")[1]["wall_ms"]
    assert [alice(view)[0] for view in ("test_kit", "timeline")] == [403, 403]
    assert alice("advance_time", {"advance_ms": 86_400_000})[0] == 403
    assert admin("test_kit")[1]["wall_ms"] < before + 86_400_000
    (event,) = [each for each in seen if each.action == "advance_time"]
    assert event.failed
    assert "alice" in event.detail
