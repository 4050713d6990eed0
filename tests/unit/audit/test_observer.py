"""Tests of the observer: its callbacks cause the right events in the spool."""

import gc
import json
import weakref

import jsonschema
import pytest

from klamm import ANONYMOUS, Address, KafkaPrincipal
from klamm.acl import AclBinding, AclOperation, AclPermission, PatternType, ResourceType, Verdict
from klamm.wire.messages import api_versions, fetch, metadata
from klamm_spark.events.event import json_schema
from klamm_spark.spool.layout import STREAMS, stream_mark
from tests.unit.audit.observing import ALICE, Observing, ping, produced, refused


def test_each_login_of_a_connection_is_recorded_with_its_own_name(audit):
    """The events are written later, when the connection may have another name."""
    connection = audit.connection(ANONYMOUS)
    for name in ("alice", "bob"):
        connection.attempted_principal = f"User:{name}"
        audit.observer.authentication_failed(connection, "wrong password", False)
    for name in ("carol", "dave"):
        connection.principal = KafkaPrincipal(name)
        audit.observer.authenticated(connection, False)
    logins = [each for each in audit.events() if each["kind"] == "authentication"]
    assert [(each["principal"], each.get("attempted_principal")) for each in logins] == [
        ("User:ANONYMOUS", "User:alice"),
        ("User:ANONYMOUS", "User:bob"),
        ("User:carol", None),
        ("User:dave", None),
    ]


def test_a_request_becomes_one_event_with_all_known_facts(audit):
    connection = audit.connection()
    audit.complete(produced(audit, connection, decisions=[("WRITE", "TOPIC", "orders", True)]))
    (event,) = audit.requests()
    boot = audit.sink.requests.spool.boot
    assert event == {
        "schema_version": 5,
        "event_id": f"node-1/{boot}/0",
        "node": "node-1",
        "boot": boot,
        "seq": 0,
        "time_us": audit.clock.wall_us(),
        "kind": "request",
        "action": "completed",
        "outcome": "ok",
        "listener": "front",
        "transport": "ssl",
        "security_protocol": "SASL_SSL",
        "tls_version": "TLSv1.3",
        "tls_cipher": "AES",
        "sni": "kafka.example",
        "sasl_mechanism": "PLAIN",
        "principal": "User:alice",
        "client_id": "client",
        "client_software_name": "librdkafka",
        "client_software_version": "2.8",
        "client_address": "10.0.0.9",
        "client_port": 50000,
        "connection_id": "c-50000",
        "api_key": 0,
        "api_name": "Produce",
        "api_version": 9,
        "correlation_id": 7,
        "resources": [
            {
                "type": "TOPIC",
                "name": "orders",
                "operation": "WRITE",
                "granted": True,
                "partitions": 2,
                "records": 0,
                "bytes": 140,
            }
        ],
        "error_code": 0,
        "request_bytes": 100,
        "response_bytes": 50,
        "request_queue_time_ms": 1.0,
        "local_time_ms": 0.5,
        "remote_time_ms": 0.0,
        "throttle_time_ms": 0.0,
        "response_queue_time_ms": 0.0,
        "send_time_ms": 0.5,
        "total_time_ms": 2.0,
    }


