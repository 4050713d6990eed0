"""Requests above a rate become rows that count them."""

import pytest

from klamm import ErrorCode
from klamm.wire.messages import create_topics
from klamm_spark.observer.aggregation import MAX_WINDOWS
from tests.unit.audit.observing import ping, produced, refused


def test_requests_above_the_rate_become_one_row_a_second(make):
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
            failed = ping(audit, one)._replace(error_code=int(ErrorCode.UNKNOWN_MEMBER_ID))
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
        failed = ping(audit, connection, client_id="b")._replace(error_code=int(ErrorCode.UNKNOWN_MEMBER_ID))
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


def test_above_the_limit_of_client_ids_each_request_is_recorded(make):
    audit = make(aggregate_above_per_second=0, queue_capacity=10_000)
    connection = audit.connection()
    names = [f"client-{number}" for number in range(MAX_WINDOWS + 2)]
    for _ in range(3):
        audit.complete(*(ping(audit, connection, client_id=name) for name in names))
    individual = rows(audit, "client_id")
    assert individual == [(name, None) for name in names[MAX_WINDOWS:]] * 3
    audit.clock.advance_ms(1000)
    assert rows(audit, "client_id")[len(individual) :] == [(name, 3) for name in names[:MAX_WINDOWS]]
    audit.complete(ping(audit, connection, client_id=names[-1]))
    audit.clock.advance_ms(1000)
    assert rows(audit, "client_id")[-1] == (names[-1], None), "a row of one request, recorded at the end of its second"
    assert len(rows(audit)) == 6 + MAX_WINDOWS + 1


def test_above_the_limit_of_client_ids_level_off_still_applies(make):
    audit = make(aggregate_above_per_second=0, level="off", queue_capacity=10_000)
    connection = audit.connection()
    audit.complete(*(ping(audit, connection, client_id=str(number)) for number in range(MAX_WINDOWS + 5)))
    assert audit.sink.requests.queue.size == 0


@pytest.mark.parametrize("above", [0, 2])
def test_refused_requests_are_counted_at_every_level(make, above):
    audit = make(aggregate_above_per_second=above, level="off")
    connection = audit.connection()
    for _ in range(5):
        audit.complete(refused(audit, connection), ping(audit, connection))
    audit.clock.advance_ms(1000)
    assert rows(audit, "outcome") == [("refused", None)] * above + [("refused", 5 - above)]


def test_rows_of_produce_have_the_sums_of_each_topic(make):
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


def test_minus_one_turns_aggregation_off(make):
    audit = make(aggregate_above_per_second=-1)
    connection = audit.connection()
    audit.complete(*(ping(audit, connection) for _ in range(100)))
    assert len(audit.requests()) == 100


def test_closing_a_connection_writes_its_rows_first(make):
    audit = make(aggregate_above_per_second=0)
    connection = audit.connection()
    audit.complete(ping(audit, connection), ping(audit, connection))
    audit.observer.connection_closed(connection, "closed by peer")
    assert [(event["kind"], event.get("repeat_count")) for event in audit.events()] == [
        ("request", 2),
        ("connection", None),
    ]
