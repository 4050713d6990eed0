"""A state change is on disk before it is executed. These tests cover crashes in between, and failing disks."""

import errno
import json
import threading

import pytest

from klamm import ErrorCode, KafkaError
from klamm.testing import ManualClock
from klamm.wire.messages import consumer_group_heartbeat, create_topics, join_group
from klamm_spark.observer import intents
from klamm_spark.observer.intents import IntentJournal, UnrecordableError
from klamm_spark.spool.layout import stream_mark
from tests.unit.audit.observing import Observing, ping
from tests.unit.audit.test_spool import BadDisk
from tests.unit.audit.test_state_changes import creation


def crash(audit):
    """Abandon the observer like a process that ends without closing anything."""
    for stream in audit.sink.streams.values():
        audit.files.close(stream.spool._lock)


def journal_of(audit):
    return (audit.sink.administration.spool.path / "intents").read_bytes()


def interrupted(audit):
    return [event for event in audit.events() if event["action"] == "interrupted"]


def start_creation(audit, names=("orders",), **options):
    """Start a creation whose handler is about to run."""
    event = creation(audit, audit.connection(), names, **options)
    audit.observer.starting(event.request, event.context)
    return event


def test_an_intent_is_on_disk_before_the_handler_runs(audit):
    start_creation(audit)
    (line,) = journal_of(audit).splitlines()
    intent = json.loads(line)
    assert (intent["api_name"], intent["principal"], intent["client_id"]) == ("CreateTopics", "User:alice", "client")
    assert [one["name"] for one in intent["resources"]] == ["orders"]
    assert audit.files.fsyncs == 1, "of what people change, it survives a power failure"


def test_a_crash_before_the_outcome_leaves_an_event(tmp_path):
    first = Observing(tmp_path)
    done, left = start_creation(first, ["done"]), start_creation(first, ["left", "too"])
    first.complete(done)
    first.flush()
    # The outcome never reaches the disk.
    first.complete(left)
    crash(first)
    second = Observing(tmp_path)
    (event,) = interrupted(second)
    assert (event["kind"], event["outcome"], event["api_name"]) == ("request", "unknown", "CreateTopics")
    assert [one["name"] for one in event["resources"]] == ["left", "too"]
    assert event["intent_id"].startswith(first.sink.administration.spool.boot)
    assert stream_mark(event["boot"]) == "a"
    assert event["client_address"] == "10.0.0.9"
    # The event is reported once.
    crash(second)
    assert len(interrupted(Observing(tmp_path))) == 1


def test_an_outcome_names_its_intent(audit):
    event = start_creation(audit)
    audit.complete(event)
    (recorded,) = audit.requests()
    assert json.loads(journal_of(audit).splitlines()[0])["intent_id"] == recorded["intent_id"]
    assert audit.sink.journal.open_count == 0


def test_an_outcome_that_was_written_just_before_the_crash_is_known(tmp_path):
    first = Observing(tmp_path)
    first.complete(start_creation(first))
    first.sink.journal.finish = lambda intent_ids=(): None
    first.flush()
    crash(first)
    assert interrupted(Observing(tmp_path)) == []


def test_a_denied_change_also_ends_its_intent(tmp_path):
    first = Observing(tmp_path)
    first.complete(start_creation(first, code=29))
    first.flush()
    assert first.sink.journal.open_count == 0
    crash(first)
    assert interrupted(Observing(tmp_path)) == []


def test_a_torn_intent_was_never_executed(tmp_path):
    first = Observing(tmp_path)
    start_creation(first)
    path = first.sink.administration.spool.path / "intents"
    crash(first)
    path.write_bytes(path.read_bytes()[:-10])
    assert interrupted(Observing(tmp_path)) == []


def test_a_request_that_changes_nothing_has_no_intent(audit):
    connection = audit.connection()
    for message in (
        ping(audit, connection).request,
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "m", 3),
    ):
        event = audit.request(connection, message, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse())
        audit.observer.starting(message, event.context)
    assert journal_of(audit) == b""


