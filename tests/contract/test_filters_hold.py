"""Tests of filters that hold a message, close the connection, or return a response in bytes.

The handler answers at once or later.
"""

import contextlib
import time

import pytest

from klamm import ApiSet, Provider, RequestFilter, RequestObserver, RequestOutcome, handles, hookimpl
from klamm.filters import Disconnect, EncodedResponse, Hold
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages import heartbeat
from tests.contract.filter_settings import alone_and_stacked, settings_of
from tests.waiting import klamm_threads, wait_until

HELD_MS = 40
EVENTS = []
STACKS = alone_and_stacked()


class Beating(ApiSet):
    """A handler set that answers Heartbeat later if `group_id` ends in "later".

    `member_id` selects what the filters do.
    """

    @handles(heartbeat, versions=heartbeat.VERSIONS, blocking=False)
    def heartbeat(self, request, context):
        EVENTS.append("handler")
        response = heartbeat.HeartbeatResponse(error_code=len(request.member_id))
        if request.group_id.endswith("later"):
            return context.respond_after(1, lambda: response)
        return response


class Outer(RequestFilter):
    api_keys = (heartbeat.API_KEY,)

    def on_request(self, message, context):
        EVENTS.append("outer request")
        return message

    def on_response(self, response, context):
        EVENTS.append("outer response")
        return response


class Inner(RequestFilter):
    api_keys = (heartbeat.API_KEY,)

    def on_request(self, message, context):
        EVENTS.append("inner request")
        context.connection.state["what"] = what = message.member_id
        if what == "hold":
            return Hold(message, HELD_MS)
        if what == "hold long":
            return Hold(message, 60_000)
        if what == "hold nothing":
            return Hold(None, HELD_MS)
        if what == "close":
            raise Disconnect("on purpose", b"last")
        return message

    def on_response(self, response, context):
        EVENTS.append("inner response")
        what = context.connection.state["what"]
        if what == "hold after":
            return Hold(response, HELD_MS)
        if what == "hold long after":
            return Hold(response, 60_000)
        if what == "close after":
            raise Disconnect("on purpose", b"last")
        if what == "bytes":
            return EncodedResponse(b"\0\0\0\7\0\x2a\0")
        return response


class Outcomes(RequestObserver):
    def completed(self, event):
        EVENTS.append(event.outcome)


class Plugin:
    @hookimpl
    def klamm_api_sets(self):
        yield Provider("beating", f"{__name__}:Beating")

    @hookimpl
    def klamm_request_filters(self):
        yield Provider("outer", f"{__name__}:Outer")
        yield Provider("inner", f"{__name__}:Inner")

    @hookimpl
    def klamm_request_observers(self):
        yield Provider("outcomes", f"{__name__}:Outcomes")


BETWEEN = [
    pytest.param(("hybrid", names), id="-".join(names), marks=[] if names == STACKS[-1] else pytest.mark.slow)
    for names in STACKS
]


@pytest.fixture(params=[pytest.param((one, ()), id=one) for one in ("hybrid", "pool")] + BETWEEN)
def server(request, tmp_path):
    """Yield a server with the filters `outer` and `inner`, and klamm's own filters between them."""
    dispatch, names = request.param
    EVENTS.clear()
    before = klamm_threads()
    settings = [f"listeners.default.{one}" for one in ("api_set=beating", f"dispatch={dispatch}")]
    settings += settings_of(("outer", *names, "inner"), tmp_path, observers=("outcomes",))
    with EmbeddedServer(settings, plugins=[Plugin()]) as server:
        yield server
    assert klamm_threads() == before


@pytest.fixture
def client(server):
    with RawClient(server.address()) as client:
        yield client


def ask(what, how="now"):
    return heartbeat.HeartbeatRequest(how, 0, what)


@pytest.mark.parametrize("how", ["now", "later"])
@pytest.mark.parametrize("what", ["hold", "hold after"])
def test_a_held_message_continues_after_its_time(client, what, how):
    started = time.monotonic()
    assert client.call(ask(what, how), 4).error_code == len(what)
    assert time.monotonic() - started >= HELD_MS / 1000
    wait_until(lambda: EVENTS[-1] is RequestOutcome.ANSWERED)
    wanted = ["outer request", "inner request", "handler", "inner response", "outer response"]
    assert EVENTS[:-1] == wanted


def test_only_requests_of_the_same_connection_wait_for_a_held_request(server, client):
    first, second = client.send(ask("hold"), 4), client.send(ask("x"), 4)
    with RawClient(server.address()) as other:
        assert other.call(ask("pass"), 4).error_code == 4
    assert client.receive(heartbeat.API_KEY, 4, first).error_code == 4
    assert client.receive(heartbeat.API_KEY, 4, second).error_code == 1


@pytest.mark.parametrize("how", ["now", "later"])
@pytest.mark.parametrize("what", ["close", "close after"])
def test_a_filter_can_close_the_connection_instead_of_answering(client, what, how, caplog):
    client.send(ask(what, how), 4)
    assert client._take(4) == b"last"
    assert client.at_end()
    assert EVENTS.count("handler") == (what == "close after")
    wait_until(lambda: EVENTS[-1] is RequestOutcome.FAILED)
    assert "closing connection: on purpose" in caplog.text


@pytest.mark.parametrize("how", ["now", "later"])
def test_a_response_in_bytes_passes_no_further_filter(client, how):
    assert client.call(ask("bytes", how), 4).error_code == 42
    assert "outer response" not in EVENTS


def test_a_filter_that_holds_none_causes_an_error(client, caplog):
    assert client.call(ask("hold nothing"), 4).error_code == -1
    assert "expected a HeartbeatRequest or an Answer, got None" in caplog.text


@pytest.mark.parametrize(
    ("what", "how", "outcome"),
    [
        ("hold long", "now", RequestOutcome.LOST_BEFORE),
        ("hold long after", "now", RequestOutcome.LOST_AFTER),
        ("hold long after", "later", RequestOutcome.LOST_AFTER),
    ],
)
def test_a_request_that_is_held_when_the_server_stops_has_an_outcome(server, what, how, outcome):
    with RawClient(server.address()) as client:
        client.send(ask(what, how), 4)
        wait_until(lambda: EVENTS[-1:] == ["inner response" if "after" in what else "inner request"])
        server.stop()
    assert EVENTS[-1] is outcome
    assert EVENTS.count("handler") == ("after" in what)


def test_the_server_stops_while_messages_are_held(server):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(server.address())) for _ in range(4)]
        for client, what in zip(clients, ["hold long", "hold long after"] * 2, strict=True):
            client.send(ask(what), 4)
        wait_until(lambda: EVENTS.count("inner request") == 4)
        started = time.monotonic()
        server.stop()
        assert time.monotonic() - started < 30
        assert all(client.at_end() for client in clients)
