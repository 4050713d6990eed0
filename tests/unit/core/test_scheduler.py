"""Tests of the scheduler and the purgatory, with a manual clock."""

import pytest

from klamm.runtime.purgatory import DelayedOperation, Purgatory
from klamm.runtime.scheduler import Scheduler
from klamm.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def scheduler(clock):
    return Scheduler(clock)


def test_calls_run_in_the_order_of_their_deadlines(clock, scheduler):
    calls = []
    scheduler.schedule(20, lambda: calls.append("b"))
    scheduler.schedule(10, lambda: calls.append("a"))
    scheduler.schedule(20, lambda: calls.append("c"))
    assert scheduler.run_due() == pytest.approx(0.010)
    clock.advance_ms(20)
    assert scheduler.run_due() is None
    assert calls == ["a", "b", "c"]


def test_a_cancelled_timer_never_runs_and_many_cost_no_memory(clock, scheduler):
    timers = [scheduler.schedule(1_000_000, pytest.fail) for _ in range(5000)]
    for timer in timers:
        timer.cancel()
        timer.cancel()
    assert scheduler.timer_count < 2500
    clock.advance_ms(1_000_001)
    assert scheduler.run_due() is None


def test_a_call_that_raises_does_not_affect_others(clock, scheduler, caplog):
    calls = []
    scheduler.schedule(1, lambda: 1 / 0)
    scheduler.schedule(2, lambda: calls.append(1))
    clock.advance_ms(5)
    scheduler.run_due()
    assert calls == [1]
    assert "ZeroDivisionError" in caplog.text


def test_periodic_work_continues_until_it_is_cancelled(clock, scheduler):
    calls = []
    timer = scheduler.every(10, lambda: calls.append(clock.monotonic_ns()))
    for _ in range(3):
        clock.advance_ms(10)
        scheduler.run_due()
    timer.cancel()
    clock.advance_ms(100)
    scheduler.run_due()
    assert len(calls) == 3


class Waiting(DelayedOperation):
    __slots__ = ("log", "ready")

    def __init__(self, delay_ms, request=None):
        super().__init__(delay_ms, request)
        self.ready = False
        self.log = []

    def try_complete(self):
        return self.ready and self.force_complete()

    def on_complete(self):
        self.log.append("complete")

    def on_expiration(self):
        self.log.append("expired")


def test_an_operation_whose_condition_holds_completes_at_once(scheduler):
    operation = Waiting(10)
    operation.ready = True
    purgatory = Purgatory(scheduler)
    assert purgatory.try_complete_else_watch(operation, ["k"])
    assert operation.log == ["complete"]
    assert purgatory.watched() == 0


def test_an_operation_completes_by_any_of_its_keys_and_only_once(clock, scheduler):
    operation = Waiting(10)
    purgatory = Purgatory(scheduler)
    assert not purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.check_and_complete("a") == 0
    operation.ready = True
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.check_and_complete("a") == 0
    clock.advance_ms(100)
    scheduler.run_due()
    assert operation.log == ["complete"]
    assert purgatory.watched() == 0


def test_an_operation_expires_before_it_completes(clock, scheduler):
    operation = Waiting(10)
    purgatory = Purgatory(scheduler)
    purgatory.try_complete_else_watch(operation, ["a"])
    clock.advance_ms(9)
    scheduler.run_due()
    assert operation.log == []
    clock.advance_ms(1)
    scheduler.run_due()
    assert operation.log == ["expired", "complete"]
    assert not operation.force_complete()


class Asking:
    """A waiting request that is answered once, like a real one."""

    def __init__(self):
        self.answers = []

    def respond(self, response):
        if self.answers:
            raise RuntimeError("answered twice")
        self.answers.append(response)


class Failing(Waiting):
    """An operation that raises in the method that `at` names."""

    __slots__ = ("at",)

    def __init__(self, at, request=None):
        super().__init__(10, request)
        self.at = at

    def _maybe_fail(self, method):
        if self.at == method:
            raise ZeroDivisionError(method)

    def try_complete(self):
        if self.ready:
            self._maybe_fail("try_complete")
        return super().try_complete()

    def on_complete(self):
        super().on_complete()
        self._maybe_fail("on_complete")

    def on_expiration(self):
        self._maybe_fail("on_expiration")


@pytest.mark.parametrize("at", ["try_complete", "on_complete"])
def test_an_operation_that_raises_answers_with_the_error_and_the_others_are_still_tried(clock, scheduler, at):
    purgatory, asking = Purgatory(scheduler), Asking()
    operations = [Waiting(10), Failing(at, asking), Waiting(10)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["k"])
        operation.ready = True
    assert purgatory.check_and_complete("k") == 3
    assert [str(answer) for answer in asking.answers] == [at]
    assert operations[2].log == ["complete"]
    assert purgatory.watched() == 0
    clock.advance_ms(100)
    scheduler.run_due()
    assert len(asking.answers) == 1


@pytest.mark.parametrize("at", ["on_expiration", "on_complete"])
def test_an_operation_that_raises_at_its_expiry_answers_with_the_error(clock, scheduler, at):
    purgatory, asking = Purgatory(scheduler), Asking()
    purgatory.try_complete_else_watch(Failing(at, asking), ["k"])
    clock.advance_ms(10)
    scheduler.run_due()
    assert [str(answer) for answer in asking.answers] == [at]
    assert purgatory.watched() == 0


def test_an_operation_without_a_request_or_with_an_answer_is_logged_when_it_raises(scheduler, caplog):
    purgatory, asking = Purgatory(scheduler), Asking()
    asking.respond("before it failed")
    for operation in (Failing("on_complete"), Failing("on_complete", asking)):
        operation.ready = True
        assert purgatory.try_complete_else_watch(operation, ["k"])
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError, ZeroDivisionError]
    assert asking.answers == ["before it failed"]


def test_an_error_of_the_first_try_reaches_the_handler(scheduler):
    purgatory, operation = Purgatory(scheduler), Failing("try_complete", Asking())
    operation.ready = True
    with pytest.raises(ZeroDivisionError):
        purgatory.try_complete_else_watch(operation, ["k"])
    assert purgatory.watched() == 0
    assert operation.request.answers == []


def test_an_error_of_a_later_try_fails_the_operation(scheduler):
    class Late(Failing):
        __slots__ = ()

        def watched_by(self, purgatory, keys):
            super().watched_by(purgatory, keys)
            self.ready = True

    purgatory, operation = Purgatory(scheduler), Late("try_complete", Asking())
    assert purgatory.try_complete_else_watch(operation, ["k"])
    assert len(operation.request.answers) == 1
    assert purgatory.watched() == 0
