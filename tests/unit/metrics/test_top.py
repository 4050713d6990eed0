"""Tests of `klamm top`: its output about metrics, and servers that do not answer."""

import io
import socket

import pytest
from rich.console import Console

from klamm_metrics.explain import main as explain
from klamm_metrics.snapshot import Difference, Snapshot
from klamm_metrics.top import frame, main

METRICS = """\
klamm_acceptor_acceptqueuesize{{listener="default"}} {size}
klamm_acceptor_acceptqueuesize{{listener="inner"}} 0
klamm_acceptor_acceptqueuelimit{{listener="default"}} 1024
klamm_acceptor_acceptqueuelimit{{listener="inner"}} 50
klamm_acceptor_listenoverflows_total {overflows}
"""


def printed(seen, looked=None):
    file = io.StringIO()
    Console(file=file, width=160).print(frame(seen, "http://here/metrics", looked))
    return [line.split() for line in file.getvalue().splitlines()]


def test_queues_of_new_connections_are_shown_and_how_many_found_them_full():
    before = Snapshot.parse(METRICS.format(size=0, overflows=100), 10.0)
    now = Snapshot.parse(METRICS.format(size=700, overflows=130), 12.0)
    lines = printed(Difference(now, before))
    assert ["default", "700", "1,024", "0%", "15/s,", "130", "in", "all"] in lines
    assert ["inner", "0", "50", "0%"] in lines


SECONDS = """\
kafka_network_processor_idle_percent{{listener="default",networkProcessor="0"}} 0.79
klamm_processor_busyseconds_total{{listener="default",networkProcessor="0"}} {busy}
klamm_requesthandlerpool_busyseconds_total {handlers}
klamm_requesthandlerpool_size 4
klamm_requestchannel_lanesize{{lane="all"}} 3
klamm_acceptor_acceptqueuesize{{listener="default"}} 0
klamm_acceptor_acceptqueuelimit{{listener="default"}} 100
klamm_acceptor_blockedseconds_total{{listener="default"}} {blocked}
klamm_memorypool_evictions_total {evictions}
klamm_listener_idleconnectionsclosed_total{{listener="default"}} {evictions}
kafka_server_socket_server_metrics_failed_authentication_total{{listener="default"}} {evictions}
klamm_client_requests_total{{client_id="light",principal="User:a",host="h",listener="default"}} {many}
klamm_client_requests_total{{client_id="heavy",principal="User:a",host="h",listener="default"}} {busy}
klamm_client_processorseconds_total{{client_id="heavy",principal="User:a",host="h",listener="default"}} {busy}
klamm_client_processorseconds_total{{client_id="light",principal="User:a",host="h",listener="default"}} 0
"""


def test_shares_cover_the_interval_and_the_busiest_client_is_first():
    before = Snapshot.parse(SECONDS.format(busy=0, handlers=0, blocked=0, evictions=0, many=0), 10.0)
    now = Snapshot.parse(SECONDS.format(busy=2, handlers=4, blocked=1, evictions=8, many=9000), 12.0)
    lines = printed(Difference(now, before))
    assert any(line[:3] == ["default", "0", "100%"] for line in lines), "not 21 %, as over the server's window"
    assert any(line[:4] == ["all", "3", "4", "50%"] for line in lines)
    assert any(line[:4] == ["default", "0", "100", "50%"] for line in lines)
    assert ["failed", "logins", "4/s", "idle", "closes", "4/s", "memory", "evictions", "4/s"] in lines
    clients = [line[0] for line in lines if line[:1] in (["heavy"], ["light"])]
    assert clients == ["heavy", "light"]


