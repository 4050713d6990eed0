"""Tests of a full queue, a full disk and an unclean stop: events wait, requests are refused, and gaps report losses."""

import threading

import jsonschema
import pytest

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.wire.api_keys import ApiKey, load, spec_of
from klamm.wire.messages import create_topics
from klamm_spark.events.event import WAS_SHIPPED, json_schema
from klamm_spark.observer.audit import AuditFilter
from klamm_spark.spool.layout import SHIPPED_SUFFIX, beside
from tests.unit.audit.observing import Observing, ping, produced


def test_events_without_room_are_counted_in_a_gap(make):
    audit = make(queue_capacity=5, aggregate_above_per_second=-1)
    connection = audit.connection()
    for _ in range(8):
        audit.complete(ping(audit, connection))
    audit.observer.connection_opened(connection)
    events = audit.events()
    assert [event["kind"] for event in events] == ["request"] * 5 + ["connection", "audit_gap"]
    gap = events[-1]
    assert (gap["action"], gap["reason"], gap["gap_count"]) == ("dropped", "queue_full", 3)
    assert (gap["gap_boot"], gap["gap_first_seq"], gap["gap_last_seq"], gap["seq"]) == (gap["boot"], 6, 8, 9)
    assert audit.sink.requests.events_dropped == 3


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
    assert audit.sink.requests.write_errors == 2, "it is tried once a second"
    audit.files.room = 1 << 40
    audit.clock.advance_ms(1000)
    assert [event["seq"] for event in audit.requests()] == [0, 1, 2, 3, 4, 5]


def test_a_full_disk_and_a_full_queue_cause_a_reported_gap(make):
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
    reported = {
        seq
        for event in events
        if event["kind"] == "audit_gap"
        for seq in range(event["gap_first_seq"], event["gap_last_seq"] + 1)
    }
    assert missing == reported
    assert len(reported) == 7


def refusal(subject, event):
    """Return the error code with which the filter refuses a request; None if the filter accepts it."""
    try:
        assert subject.on_request(event.request, event.context) is event.request
    except KafkaError as error:
        return error.error_code
    return None


def filtered(make, **settings):
    audit = make(queue_capacity=2, aggregate_above_per_second=0, **settings)
    subject = AuditFilter(audit.settings)
    subject.open(audit.listener)
    return audit, subject


def test_refuse_answers_with_errors_after_which_clients_try_again(make):
    audit, subject = filtered(make, on_full="refuse")
    connection = audit.connection()
    first = ping(audit, connection)
    assert refusal(subject, first) is None
    for _ in range(2):
        audit.observer.connection_opened(connection)
    assert refusal(subject, first) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert refusal(subject, produced(audit, connection)) is ErrorCode.KAFKA_STORAGE_ERROR
    creation = audit.request(connection, create_topics.CreateTopicsRequest(), create_topics.CreateTopicsResponse())
    assert refusal(subject, creation) is ErrorCode.REQUEST_TIMED_OUT
    audit.flush()
    assert refusal(subject, first) is None


def test_a_server_whose_audit_refuses_is_not_ready(make):
    audit, _subject = filtered(make, on_full="refuse")

    def obstacles():
        families = audit.listener.services.metrics.collect(lambda name: name == "klamm:type=Server,name=Obstacles")
        return [(sample.labels["reason"], sample.value) for family in families for sample in family.samples]

    reason = "its queue is full, so requests are refused"
    assert obstacles() == [(reason, 0)]
    for _ in range(2):
        audit.observer.connection_opened(audit.connection())
    assert obstacles() == [(reason, 1)]
    audit.flush()
    assert obstacles() == [(reason, 0)]


def coordinated():
    """Return the APIs that clients send to the coordinator of a group or of a transactional id."""
    of_keys = {"group_id", "groups", "group_ids", "groups_names", "transactional_id", "transactional_ids"}
    to_leaders = {ApiKey.PRODUCE, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}
    for key in ApiKey:
        spec = spec_of(key)
        request = vars(load(key))[f"{spec.name}Request"]
        if not of_keys.isdisjoint(request.__slots__) and key not in to_leaders and "ShareGroupState" not in spec.name:
            yield key


@pytest.mark.parametrize("api_key", [*coordinated()], ids=lambda key: key.name)
def test_clients_of_a_coordinator_get_an_error_after_which_they_look_for_it_again(make, api_key):
    audit, subject = filtered(make, on_full="refuse")
    connection = audit.connection()
    for _ in range(2):
        audit.observer.connection_opened(connection)
    with pytest.raises(KafkaError) as refused:
        subject.on_request(None, RequestContext(connection, None, api_key, 0, 1, "c", 100))
    assert refused.value.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_api_versions_is_never_refused(make):
    _, subject = filtered(make, on_full="refuse")
    assert ApiKey.API_VERSIONS not in subject.api_keys
    assert {ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.CREATE_TOPICS} <= set(subject.api_keys)


@pytest.mark.parametrize("on_full", ["drop", "block"])
def test_without_refuse_the_filter_accepts_all_requests(make, on_full):
    audit, subject = filtered(make, on_full=on_full)
    connection = audit.connection()
    for _ in range(2):
        audit.observer.connection_opened(connection)
    assert audit.sink.requests.queue.full
    assert refusal(subject, ping(audit, connection)) is None


