"""Tests of the console's view of the audit's latest events."""

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.metadata import MetadataRequest
from tests.unit.console.conftest import CONSOLE, HOSTILE, Browser
from tests.waiting import wait_until


@pytest.fixture
def audited(tmp_path):
    settings = ['listeners.default.observers=["audit"]', f"listeners.default.audit.spool={tmp_path}"]
    with EmbeddedServer([*CONSOLE, *settings]) as running:
        yield running


def test_the_newest_event_is_the_first(audited):
    page = Browser(audited)
    page.log_in()
    audited.create_topic("orders")
    wait_until(lambda: any(row.get("api_name") == "CreateTopics" for row in page("audit")[1]))
    rows = page("audit")[1]
    assert [row["time_us"] for row in rows] == sorted((row["time_us"] for row in rows), reverse=True)
    created = next(row for row in rows if row.get("api_name") == "CreateTopics")
    assert (created["outcome"], created["principal"]) == ("ok", "User:ANONYMOUS")


def test_the_view_has_at_most_a_hundred_events_of_a_stream(audited):
    page = Browser(audited)
    page.log_in()
    with RawClient(audited.address(), client_id=HOSTILE) as client:
        for _ in range(300):
            client.call(MetadataRequest(None), 8)
    for number in range(120):
        audited.create_topic(f"t{number}")
    wait_until(lambda: any("t119" in str(row.get("resources")) for row in page("audit")[1]))
    rows = page("audit")[1]
    assert 100 <= len(rows) <= 300
    assert sum(row.get("api_name") == "CreateTopics" for row in rows) <= 100


def test_the_view_requires_the_right_to_alter_the_cluster(browser, secure):
    assert browser("audit") == (200, [])
    alice = Browser(secure)
    alice.log_in("alice")
    assert alice("audit")[0] == 403
