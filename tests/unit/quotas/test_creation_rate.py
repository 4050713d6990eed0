"""Tests of the gate `creation_rate`: delayed closes per address, and an acceptor that waits per listener and server."""

import pytest

from klamm import Delay
from klamm_quotas.creation_rate import CreationRate
from klamm_quotas.quota_settings import CreationRateSettings
from tests.unit.quotas.gates import GatedListener, GateServer


def rate(**settings):
    return CreationRate(CreationRateSettings(**settings))


@pytest.fixture
def server():
    return GateServer()


def burst(listener, host="10.0.0.1", most=1000):
    """Connect until a connection is not admitted. Return the number of admitted ones, and the outcome of the last."""
    for count in range(most):
        answer = listener.connect(host)
        if answer is not None:
            return count, answer
    return most, None


def test_a_connection_above_the_rate_of_its_address_is_closed_after_a_delay_and_not_counted(server):
    listener = GatedListener(server, "a", rate(connection_creation_rate=2))
    # Twenty in ten seconds are two a second. One more takes half a second.
    assert burst(listener) == (20, Delay(500, "per_ip_rate"))
    assert listener.connect() == Delay(500, "per_ip_rate")
    assert burst(listener, "10.0.0.2")[0] == 20
    server.clock.advance_ms(500)
    assert listener.connect() is None
    server.clock.advance_ms(12_000)
    assert burst(listener)[0] == 20


def test_an_address_is_counted_on_all_listeners_together(server):
    one, two = (GatedListener(server, name, rate(connection_creation_rate=1)) for name in "ab")
    assert burst(one)[0] == 10
    assert two.connect().reason == "per_ip_rate"


def test_no_delay_is_longer_than_a_window(server):
    listener = GatedListener(server, "a", rate(max_connection_creation_rate=1))
    address = server.new_address("10.0.0.1")
    for _ in range(40):
        answer = listener.ask(address)
        while answer is not None:
            assert answer.delay_ms <= 1000
            server.clock.advance_ms(answer.delay_ms)
            answer = listener.ask(address)


def test_a_listener_above_its_rate_waits_and_then_accepts_the_connection(server):
    listener = GatedListener(server, "a", rate(max_connection_creation_rate=2))
    assert burst(listener) == (20, Delay(500, "per_listener_rate", pause_acceptor=True))
    assert GatedListener(server, "b", rate(max_connection_creation_rate=2)).connect() is None
    server.clock.advance_ms(12_000)
    assert burst(listener)[0] == 20


def test_the_connection_that_waits_is_counted_once(server):
    gate = rate(max_connection_creation_rate=2)
    listener = GatedListener(server, "a", gate)
    for _ in range(20):
        assert listener.connect() is None
    address = server.new_address("10.0.0.1")
    assert listener.ask(address).delay_ms == 500
    server.clock.advance_ms(200)
    assert listener.ask(address).delay_ms == 300
    server.clock.advance_ms(300)
    assert listener.ask(address) is None
    assert server.metric("kafka.server:type=socket-server-metrics,name=broker-connection-accept-rate") == {(): 2.0}


def test_throttle_times_are_reported_for_a_while(server):
    group = "kafka.server:type=socket-server-metrics,name="
    listener = GatedListener(server, "a", rate(connection_creation_rate=2, max_connection_creation_rate=4))
    assert server.metric(f"{group}connection-accept-throttle-time") == {("a",): 0}
    of_address = [answer.delay_ms for answer in (listener.connect() for _ in range(25)) if answer]
    assert server.metric(f"{group}ip-connection-accept-throttle-time") == {("a",): sum(of_address) / len(of_address)}
    assert server.metric(f"{group}connection-accept-throttle-time") == {("a",): 0}
    of_listener = [answer.delay_ms for answer in (listener.connect(f"10.0.1.{n}") for n in range(30)) if answer]
    assert len(of_listener) == 10
    assert server.metric(f"{group}connection-accept-throttle-time") == {("a",): sum(of_listener) / len(of_listener)}
    server.clock.advance_ms(60_000)
    assert server.metric(f"{group}connection-accept-throttle-time") == {("a",): 0}


def test_several_connections_may_wait_at_once_and_abandoned_claims_are_removed(server):
    """Behind a proxy, each connection waits for itself."""
    gate = rate(max_connection_creation_rate=2)
    listener = GatedListener(server, "a", gate)
    burst(listener)
    addresses = [server.new_address("10.0.0.7") for _ in range(5)]
    delays = [listener.ask(address).delay_ms for address in addresses]
    assert delays == [1000] * 5
    server.clock.advance_ms(1000)
    assert [listener.ask(address) for address in addresses[:2]] == [None, None]
    server.clock.advance_ms(60_000)
    burst(listener)
    assert set(gate._waiting) & set(addresses) == set()


def test_the_rate_of_the_server_covers_all_listeners_but_protected_ones(server):
    settings = {"broker_max_connection_creation_rate": 1}
    one, two = (GatedListener(server, name, rate(**settings)) for name in "ab")
    inner = GatedListener(server, "inner", rate(protected=True, **settings))
    assert burst(inner, most=50)[0] == 50
    assert burst(one)[0] == 10
    assert two.connect() == Delay(1000, "per_broker_rate", pause_acceptor=True)
    assert server.metric("kafka.server:type=socket-server-metrics,name=broker-connection-accept-rate") == {(): 1.2}


def test_alter_client_quotas_changes_rates_of_addresses_live(server):
    gate = rate(connection_creation_rate=2, overrides={"10.9.0.0/16": 7})
    GatedListener(server, "a", gate)
    assert (gate.limit_of("10.0.0.1"), gate.limit_of("10.9.0.1")) == (2, 7)
    server.set_ip_rate(None, 3)
    server.set_ip_rate("10.0.0.5", 4)
    server.set_ip_rate("10.9.0.5", 5)
    hosts = ["10.0.0.1", "10.0.0.5", "::ffff:10.0.0.5", "10.9.0.1", "10.9.0.5"]
    assert [gate.limit_of(host) for host in hosts] == [3, 4, 4, 7, 5]
    server.set_ip_rate(None, None)
    server.set_ip_rate("10.9.0.5", None)
    assert [gate.limit_of(host) for host in hosts] == [2, 4, 4, 7, 7]


def test_new_settings_apply_at_once(server):
    gate = rate(connection_creation_rate=1)
    listener = GatedListener(server, "a", gate)
    assert burst(listener)[0] == 10
    assert gate.reconfigure(CreationRateSettings(connection_creation_rate=2))
    assert burst(listener)[0] == 10
    assert gate.reconfigure(CreationRateSettings(connection_creation_rate=1, quota_window_num=3))
    assert burst(listener)[0] == 2


def test_addresses_without_connections_are_removed(server):
    listener = GatedListener(server, "a", rate(connection_creation_rate=5))
    for second in range(5):
        for number in range(1500):
            listener.connect(f"10.{second}.{number // 250}.{number % 250}")
        server.clock.advance_ms(13_000)
    assert server.metric("klamm:type=CreationRate,name=TrackedAddresses")[()] < 3001