def test_events_of_all_kinds_are_valid_and_numbered_without_a_gap(audit):
    connection = audit.connection()
    audit.services.emit_admin_event("certificate_swapped", "server.pem", listener="front")
    audit.observer.connection_refused(Address("10.0.0.1", 1), "per_ip", "10 of 10")
    audit.observer.authentication_failed(audit.connection(ANONYMOUS), 'wrong "password"', False)
    audit.observer.authenticated(connection, False)
    audit.observer.connection_opened(connection)
    audit.observer.authenticated(connection, True)
    audit.complete(ping(audit, connection), produced(audit, connection, error=29))
    audit.observer.session_expired(connection)
    audit.clock.advance_ms(250)
    connection.received_bytes, connection.sent_bytes = 1000, 500
    audit.observer.connection_closed(connection, "closed by peer")
    events = audit.events()
    validator = jsonschema.Draft202012Validator(json_schema())
    assert [error.message for event in events for error in validator.iter_errors(event)] == []
    by_boot = {
        boot: [event["seq"] for event in events if event["boot"] == boot]
        for boot in {event["boot"] for event in events}
    }
    assert {boot: list(range(len(numbers))) for boot, numbers in by_boot.items()} == by_boot
    assert sorted(stream_mark(boot) for boot in by_boot) == ["", "a", "s"]
    recorded = {
        stream: [
            (event["kind"], event["action"], event["outcome"]) for event in events if stream_mark(event["boot"]) == mark
        ]
        for stream, mark in STREAMS.items()
    }
    assert recorded == {
        "requests": [
            ("connection", "refused", "refused"),
            ("connection", "opened", "ok"),
            ("request", "completed", "ok"),
            ("connection", "closed", "closed"),
        ],
        "security": [
            ("authentication", "failure", "denied"),
            ("authentication", "success", "ok"),
            ("authentication", "reauthentication", "ok"),
            ("request", "completed", "denied"),
            ("authentication", "expiry", "closed"),
        ],
        "administration": [("admin", "certificate_swapped", "ok")],
    }
    refused = next(event for event in events if event["action"] == "refused")
    failed = next(event for event in events if event["action"] == "failure")
    assert refused["client_address"] == "10.0.0.1"
    assert failed["error_name"] == "SASL_AUTHENTICATION_FAILED"
    assert failed["reason"] == 'wrong "password"'
    closed = next(event for event in events if event["action"] == "closed")
    assert (closed["reason"], closed["duration_ms"]) == ("closed by peer", 250.0)
    assert (closed["request_bytes"], closed["response_bytes"]) == (1000, 500)


def test_earlier_announcements_reach_an_observer_that_opens_later(tmp_path):
    audit = Observing(tmp_path)
    audit.services.emit_admin_event("plugin_loaded", "transport ssl of klamm 1")
    other = Observing(tmp_path / "other")
    assert [event["detail"] for event in audit.events()] == ["transport ssl of klamm 1"]
    assert other.events() == []


@pytest.mark.parametrize(
    ("response", "outcome", "code", "name"),
    [
        (metadata.MetadataResponse(), "ok", 0, None),
        (
            metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(3, "t")]),
            "error",
            3,
            "UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (
            metadata.MetadataResponse(
                topics=[metadata.MetadataResponseTopic(0, "a"), metadata.MetadataResponseTopic(29, "t")]
            ),
            "denied",
            29,
            "TOPIC_AUTHORIZATION_FAILED",
        ),
    ],
)
def test_errors_inside_a_response_are_the_outcome(audit, response, outcome, code, name):
    message = metadata.MetadataRequest(
        [metadata.MetadataRequestTopic(name="a"), metadata.MetadataRequestTopic(name="t")]
    )
    audit.complete(audit.request(audit.connection(), message, response, version=12))
    (event,) = audit.requests()
    assert (event["outcome"], event["error_code"], event.get("error_name")) == (outcome, code, name)
    assert [one["name"] for one in event["resources"]] == ["a", "t"]
    assert [one.get("error_code", 0) for one in event["resources"]] == [0, code]


def test_the_event_of_a_throttled_request_says_so(audit):
    request = ping(audit, audit.connection())
    request.context.throttle_time_ms = 250
    audit.complete(request)
    (event,) = audit.requests()
    assert (event["outcome"], event["throttle_time_ms"]) == ("throttled", 250.0)


def test_the_event_of_a_refused_request_says_so(audit):
    audit.complete(refused(audit, audit.connection()))
    (event,) = audit.requests()
    assert (event["outcome"], event["error_name"]) == ("refused", "COORDINATOR_NOT_AVAILABLE")


def test_topic_ids_in_events_get_their_names_from_metadata(audit):
    connection = audit.connection()
    known, unknown = bytes(range(16)), b"\xff" * 16
    response = metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(0, "orders", known)])
    audit.complete(audit.request(connection, metadata.MetadataRequest([]), response, version=12))
    topics = [fetch.FetchTopic("", topic_id, [fetch.FetchPartition(0)]) for topic_id in (known, unknown)]
    answer = fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse("", known, [fetch.PartitionData(0, records=b"." * 30)])]
    )
    audit.flush()
    audit.complete(audit.request(connection, fetch.FetchRequest(topics=topics), answer, version=16))
    event = audit.requests()[-1]
    assert [(one["name"], one.get("bytes")) for one in event["resources"]] == [
        ("orders", 30),
        ("_____________________w", None),
    ]


def test_no_event_holds_records_or_secrets(audit):
    connection = audit.connection()
    audit.complete(produced(audit, connection, records=b"very secret value"))
    assert b"secret" not in json.dumps(audit.events()).encode()


class Frame(bytearray):
    """A frame that supports weak references, so that a test sees whether it is still referenced."""


