"""Tests of the gate `authentication_penalty`: penalties double, end, and are forgotten."""

import pytest

from klamm import Delay, Refuse
from klamm_quotas.authentication_penalty import AuthenticationPenalty
from klamm_quotas.quota_settings import AuthenticationPenaltySettings
from tests.unit.quotas.gates import GatedListener, GateServer


def penalizing(**settings):
    settings = {"allowed_failures": 2, "initial_penalty_ms": 1000, "max_penalty_ms": 8000, "delay_ms": 500} | settings
    return GatedListener(GateServer(), "a", AuthenticationPenalty(AuthenticationPenaltySettings(**settings)))


def fail(listener, times=1, host="10.0.0.1"):
    for _ in range(times):
        assert listener.connect(host) is None
        listener.fail(listener.open_connections[-1])


def test_penalties_double_up_to_the_maximum():
    listener = penalizing()
    fail(listener, 3)
    for penalty_ms in (1000, 2000, 4000, 8000, 8000):
        listener.server.clock.advance_ms(penalty_ms - 1)
        # One whole millisecond is left, and a part of another.
        assert listener.connect() == Delay(2, "authentication_penalty")
        assert listener.connect("10.0.0.2") is None
        listener.server.clock.advance_ms(1)
        fail(listener)


def test_a_penalized_address_is_closed_after_the_delay_or_at_once():
    listener = penalizing()
    fail(listener, 3)
    assert listener.connect() == Delay(500, "authentication_penalty")
    listener = penalizing(delay_ms=0)
    fail(listener, 3)
    assert isinstance(listener.connect(), Refuse)
    assert listener.server.metric("klamm:type=AuthenticationPenalty,name=PenalizedAddresses") == {(): 1}


def test_attempts_during_a_penalty_do_not_lengthen_it():
    listener = penalizing()
    fail(listener, 3)
    for _ in range(10):
        assert listener.connect() is not None
    listener.server.clock.advance_ms(1000)
    assert listener.connect() is None


def test_failures_are_forgotten_after_a_while():
    listener = penalizing(forget_after_ms=60_000)
    fail(listener, 2)
    listener.server.clock.advance_ms(60_000)
    fail(listener, 2)
    assert listener.connect() is None


def test_one_success_cancels_one_failure():
    listener = penalizing()
    for _ in range(20):
        fail(listener)
        assert listener.connect() is None
        listener.authenticated(listener.open_connections[-1])
    assert listener.server.services.shared.find("authentication_failures").by_source == {}
    fail(listener, 3)
    listener.server.clock.advance_ms(1000)
    assert listener.connect() is None
    listener.authenticated(listener.open_connections[-1])
    fail(listener)
    assert listener.connect() is not None, "one success must not pay for guessing"


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL"])
def test_an_anonymous_connection_cancels_no_failure(protocol):
    """Otherwise a connection to a listener without authentication would pay for a guess at another one."""
    server, settings = GateServer(), AuthenticationPenaltySettings(allowed_failures=2, initial_penalty_ms=1000)
    guarded = GatedListener(server, "a", AuthenticationPenalty(settings))
    free = GatedListener(server, "b", AuthenticationPenalty(settings), security_protocol=protocol)
    for _ in range(3):
        fail(guarded)
        if free.connect() is None:
            free.authenticated(free.open_connections[-1], identified=False)
    assert guarded.connect() is not None
    assert free.connect() is not None


def test_exempt_networks_are_never_penalized():
    listener = penalizing(exempt=("10.0.0.0/8",))
    fail(listener, 50)
    fail(listener, 3, "192.0.2.1")
    assert listener.connect("192.0.2.1") is not None
    listener.gates[0].reconfigure(AuthenticationPenaltySettings(exempt=("192.0.2.0/24",)))
    assert listener.connect("192.0.2.1") is None


def test_memory_is_limited_and_the_oldest_addresses_are_removed_first():
    listener = penalizing(max_tracked_addresses=10, allowed_failures=0)
    for number in range(100):
        fail(listener, 1, f"10.1.0.{number}")
    assert len(listener.server.services.shared.find("authentication_failures").by_source) == 10
    assert listener.connect("10.1.0.99") is not None
    assert listener.connect("10.1.0.0") is None


@pytest.mark.parametrize("count", [40, 200])
def test_many_failures_overflow_nothing(count):
    listener = penalizing(max_penalty_ms=10)
    for _ in range(count):
        listener.server.clock.advance_ms(11)
        fail(listener)
    assert listener.connect().delay_ms <= 11


def test_failures_at_all_listeners_are_counted_together():
    server = GateServer()
    settings = AuthenticationPenaltySettings(allowed_failures=2, initial_penalty_ms=1000)
    a = GatedListener(server, "a", AuthenticationPenalty(settings))
    b = GatedListener(server, "b", AuthenticationPenalty(settings))
    trusting = GatedListener(server, "c", AuthenticationPenalty(AuthenticationPenaltySettings(exempt=("10.0.0.0/8",))))
    fail(a, 2)
    fail(b, 1)
    for listener in (a, b):
        assert isinstance(listener.connect(), Delay)
    assert trusting.connect() is None
    assert server.metric("klamm:type=AuthenticationPenalty,name=PenalizedAddresses") == {(): 1}
    server.clock.advance_ms(1000)
    assert a.connect() is None
    a.authenticated(a.open_connections[-1])
    fail(b, 1)
    server.clock.advance_ms(1000)
    assert b.connect() is None, "the success at the other listener has taken one failure back: no doubling"