def test_refuse_needs_the_filter_on_the_listener(tmp_path):
    with pytest.raises(ValueError, match='on_full = "refuse" needs filters'):
        Observing(tmp_path, filters=False, on_full="refuse")


def test_an_event_that_cannot_be_recorded_becomes_a_gap(audit):
    connection = audit.connection()
    audit.complete(ping(audit, connection, client_id=object()))
    audit.complete(ping(audit, connection))
    gap, request = audit.events()
    assert (gap["reason"], gap["gap_count"], request["kind"]) == ("not_recordable", 1, "request")


def test_after_a_crash_the_next_boot_reports_missing_events(tmp_path):
    first = Observing(tmp_path)
    first.complete(ping(first, first.connection()))
    (event,) = first.events()
    (path,) = first.sink.requests.spool.path.glob("*.open")
    with path.open("ab") as file:
        file.write(b'{"schema_ver')
    for stream in first.sink.streams.values():
        first.files.close(stream.spool._lock)
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


def test_unreadable_files_at_the_start_are_reported_and_counted(tmp_path):
    first = Observing(tmp_path)
    first.complete(ping(first, first.connection()))
    first.sink.close()
    (path,) = first.sink.requests.spool.path.rglob("*.seal")
    path.write_bytes(b"garbage")
    second = Observing(tmp_path)
    event, gap = second.events()
    assert (gap["kind"], gap["action"], gap["reason"]) == ("audit_gap", "unclean_stop", "unreadable")
    assert (gap["gap_boot"], gap["gap_first_seq"]) == (event["boot"], 1)
    assert "gap_count" not in gap
    assert gap["detail"] == f"{path.name}.unreadable: Expecting value: line 1 column 1 (char 0)"
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(gap)) == []
    values = {
        family.name: sum(sample.value for sample in family.samples) for family in second.services.metrics.collect()
    }
    assert values["klamm:type=Audit,name=UnreadableFiles"] == 1


def _at_the_limit(make, **settings):
    """Return a spool with one event of maximum size, and one that waits for room."""
    audit = make(retention_bytes=1500, on_limit="stop", aggregate_above_per_second=-1, **settings)
    connection = audit.connection()
    audit.complete(ping(audit, connection))
    audit.flush()
    audit.complete(ping(audit, connection))
    audit.flush()
    assert audit.sink.requests.write_errors == 1
    return audit


@pytest.mark.parametrize("was_shipped", [False, True])
def test_while_nothing_can_be_written_earlier_events_are_still_synced_sealed_and_deleted(make, was_shipped):
    audit = _at_the_limit(make, fsync_interval_ms=100, segment_age_ms=5000, retention_ms=60_000, delete_unshipped=True)
    folder = audit.sink.requests.spool.path
    audit.clock.advance_ms(100)
    audit.flush()
    assert audit.files.fsyncs == 1
    audit.clock.advance_ms(5000)
    audit.flush()
    (segment,) = folder.rglob("*.jsonl*")
    if was_shipped:
        beside(segment, SHIPPED_SUFFIX).touch()
    audit.clock.advance_ms(60_001)
    audit.flush()
    assert list(folder.rglob("*.jsonl*")) == []
    audit.clock.advance_ms(1000)
    events = audit.events()
    assert [(event["kind"], event["seq"]) for event in events] == [("request", 1), ("audit_gap", 2)]
    assert (events[1]["action"], events[1]["gap_first_seq"], events[1]["gap_last_seq"]) == ("segments_deleted", 0, 0)
    assert ("detail" in events[1]) == was_shipped
    assert events[1].get("detail", WAS_SHIPPED) == WAS_SHIPPED


def test_an_orderly_stop_that_loses_events_is_reported_by_the_next_boot(tmp_path):
    first = _at_the_limit(lambda **settings: Observing(tmp_path, **settings))
    boot = first.sink.requests.spool.boot
    first.complete(ping(first, first.connection()))
    first.sink.close()
    gap = Observing(tmp_path).events()[-1]
    assert (gap["action"], gap["gap_boot"], gap["gap_first_seq"]) == ("unclean_stop", boot, 1)


def test_an_orderly_stop_without_losses_reports_none(tmp_path):
    first = Observing(tmp_path)
    first.complete(ping(first, first.connection()))
    first.sink.close()
    assert [event["kind"] for event in Observing(tmp_path).events()] == ["request"]


def test_events_that_the_disk_did_not_confirm_are_reported(make):
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


def test_a_thread_that_waits_for_room_does_not_delay_the_writer(make):
    audit = make(queue_capacity=1, on_full="block", aggregate_above_per_second=0)
    connection = audit.connection()
    audit.complete(ping(audit, connection), ping(audit, connection))
    audit.observer.connection_opened(connection)
    audit.clock.advance_ms(1000)
    # The row of the past second gets room only after the writer has read this client.
    thread = threading.Thread(target=audit.complete, args=(ping(audit, connection),))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    audit.flush()
    thread.join(60)
    assert not thread.is_alive()
    assert [event.get("repeat_count") for event in audit.requests()] == [2]
