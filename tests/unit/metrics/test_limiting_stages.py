"""Tests of the rules that find the limits of a server in two samples: each rule, and their order."""

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


LISTENER = {
    "listener": "default",
    "waiting": 0,
    "accepted_on": "the thread klamm-acceptor-default",
    "gate": "",
    "gate_ms": 0,
    "api_set": "broker",
    "authorizer": "",
    "apis": {},
}
CLIENT = "client app of User:a at 10.0.0.1"


def found(now, before="", rows=(), unanswered=(), listeners=()):
    """Return the findings of two samples, ten seconds apart."""
    seen = Difference(Snapshot.parse(f"{now}\n", 20.0), Snapshot.parse(f"{before}\n", 10.0))
    looked = {"connections": [{**ROW, **row} for row in rows], "unanswered": list(unanswered)}
    return findings(seen, {**looked, "listeners": [{**LISTENER, **one} for one in listeners]})


def stages(*arguments, **more):
    return [finding.stage for finding in found(*arguments, **more)]


def test_an_idle_server_has_no_findings():
    assert found("klamm_requestchannel_queuecapacity 500", rows=[{}]) == []


def test_a_full_queue_precedes_the_handlers_that_cause_it():
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
    assert f"Produce of {CLIENT}: 2 in handlers, the oldest for 0.0 s" in handler.look_at


def test_a_full_queue_names_the_request_that_keeps_a_handler():
    now = "klamm_requestchannel_queuecapacity 2\nkafka_network_requestchannel_requestqueuesize 2"
    rows = [
        {"waits_for": "queue", "client_id": "victim"},
        {"waits_for": "handler", "api": "Heartbeat", "in_flight_ms": 13_000},
        {"waits_for": "handler", "api": "Metadata", "in_flight_ms": 1_000},
    ]
    (queue,) = found(now, rows=rows)
    assert queue.look_at[0] == f"behind handlers: Heartbeat of {CLIENT} is there for 13.0 s"
    assert "client victim of User:a at 10.0.0.1: 1 request waits" in queue.look_at
    assert "behind" not in found(now, rows=[{**rows[1], "in_flight_ms": 10}])[0].look_at[0]


def full_backlog(**listener):
    labels = 'listener="default"'
    now = f"klamm_acceptor_acceptqueuesize{{{labels}}} 5\nklamm_acceptor_acceptqueuelimit{{{labels}}} 4"
    (accept,) = found(now, listeners=[listener])
    return accept


def test_a_full_backlog_names_the_gate_that_keeps_the_acceptor():
    accept = full_backlog(gate="held", gate_ms=12_340.0)
    assert accept.text == "5 connections wait to be accepted by listener default, which accepts none; its queue is full"
    gate = "gate held of [listeners.default] gates has not returned for 12.3 s, on the thread klamm-acceptor-default"
    assert accept.look_at[0] == gate


def test_a_full_backlog_without_a_known_cause_names_what_may_keep_the_acceptor():
    text = "gates, max_incoming and processors of [listeners.default]: one of them keeps the acceptor"
    assert full_backlog().look_at[0] == text


def test_a_gate_that_pauses_the_acceptor_is_named_with_its_listener():
    labels = 'listener="default"'
    now = (
        f"klamm_acceptor_blockedseconds_total{{{labels}}} 10\n"
        f'klamm_acceptor_connectionspaused_total{{{labels},reason="office_hours"}} 1'
    )
    (accept,) = found(now)
    assert accept.look_at == ("the gate with reason office_hours of [listeners.default] gates pauses the acceptor",)


