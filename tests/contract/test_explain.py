"""Ten staged overloads of a real server: each is answered by `klamm explain`, `top`, `connections` and the console."""

import json
from threading import Event

import pytest

from klamm.testing import RawClient
from klamm.wire.messages.metadata import MetadataRequest
from klamm_metrics import connections, explain, top
from klamm_metrics.exporter import PrometheusExporter
from tests.overloads import OVERLOADS, TRYING, Staging
from tests.unit.console.conftest import Browser
from tests.waiting import wait_until
from tools import overloads

STAGING = Staging("prometheus", "console", name=lambda role: f"the-{role}")


def exporter(server):
    """Return the address of the server's metrics."""
    (found,) = (each for each in server.server.extensions if isinstance(each, PrometheusExporter))
    host, port = found.address
    return f"{host}:{port}"


def explained(server, capsys):
    """Return what the command finds, the worst first."""
    assert explain.main([exporter(server), "--interval", "1.2", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def names(found, overload):
    """Return True if the worst finding is the stage that limits, with what to look at."""
    texts = " ".join(found[0]["look_at"]) if found else ""
    return (
        bool(found)
        and found[0]["stage"] == overload.stage
        and all(text.format_map(STAGING) in texts for text in overload.look_at)
    )


def test_ten_overloads_are_staged():
    assert len(OVERLOADS) >= 10


@pytest.mark.parametrize("overload", OVERLOADS.values(), ids=list(OVERLOADS))
def test_an_overload_is_named_with_what_to_look_at(overload, capsys):
    with overload.staged(STAGING) as server:
        wait_until(lambda: names(explained(server, capsys), overload))
        top_names(server, overload, capsys)
        if overload.role:
            connections_name(server, overload, capsys)
        the_console_names(server, overload)


def top_names(server, overload, capsys):
    """Wait until `klamm top` shows the stage below `limits now`."""

    def shown():
        assert top.main([exporter(server), "--once", "--interval", "1.2"]) == 0
        text = capsys.readouterr().out
        return f"limits now:\n  {overload.stage}: " in text and (not overload.role or STAGING[overload.role] in text)

    wait_until(shown)


def connections_name(server, overload, capsys):
    """Wait until one of the orders of `klamm connections` has the client that causes it first."""
    asked = {
        "send": ["--sort", "unsent"],
        "pool": ["--sort", "held"],
        "queue": ["--filter", "waits_for=handler"],
        "quota": ["--filter", "waits_for=throttle"],
    }
    options = asked.get(overload.stage, ["--sort", "time"])

    def first():
        assert connections.main([exporter(server), "--json", "--interval", "0.5", *options]) == 0
        rows = json.loads(capsys.readouterr().out)["connections"]
        return rows and rows[0]["client_id"] == STAGING[overload.role]

    wait_until(first)


CONSOLE_ORDERS = {"disk": "handler_ms", "queue": "in_flight_ms", "pool": "held_bytes", "send": "unsent_bytes"}
"""The value of connections that has the client who causes it first, by stage."""


def the_console_names(server, overload):
    """Wait until the console has the stage and what to look at, and the client in its connections."""
    browser = Browser(server)
    assert browser.log_in()[0] == 200

    def shown():
        status, found = browser("server")
        assert status == 200
        return names(found["limits"], overload)

    wait_until(shown)
    status, found = browser("connections")
    assert status == 200
    if overload.role:
        key = CONSOLE_ORDERS.get(overload.stage, "processor_ms")
        rows = [row for row in found["connections"] if overload.stage != "quota" or row["waits_for"] == "throttle"]
        assert max(rows, key=lambda row: row[key])["client_id"] == STAGING[overload.role]


def test_operators_can_stage_each_overload(capsys):
    was = set()
    for number in range(1, len(OVERLOADS) + 1):
        assert overloads.main([str(number), "--seed", "a drill", "--seconds", "0"], Event()) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines[:4]] == ["seed", "listener", "prometheus", "console"]
        was.add(lines[-1].removeprefix("it was ").partition(":")[0])
        assert "blocking" not in lines[-1]
    assert was == OVERLOADS.keys()


def test_nothing_limits_an_idle_server(capsys):
    with STAGING.serving(TRYING) as server, RawClient(server.address()) as client:
        client.call(MetadataRequest(topics=None), 12)
        assert explained(server, capsys) == []
        assert explain.main([exporter(server), "--interval", "0.2"]) == 0
        line = capsys.readouterr().out
    assert line.startswith("nothing limits this server now; the busiest: client raw of User:ANONYMOUS at 127.0.0.1")
