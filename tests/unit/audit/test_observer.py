"""From what the server tells the observer to the events in the spool."""

import json
import threading

import jsonschema
import pytest

from klamm import ANONYMOUS, Address, ErrorCode, KafkaPrincipal
from klamm.wire.messages import api_versions, create_topics, fetch, heartbeat, metadata, produce
from klamm_spark.aggregation import MAX_WINDOWS
from klamm_spark.event import json_schema
from tests.unit.audit.observing import ALICE, Observing


@pytest.fixture
def audit(tmp_path):
    return Observing(tmp_path)


@pytest.fixture
def make(tmp_path):
    return lambda **settings: Observing(tmp_path, **settings)


def ping(audit, connection, **options):
    return audit.request(connection, heartbeat.HeartbeatRequest("group"), heartbeat.HeartbeatResponse(), **options)


def produced(audit, connection, topic="orders", error=0, records=b"x" * 70, **options):
    data = [produce.PartitionProduceData(0, records), produce.PartitionProduceData(1, records)]
    answers = [produce.PartitionProduceResponse(0, error), produce.PartitionProduceResponse(1, error)]
    return audit.request(
        connection,
        produce.ProduceRequest(acks=1, topic_data=[produce.TopicProduceData(topic, partition_data=data)]),
        produce.ProduceResponse([produce.TopicProduceResponse(topic, partition_responses=answers)]),
        version=9,
        **options,
    )


def test_a_request_becomes_one_event_with_all_that_is_known(audit):
    connection = audit.connection()
    audit.complete(produced(audit, connection, decisions=[("WRITE", "TOPIC", "orders", True)]))
    (event,) = audit.requests()
    boot = audit.sink.spool.boot
    assert event == {
        "schema_version": 1,
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


def test_all_kinds_are_valid_by_the_schema_and_numbered_without_a_gap(audit):
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
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert [(event["kind"], event["action"], event["outcome"]) for event in events] == [
        ("admin", "certificate_swapped", "ok"),
        ("connection", "refused", "refused"),
        ("authentication", "failure", "denied"),
        ("authentication", "success", "ok"),
        ("connection", "opened", "ok"),
        ("authentication", "reauthentication", "ok"),
        ("request", "completed", "ok"),
        ("request", "completed", "denied"),
        ("authentication", "expiry", "closed"),
        ("connection", "closed", "closed"),
    ]
    assert events[1]["client_address"] == "10.0.0.1"
    assert events[2]["error_name"] == "SASL_AUTHENTICATION_FAILED"
    assert events[2]["reason"] == 'wrong "password"'
    closed = events[-1]
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


def test_a_throttled_request_says_so(audit):
    request = ping(audit, audit.connection())
    request.throttle_time_ms = 250
    audit.complete(request)
    (event,) = audit.requests()
    assert (event["outcome"], event["throttle_time_ms"]) == ("throttled", 250.0)


def test_a_refused_request_says_so(audit):
    request = ping(audit, audit.connection())
    request.refused, request.error_code = True, int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    audit.complete(request)
    (event,) = audit.requests()
    assert (event["outcome"], event["error_name"]) == ("refused", "COORDINATOR_NOT_AVAILABLE")


def test_topic_ids_get_the_names_that_metadata_told(audit):
    connection = audit.connection()
    known, unknown = bytes(range(16)), b"\xff" * 16
    told = metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(0, "orders", known)])
    audit.complete(audit.request(connection, metadata.MetadataRequest([]), told, version=12))
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


def test_large_requests_are_not_held_while_they_wait(audit):
    connection = audit.connection()
    request = produced(audit, connection, records=memoryview(bytearray(1 << 20)), size=2 << 20)
    audit.complete(request)
    assert request.response is None
    assert not hasattr(request.frame, "topic_data")
    (event,) = audit.requests()
    assert event["resources"][0]["bytes"] == 2 << 20


