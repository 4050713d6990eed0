"""Tests of the gate `connection_quota`: limits per address, listener and server, and waiting acceptors."""

import threading

import pytest

from klamm import Address, Delay, Refuse
from klamm_quotas.connection_quota import ConnectionQuota
from klamm_quotas.quota_settings import ConnectionQuotaSettings
from tests.unit.quotas.gates import GatedListener, GateServer


def quota(**settings):
    return ConnectionQuota(ConnectionQuotaSettings(**settings))


@pytest.fixture
def server():
    return GateServer()


def test_a_connection_above_the_limit_of_its_address_is_refused_until_another_ends(server):
    listener = GatedListener(server, "a", quota(max_connections_per_ip=2))
    assert [listener.connect(), listener.connect()] == [None, None]
    assert listener.connect() == Refuse("per_ip", "10.0.0.1 has 2 of 2 connections")
    assert listener.connect("10.0.0.2") is None
    listener.close(listener.open_connections[0])
    assert listener.connect() is None


def test_an_address_is_counted_on_all_listeners_together(server):
    settings = {"max_connections_per_ip": 2}
    one, two = GatedListener(server, "a", quota(**settings)), GatedListener(server, "b", quota(**settings))
    assert [one.connect(), two.connect("::ffff:10.0.0.1")] == [None, None]
    assert one.connect().reason == two.connect().reason == "per_ip"


def test_a_limit_of_zero_admits_no_connection(server):
    assert isinstance(GatedListener(server, "a", quota(max_connections_per_ip=0)).connect(), Refuse)


@pytest.mark.parametrize(
    ("host", "limit"),
    [
        ("10.20.0.1", 50),
        ("10.20.30.1", 9),
        ("10.20.30.40", 1),
        ("::ffff:10.20.30.40", 1),
        ("fe80::1%eth0", 3),
        ("10.21.0.1", 2),
        ("2001:db8::1", 2),
    ],
)
def test_the_limit_of_the_longest_prefix_applies(host, limit):
    overrides = {"10.20.0.0/16": 50, "10.20.30.40": 1, "10.20.30.0/24": 9, "fe80::/10": 3}
    assert quota(max_connections_per_ip=2, overrides=overrides).limit_of(host) == limit


def test_a_full_listener_waits_and_is_resumed_when_a_connection_closes(server):
    full, other = GatedListener(server, "full", quota(max_connections=1)), GatedListener(server, "other", quota())
    assert full.connect() is None
    address = server.new_address("10.0.0.2")
    answer = full.ask(address)
    assert isinstance(answer, Delay)
    assert (answer.reason, answer.pause_acceptor) == ("per_listener", True)
    assert other.connect() is None
    assert full.resumed == 0
    full.close(full.open_connections[0])
    assert full.resumed == 1
    assert full.ask(address) is None
    full.close(address)
    assert full.resumed == 1, "no acceptor waits any more"


def test_a_full_server_resumes_when_a_connection_of_any_listener_ends(server):
    settings = {"broker_max_connections": 2}
    one, two = GatedListener(server, "a", quota(**settings)), GatedListener(server, "b", quota(**settings))
    assert [one.connect(), two.connect()] == [None, None]
    assert one.connect().reason == "per_broker"
    two.close(two.open_connections[0])
    assert (one.resumed, two.resumed) == (1, 0)
    assert one.connect() is None


def test_a_client_over_the_limit_of_its_address_delays_no_other(server):
    listener = GatedListener(server, "a", quota(max_connections_per_ip=1, max_connections=1))
    assert listener.connect() is None
    assert isinstance(listener.connect(), Refuse)