@pytest.mark.parametrize(("policy", "expected"), [("none", [0, 0]), ("administrative", [1, 1]), ("all", [1, 2])])
def test_intents_are_synced_as_sync_intents_demands(make, policy, expected):
    audit = make(sync_intents=policy)
    start_creation(audit)
    fsyncs = [audit.files.fsyncs]
    request = join_group.JoinGroupRequest("g")
    event = audit.request(audit.connection(), request, join_group.JoinGroupResponse())
    audit.observer.starting(request, event.context)
    assert [*fsyncs, audit.files.fsyncs] == expected


# ---- changes that cannot be recorded


def test_with_a_full_disk_a_change_is_refused_before_it_is_executed(audit, caplog):
    audit.files.room = 0
    for _ in range(3):
        with pytest.raises(KafkaError) as refused:
            start_creation(audit)
        assert refused.value.error_code is ErrorCode.REQUEST_TIMED_OUT
    request = join_group.JoinGroupRequest("g")
    event = audit.request(audit.connection(), request, join_group.JoinGroupResponse())
    with pytest.raises(KafkaError) as refused:
        audit.observer.starting(request, event.context)
    assert refused.value.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert caplog.text.count("cannot be recorded") == 1
    audit.files.room = 1 << 40
    start_creation(audit)
    assert audit.sink.journal.errors == 4


def test_changes_are_refused_if_the_disk_does_not_sync(audit):
    audit.files.broken = {"fsync"}
    with pytest.raises(KafkaError):
        start_creation(audit)
    assert audit.sink.journal.open_count == 0


def test_with_allow_an_unrecordable_change_is_executed(make):
    audit = make(on_unrecordable_change="allow")
    audit.files.room = 0
    event = start_creation(audit)
    audit.files.room = 1 << 40
    audit.complete(event)
    (recorded,) = audit.requests()
    assert "intent_id" not in recorded


def test_changes_are_refused_before_their_outcomes_find_no_room(make):
    audit = make(max_open_changes=10, on_limit="stop", administration_retention_bytes=1)
    events = [start_creation(audit, [str(number)]) for number in range(5)]
    for event in events:
        audit.complete(event)
        audit.flush()
    events = [start_creation(audit, [str(number)]) for number in range(5)]
    with pytest.raises(KafkaError):
        start_creation(audit)
    audit.complete(*events)
    assert audit.sink.administration.events_dropped == 0
    assert audit.sink.journal.open_count == 10


# ---- the journal


@pytest.fixture
def journal(tmp_path):
    one = IntentJournal(tmp_path / "intents", BadDisk(), 1000, ManualClock())
    one.open("boot")
    return one


def test_the_journal_stays_small(journal, tmp_path):
    kept = journal.begin(1, ',"name":"kept"', sync=False)
    for _ in range(3000):
        journal.finish([journal.begin(1, f',"name":"{"x" * 1000}"', sync=False)])
    assert (tmp_path / "intents").stat().st_size < 1_500_000
    again = IntentJournal(tmp_path / "intents", BadDisk(), 1000, ManualClock())
    assert [intent["intent_id"] for intent in again.open("next")] == [kept]


def test_a_rewritten_journal_survives_a_power_failure(tmp_path):
    disk, calls = BadDisk(), []
    for name in ("rename", "sync_directory"):
        real = getattr(disk, name)
        setattr(disk, name, lambda *given, name=name, real=real: (calls.append(name), real(*given)))
    journal = IntentJournal(tmp_path / "intents", disk, 1000, ManualClock())
    journal.open("boot")
    assert calls == ["sync_directory"], "the new file has its name"
    for _ in range(1100):
        journal.finish([journal.begin(1, f',"name":"{"x" * 1000}"', sync=False)])
    assert calls[1:] == ["rename", "sync_directory"]