def test_syncs_name_the_clients_and_topics_that_wait_for_them():
    sync = "kafka_log_logflushstats_logflushrateandtimems"
    now = (
        f"{sync}_sum 8000\n{sync}_count 160\n"
        'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 20480\n'
        'kafka_server_brokertopicmetrics_bytesin_total{topic="quiet"} 0'
    )
    (disk,) = found(now, rows=[{"api": "Produce", "waits_for": "handler"}, {"client_id": "idle"}])
    assert disk.text == "the disk syncs for 80% of the time: 16.0 syncs/s, 50.0 ms each"
    assert disk.look_at[:2] == (f"{CLIENT}: 1 request in flight", "topic orders: 2 KiB/s")
    (disk,) = found(now, rows=[{"processor_share": 0.7}, {"client_id": "idle"}])
    assert disk.look_at[:2] == (f"{CLIENT}: 70% of a thread", "topic orders: 2 KiB/s")


def test_an_empty_pool_names_only_clients_that_hold_much_and_their_requests():
    rows = [
        {"held_bytes": 90_112, "waits_for": "handler", "api": "Heartbeat", "in_flight_ms": 13_000},
        {"held_bytes": 10_240, "waits_for": "memory", "client_id": "victim"},
    ]
    (pool,) = found("kafka_server_socket_server_metrics_memorypooldepletedtime_total 5e9", rows=rows)
    inside = "88 KiB of it in requests in handlers: Heartbeat for 13.0 s"
    assert pool.look_at[0] == f"{CLIENT} holds 88 KiB, {inside}"
    assert "victim" not in " ".join(pool.look_at)


def test_parts_that_compute_are_named():
    now = (
        f"klamm_processor_busyseconds_total{PROCESSOR} 10\nprocess_cpu_seconds_total 9\n"
        'kafka_network_requestmetrics_localtimems_sum{request="Metadata"} 9000\n'
        'kafka_network_requestmetrics_localtimems_count{request="Metadata"} 100'
    )
    apis = {"Metadata": {"filters": ["tenants", "computing"], "inline": True}}
    first = found(now, listeners=[{"apis": apis, "authorizer": "acl", "worker": n} for n in range(2)])[0]
    text = (
        "the plugins and the handler set that see Metadata on listener default: "
        "filter tenants, filter computing, authorizer acl, handler set broker; they run on the processor's thread"
    )
    assert first.look_at == (text, "dispatch of the listener, [server] workers")


def test_a_number_of_one_has_no_plural():
    (slow,) = found("", rows=[{"waits_for": "client reads", "quiet_ms": 2000, "unsent_bytes": 10, "held_bytes": 12}])
    assert slow.look_at[0] == f"{CLIENT} holds 12 B; 10 B are unsent"
    assert slow.text == "1 connection does not read its answers; 10 B are unsent"
    (quota,) = found("", rows=[{"waits_for": "throttle"}])
    assert quota.text == "throttled connections: 1 of 1"


def test_a_quota_whose_throttle_lasts_longer_than_the_rates_is_named():
    counted = 'klamm_clientquota_throttledrequests_total{{quota="{}"}} {}'
    now = "\n".join([counted.format("producer_byte_rate", 1), counted.format("request_percentage", 0)])
    (quota,) = found(now, before=now, rows=[{"waits_for": "throttle"}])
    assert quota.look_at == (f"{CLIENT}: 1 connection", "quota producer_byte_rate")


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
def test_a_slow_append_is_attributed_to_the_disk_unless_it_computes(computing, stage):
    now = (
        f"klamm_processor_busyseconds_total{PROCESSOR} 10\nprocess_cpu_seconds_total {computing}\n"
        'kafka_network_requestmetrics_localtimems_sum{request="Produce"} 9000\n'
        'kafka_network_requestmetrics_localtimems_count{request="Produce"} 100'
    )
    first = found(now)[0]
    assert first.stage == stage
    assert "90.0 ms a request" in first.text


def test_threads_that_wait_for_the_interpreter_are_named():
    now = (
        f"klamm_processor_busyseconds_total{PROCESSOR} 10\nprocess_cpu_seconds_total 10\n"
        "klamm_requesthandlerpool_size 8\nklamm_requesthandlerpool_busyseconds_total 20"
    )
    assert stages(now)[0] == "interpreter"


def test_each_other_rule_finds_its_stage():
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