def test_many_resources_are_cut_and_those_with_errors_stay(make):
    audit = make(max_resources=2)
    names = ["a", "b", "c", "d"]
    message = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(name) for name in names])
    results = [create_topics.CreatableTopicResult(name, error_code=29 if name == "d" else 0) for name in names]
    answer = create_topics.CreateTopicsResponse(topics=results)
    audit.complete(audit.request(audit.connection(), message, answer))
    (event,) = audit.requests()
    assert ([one["name"] for one in event["resources"]], event["resource_count"]) == (["d", "a"], 4)


# ---- levels and exclusions


def test_level_metadata_leaves_resources_out_but_not_those_denied(make):
    audit = make(level="metadata")
    connection = audit.connection()
    audit.complete(produced(audit, connection))
    denied = [("WRITE", "TOPIC", "orders", False)]
    audit.complete(produced(audit, connection, error=29, decisions=denied))
    first, second = audit.requests()
    assert "resources" not in first
    assert second["resources"] == [{"type": "TOPIC", "name": "orders", "operation": "WRITE", "granted": False}]


def test_level_off_still_tells_denials(make):
    audit = make(level="off")
    connection = audit.connection()
    audit.complete(ping(audit, connection), produced(audit, connection), produced(audit, connection, error=29))
    assert [event["outcome"] for event in audit.requests()] == ["denied"]


def test_a_principals_level_goes_before_that_of_an_api(make):
    audit = make(level="off", apis={"Heartbeat": "metadata"}, principals={"User:alice": "detail", "User:probe": "off"})
    for name in ("alice", "probe", "bob"):
        connection = audit.connection(KafkaPrincipal(name))
        audit.complete(ping(audit, connection), produced(audit, connection))
    told = [(event["principal"], event["api_name"], "resources" in event) for event in audit.requests()]
    assert told == [
        ("User:alice", "Heartbeat", True),
        ("User:alice", "Produce", True),
        ("User:bob", "Heartbeat", False),
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"exclude_principals": ("User:alice",)},
        {"exclude_networks": ("10.0.0.0/8",)},
        {"exclude_client_ids": ("client",)},
        {"exclude_apis": ("Heartbeat",)},
    ],
)
def test_exclusions_hide_what_went_well_and_nothing_else(make, settings):
    audit = make(aggregate_above_per_second=1, **settings)
    connection = audit.connection()
    audit.complete(*(ping(audit, connection) for _ in range(5)))
    audit.complete(produced(audit, connection, error=29))
    audit.observer.authentication_failed(connection, "no", False)
    audit.observer.connection_closed(connection, "closed by peer")
    kinds = [(event["kind"], event["outcome"]) for event in audit.events() if event["kind"] != "connection"]
    assert kinds == [("request", "denied"), ("authentication", "denied")]


# ---- aggregation


def test_what_is_beyond_the_rate_becomes_one_row_a_second(make):
    audit = make(aggregate_above_per_second=2)
    connection = audit.connection()
    for _ in range(10):
        audit.complete(ping(audit, connection))
        audit.clock.advance_ms(10)
    audit.clock.advance_ms(1000)
    events = audit.requests()
    assert [event.get("repeat_count", 1) for event in events] == [1, 1, 8]
    row = events[-1]
    assert (row["request_bytes"], row["response_bytes"], row["duration_ms"]) == (800, 400, 70.0)
    assert (row["total_time_ms"], row["local_time_ms"], row["total_time_max_ms"]) == (2.0, 0.5, 2.0)
    assert row["resources"] == [{"type": "GROUP", "name": "group"}]


def test_each_second_connection_api_and_result_has_a_row_of_its_own(make):
    audit = make(aggregate_above_per_second=0)
    one, other = audit.connection(), audit.connection()
    for _second in range(2):
        for _ in range(3):
            failed = ping(audit, one)
            failed.error_code = int(ErrorCode.UNKNOWN_MEMBER_ID)
            audit.complete(ping(audit, one), produced(audit, one), failed)
            audit.complete(ping(audit, other))
        audit.clock.advance_ms(1000)
        audit.flush()
    counts = [
        (event["connection_id"], event["api_name"], event["outcome"], event["repeat_count"])
        for event in audit.requests()
    ]
    a_second = [
        ("c-50000", "Heartbeat", "error", 3),
        ("c-50000", "Heartbeat", "ok", 3),
        ("c-50000", "Produce", "ok", 3),
        ("c-50001", "Heartbeat", "ok", 3),
    ]
    assert sorted(counts) == sorted(a_second * 2)