DISK = """\
kafka_log_logflushstats_logflushrateandtimems_sum {ms}
kafka_log_logflushstats_logflushrateandtimems_count {count}
kafka_network_requestmetrics_localtimems_sum{{request="Produce"}} {ms}
kafka_server_brokertopicmetrics_bytesin_total {ms}
kafka_server_brokertopicmetrics_bytesin_total{{topic="t"}} {ms}
"""
SLOW = {
    "id": "1",
    "listener": "default",
    "processor": 0,
    "client_id": "[red]slow",
    "client_address": "10.0.0.1:5000",
    "principal": "User:a",
    "waits_for": "client reads",
    "api": "Fetch",
    "in_flight_ms": 5000,
    "quiet_ms": 4000,
    "unsent_bytes": 2048,
    "held_bytes": 4096,
    "processor_share": 0.0,
    "handler_share": 0.0,
}


def test_a_slow_disk_and_slow_readers_are_shown_below_what_limits_the_server():
    before = Snapshot.parse(DISK.format(ms=0, count=0), 10.0)
    seen = Difference(Snapshot.parse(DISK.format(ms=1600, count=32), 12.0), before)
    looked = {"connections": [SLOW, {**SLOW, "unsent_bytes": 0, "waits_for": ""}], "unanswered": []}
    lines = printed(seen, looked)
    assert ["limits", "now:"] in lines
    assert [line[0] for line in lines if line[:1] in (["disk:"], ["send:"])] == ["disk:", "send:"]
    assert ["80%", "████████░░", "16", "50", "800", "B", "0.80", "0.00"] in lines
    assert ["[red]slow", "User:a", "10.0.0.1:5000", "5,000", "2", "KiB", "4", "KiB"] in lines
    assert not [line for line in printed(seen, {**looked, "connections": []}) if line[:3] == ["Clients", "that", "do"]]


def test_what_limits_the_server_is_unknown_without_its_connections_and_metrics():
    first = Snapshot.parse("klamm_requestchannel_queuecapacity 4\n", 1.0)
    assert ["limits", "now:", "unknown", "without", "the", "connections:", "401"] in printed(
        Difference(first, None), "401"
    )
    looked = {"connections": [], "unanswered": []}
    unknown = "limits now: unknown without klamm_processor_busyseconds_total: see [prometheus] include"
    assert unknown.split() in printed(Difference(first, None), looked)
    whole = Snapshot.parse("klamm_processor_busyseconds_total 4\n", 1.0)
    assert ["limits", "now:", "nothing"] in printed(Difference(whole, None), looked)


def test_a_client_that_was_not_listed_before_has_no_rates():
    before = Snapshot.parse("klamm_requesthandlerpool_size 4\n", 10.0)
    now = Snapshot.parse(SECONDS.format(busy=500, handlers=0, blocked=0, evictions=0, many=9000), 12.0)
    assert not [line for line in printed(Difference(now, before)) if line[:1] in (["heavy"], ["light"])]


def test_names_of_clients_cannot_control_the_terminal():
    name = "\\\\[/x][red]\\x1b[2J"
    text = f'klamm_requestchannel_lanesize{{lane="{name}"}} 3\n'
    (line,) = [line for line in printed(Difference(Snapshot.parse(text, 1.0), None)) if "3" in line[1:2]]
    assert line[0].startswith("\\[/x][red]")
    assert "\x1b" not in line[0]


def test_the_table_of_queues_is_empty_on_systems_without_them():
    first = Snapshot.parse("kafka_network_requestchannel_requestqueuesize 0\n", 1.0)
    assert ["Queues", "of", "new", "connections"] in printed(Difference(first, None))


def test_a_refused_connection_is_reported_in_the_systems_words(capsys):
    with socket.socket() as unheard:
        # The port is bound, and no process listens.
        unheard.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
        assert main(["--once", address]) == 1
    assert capsys.readouterr().err == (
        f"klamm top: http://{address}/metrics: Connection refused;"
        ' the server needs [server] extensions = ["prometheus"]\n'
    )


def test_errors_of_explain_name_the_command(capsys):
    with pytest.raises(SystemExit):
        explain(["--help"])
    assert capsys.readouterr().out.startswith("usage: klamm explain ")
