"""The audit loses no administrative event in a simulated hour of hostile logins and denied requests."""

import threading
import time

import pytest

from klamm import ANONYMOUS, ErrorCode, KafkaError
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages import create_topics, metadata
from klamm_spark.spool.layout import beside, sealed_segments
from tests.audit_spool import lines_of, read_segment
from tests.unit.audit.observing import Observing
from tests.unit.audit.test_state_changes import creation

HOUR_S = 3600
LOGINS_A_SECOND = 5
DENIED_A_SECOND = 5
MIB = 1 << 20


def executed(audit, event):
    """Return True if the audit lets a request go to its handler. The request is then completed."""
    try:
        audit.observer.starting(event.request, event.context)
    except KafkaError:
        return False
    audit.complete(event)
    return True


def hostile_second(audit, hostile, second):
    """Cause a second's hostile events: failed logins with very long names, and denied requests.

    There are more events than a slow disk takes.
    """
    for number in range(LOGINS_A_SECOND):
        connection = audit.connection(ANONYMOUS, host=f"192.0.2.{number}")
        connection.attempted_principal = "User:" + "\u0001" * 30_000
        audit.observer.authentication_failed(connection, f"user {'x' * 2000}-{second}: wrong credentials", False)
        audit.observer.connection_closed(connection, "authentication failed")
    denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for number in range(DENIED_A_SECOND):
        names = [f"secret-{second}-{number}-{'n' * 200}-{index}" for index in range(20)]
        refused = [("CREATE", "TOPIC", name, False) for name in names]
        executed(audit, creation(audit, hostile, names, denied, decisions=refused))
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=f"secret-{second}")])
    answer = metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(denied, f"secret-{second}")])
    audit.complete(audit.request(hostile, request, answer, version=12))


@pytest.mark.parametrize("room", ["plenty", "a full security spool", "a full disk now and then"])
def test_an_hour_of_hostile_clients_loses_no_administrative_event(tmp_path, room):
    limits = (
        {"security_retention_bytes": 2 * MIB, "retention_bytes": 2 * MIB, "compression": "none"}
        if room == "a full security spool"
        else {}
    )
    audit = Observing(tmp_path, queue_capacity=500, segment_bytes=4 * MIB, **limits)
    hostile, admin = audit.connection(host="192.0.2.9"), audit.connection(host="10.0.0.1")
    created, refused = [], 0
    for second in range(HOUR_S):
        if second % 10 == 0:
            hostile_second(audit, hostile, second)
        else:
            audit.observer.authentication_failed(hostile, "wrong credentials", False)
        if second % 60 == 30:
            name = f"made-{second}"
            if executed(audit, creation(audit, admin, [name])):
                created.append(name)
            else:
                refused += 1
        audit.clock.advance_ms(1000)
        if room == "a full disk now and then":
            audit.files.room = 0 if second % 600 > 500 else 1 << 40
        audit.flush()
    audit.files.room = 1 << 40
    audit.clock.advance_ms(2000)
    audit.services.emit_admin_event("server_stopping")
    audit.sink.close()
    folder = audit.sink.administration.spool.path
    trail = b"".join(map(read_segment, sealed_segments(folder))).splitlines()
    recorded = [name for name in created if any(f'"name":"{name}"'.encode() in line for line in trail)]
    assert recorded == created
    assert len(created) + refused == HOUR_S // 60
    assert (refused > 0) == (room == "a full disk now and then")
    assert any(b"server_stopping" in line for line in trail)
    assert audit.sink.administration.events_dropped == 0
    assert not any(b"audit_gap" in line or b"secret-" in line for line in trail), "none of it is theirs"
    assert max(map(len, lines_of(tmp_path))) <= 64 * 1024
    if room == "a full security spool":
        # The spool was full long before the end. No segment was deleted that had not been shipped.
        assert audit.sink.security.write_errors > HOUR_S // 2
        assert not any(b"segments_deleted" in line for line in lines_of(tmp_path))
    if room == "plenty":
        assert audit.sink.security.events_dropped == 0


def test_a_flood_of_one_stream_leaves_the_room_of_the_other_stream(make):
    audit = make(queue_capacity=10)
    connection = audit.connection()
    for _ in range(100):
        audit.observer.authentication_failed(connection, "no", False)
        audit.observer.connection_opened(connection)
    audit.complete(creation(audit, connection))
    audit.services.emit_admin_event("certificate_swapped")
    audit.flush()
    assert (audit.sink.security.events_dropped, audit.sink.requests.events_dropped) == (80, 80)
    recorded = [event["action"] for event in audit.events() if event["boot"].endswith("a")]
    assert sorted(recorded) == ["certificate_swapped", "completed"]


def test_segments_are_kept_until_they_are_shipped(make):
    limits = {"security_retention_bytes": 200_000, "security_retention_ms": 10_000, "compression": "none"}
    audit = make(segment_bytes=1024, queue_capacity=50, **limits)
    connection = audit.connection()
    for _ in range(300):
        audit.observer.authentication_failed(connection, "no" * 500, False)
        audit.flush()
        audit.clock.advance_ms(61_000)
    folder = audit.sink.security.spool.path
    kept = sealed_segments(folder)
    assert kept
    assert audit.sink.security.write_errors > 0
    # Then a program ships the segments. There is room again, and the gap in the numbers shows how many events were
    # lost.
    for path in kept:
        beside(path, ".shipped").touch()
    audit.clock.advance_ms(2000)
    audit.flush()
    audit.clock.advance_ms(61_000)
    audit.flush()
    assert not set(kept) & set(sealed_segments(folder))
    assert not list(folder.rglob("*.shipped"))
    assert any(b"segments_deleted" in line for line in lines_of(audit.settings.spool, unsealed=True))


@pytest.fixture
def make(tmp_path):
    return lambda **settings: Observing(tmp_path, **settings)


def test_an_event_names_all_thousands_of_topics_of_its_request(make):
    audit = make()
    names = [f"t-{number}" for number in range(5000)]
    event = creation(audit, audit.connection(), names, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert isinstance(event.request, create_topics.CreateTopicsRequest)
    audit.complete(event)
    recorded = [one["name"] for event in audit.requests() for one in event["resources"]]
    assert recorded == names


def test_denied_requests_of_many_clients_share_syncs(tmp_path):
    interval_ms, clients, requests = 50, 4, 8
    settings = [
        "authorizer=acl", "api_set=broker", 'observers=["audit"]', f"audit.spool={tmp_path}", "audit.node=node-1",
        f"audit.intent_sync_interval_ms={interval_ms}", "audit.fsync_interval_ms=60000",
    ]  # fmt: skip
    codes = []

    def flood(number):
        with RawClient(server.address(), timeout_s=60) as client:
            for each in range(requests):
                topics = [create_topics.CreatableTopic(f"t-{number}-{each}", 1, 1)]
                answer = client.call(create_topics.CreateTopicsRequest(topics), 5)
                codes.extend(topic.error_code for topic in answer.topics)

    with EmbeddedServer([f"listeners.default.{line}" for line in settings]) as server:
        began_ns = time.monotonic_ns()
        threads = [threading.Thread(target=flood, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed_ms = (time.monotonic_ns() - began_ns) / 1e6
        sink = server.server.services.shared.once(f"klamm_spark.observer.audit:{tmp_path.absolute()}", lambda: None)
        counts = (sink.journal.synced_count, sink.journal.sync.count)
    assert codes == [int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)] * clients * requests
    assert counts[0] == clients * requests, "each has an intent that was on disk"
    assert counts[1] <= elapsed_ms / interval_ms + 1
