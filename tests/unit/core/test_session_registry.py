"""Tests of SessionRegistry: which sessions it ends, when, and its events."""

import threading

import pytest

from klamm import Address, ConnectionContext, KafkaPrincipal, ListenerContext, ServerServices, SessionRegistry
from klamm.api.sessions import RECHECK_DELAY_MS, RETRY_CHECK_MS, UNCHECKED_MAX_MS
from klamm.testing import ManualClock

HERE = Address("127.0.0.1", 1)


class Sessions:
    """A registry, connections, and credentials that a test changes."""

    def __init__(self):
        self.clock = ManualClock()
        self.services = ServerServices(self.clock)
        self.listener = ListenerContext("front", HERE, HERE, "SASL_PLAINTEXT", self.services)
        self.bad = set()
        self.ended = []
        self.events = []
        self.services.admin_events.subscribe(self.events.append)
        self.registry = SessionRegistry(self.listener, lambda connection, reason: self.note(connection, reason))

    def note(self, connection, reason):
        self.ended.append((connection.connection_id, reason))
        self.registry.remove(connection)

    def connect(self, name, key=None, expires_ns=None, principal=None):
        connection = ConnectionContext(name, self.listener, HERE, HERE, KafkaPrincipal(principal or key or name))
        self.add(connection, key or name, expires_ns)
        return connection

    def add(self, connection, key, expires_ns=None):
        return self.registry.add(connection, key, lambda: f"{key} is gone" if key in self.bad else None, expires_ns)

    def pass_time(self, ms):
        self.clock.advance_ms(ms)
        self.services.scheduler.run_due()

    def recheck(self, keys=None):
        self.registry.recheck(keys)
        self.pass_time(RECHECK_DELAY_MS)


@pytest.fixture
def sessions():
    return Sessions()


def test_sessions_whose_credential_is_removed_end_with_one_event(sessions):
    for number in range(3):
        sessions.connect(f"a{number}", "alice")
    sessions.connect("b", "bob")
    sessions.bad.add("alice")
    sessions.registry.recheck()
    sessions.pass_time(RECHECK_DELAY_MS - 1)
    assert sessions.ended == []
    sessions.pass_time(1)
    assert sessions.ended == [(f"a{number}", "alice is gone") for number in range(3)]
    (event,) = sessions.events
    assert (event.action, event.listener, event.failed) == ("sessions_ended", "front", False)
    assert event.detail == "alice is gone: connections of User:alice (3)"
    assert len(sessions.registry) == 1
    sessions.recheck()
    assert len(sessions.ended) == 3


def test_only_sessions_with_the_changed_keys_are_checked(sessions):
    sessions.connect("a", "alice")
    sessions.connect("b", "bob")
    sessions.bad |= {"alice", "bob"}
    sessions.recheck(["alice", "nobody"])
    assert [name for name, _ in sessions.ended] == ["a"]
    assert sessions.registry.has("bob")
    assert not sessions.registry.has("alice")


def test_several_changes_cause_one_check(sessions):
    for name in "abc":
        sessions.connect(name)
    sessions.bad |= {"a", "b", "c"}
    sessions.registry.recheck(["a"])
    sessions.registry.recheck(iter(["b"]))
    sessions.pass_time(RECHECK_DELAY_MS)
    assert [name for name, _ in sessions.ended] == ["a", "b"]
    sessions.registry.recheck(["a"])
    sessions.registry.recheck()
    sessions.registry.recheck(["b"])
    sessions.pass_time(RECHECK_DELAY_MS)
    assert [name for name, _ in sessions.ended] == ["a", "b", "c"]


def test_a_session_expires_without_an_event(sessions):
    sessions.connect("a", expires_ns=sessions.clock.monotonic_ns() + 5_000_000)
    sessions.pass_time(4)
    assert sessions.ended == []
    sessions.pass_time(1)
    assert sessions.ended == [("a", "the session has expired and was not renewed")]
    assert sessions.events == []


def test_a_renewed_session_has_its_new_end(sessions):
    connection = sessions.connect("a", expires_ns=sessions.clock.monotonic_ns() + 5_000_000)
    sessions.registry.renewing(connection)
    sessions.pass_time(20)
    assert sessions.ended == [], "no end while it is renewed"
    sessions.add(connection, "b", sessions.clock.monotonic_ns() + 5_000_000)
    assert not sessions.registry.has("a")
    sessions.bad.add("a")
    sessions.recheck()
    assert [name for name, _ in sessions.ended] == ["a"], "by its time"


def test_a_change_between_login_and_session_is_noticed(sessions):
    sessions.bad.add("a")
    connection = ConnectionContext("a", sessions.listener, HERE, HERE)
    assert sessions.add(connection, "a") == "a is gone"
    assert len(sessions.registry) == 0
    assert not sessions.registry.has("a")


def test_closed_connections_are_removed(sessions):
    connections = [sessions.connect(str(number), expires_ns=10**12) for number in range(1000)]
    for connection in connections:
        sessions.registry.remove(connection)
        sessions.registry.remove(connection)
    sessions.bad |= set(map(str, range(1000)))
    sessions.recheck()
    sessions.pass_time(10**9)
    assert sessions.ended == []
    assert not sessions.registry._sessions
    assert not sessions.registry._by_key