@pytest.mark.parametrize("above", [0, 100])
def test_frames_of_large_requests_are_freed_while_their_events_wait(make, above):
    audit = make(aggregate_above_per_second=above)
    frame = Frame(1 << 20)
    held = weakref.ref(frame)
    audit.complete(produced(audit, audit.connection(), records=memoryview(frame), size=2 << 20))
    del frame
    gc.collect()
    assert held() is None
    audit.clock.advance_ms(1000)
    (event,) = audit.requests()
    assert event["resources"][0]["bytes"] == 2 << 20


def test_long_lists_of_resources_are_cut_but_keep_those_with_errors(make):
    audit = make(max_resources=2)
    names = ["a", "b", "c", "d"]
    message = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in names])
    results = [metadata.MetadataResponseTopic(3 if name == "d" else 0, name) for name in names]
    answer = metadata.MetadataResponse(topics=results)
    audit.complete(audit.request(audit.connection(), message, answer, version=12))
    (event,) = audit.requests()
    assert ([one["name"] for one in event["resources"]], event["resource_count"]) == (["d", "a"], 4)


def test_later_events_have_the_software_that_a_client_names_later(audit):
    connection = audit.connection()
    audit.observer.connection_opened(connection)
    audit.flush()
    connection.client_software_name, connection.client_software_version = "kafka-python", "2"
    message = api_versions.ApiVersionsRequest("kafka-python", "2")
    audit.complete(audit.request(connection, message, api_versions.ApiVersionsResponse(), version=3))
    assert [event["client_software_name"] for event in audit.events()] == ["librdkafka", "kafka-python"]


def test_listeners_that_share_a_spool_must_agree_on_its_settings(tmp_path):
    audit = Observing(tmp_path)
    from klamm_spark.observer.audit import AuditObserver
    from klamm_spark.settings.audit import AuditSettings

    other = AuditObserver(AuditSettings(spool=tmp_path, node="node-1", level="off"))
    other.open(audit.listener)
    assert other._sink is audit.sink
    with pytest.raises(ValueError, match="segment_bytes must be the same for all listeners"):
        AuditObserver(AuditSettings(spool=tmp_path, node="node-1", segment_bytes=2048)).open(audit.listener)


def test_metrics_show_the_state_of_the_spool(audit):
    audit.complete(ping(audit, audit.connection(ALICE)))
    audit.flush()
    values = {
        family.name: sample.value
        for family in audit.services.metrics.collect()
        for sample in family.samples
        if sample.labels.get("stream", "requests") == "requests"
    }
    prefix = "klamm:type=Audit,name="
    assert {name.removeprefix(prefix) for name in values if name.startswith(prefix)} == {
        *("EventsWritten", "BytesWritten", "EventsDropped", "WriteErrors", "SegmentsSealed", "UnreadableFiles"),
        *("QueueSize", "SpoolBytes", "SpoolLimitBytes"),
        *("IntentErrors", "IntentSyncs", "IntentsSynced", "OpenChanges"),
    }
    assert values[prefix + "EventsWritten"] == 1
    assert values[prefix + "QueueSize"] == 0
    assert values[prefix + "SpoolBytes"] == values[prefix + "BytesWritten"] > 0


ALICES = AclBinding(
    ResourceType.TOPIC, "ord", PatternType.PREFIXED, "User:alice", "*", AclOperation.ALL, AclPermission.ALLOW
)


@pytest.mark.parametrize(
    ("verdict", "fields"),
    [
        (
            Verdict(True, "acl", ALICES),
            {
                "decided_by": "acl",
                "acl_operation": "ALL",
                "acl_pattern_type": "PREFIXED",
                "acl_name": "ord",
                "acl_principal": "User:alice",
                "acl_host": "*",
            },
        ),
        (Verdict(True, "super_user"), {"decided_by": "super_user"}),
        (Verdict(True, 'a "word"'), {"decided_by": 'a "word"'}),
        (Verdict(True), {}),
        (None, {}),
    ],
)
def test_an_event_names_the_deciding_rule(audit, verdict, fields):
    event = produced(audit, audit.connection())
    event.context.decisions = [(AclOperation.WRITE, ResourceType.TOPIC, "orders", True, verdict)]
    audit.complete(event)
    (resource,) = audit.requests()[-1]["resources"]
    assert {name: value for name, value in resource.items() if name == "decided_by" or name[:4] == "acl_"} == fields
    assert (resource["operation"], resource["granted"]) == ("WRITE", True)