def rows(audit, *fields):
    return [tuple(event.get(name) for name in (*fields, "repeat_count")) for event in audit.requests()]


def test_client_ids_of_one_connection_have_rows_of_their_own(make):
    audit = make(aggregate_above_per_second=0)
    connection = audit.connection()
    for _ in range(3):
        failed = ping(audit, connection, client_id="b")
        failed.error_code = int(ErrorCode.UNKNOWN_MEMBER_ID)
        audit.complete(*(ping(audit, connection, client_id=name) for name in ("a", "b", None, "b")), failed)
    audit.clock.advance_ms(1000)
    assert rows(audit, "client_id", "request_bytes") == [
        ("a", 300, 3),
        ("b", 600, 6),
        (None, 300, 3),
        ("b", 300, 3),
    ]


def test_a_connection_that_names_no_client_first_has_a_row_without_one(make):
    audit = make(aggregate_above_per_second=0)
    connection = audit.connection()
    audit.complete(*(ping(audit, connection, client_id=name) for name in (None, None, "a", "a")))
    audit.clock.advance_ms(1000)
    assert rows(audit, "client_id") == [(None, 2), ("a", 2)]


def test_an_excluded_client_id_hides_no_other_on_its_connection(make):
    audit = make(aggregate_above_per_second=0, exclude_client_ids=("probe",))
    connection = audit.connection()
    audit.complete(*(ping(audit, connection, client_id=name) for name in ("probe", "app", "probe", "app")))
    audit.clock.advance_ms(1000)
    assert rows(audit, "client_id") == [("app", 2)]


def test_lumps_of_repeated_answers_are_rows_of_their_client_id(audit):
    connection = audit.connection()
    for name in ("a", "b", "b"):
        request = audit.request(connection, metadata.MetadataRequest([]), metadata.MetadataResponse(), client_id=name)
        audit.observer.repeated(request, 250, 25_000, 12_500, request.completed_ns)
    audit.clock.advance_ms(2000)
    assert rows(audit, "client_id") == [("a", 250), ("b", 500)]


def test_beyond_so_many_client_ids_of_a_connection_each_request_is_told_of(make):
    audit = make(aggregate_above_per_second=0, queue_capacity=10_000)
    connection = audit.connection()
    names = [f"client-{number}" for number in range(MAX_WINDOWS + 2)]
    for _ in range(3):
        audit.complete(*(ping(audit, connection, client_id=name) for name in names))
    told = rows(audit, "client_id")
    assert told == [(name, None) for name in names[MAX_WINDOWS:]] * 3
    audit.clock.advance_ms(1000)
    assert rows(audit, "client_id")[len(told) :] == [(name, 3) for name in names[:MAX_WINDOWS]]
    audit.complete(ping(audit, connection, client_id=names[-1]))
    audit.clock.advance_ms(1000)
    assert rows(audit, "client_id")[-1] == (names[-1], None), "a row of one request, not told of at once"
    assert len(rows(audit)) == 6 + MAX_WINDOWS + 1


def test_beyond_so_many_client_ids_what_is_off_stays_so(make):
    audit = make(aggregate_above_per_second=0, level="off", queue_capacity=10_000)
    connection = audit.connection()
    audit.complete(*(ping(audit, connection, client_id=str(number)) for number in range(MAX_WINDOWS + 5)))
    assert audit.sink.queue.size == 0


@pytest.mark.parametrize("above", [0, 2])
def test_refused_requests_are_counted_whatever_the_level(make, above):
    audit = make(aggregate_above_per_second=above, level="off")
    connection = audit.connection()
    for _ in range(5):
        refused = ping(audit, connection)
        refused.refused, refused.error_code = True, int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        audit.complete(refused, ping(audit, connection))
    audit.clock.advance_ms(1000)
    assert rows(audit, "outcome") == [("refused", None)] * above + [("refused", 5 - above)]


