import itertools
import signal

import pytest

from klamm.runtime import IllegalTransitionError
from klamm.testing import ManualClock
from klamm.workers.states import TRANSITIONS, WorkerEvent, WorkerState
from klamm.workers.supervisor import (
    GIVE_UP_AFTER,
    KILL_GRACE_MS,
    LONGEST_DELAY_MS,
    STABLE_AFTER_MS,
    Restarts,
    Supervisor,
    describe_status,
)

DEADLINE_MS = 1000
KILLED = -signal.SIGKILL


class Recorded:
    """Records the actions of a supervisor, in order."""

    def __init__(self):
        self.calls = []
        self._pids = itertools.count(100)

    def fork(self, number):
        self.calls.append(("fork", number))
        return next(self._pids)

    def stop(self, number):
        self.calls.append(("stop", number))

    def kill(self, number):
        self.calls.append(("kill", number))

    def all_ready(self):
        self.calls.append(("all_ready",))

    def replaced_all(self):
        self.calls.append(("replaced_all",))

    def replacement_failed(self, number):
        self.calls.append(("replacement_failed", number))

    def report(self, line):
        self.calls.append(("report", line))

    def taken(self):
        """Return the actions since the last call, without log lines."""
        calls, self.calls = self.calls, []
        return [call for call in calls if call[0] != "report"]


class Started:
    def __init__(self, count=3):
        self.clock = ManualClock()
        self.done = Recorded()
        self.supervisor = Supervisor(count, self.done, self.clock, DEADLINE_MS)
        self.supervisor.start()
        for number in range(1, count + 1):
            self.supervisor.answers(number)
        self.done.taken()


@pytest.fixture
def started():
    return Started()


def test_each_state_accepts_only_the_events_of_the_table():
    for state, event in itertools.product(WorkerState, WorkerEvent):
        if (state, event) in TRANSITIONS:
            assert TRANSITIONS[state, event] in WorkerState
        else:
            with pytest.raises(IllegalTransitionError, match=f"{state.name} cannot take {event.name}"):
                _ = TRANSITIONS[state, event]


def test_the_server_is_ready_when_every_worker_answers():
    done = Recorded()
    supervisor = Supervisor(2, done, ManualClock(), DEADLINE_MS)
    supervisor.start()
    assert done.taken() == [("fork", 1), ("fork", 2)]
    supervisor.answers(2)
    assert done.taken() == []
    supervisor.answers(1)
    assert done.taken() == [("all_ready",)]
    assert supervisor.ready_count == 2


def test_a_worker_that_cannot_start_ends_the_start():
    done = Recorded()
    supervisor = Supervisor(2, done, ManualClock(), DEADLINE_MS)
    supervisor.start()
    supervisor.answers(2)
    done.taken()
    supervisor.exited(1, 1)
    assert done.taken() == [("stop", 2)]
    assert not supervisor.ended
    supervisor.exited(2, 0)
    assert supervisor.ended
    assert supervisor.exit_code == 1


def test_a_killed_worker_is_started_again_at_once(started):
    started.supervisor.exited(2, KILLED)
    assert started.done.taken() == [("fork", 2)]
    assert started.supervisor.restarted == 1
    started.supervisor.answers(2)
    # The start message is written once.
    assert started.done.taken() == []


def test_a_worker_that_an_operator_stops_is_started_again_without_a_failure(started):
    started.supervisor.exited(2, 0)
    assert started.done.taken() == [("fork", 2)]
    assert started.supervisor.restarted == 0
    assert started.supervisor.workers[2].restarts.in_a_row == 0