def test_a_write_that_fails_midway_leaves_whole_lines(journal, tmp_path):
    journal.begin(1, ',"name":"a"', sync=False)
    journal._files.room = 10
    with pytest.raises(UnrecordableError):
        journal.begin(1, ',"name":"b"', sync=False)
    journal._files.room = 1 << 30
    journal.begin(1, ',"name":"c"', sync=False)
    assert [json.loads(line)["name"] for line in (tmp_path / "intents").read_bytes().splitlines()] == ["a", "c"]


def test_after_a_sync_that_failed_the_journal_is_written_again(journal, tmp_path):
    """The system may have dropped data that waited for the next sync, although that sync succeeds."""
    journal.begin(1, ',"name":"waits"', sync=False)
    journal._files.broken = {"fsync"}
    with pytest.raises(UnrecordableError):
        journal.begin(1, ',"name":"refused"', sync=True)
    journal._files.broken = set()
    # The disk has nothing of a file that it did not confirm.
    with open(tmp_path / "intents", "r+b") as file:
        file.truncate(0)
    journal.begin(1, ',"name":"synced"', sync=True)
    again = IntentJournal(tmp_path / "intents", BadDisk(), 10, ManualClock())
    assert [intent["name"] for intent in again.open("next")] == ["waits", "synced"]


@pytest.mark.parametrize("call", ["sync_directory", "open_append"])
def test_an_intent_is_never_written_to_a_file_without_a_name(journal, tmp_path, call, caplog, monkeypatch):
    monkeypatch.setattr(intents, "_REWRITE_BYTES", 10)
    disk, last = journal._files, journal.begin(1, ',"name":"last"', sync=False)
    real = getattr(disk, call)

    def fails(*given):
        raise OSError(errno.EMFILE, "broken")

    setattr(disk, call, fails)
    journal.finish([last])
    assert "broken" in caplog.text
    with pytest.raises(UnrecordableError):
        journal.begin(1, ',"name":"refused"', sync=False)
    setattr(disk, call, real)
    kept = journal.begin(1, ',"name":"kept"', sync=False)
    again = IntentJournal(tmp_path / "intents", BadDisk(), 10, ManualClock())
    assert [intent["intent_id"] for intent in again.open("next")] == [kept]


def test_open_intents_are_bounded_in_bytes(journal):
    for _ in range(33):
        journal.begin(1, f',"name":"{"x" * 4_000_000}"', sync=False)
    with pytest.raises(UnrecordableError):
        journal.begin(1, f',"name":"{"x" * 4_000_000}"', sync=False)


def test_many_threads_write_whole_lines(journal, tmp_path):
    def work():
        for _ in range(100):
            journal.finish([journal.begin(1, f',"name":"{"x" * 100}"', sync=False)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (tmp_path / "intents").read_bytes().splitlines()
    ids = [json.loads(line)["intent_id"] for line in lines if line.startswith(b"{")]
    assert len(ids) == len(set(ids)) == 800
    assert journal.open_count == 0


def test_a_damaged_line_does_not_affect_the_other_lines(tmp_path, caplog):
    (tmp_path / "intents").write_bytes(b'{"intent_id":"b/0"}\n{rubbish\n\xff\xfe\n{"intent_id":"b/1"}\nb/0\n')
    journal = IntentJournal(tmp_path / "intents", BadDisk(), 10, ManualClock())
    assert journal.open("c") == [{"intent_id": "b/1"}]
    assert "cannot be read" in caplog.text


def test_a_creation_without_an_answer_is_recorded_as_requested(audit):
    event = start_creation(audit)
    assert isinstance(event.request, create_topics.CreateTopicsRequest)
    audit.complete(event._replace(response=None))
    (recorded,) = audit.requests()
    assert recorded["resources"][0]["attributes"][0] == {"name": "partitions", "value": "1"}
