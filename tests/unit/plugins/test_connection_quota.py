"""The gate `connection_quota`: counts by address that never leak."""

import threading

import pytest

from klamm import Address, Refuse
from klamm_quotas.connection_quota import ConnectionQuota
from klamm_quotas.settings import ConnectionQuotaSettings

HERE = Address("127.0.0.1", 1)


def gate(limit=2, **overrides):
    return ConnectionQuota(ConnectionQuotaSettings(max_connections_per_ip=limit, overrides=overrides))


def test_one_more_than_allowed_is_refused_until_one_goes():
    quota = gate()
    assert [quota.admit(HERE), quota.admit(HERE)] == [None, None]
    assert quota.admit(HERE) == Refuse("per_ip", "127.0.0.1 has 2 of 2 connections")
    assert quota.admit(Address("127.0.0.2", 1)) is None
    quota.release(HERE)
    assert quota.admit(HERE) is None


def test_a_limit_of_zero_lets_nobody_in():
    assert isinstance(gate(0).admit(HERE), Refuse)


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
def test_the_longest_prefix_counts(host, limit):
    quota = gate(**{"10.20.0.0/16": 50, "10.20.30.40": 1, "10.20.30.0/24": 9, "fe80::/10": 3})
    assert quota.limit_of(host) == limit


def test_counts_survive_many_threads_and_leave_nothing_behind():
    quota = gate(3)
    admitted = []

    def come_and_go():
        for _ in range(2000):
            if quota.admit(HERE) is None:
                admitted.append(quota.count_of(HERE.host))
                quota.release(HERE)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted
    assert max(admitted) <= 3
    assert quota.count_of(HERE.host) == 0
    assert quota._counts == {}