def test_a_protected_listener_closes_the_least_recently_used_connection_of_the_fullest_one(server):
    settings = {"broker_max_connections": 3}
    one, two = GatedListener(server, "a", quota(**settings)), GatedListener(server, "b", quota(**settings))
    inner = GatedListener(server, "inner", quota(protected=True, **settings))
    for listener in (one, one, two):
        assert listener.connect() is None
    oldest = one.open_connections[0]
    assert inner.connect() is None
    assert oldest not in one.open_connections
    assert [len(listener.open_connections) for listener in (one, two, inner)] == [1, 1, 1]
    assert [inner.connect(), inner.connect()] == [None, None]
    assert [len(listener.open_connections) for listener in (one, two, inner)] == [0, 0, 3]
    # There is no unprotected connection to close, but a protected listener still accepts.
    assert inner.connect() is None
    assert one.connect().reason == "per_broker"


def test_a_connection_that_could_not_be_closed_yet_is_requested_again(server):
    settings = {"broker_max_connections": 2}
    one = GatedListener(server, "a", quota(**settings))
    inner = GatedListener(server, "inner", quota(protected=True, **settings))
    assert [one.connect(), one.connect()] == [None, None]
    asked = []
    # A processor whose connections are still being set up does this.
    one.context.close_least_recently_used = lambda: asked.append(server.clock.monotonic_ns()) is not None
    assert [inner.connect(), inner.connect()] == [None, None]
    assert len(asked) == 2
    assert len(one.open_connections) == 2
    one.context.close_least_recently_used = one._evict
    server.advance_ms(100)
    assert [len(listener.open_connections) for listener in (one, inner)] == [0, 2]
    server.advance_ms(10_000)
    assert server.services.scheduler.run_due() is None, "no retry is scheduled once the limit is kept"


def test_a_requested_close_that_is_pending_is_not_requested_twice(server):
    settings = {"broker_max_connections": 10}
    one = GatedListener(server, "a", quota(**settings))
    inner = GatedListener(server, "inner", quota(protected=True, **settings))
    for _ in range(10):
        assert one.connect() is None
    asked = []
    one.context.close_least_recently_used = lambda: asked.append(1) is None
    for _ in range(3):
        assert inner.connect() is None
    assert len(asked) == 3
    # They are closed in the next turn of their processor.
    for _ in range(3):
        one._evict()
    server.advance_ms(1000)
    assert len(asked) == 3


def test_the_only_listener_is_never_protected(server):
    listener = GatedListener(server, "only", quota(protected=True, broker_max_connections=1))
    assert listener.connect() is None
    assert listener.connect().reason == "per_broker"


def test_new_settings_apply_at_once(server):
    gate = quota(max_connections=1)
    listener = GatedListener(server, "a", gate)
    assert listener.connect() is None
    assert listener.connect().reason == "per_listener"
    assert gate.reconfigure(ConnectionQuotaSettings(max_connections=5, overrides={"10.0.0.0/8": 3}))
    assert listener.resumed == 1
    assert [listener.connect(), listener.connect()] == [None, None]
    assert listener.connect().reason == "per_ip"
    # A lower limit of the server is enforced at once.
    assert gate.reconfigure(ConnectionQuotaSettings(broker_max_connections=1))
    assert len(listener.open_connections) == 1


def test_the_metric_counts_connections(server):
    listener = GatedListener(server, "a", quota())
    listener.connect()
    assert server.metric("klamm:type=ConnectionQuota,name=Connections") == {("a",): 1}


def test_counts_survive_many_threads_and_leave_nothing_behind(server):
    gate = quota(max_connections_per_ip=3)
    GatedListener(server, "a", gate)
    here = Address("127.0.0.1", 1)
    admitted = []

    def come_and_go():
        for _ in range(2000):
            if gate.admit(here) is None:
                admitted.append(gate.count_of(here.host))
                gate.release(here)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted
    assert max(admitted) <= 3
    counts = server.services.shared.find("connection_counts")
    assert (counts.total, counts.by_source, counts.listeners["a"].connections) == (0, {}, 0)


def test_a_closed_gate_leaves_the_counts_to_its_successor(server):
    earlier, later = quota(), quota()
    GatedListener(server, "same", earlier)
    GatedListener(server, "same", later)
    counts = server.services.shared.find("connection_counts")
    successor = counts.listeners["same"]
    earlier.close()
    assert counts.listeners == {"same": successor}
    later.close()
    assert counts.listeners == {}
