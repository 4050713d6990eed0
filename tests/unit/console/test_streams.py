"""The stream of events with which the page shows what changes."""

import http.client
import json
import socket
import threading

import pytest

from klamm.testing import EmbeddedServer, ManualClock, MovingClock
from klamm_console import live, server_view
from klamm_console.live import Shared, Streams, TooManyStreamsError
from tests.unit.console.conftest import CONSOLE, HOSTILE, Browser, commit
from tests.waiting import wait_until

BLOCKED_BYTES = 64 << 20


class Page:
    """Reads a stream as the page does. Iterate over the kinds and contents of its events; None is a comment."""

    def __init__(self, browser, view, **headers):
        self.connection = http.client.HTTPConnection(*browser.address, timeout=60)
        sent = {"Cookie": browser.cookie, "X-Klamm-Csrf": browser.csrf, **headers}
        self.connection.request("GET", f"/api/events?view={view}", headers=sent)
        self.answer = self.connection.getresponse()
        self.status = self.answer.status

    def __iter__(self):
        while line := self.answer.readline().decode():
            if line.startswith("event: "):
                kind, data = line.removeprefix("event: ").strip(), self.answer.readline().decode()
                yield kind, json.loads(data.removeprefix("data: "))
            elif line.startswith(":"):
                yield None

    def wait_for(self, holds):
        return next(each for each in self if each is not None and holds(*each))

    def close(self):
        self.answer.close()
        self.connection.close()


@pytest.fixture
def open_page():
    opened = []

    def page(*arguments, **headers):
        opened.append(Page(*arguments, **headers))
        return opened[-1]

    yield page
    for each in opened:
        each.close()


@pytest.fixture
def quick(server, browser):
    """A logged-in browser, whose views are looked at without a pause."""
    routes = streams_api(server).routes
    kept = {key: route for key, route in routes.items() if route.every_s}
    for route in kept.values():
        object.__setattr__(route, "every_s", 0.001)
    yield browser
    for key, every_s in (("server", 2), ("connections", 2), ("groups", 10), ("transactions", 5), ("audit", 5)):
        object.__setattr__(routes["GET", key], "every_s", every_s)


def streams_api(server):
    return server.server.extensions[0].api


def is_free(server):
    return not streams_api(server).streams._open


def test_a_stream_has_the_view_at_once_and_each_time_that_it_changes(quick, server, open_page):
    page = open_page(quick, "groups")
    assert (page.status, page.answer.headers["Content-Type"]) == (200, "text/event-stream")
    events = iter(page)
    assert next(events) == ("view", [])
    assert next(events) is None, "the same view is not sent again"
    server.create_topic("t")
    server.produce("t", "a")
    commit(server, HOSTILE, "t", 0)
    _, rows = page.wait_for(lambda kind, rows: kind == "view" and rows)
    assert [(row["name"], row["lag"]) for row in rows] == [(HOSTILE, 1)]


@pytest.mark.parametrize("view", ["server", "connections", "groups", "transactions", "audit"])
def test_each_view_that_changes_has_a_stream(browser, open_page, view):
    page = open_page(browser, view)
    kind, content = next(iter(page))
    now = browser(view)[1]
    assert (kind, type(content)) == ("view", type(now))
    if isinstance(content, dict):
        assert content.keys() == now.keys()


@pytest.mark.parametrize("view", ["", "topics", "events", "none", "login"])
def test_other_views_have_none(browser, open_page, view):
    page = open_page(browser, view)
    assert (page.status, b"must be one of server, connections" in page.answer.read()) == (400, True)


def test_a_stream_needs_the_cookie_and_the_secret_of_the_page(browser, open_page, server):
    for lacking in ({"X-Klamm-Csrf": ""}, {"X-Klamm-Csrf": browser.csrf[:-1]}, {"Cookie": ""}):
        assert open_page(browser, "server", **lacking).status == 401
    assert open_page(browser, "server", Host="evil.example:80").status == 421
    wait_until(lambda: is_free(server))


def test_a_stream_needs_the_right_of_its_view(secure, open_page):
    alice = Browser(secure)
    alice.log_in("alice")
    assert [open_page(alice, view).status for view in ("server", "connections", "audit")] == [403] * 3
    assert open_page(alice, "groups").status == 200


def test_a_stream_ends_with_the_session(quick, server, open_page):
    page = open_page(quick, "transactions")
    next(iter(page))
    assert quick("logout", {})[0] == 200
    events = [each for each in page if each is not None]
    assert events == [("end", {"error": "log in first", "name": ""})]
    wait_until(lambda: is_free(server))


