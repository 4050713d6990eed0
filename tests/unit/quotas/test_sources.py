"""Tests of the addresses that gates count as one: an IPv4 address in any spelling, and a network of IPv6."""

import pytest

from klamm.config import specs_of
from klamm.shared import IpNetworks, ip_address_of, source_of
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


def quota(**settings):
    return ConnectionQuota(ConnectionQuotaSettings(max_connections_per_ip=1, **settings))


def rate(**settings):
    return CreationRate(CreationRateSettings(connection_creation_rate=1, quota_window_num=2, **settings))


def handshakes(**settings):
    return HandshakeLimit(HandshakeLimitSettings(max_handshakes_per_ip=1, **settings))


def penalty(**settings):
    return AuthenticationPenalty(AuthenticationPenaltySettings(allowed_failures=0, **settings))


@pytest.fixture
def server():
    return GateServer()


GATES = [quota, rate, handshakes, penalty]
FIRST, NEIGHBOUR, OTHER = "2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1"


def used_up(server, gate, host):
    """Return a listener at which a host has used up what one address may have."""
    listener = GatedListener(server, "a", gate)
    address = server.new_address(host)
    assert listener.ask(address) is None
    if isinstance(gate, AuthenticationPenalty):
        gate.authentication_failed(address)
    return listener


@pytest.mark.parametrize("make", GATES)
def test_a_network_of_ipv6_counts_as_one_address(server, make):
    listener = used_up(server, make(), FIRST)
    assert listener.connect(NEIGHBOUR) is not None
    assert listener.connect(OTHER) is None


@pytest.mark.parametrize("make", GATES)
def test_each_ipv6_address_counts_for_itself_if_a_setting_says_so(server, make):
    listener = used_up(server, make(ipv6_prefix_length=128), FIRST)
    assert listener.connect(NEIGHBOUR) is None
    assert listener.connect(FIRST) is not None


@pytest.mark.parametrize("make", GATES)
def test_an_ipv4_address_and_its_mapped_ipv6_address_count_as_one(server, make):
    listener = used_up(server, make(), "192.0.2.7")
    assert listener.connect("::ffff:192.0.2.7") is not None
    assert listener.connect("::ffff:192.0.2.8") is None


@pytest.mark.parametrize("make", GATES)
def test_a_changed_prefix_takes_effect_at_the_next_start(server, make):
    gate = make()
    used_up(server, gate, FIRST)
    assert gate.live_keys == specs_of(type(gate.settings)).keys() - {"ipv6_prefix_length"}


def test_ended_connections_of_a_network_are_no_longer_counted(server):
    gate = quota()
    listener = used_up(server, gate, FIRST)
    assert gate.count_of("2001:db8:1:2::/64") == 1
    listener.close(listener.open_connections[0])
    assert gate.count_of("2001:db8:1:2::/64") == 0
    assert listener.connect(NEIGHBOUR) is None


def test_an_address_with_its_own_rate_is_counted_separately(server):
    server.set_ip_rate(FIRST, 100)
    listener = GatedListener(server, "a", rate())
    assert [listener.connect(FIRST) for _ in range(3)] == [None] * 3
    assert listener.connect(NEIGHBOUR) is None
    assert listener.connect(NEIGHBOUR) is not None


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:c000:207", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("somewhere", "somewhere"),
        ("a:b", "a:b"),
        ("", ""),
    ],
)
def test_addresses_are_grouped_by_source(host, source):
    assert source_of(host) == source


def test_with_a_prefix_of_128_the_source_is_the_address():
    assert source_of("2001:DB8:0::4", 128) == "2001:db8::4"
    assert source_of("2001:db8:1:2:3::4", 48) == "2001:db8:1::/48"


def test_addresses_are_found_in_networks():
    networks = IpNetworks(["192.0.2.0/24", "2001:db8::1"])
    assert "::ffff:192.0.2.9" in networks
    assert "2001:db8::1%eth0" in networks
    assert "2001:db8::2" not in networks
    assert "somewhere" not in networks
    assert "192.0.2.9" not in IpNetworks([])
    with pytest.raises(ValueError):
        ip_address_of("somewhere")
