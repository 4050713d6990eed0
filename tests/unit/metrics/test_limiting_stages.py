"""What limits a server, from two samples: one rule at a time, and their order."""

import pytest

from klamm_metrics.limiting_stages import findings
from klamm_metrics.snapshot import Difference, Snapshot

PROCESSOR = '{listener="default",networkProcessor="0"}'
ROW = {
    "id": "1",
    "listener": "default",
    "processor": 0,
    "client_id": "app",
    "client_address": "10.0.0.1:5000",
    "principal": "User:a",
    "waits_for": "",
    "api": "",
    "in_flight_ms": 0,
    "quiet_ms": 0,
    "unsent_bytes": 0,
    "held_bytes": 0,
    "processor_share": 0.0,
    "handler_share": 0.0,
}


def found(now, before="", rows=(), unanswered=()):
    """The findings of two samples, ten seconds apart."""
    seen = Difference(Snapshot.parse(f"{now}\n", 20.0), Snapshot.parse(f"{before}\n", 10.0))
    return findings(seen, {"connections": [{**ROW, **row} for row in rows], "unanswered": list(unanswered)})


def stages(*arguments, **more):
    return [finding.stage for finding in found(*arguments, **more)]


def test_an_idle_server_has_no_findings():
    assert found("klamm_requestchannel_queuecapacity 500", rows=[{}]) == []


def test_a_full_queue_comes_before_the_handlers_that_fill_it():
    now = (
        "klamm_requestchannel_queuecapacity 4\nkafka_network_requestchannel_requestqueuesize 4\n"
        "klamm_requestchannel_oldestrequestagems 1200\n"
        "klamm_requesthandlerpool_size 2\nklamm_requesthandlerpool_busyseconds_total 20"
    )
    rows = [{"waits_for": "queue"}] * 4 + [{"waits_for": "handler", "api": "Produce", "handler_share": 1.0}] * 2
    queue, handler = found(now, rows=rows)
    assert (queue.stage, handler.stage) == ("queue", "handler")
    assert "4 of 4 requests" in queue.text
    assert "1,200 ms" in queue.text
    assert "client app of User:a at 10.0.0.1: 4 requests wait" in queue.look_at
    assert "2 requests Produce run" in handler.look_at


def test_a_hot_processor_is_named_with_the_client_that_uses_it():
    rows = [{"processor_share": 0.8}, {"client_id": "light", "processor_share": 0.1}]
    (hot,) = found(f"klamm_processor_busyseconds_total{PROCESSOR} 9.5", rows=rows)
    assert hot.stage == "processor"
    assert "95% of the time, most of it for one client" in hot.text
    assert hot.look_at[0] == "client app of User:a at 10.0.0.1: 80% of the thread"


def test_the_time_of_several_workers_is_their_mean():
    assert stages(f"klamm_workers_ready 4\nklamm_processor_busyseconds_total{PROCESSOR} 20") == []
    assert stages(f"klamm_workers_ready 4\nklamm_processor_busyseconds_total{PROCESSOR} 39") == ["processor"]


def test_a_processor_that_does_not_answer_is_the_worst():
    kept = {"listener": "default", "processor": 0, "turn_ms": 5000.0}
    now = f"klamm_processor_busyseconds_total{PROCESSOR} 10"
    assert "5,000 ms" in found(now, unanswered=[kept])[0].text


@pytest.mark.parametrize(("computing", "stage"), [(9, "handler"), (1, "disk")])
def test_a_slow_append_is_the_disks_unless_it_computes(computing, stage):
    now = (
        f"klamm_processor_busyseconds_total{PROCESSOR} 10\nprocess_cpu_seconds_total {computing}\n"
        'kafka_network_requestmetrics_localtimems_sum{request="Produce"} 9000\n'
        'kafka_network_requestmetrics_localtimems_count{request="Produce"} 100'
    )
    first = found(now)[0]
    assert first.stage == stage
    assert "90.0 ms a request" in first.text


def test_threads_that_wait_for_the_interpreter():
    now = (
        f"klamm_processor_busyseconds_total{PROCESSOR} 10\nprocess_cpu_seconds_total 10\n"
        "klamm_requesthandlerpool_size 8\nklamm_requesthandlerpool_busyseconds_total 20"
    )
    assert stages(now)[0] == "interpreter"


def test_other_rules():
    gauge = 'listener="default"'
    assert stages(f"klamm_acceptor_blockedseconds_total{{{gauge}}} 5") == ["accept"]
    assert stages(f"klamm_acceptor_acceptqueuesize{{{gauge}}} 9\nklamm_acceptor_acceptqueuelimit{{{gauge}}} 10") == [
        "accept"
    ]
    assert stages(f"klamm_listener_waitinghandshakes{{{gauge}}} 9") == ["handshake"]
    assert stages("kafka_server_socket_server_metrics_memorypooldepletedtime_total 5e9") == ["pool"]
    assert stages("kafka_log_logflushstats_logflushrateandtimems_sum 8000") == ["disk"]
    assert stages("", rows=[{"waits_for": "client reads", "quiet_ms": 2000, "unsent_bytes": 10}]) == ["send"]
    assert stages("", rows=[{"waits_for": "client reads", "quiet_ms": 20, "unsent_bytes": 10}]) == []
    assert stages("", rows=[{"waits_for": "throttle"}]) == ["quota"]