def test_rows_of_produce_add_up_what_was_moved_by_topic(make):
    audit = make(aggregate_above_per_second=0)
    connection = audit.connection()
    audit.complete(produced(audit, connection, "a"), produced(audit, connection, "b"), produced(audit, connection, "a"))
    audit.clock.advance_ms(1000)
    (row,) = audit.requests()
    assert [(one["name"], one["bytes"], one["partitions"]) for one in row["resources"]] == [
        ("a", 280, 2),
        ("b", 140, 2),
    ]


def test_denials_and_administrative_requests_are_never_aggregated(make):
    audit = make(aggregate_above_per_second=0)
    connection = audit.connection()
    creation = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t")])
    answer = create_topics.CreateTopicsResponse(topics=[create_topics.CreatableTopicResult("t")])
    for _ in range(3):
        audit.complete(audit.request(connection, creation, answer), produced(audit, connection, error=29))
        audit.observer.authentication_failed(connection, "no", False)
    events = audit.events()
    assert len(events) == 9
    assert all("repeat_count" not in event for event in events)


def test_repeated_answers_are_a_row(audit):
    connection = audit.connection()
    request = audit.request(connection, metadata.MetadataRequest([]), metadata.MetadataResponse())
    for _ in range(2):
        audit.observer.repeated(request, 250, 25_000, 12_500, request.completed_ns + 900_000_000)
    audit.clock.advance_ms(2000)
    (row,) = audit.requests()
    assert (row["repeat_count"], row["duration_ms"]) == (500, 900.0)
    assert (row["request_bytes"], row["response_bytes"]) == (50_000, 25_000)
    assert "total_time_ms" not in row


def test_minus_one_is_no_aggregation(make):
    audit = make(aggregate_above_per_second=-1)
    assert audit.observer.repeats_after is None
    connection = audit.connection()
    audit.complete(*(ping(audit, connection) for _ in range(100)))
    assert len(audit.requests()) == 100


def test_closing_a_connection_puts_its_rows_out_first(make):
    audit = make(aggregate_above_per_second=0)
    connection = audit.connection()
    audit.complete(ping(audit, connection), ping(audit, connection))
    audit.observer.connection_closed(connection, "closed by peer")
    assert [(event["kind"], event.get("repeat_count")) for event in audit.events()] == [
        ("request", 2),
        ("connection", None),
    ]


def test_the_software_that_a_client_tells_later_is_in_later_events(audit):
    connection = audit.connection()
    audit.observer.connection_opened(connection)
    audit.flush()
    connection.client_software_name, connection.client_software_version = "kafka-python", "2"
    message = api_versions.ApiVersionsRequest("kafka-python", "2")
    audit.complete(audit.request(connection, message, api_versions.ApiVersionsResponse(), version=3))
    assert [event["client_software_name"] for event in audit.events()] == ["librdkafka", "kafka-python"]


# ---- a full queue and a full disk


def test_what_finds_no_room_is_counted_in_a_gap(make):
    audit = make(queue_capacity=5, aggregate_above_per_second=-1)
    connection = audit.connection()
    for _ in range(8):
        audit.complete(ping(audit, connection))
    audit.observer.authentication_failed(connection, "no", False)
    events = audit.events()
    assert [event["kind"] for event in events] == ["request"] * 5 + ["authentication", "audit_gap"]
    gap = events[-1]
    assert (gap["action"], gap["reason"], gap["gap_count"]) == ("dropped", "queue_full", 3)
    assert (gap["gap_boot"], gap["gap_first_seq"], gap["gap_last_seq"], gap["seq"]) == (gap["boot"], 6, 8, 9)
    assert audit.sink.events_dropped == 3


def test_a_full_disk_loses_nothing_while_the_queue_has_room(make):
    audit = make(queue_capacity=10, aggregate_above_per_second=-1)
    connection = audit.connection()
    audit.complete(ping(audit, connection))
    audit.flush()
    audit.files.room = 0
    for _ in range(5):
        audit.complete(ping(audit, connection))
        audit.flush()
        audit.clock.advance_ms(300)
    assert audit.sink.write_errors == 2, "it is tried once a second"
    audit.files.room = 1 << 40
    audit.clock.advance_ms(1000)
    assert [event["seq"] for event in audit.requests()] == [0, 1, 2, 3, 4, 5]


