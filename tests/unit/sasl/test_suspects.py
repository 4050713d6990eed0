"""Addresses that fail often: who is a suspect, for how long, and how many are remembered."""

import pytest

from klamm.testing import ManualClock
from klamm_sasl import failed_logins as suspects
from klamm_sasl.failed_logins import FAILURES, Suspects, source_of


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def became():
    return []


@pytest.fixture
def known(clock, became):
    return Suspects(clock, became.append)


def fail(known, source="a", times=FAILURES):
    for _ in range(times):
        known.failed(source)


def test_the_tenth_failure_makes_a_suspect_once(known, became):
    fail(known, times=FAILURES - 1)
    assert "a" not in known
    fail(known, times=20)
    assert "a" in known
    assert "b" not in known
    assert became == ["a"]


def test_a_suspect_is_one_until_half_a_minute_after_its_last_failure(known, clock, became):
    fail(known)
    clock.advance_ms(29_999)
    assert "a" in known
    known.failed("a")
    clock.advance_ms(29_999)
    assert "a" in known
    clock.advance_ms(1)
    assert "a" not in known
    known.failed("a")
    assert "a" in known, "not all is forgiven yet"
    assert became == ["a", "a"]
    clock.advance_ms(57_000)
    fail(known, times=FAILURES - 1)
    assert "a" not in known


def test_one_failure_every_three_seconds_is_forgiven(known, clock, became):
    for _ in range(100):
        known.failed("a")
        clock.advance_ms(3000)
    fail(known, times=FAILURES - 1)
    assert became == []


def test_a_success_takes_back_half(known, clock):
    fail(known, times=8)
    known.succeeded("a")
    fail(known, times=5)
    assert "a" not in known
    known.failed("a")
    assert "a" in known
    known.succeeded("a")
    assert "a" in known, "a single one does not clear a suspect"
    known.succeeded("a")
    assert "a" not in known
    known.succeeded("b")
    assert "b" not in known
    assert len(known) == 1


def test_those_that_failed_last_are_remembered(known, monkeypatch):
    monkeypatch.setattr(suspects, "_MAX_SOURCES", 3)
    for source in "abc":
        fail(known, source)
    fail(known, "a", 1)
    fail(known, "d", 1)
    assert len(known) == 3
    assert [source in known for source in "abcd"] == [True, False, True, False]


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("somewhere", "somewhere"),
        ("", ""),
    ],
)
def test_failures_are_counted_by_address_and_by_network_of_ipv6(host, source):
    assert source_of(host) == source