def test_a_stream_does_not_keep_an_absent_user_logged_in(open_page):
    with EmbeddedServer(CONSOLE, clock=MovingClock()) as running:
        browser = Browser(running)
        browser.log_in()
        page = open_page(browser, "transactions")
        next(iter(page))
        running.advance_ms(29 * 60_000)
        # The stream looks, and so does a page that has none.
        assert browser("server", **{"X-Klamm-Live": "1"})[0] == 200
        assert open_page(browser, "audit", **{"X-Klamm-Live": "1"}).status == 200
        running.advance_ms(2 * 60_000)
        assert page.wait_for(lambda kind, _: kind == "end")[1]["error"] == "log in first"


def test_a_problem_is_shown_and_the_stream_goes_on(quick, open_page, monkeypatch):
    page = open_page(quick, "server")
    next(iter(page))
    with monkeypatch.context() as patched:
        patched.setattr(server_view, "overview", lambda _services: (_ for _ in ()).throw(ConnectionResetError("gone")))
        _, problem = page.wait_for(lambda kind, _: kind == "problem")
        assert "gone" in problem["error"]
    assert "stages" in page.wait_for(lambda kind, _: kind == "view")[1]


def test_a_stream_that_fails_ends_and_the_log_has_the_reason(quick, open_page, monkeypatch, caplog):
    page = open_page(quick, "server")
    next(iter(page))
    monkeypatch.setattr(server_view, "overview", lambda _services: 1 / 0)
    assert "the log has the reason" in page.wait_for(lambda kind, _: kind == "end")[1]["error"]
    assert "ZeroDivisionError" in caplog.text


def test_streams_of_one_user_and_of_all_are_limited(browser, server, open_page, monkeypatch):
    # Those of other tests may not have noticed yet that their pages have left.
    streams_api(server).streams.end_all()
    wait_until(lambda: is_free(server))
    monkeypatch.setattr(live, "MAX_OF_ONE_USER", 2)
    first, *_ = [open_page(browser, "audit") for _ in range(3)]
    assert list(first), "the oldest ends to make room"
    wait_until(lambda: len(streams_api(server).streams._open) == 2)
    monkeypatch.setattr(live, "MAX_STREAMS", 2)
    assert open_page(browser, "audit").status == 503


def test_a_client_that_has_left_is_noticed(quick, server, open_page):
    page = open_page(quick, "groups")
    next(iter(page))
    page.connection.sock and page.connection.sock.shutdown(socket.SHUT_RDWR)
    page.close()
    wait_until(lambda: is_free(server))


def test_no_events_pile_up_for_a_client_that_does_not_read(quick, server, open_page, monkeypatch):
    looked, text = [], "x" * BLOCKED_BYTES

    def overview(_services):
        looked.append(len(looked))
        return {"number": len(looked), "text": text}

    monkeypatch.setattr(server_view, "overview", overview)
    page = open_page(quick, "server")
    assert page.status == 200
    # The first event is larger than what the system keeps: the next one is made when it has been read.
    assert len(looked) == 1
    _, second = [page.wait_for(lambda kind, _: kind == "view")[1]["number"] for _ in range(2)]
    assert second == 2
    page.close()
    wait_until(lambda: is_free(server))


def test_streams_end_when_the_server_stops(open_page):
    with EmbeddedServer(CONSOLE) as running:
        browser = Browser(running)
        browser.log_in()
        page = open_page(browser, "audit")
        next(iter(page))
    assert [each for each in page if each is not None] == []


def test_a_head_request_opens_no_stream(browser, server):
    assert browser.send("HEAD", "/api/events?view=server") == (200, b"")
    wait_until(lambda: is_free(server))


def test_a_view_of_the_server_is_computed_once_for_all_streams():
    clock, computed = ManualClock(), []
    view = Shared(clock, lambda: computed.append(0) or len(computed))
    threads = [threading.Thread(target=view, kwargs={"is_live": True}) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(computed) == 1
    clock.advance_ms(999)
    assert view(is_live=True) == 1
    clock.advance_ms(1)
    assert view(is_live=True) == 2
    assert view(is_live=False) == 3, "a single request gets what holds now"


def test_the_places_of_streams_are_free_when_they_are_closed():
    streams = Streams()
    opened = [streams.open(f"user {number}", [], lambda: ("view", []), 60) for number in range(live.MAX_STREAMS)]
    with pytest.raises(TooManyStreamsError):
        streams.open("one more", [], lambda: ("view", []), 60)
    opened[0].close()
    assert streams.open("one more", [], lambda: ("view", []), 60)


def test_clients_of_one_user_that_do_not_read_leave_places_for_others():
    streams = Streams()
    opened = [streams.open("one", [], lambda: ("view", []), 60) for _ in range(2 * live.MAX_OF_ONE_USER)]
    half = [True] * live.MAX_OF_ONE_USER
    assert [each.ends.is_set() for each in opened] == [*half, *(not each for each in half)]
    with pytest.raises(TooManyStreamsError):
        streams.open("one", [], lambda: ("view", []), 60)
    assert streams.open("another", [], lambda: ("view", []), 60)
    # The first one has been cut.
    opened[0].close()
    assert streams.open("one", [], lambda: ("view", []), 60)