def test_a_full_disk_and_a_full_queue_end_in_a_gap_and_not_in_a_hole(make):
    audit = make(queue_capacity=3, aggregate_above_per_second=-1)
    connection = audit.connection()
    audit.files.room = 0
    for _ in range(10):
        audit.complete(ping(audit, connection))
        audit.flush()
    audit.files.room = 1 << 40
    audit.clock.advance_ms(1000)
    events = audit.events()
    missing = set(range(events[-1]["seq"] + 1)) - {event["seq"] for event in events}
    told = {
        seq
        for event in events
        if event["kind"] == "audit_gap"
        for seq in range(event["gap_first_seq"], event["gap_last_seq"] + 1)
    }
    assert missing == told
    assert len(told) == 7


def test_refuse_answers_with_what_clients_try_again_after(make):
    audit = make(queue_capacity=2, on_full="refuse", aggregate_above_per_second=0)
    assert audit.observer.repeats_after is None, "a kept answer would not be asked about"
    connection = audit.connection()
    first = ping(audit, connection)
    assert audit.observer.refuse(first) is None
    for _ in range(2):
        audit.observer.connection_opened(connection)
    assert audit.observer.refuse(first).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert audit.observer.refuse(produced(audit, connection)).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    audit.flush()
    assert audit.observer.refuse(first) is None


def test_an_event_that_cannot_be_recorded_is_a_gap_and_stops_nothing(audit):
    connection = audit.connection()
    broken = ping(audit, connection)
    broken.handler = None
    audit.complete(broken)
    audit.complete(ping(audit, connection))
    gap, request = audit.events()
    assert (gap["reason"], gap["gap_count"], request["kind"]) == ("not_recordable", 1, "request")


def test_after_a_crash_the_next_boot_tells_what_is_missing(tmp_path):
    first = Observing(tmp_path)
    first.complete(ping(first, first.connection()))
    (event,) = first.events()
    (path,) = first.sink.spool.path.glob("*.open")
    with path.open("ab") as file:
        file.write(b'{"schema_ver')
    first.files.close(first.sink.spool._lock)
    second = Observing(tmp_path)
    gap = second.events()[-1]
    assert (gap["kind"], gap["action"], gap["gap_boot"], gap["gap_first_seq"]) == (
        "audit_gap",
        "torn_tail",
        event["boot"],
        1,
    )
    assert gap["detail"] == "12 bytes of a torn event were cut off"
    assert "gap_count" not in gap
    assert second.events()[0] == event


def test_what_cannot_be_read_at_the_start_is_told_and_counted(tmp_path):
    first = Observing(tmp_path)
    first.complete(ping(first, first.connection()))
    first.sink.close()
    (path,) = first.sink.spool.path.glob("*.seal")
    path.write_bytes(b"rubbish")
    second = Observing(tmp_path)
    event, gap = second.events()
    assert (gap["kind"], gap["action"], gap["reason"]) == ("audit_gap", "unclean_stop", "unreadable")
    assert (gap["gap_boot"], gap["gap_first_seq"]) == (event["boot"], 1)
    assert "gap_count" not in gap
    assert gap["detail"] == f"{path.name}.unreadable: Expecting value: line 1 column 1 (char 0)"
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(gap)) == []
    values = {family.name: family.samples[0].value for family in second.services.metrics.collect()}
    assert values["klamm:type=Audit,name=UnreadableFiles"] == 1


def _at_the_limit(make, **settings):
    """A spool with one event that is as large as it may be, and one that waits for room."""
    audit = make(retention_bytes=1500, on_limit="stop", aggregate_above_per_second=-1, **settings)
    connection = audit.connection()
    audit.complete(ping(audit, connection))
    audit.flush()
    audit.complete(ping(audit, connection))
    audit.flush()
    assert audit.sink.write_errors == 1
    return audit


