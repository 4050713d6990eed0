"""Limits apply to all workers together: their parts add up to the whole, or to the bound in the documents."""

import pytest

from klamm import Address, Delay, ListenerContext, Refuse
from klamm.shared import WorkerShare
from klamm.shared.shared_counts import BYTES_PER_WORKER, SharedCounts
from klamm_quotas.connection_quota import ConnectionQuota
from klamm_quotas.handshake_limit import HandshakeLimit
from klamm_quotas.quota_settings import ConnectionQuotaSettings, HandshakeLimitSettings
from klamm_throttling.limits import QuotaLimits
from klamm_throttling.throttling_settings import ClientQuotaSettings


def shares(count):
    return [WorkerShare(number, count) for number in range(1, count + 1)]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("limit", [0, 1, 2, 5, 100, 2_147_483_647])
def test_parts_add_up_to_the_limit(count, limit):
    assert sum(share.of(limit) for share in shares(count)) == limit
    rounded = sum(share.at_least_one(limit) for share in shares(count))
    assert limit <= rounded <= limit + count - 1 if limit else rounded == 0
    assert sum(share.of_rate(limit) for share in shares(count)) == pytest.approx(limit)


def test_a_single_worker_has_the_whole_limit_and_its_plain_name():
    assert WorkerShare().of(7) == WorkerShare().at_least_one(7) == WorkerShare().of_rate(7) == 7
    assert WorkerShare().named("node") == "node"
    assert [share.named("node") for share in shares(2)] == ["node-worker-1", "node-worker-2"]


def listener_of(share):
    listener = ListenerContext("a", Address("127.0.0.1", 1), Address("127.0.0.1", 1))
    listener.services.worker = share
    return listener


def gate_of(share, settings):
    gate = ConnectionQuota(settings)
    gate.open(listener_of(share))
    return gate


def admitted(share, settings, hosts):
    gate = gate_of(share, settings)
    return [gate.admit(Address(host, port)) for port, host in enumerate(hosts)]


def test_workers_together_admit_the_connections_of_the_limit():
    hosts = [f"10.0.0.{index}" for index in range(20)]
    for settings in (ConnectionQuotaSettings(max_connections=10), ConnectionQuotaSettings(broker_max_connections=10)):
        answers = [admitted(share, settings, hosts) for share in shares(3)]
        assert [each.count(None) for each in answers] == [4, 3, 3]
        # A full worker leaves connections to the others.
        assert all(isinstance(one, Delay) and one.pause_acceptor for each in answers for one in each if one)


def shared(count):
    """Return the shares of workers that count together, and their table."""
    table = memoryview(bytearray(BYTES_PER_WORKER * count))
    counts = [SharedCounts(table.cast("I"), number, b"key") for number in range(1, count + 1)]
    return [WorkerShare(number, count, counts[number - 1]) for number in range(1, count + 1)], table


@pytest.mark.parametrize("settings", [{"max_connections_per_ip": 10}, {"overrides": {"10.0.0.0/8": 10}}])
def test_connections_of_an_address_are_counted_for_all_workers(settings):
    workers, table = shared(3)
    gates = [gate_of(share, ConnectionQuotaSettings(**settings)) for share in workers]
    answers = [gates[port % 3].admit(Address("10.0.0.1", port)) for port in range(20)]
    assert [answer is None for answer in answers] == [True] * 10 + [False] * 10
    assert all(isinstance(answer, Refuse) for answer in answers[10:])
    assert gates[0].admit(Address("10.0.0.2", 1)) is None
    gates[2].release(Address("10.0.0.1", 2))
    assert gates[0].admit(Address("10.0.0.1", 30)) is None
    assert isinstance(gates[1].admit(Address("10.0.0.1", 31)), Refuse)
    # Worker 2, which had four of the ten connections, is killed.
    table[BYTES_PER_WORKER : 2 * BYTES_PER_WORKER] = bytes(BYTES_PER_WORKER)
    more = [gates[0].admit(Address("10.0.0.1", 40 + port)) for port in range(6)]
    assert more.count(None) == 3


def test_handshakes_of_an_address_are_counted_for_all_workers():
    workers, _ = shared(2)
    gates = []
    for share in workers:
        gates.append(HandshakeLimit(HandshakeLimitSettings(max_handshakes_per_ip=2)))
        gates[-1].open(listener_of(share))
    answers = [gates[port % 2].admit(Address("10.0.0.1", port)) for port in range(3)]
    assert [answer is None for answer in answers] == [True, True, False]
    gates[1].authenticated(Address("10.0.0.1", 1))
    assert gates[0].admit(Address("10.0.0.1", 4)) is None


def test_names_of_an_attacker_do_not_make_an_address_look_full():
    """10,000 addresses have a connection each. Almost none is counted with another."""
    workers, _ = shared(2)
    names = [f"connections 10.{index >> 16}.{index >> 8 & 255}.{index & 255}" for index in range(10_000)]
    for index, name in enumerate(names):
        workers[index % 2].counts.add(name, 1)
    counts = [workers[0].counts.count(name) for name in names]
    assert min(counts) == 1
    assert sum(count > 1 for count in counts) < 40
    for index, name in enumerate(names):
        workers[index % 2].counts.add(name, -1)
    assert not any(workers[1].counts.count(name) for name in names)


def test_client_quotas_are_split():
    settings = ClientQuotaSettings(users={"alice": {"producer_byte_rate": 1000.0}})
    found = [QuotaLimits(settings, {}, share).find("producer_byte_rate", "alice", "") for share in shares(4)]
    assert sum(limit.value for limit in found) == 1000