def test_a_worker_that_fails_again_waits_longer_each_time(started):
    supervisor, delays = started.supervisor, []
    supervisor.exited(1, 70)
    for _ in range(9):
        supervisor.exited(1, 70)
        due_ns = supervisor.next_due_ns()
        delays.append((due_ns - started.clock.monotonic_ns()) // 1_000_000)
        supervisor.due()
        assert started.done.taken()[-1:] != [("fork", 1)] or len(delays) == 1
        started.clock.advance_ms(delays[-1])
        supervisor.due()
        assert started.done.taken() == [("fork", 1)]
    assert delays == [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]
    assert not supervisor.stopping


def test_a_worker_that_has_run_for_a_minute_has_recovered():
    restarts = Restarts()
    assert [restarts.failed(10) for _ in range(3)] == [0, 500, 1000]
    assert restarts.failed(STABLE_AFTER_MS) == 0
    assert max(Restarts.failed(restarts, 0) for _ in range(40)) == LONGEST_DELAY_MS


def test_the_server_gives_up_when_no_worker_stays_up():
    started = Started(count=2)
    supervisor = started.supervisor
    for _ in range(GIVE_UP_AFTER):
        for number in (1, 2):
            if not supervisor.stopping:
                supervisor.exited(number, 70)
        started.clock.advance_ms(LONGEST_DELAY_MS)
        supervisor.due()
    assert supervisor.ended
    assert supervisor.exit_code == 1
    assert "every worker failed" in started.done.calls[-1][1]


def test_one_serving_worker_is_enough_to_continue():
    started = Started(count=2)
    for _ in range(3 * GIVE_UP_AFTER):
        started.supervisor.exited(1, 70)
        started.clock.advance_ms(LONGEST_DELAY_MS)
        started.supervisor.due()
    assert not started.supervisor.stopping
    assert started.supervisor.ready_count == 1


def test_a_worker_that_serves_again_after_many_failures_keeps_the_server_up():
    started = Started(count=2)
    supervisor = started.supervisor
    for failing in (1, 2):
        for _ in range(GIVE_UP_AFTER):
            supervisor.exited(failing, 70)
            started.clock.advance_ms(LONGEST_DELAY_MS)
            supervisor.due()
        supervisor.answers(failing)
    assert not supervisor.stopping
    assert supervisor.ready_count == 2


def test_workers_are_replaced_one_after_another(started):
    supervisor = started.supervisor
    supervisor.replace(supervisor.workers)
    for number in (1, 2, 3):
        assert started.done.taken() == [("stop", number)]
        assert supervisor.ready_count == 2
        supervisor.exited(number, 0)
        assert started.done.taken() == [("fork", number)]
        supervisor.answers(number)
    assert started.done.taken() == [("replaced_all",)]


def test_a_failed_replacement_does_not_affect_other_workers(started):
    supervisor = started.supervisor
    supervisor.replace(supervisor.workers)
    supervisor.exited(1, 0)
    supervisor.exited(1, 1)
    assert started.done.taken() == [("stop", 1), ("fork", 1), ("replacement_failed", 1), ("fork", 1)]
    assert supervisor.ready_count == 2
    supervisor.answers(1)
    assert started.done.taken() == []


def test_a_stop_drains_all_and_kills_those_that_do_not_end(started):
    supervisor = started.supervisor
    supervisor.stop()
    assert started.done.taken() == [("stop", 1), ("stop", 2), ("stop", 3)]
    supervisor.exited(1, 0)
    supervisor.exited(2, 0)
    started.clock.advance_ms(DEADLINE_MS + KILL_GRACE_MS - 1)
    supervisor.due()
    assert started.done.taken() == []
    started.clock.advance_ms(1)
    supervisor.due()
    assert started.done.taken() == [("kill", 3)]
    supervisor.exited(3, KILLED)
    assert supervisor.ended
    assert supervisor.exit_code == 0
    assert supervisor.next_due_ns() is None


def test_a_stop_during_a_replacement_starts_nothing(started):
    supervisor = started.supervisor
    supervisor.replace(supervisor.workers)
    supervisor.stop()
    for number in (1, 2, 3):
        supervisor.exited(number, 0)
    assert supervisor.ended
    assert [call for call in started.done.taken() if call[0] == "fork"] == []


def test_a_stop_waits_for_no_restart(started):
    for _ in range(2):
        started.supervisor.exited(1, KILLED)
    started.supervisor.stop()
    started.supervisor.exited(2, 0)
    started.supervisor.exited(3, 0)
    assert started.supervisor.ended


@pytest.mark.parametrize(("status", "text"), [(3, "with exit code 3"), (KILLED, "by SIGKILL"), (-200, "by signal 200")])
def test_an_end_is_described(status, text):
    assert describe_status(status) == text
