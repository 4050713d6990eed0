"""Tests of the gate `handshake_limit`: places are freed however a handshake ends."""

import pytest

from klamm import Delay
from klamm_quotas.handshake_limit import HandshakeLimit
from klamm_quotas.quota_settings import HandshakeLimitSettings
from tests.unit.quotas.gates import GatedListener, GateServer


def limited(**settings):
    return GatedListener(GateServer(), "a", HandshakeLimit(HandshakeLimitSettings(**settings)))


@pytest.mark.parametrize("end", [GatedListener.authenticated, GatedListener.fail, GatedListener.close])
def test_the_acceptor_waits_until_a_handshake_is_over(end):
    listener = limited(max_handshakes=2)
    assert [listener.connect(), listener.connect()] == [None, None]
    answer = listener.connect()
    assert isinstance(answer, Delay)
    assert (answer.reason, answer.pause_acceptor) == ("handshakes", True)
    end(listener, listener.open_connections[0])
    assert listener.resumed >= 1
    assert listener.connect() is None
    assert listener.server.metric("klamm:type=HandshakeLimit,name=Handshakes") == {("a",): 2}


def test_the_places_of_one_address_are_limited():
    listener = limited(max_handshakes_per_ip=1)
    assert listener.connect() is None
    assert listener.connect().reason == "handshakes_per_ip"
    assert listener.connect("10.0.0.2") is None
    listener.authenticated(listener.open_connections[0])
    assert listener.connect() is None


def test_a_reused_port_is_counted_once_if_its_earlier_connection_still_exists():
    listener = limited(max_handshakes_per_ip=1)
    address = listener.server.new_address("10.0.0.1")
    assert [listener.ask(address), listener.ask(address)] == [None, None]
    listener.close(address)
    listener.close(address)
    assert listener.gates[0]._by_source == {}


def test_new_settings_apply_at_once():
    listener = limited(max_handshakes=1)
    listener.connect()
    assert listener.connect() is not None
    assert listener.gates[0].reconfigure(HandshakeLimitSettings(max_handshakes=2))
    assert listener.resumed == 1
    assert listener.connect() is None