class Check:
    """A revocation check that raises until `reason` is an answer."""

    def __init__(self):
        self.reason = ZeroDivisionError("the store is away")
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if isinstance(self.reason, Exception):
            raise self.reason
        return self.reason


@pytest.mark.parametrize(("answer", "ended"), [(None, []), ("it is gone", [("a", "it is gone")])])
def test_a_check_that_fails_is_tried_again_until_it_answers(sessions, answer, ended):
    check = Check()
    connection = ConnectionContext("a", sessions.listener, HERE, HERE)
    assert sessions.registry.add(connection, "a", check) is None
    sessions.recheck()
    sessions.pass_time(UNCHECKED_MAX_MS - RETRY_CHECK_MS)
    assert sessions.ended == [], "a fault that passes ends no session"
    check.reason = answer
    sessions.pass_time(RETRY_CHECK_MS)
    assert sessions.ended == ended
    calls = check.calls
    sessions.pass_time(10 * UNCHECKED_MAX_MS)
    assert check.calls == calls, "once it has answered, only a change asks again"
    assert sessions.ended == ended


def test_attempts_count_from_zero_for_a_later_failure_of_the_check(sessions):
    check = Check()
    sessions.registry.add(ConnectionContext("a", sessions.listener, HERE, HERE), "a", check)
    sessions.pass_time(UNCHECKED_MAX_MS - RETRY_CHECK_MS)
    fault, check.reason = check.reason, None
    sessions.pass_time(RETRY_CHECK_MS)
    check.reason = fault
    sessions.pass_time(10 * UNCHECKED_MAX_MS)
    sessions.recheck()
    assert sessions.ended == []
    sessions.pass_time(UNCHECKED_MAX_MS)
    assert [name for name, _ in sessions.ended] == ["a"]


def test_a_session_that_can_never_be_checked_ends_with_an_event(sessions, caplog):
    for name in "ab":
        sessions.registry.add(ConnectionContext(name, sessions.listener, HERE, HERE), name, Check())
    sessions.connect("c")
    for _ in range(UNCHECKED_MAX_MS // RETRY_CHECK_MS):
        assert sessions.ended == []
        sessions.pass_time(RETRY_CHECK_MS)
    assert [name for name, _ in sessions.ended] == ["a", "b"]
    assert len(sessions.events) == 1
    assert "the session could not be checked for 60 s" in sessions.events[0].detail
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert len(tracebacks) <= 2, "one a minute, however many sessions there are"
    assert "cannot check whether the session may continue" in caplog.text


def test_a_failed_check_is_dropped_with_its_connection(sessions):
    check = Check()
    connection = ConnectionContext("a", sessions.listener, HERE, HERE)
    sessions.registry.add(connection, "a", check)
    sessions.registry.remove(connection)
    sessions.pass_time(UNCHECKED_MAX_MS)
    assert check.calls == 1
    sessions.registry.add(connection, "a", check)
    sessions.registry.close()
    sessions.pass_time(UNCHECKED_MAX_MS)
    assert check.calls == 2


def test_a_connection_that_cannot_be_ended_does_not_affect_others(sessions, caplog):
    def disconnect(connection, reason):
        if connection.connection_id == "a":
            raise ZeroDivisionError
        sessions.ended.append((connection.connection_id, reason))

    sessions.registry._disconnect = disconnect
    for name in "abc":
        sessions.connect(name, "key", expires_ns=sessions.clock.monotonic_ns() + 10**12)
    sessions.bad.add("key")
    sessions.recheck()
    assert [name for name, _ in sessions.ended] == ["b", "c"]
    assert "the session cannot be ended" in caplog.text


def test_many_principals_cause_one_event_of_limited_size(sessions):
    for number in range(500):
        sessions.connect(f"c{number}", "key", principal=f"{number}-" + "x" * 30_000)
    sessions.bad.add("key")
    sessions.recheck()
    assert len(sessions.ended) == 500
    (event,) = sessions.events
    assert event.detail.endswith("and 480 more principals")
    assert len(event.detail) < 8_000


def test_a_closed_registry_ends_no_session(sessions):
    connection = sessions.connect("a", expires_ns=sessions.clock.monotonic_ns() + 5_000_000)
    sessions.bad.add("a")
    sessions.registry.recheck()
    sessions.registry.close()
    sessions.registry.recheck()
    sessions.pass_time(1_000)
    assert sessions.ended == []
    assert sessions.add(connection, "b") is None
    assert len(sessions.registry) == 0


def test_any_thread_may_add_remove_and_recheck(sessions):
    def work(name):
        for number in range(300):
            connection = sessions.connect(f"{name}{number}", name)
            sessions.registry.recheck([name])
            if number % 2:
                sessions.registry.remove(connection)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        sessions.pass_time(RECHECK_DELAY_MS)
    assert len(sessions.registry) == 600
    sessions.bad |= set("abcd")
    sessions.recheck()
    assert len(sessions.ended) == 600
