"""Tests of addresses with many failed logins: the limit, its duration, and the number of remembered addresses."""

import pytest

from klamm.testing import ManualClock
from klamm_sasl import failed_logins
from klamm_sasl.failed_logins import MAX_FAILURES, FailedLogins


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def exceeded():
    return []


@pytest.fixture
def known(clock, exceeded):
    return FailedLogins(clock, exceeded.append)


def fail(known, source="a", times=MAX_FAILURES):
    for _ in range(times):
        known.failed(source)


def test_the_tenth_failure_exceeds_the_limit_once(known, exceeded):
    fail(known, times=MAX_FAILURES - 1)
    assert not known.exceeds("a")
    fail(known, times=20)
    assert known.exceeds("a")
    assert not known.exceeds("b")
    assert exceeded == ["a"]


def test_the_limit_is_exceeded_until_half_a_minute_after_the_last_failure(known, clock, exceeded):
    fail(known)
    clock.advance_ms(29_999)
    assert known.exceeds("a")
    known.failed("a")
    clock.advance_ms(29_999)
    assert known.exceeds("a")
    clock.advance_ms(1)
    assert not known.exceeds("a")
    known.failed("a")
    assert known.exceeds("a"), "not all is forgiven yet"
    assert exceeded == ["a", "a"]
    clock.advance_ms(57_000)
    fail(known, times=MAX_FAILURES - 1)
    assert not known.exceeds("a")


def test_one_failure_every_three_seconds_is_forgiven(known, clock, exceeded):
    for _ in range(100):
        known.failed("a")
        clock.advance_ms(3000)
    fail(known, times=MAX_FAILURES - 1)
    assert exceeded == []


def test_a_success_halves_the_failures(known, clock):
    fail(known, times=8)
    known.succeeded("a")
    fail(known, times=5)
    assert not known.exceeds("a")
    known.failed("a")
    assert known.exceeds("a")
    known.succeeded("a")
    assert known.exceeds("a"), "a single one does not clear it"
    known.succeeded("a")
    assert not known.exceeds("a")
    known.succeeded("b")
    assert not known.exceeds("b")
    assert len(known) == 1


def test_addresses_that_failed_last_are_remembered(known, monkeypatch):
    monkeypatch.setattr(failed_logins, "MAX_SOURCES", 3)
    for source in "abc":
        fail(known, source)
    fail(known, "a", 1)
    fail(known, "d", 1)
    assert len(known) == 3
    assert [known.exceeds(source) for source in "abcd"] == [True, False, True, False]
