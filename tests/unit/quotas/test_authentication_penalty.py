"""The gate `authentication_penalty`: penalties double, end, and are forgotten."""

import pytest

from klamm import Delay, Refuse
from klamm_quotas.authentication_penalty import AuthenticationPenalty
from klamm_quotas.settings import AuthenticationPenaltySettings
from tests.unit.quotas.gates import Door, House


def penalizing(**settings):
    settings = {"allowed_failures": 2, "initial_penalty_ms": 1000, "max_penalty_ms": 8000, "delay_ms": 500} | settings
    return Door(House(), "a", AuthenticationPenalty(AuthenticationPenaltySettings(**settings)))


def fail(door, times=1, host="10.0.0.1"):
    for _ in range(times):
        assert door.connect(host) is None
        door.fail(door.open_connections[-1])


def test_penalties_double_up_to_the_longest():
    door = penalizing()
    fail(door, 3)
    for penalty_ms in (1000, 2000, 4000, 8000, 8000):
        door.house.clock.advance_ms(penalty_ms - 1)
        # One whole millisecond is left, and a part of another.
        assert door.connect() == Delay(2, "authentication_penalty")
        assert door.connect("10.0.0.2") is None
        door.house.clock.advance_ms(1)
        fail(door)


def test_a_penalized_address_is_closed_after_the_delay_or_at_once():
    door = penalizing()
    fail(door, 3)
    assert door.connect() == Delay(500, "authentication_penalty")
    door = penalizing(delay_ms=0)
    fail(door, 3)
    assert isinstance(door.connect(), Refuse)
    assert door.house.metric("klamm:type=AuthenticationPenalty,name=PenalizedAddresses") == {(): 1}


def test_attempts_during_a_penalty_do_not_lengthen_it():
    door = penalizing()
    fail(door, 3)
    for _ in range(10):
        assert door.connect() is not None
    door.house.clock.advance_ms(1000)
    assert door.connect() is None


def test_failures_are_forgotten_after_a_while():
    door = penalizing(forget_after_ms=60_000)
    fail(door, 2)
    door.house.clock.advance_ms(60_000)
    fail(door, 2)
    assert door.connect() is None


def test_one_success_takes_back_one_failure():
    door = penalizing()
    for _ in range(20):
        fail(door)
        assert door.connect() is None
        door.authenticated(door.open_connections[-1])
    assert door.gates[0]._failures.by_source == {}
    fail(door, 3)
    door.house.clock.advance_ms(1000)
    assert door.connect() is None
    door.authenticated(door.open_connections[-1])
    fail(door)
    assert door.connect() is not None, "one success must not pay for guessing"


def test_exempt_networks_are_never_penalized():
    door = penalizing(exempt=("10.0.0.0/8",))
    fail(door, 50)
    fail(door, 3, "192.0.2.1")
    assert door.connect("192.0.2.1") is not None
    door.gates[0].reconfigure(AuthenticationPenaltySettings(exempt=("192.0.2.0/24",)))
    assert door.connect("192.0.2.1") is None


def test_memory_is_bounded_and_the_oldest_go_first():
    door = penalizing(max_tracked_addresses=10, allowed_failures=0)
    for number in range(100):
        fail(door, 1, f"10.1.0.{number}")
    assert len(door.gates[0]._failures.by_source) == 10
    assert door.connect("10.1.0.99") is not None
    assert door.connect("10.1.0.0") is None


@pytest.mark.parametrize("count", [40, 200])
def test_many_failures_overflow_nothing(count):
    door = penalizing(max_penalty_ms=10)
    for _ in range(count):
        door.house.clock.advance_ms(11)
        fail(door)
    assert door.connect().delay_ms <= 11


def test_failures_at_all_listeners_count_together():
    house = House()
    settings = AuthenticationPenaltySettings(allowed_failures=2, initial_penalty_ms=1000)
    a = Door(house, "a", AuthenticationPenalty(settings))
    b = Door(house, "b", AuthenticationPenalty(settings))
    trusting = Door(house, "c", AuthenticationPenalty(AuthenticationPenaltySettings(exempt=("10.0.0.0/8",))))
    fail(a, 2)
    fail(b, 1)
    for door in (a, b):
        assert isinstance(door.connect(), Delay)
    assert trusting.connect() is None
    assert house.metric("klamm:type=AuthenticationPenalty,name=PenalizedAddresses") == {(): 1}
    house.clock.advance_ms(1000)
    assert a.connect() is None
    a.authenticated(a.open_connections[-1])
    fail(b, 1)
    house.clock.advance_ms(1000)
    assert b.connect() is None, "the success at the other listener has taken one failure back: no doubling"
