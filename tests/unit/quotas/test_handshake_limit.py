"""The gate `handshake_limit`: places are given back however a handshake ends."""

import pytest

from klamm import Delay
from klamm_quotas.handshake_limit import HandshakeLimit
from klamm_quotas.settings import HandshakeLimitSettings
from tests.unit.quotas.gates import Door, House


def limited(**settings):
    return Door(House(), "a", HandshakeLimit(HandshakeLimitSettings(**settings)))


@pytest.mark.parametrize("end", [Door.authenticated, Door.fail, Door.close])
def test_the_acceptor_waits_until_a_handshake_is_over(end):
    door = limited(max_handshakes=2)
    assert [door.connect(), door.connect()] == [None, None]
    answer = door.connect()
    assert isinstance(answer, Delay)
    assert (answer.reason, answer.pause_acceptor) == ("handshakes", True)
    end(door, door.open_connections[0])
    assert door.resumed >= 1
    assert door.connect() is None
    assert door.house.metric("klamm:type=HandshakeLimit,name=Handshakes") == {("a",): 2}


def test_one_address_holds_only_so_many_places():
    door = limited(max_handshakes_per_ip=1)
    assert door.connect() is None
    assert door.connect().reason == "handshakes_per_ip"
    assert door.connect("10.0.0.2") is None
    door.authenticated(door.open_connections[0])
    assert door.connect() is None


def test_a_port_that_comes_back_before_its_old_connection_went_is_counted_once():
    door = limited(max_handshakes_per_ip=1)
    address = door.house.new_address("10.0.0.1")
    assert [door.ask(address), door.ask(address)] == [None, None]
    door.close(address)
    door.close(address)
    assert door.gates[0]._by_source == {}


def test_new_settings_count_at_once():
    door = limited(max_handshakes=1)
    door.connect()
    assert door.connect() is not None
    assert door.gates[0].reconfigure(HandshakeLimitSettings(max_handshakes=2))
    assert door.resumed == 1
    assert door.connect() is None