def test_while_nothing_can_be_written_what_was_is_synced_sealed_and_deleted(make):
    audit = _at_the_limit(make, fsync_interval_ms=100, segment_age_ms=5000, retention_ms=60_000)
    folder = audit.sink.spool.path
    audit.clock.advance_ms(100)
    audit.flush()
    assert audit.files.fsyncs == 1
    audit.clock.advance_ms(5000)
    audit.flush()
    assert len(list(folder.glob("*.jsonl"))) == 1
    audit.clock.advance_ms(60_001)
    audit.flush()
    assert list(folder.glob("*.jsonl")) == []
    audit.clock.advance_ms(1000)
    events = audit.events()
    assert [(event["kind"], event["seq"]) for event in events] == [("request", 1), ("audit_gap", 2)]
    assert (events[1]["action"], events[1]["gap_first_seq"], events[1]["gap_last_seq"]) == ("segments_deleted", 0, 0)


def test_an_orderly_stop_that_loses_events_is_told_by_the_next_boot(tmp_path):
    first = _at_the_limit(lambda **settings: Observing(tmp_path, **settings))
    boot = first.sink.spool.boot
    first.complete(ping(first, first.connection()))
    first.sink.close()
    gap = Observing(tmp_path).events()[-1]
    assert (gap["action"], gap["gap_boot"], gap["gap_first_seq"]) == ("unclean_stop", boot, 1)


def test_an_orderly_stop_that_loses_nothing_tells_nothing(tmp_path):
    first = Observing(tmp_path)
    first.complete(ping(first, first.connection()))
    first.sink.close()
    assert [event["kind"] for event in Observing(tmp_path).events()] == ["request"]


def test_events_that_the_disk_did_not_confirm_are_told(make):
    audit = make(fsync_interval_ms=100)
    audit.complete(ping(audit, audit.connection()))
    audit.flush()
    audit.files.broken = {"fsync"}
    audit.clock.advance_ms(100)
    audit.flush()
    audit.files.broken = set()
    audit.clock.advance_ms(1000)
    gap = audit.events()[-1]
    assert (gap["action"], gap["reason"], gap["gap_first_seq"], gap["gap_last_seq"]) == (
        "torn_tail",
        "fsync_failed",
        0,
        0,
    )


def test_a_thread_that_waits_for_room_does_not_hold_up_the_writer(make):
    audit = make(queue_capacity=1, on_full="block", aggregate_above_per_second=0)
    connection = audit.connection()
    audit.complete(ping(audit, connection), ping(audit, connection))
    audit.observer.connection_opened(connection)
    audit.clock.advance_ms(1000)
    # The row of the second that is over finds no room until the writer has looked at this very client.
    thread = threading.Thread(target=audit.complete, args=(ping(audit, connection),))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    audit.flush()
    thread.join(10)
    assert not thread.is_alive()
    assert [event.get("repeat_count") for event in audit.requests()] == [2]


# ---- sharing


def test_listeners_share_a_spool_and_must_agree_on_it(tmp_path):
    audit = Observing(tmp_path)
    from klamm_spark.audit import AuditObserver
    from klamm_spark.settings import AuditSettings

    other = AuditObserver(AuditSettings(spool=tmp_path, node="node-1", level="off"))
    other.open(audit.listener)
    assert other._sink is audit.sink
    with pytest.raises(ValueError, match="segment_bytes must be the same for all listeners"):
        AuditObserver(AuditSettings(spool=tmp_path, node="node-1", segment_bytes=2048)).open(audit.listener)


def test_metrics_say_how_it_goes(audit):
    audit.complete(ping(audit, audit.connection(ALICE)))
    audit.flush()
    values = {family.name: family.samples[0].value for family in audit.services.metrics.collect()}
    prefix = "klamm:type=Audit,name="
    assert values[prefix + "EventsWritten"] == 1
    assert values[prefix + "QueueSize"] == 0
    assert values[prefix + "SpoolBytes"] == values[prefix + "BytesWritten"] > 0
