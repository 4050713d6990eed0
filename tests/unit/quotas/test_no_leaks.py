"""20,000 connections that end in every possible way leave nothing behind in the gates."""

import random
from collections import Counter

import pytest

from klamm import Refuse
from klamm_quotas.authentication_penalty import AuthenticationPenalty
from klamm_quotas.connection_quota import ConnectionQuota
from klamm_quotas.creation_rate import CreationRate
from klamm_quotas.handshake_limit import HandshakeLimit
from klamm_quotas.quota_settings import (
    AuthenticationPenaltySettings,
    ConnectionQuotaSettings,
    CreationRateSettings,
    HandshakeLimitSettings,
)
from tests.unit.quotas.gates import GatedListener, GateServer

CONNECTIONS = 20_000
ATTEMPTS = 50


def gates(**quota):
    return [
        AuthenticationPenalty(AuthenticationPenaltySettings(allowed_failures=5, initial_penalty_ms=200, delay_ms=100)),
        ConnectionQuota(
            ConnectionQuotaSettings(max_connections_per_ip=6, max_connections=25, broker_max_connections=40, **quota)
        ),
        CreationRate(
            CreationRateSettings(
                connection_creation_rate=2, max_connection_creation_rate=11, broker_max_connection_creation_rate=20
            )
        ),
        HandshakeLimit(HandshakeLimitSettings(max_handshakes=18, max_handshakes_per_ip=4)),
    ]


def connect(server, listener, rng, seen):
    """Connect as the acceptor does: wait and ask again if a gate says so. Sometimes the server stops meanwhile."""
    address = server.new_address(f"10.0.0.{rng.randrange(20)}")
    for _ in range(ATTEMPTS):
        answer = listener.ask(address)
        if answer is None:
            seen["admitted"] += 1
            return
        seen[answer.reason] += 1
        if isinstance(answer, Refuse) or not answer.pause_acceptor:
            return
        server.clock.advance_ms(min(answer.delay_ms, 20))
        if rng.random() < 0.2:
            close_one(listener, rng, seen)
        if rng.random() < 0.02:
            seen["stopped while it waited"] += 1
            return


def close_one(listener, rng, seen):
    if not listener.open_connections:
        return
    address = rng.choice(listener.open_connections)
    way = rng.choice(["break", "authenticate", "fail", "authenticate and close", "break"])
    seen[way] += 1
    if way == "fail":
        listener.fail(address)
        return
    if "authenticate" in way:
        listener.authenticated(address)
    if way != "authenticate":
        listener.close(address)


@pytest.mark.parametrize("order", [1, -1])
def test_all_counters_return_to_zero(order):
    rng = random.Random(order)
    server = GateServer()
    doors = [
        GatedListener(server, "one", *gates()[::order]),
        GatedListener(server, "two", *gates()[::order]),
        GatedListener(server, "inner", *gates(protected=True)[::order]),
    ]
    seen = Counter()
    for _ in range(CONNECTIONS):
        listener = rng.choice(doors)
        connect(server, listener, rng, seen)
        if rng.random() < 0.5:
            close_one(rng.choice(doors), rng, seen)
        if rng.random() < 0.1:
            server.clock.advance_ms(rng.randrange(300))
    reasons = {"per_ip", "per_listener", "per_broker", "per_ip_rate", "per_listener_rate", "per_broker_rate"}
    reasons |= {"handshakes", "handshakes_per_ip", "authentication_penalty"}
    assert reasons <= set(seen), reasons - set(seen)
    for listener in doors:
        for address in list(listener.open_connections):
            listener.close(address)
    for listener in doors:
        by_type = {type(gate): gate for gate in listener.gates}
        counts = server.services.shared.find("connection_counts")
        assert (counts.total, counts.by_source) == (0, {})
        assert [listener.connections for listener in counts.listeners.values()] == [0, 0, 0]
        assert by_type[HandshakeLimit]._under_way == set()
        assert by_type[HandshakeLimit]._by_source == {}
    server.clock.advance_ms(3_600_000)
    assert server.metric("klamm:type=AuthenticationPenalty,name=PenalizedAddresses") == {(): 0}
    assert all(listener.connect("192.0.2.1") is None for listener in doors)
