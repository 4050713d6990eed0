"""Tests of a day of a simulated server: things expire at their times, and the history of its groups has no anomaly."""

import time

import pytest

from tests.unit.testing.simulated_days import days


def check(seconds):
    seen, anomalies, digest = days(seconds)
    assert anomalies == []
    assert seen.keys() == {"records", "transactions", "tokens", "offsets"}
    # At least one of each kind ends within two hours.
    assert all(number >= seconds // 7_200 for number in seen.values()), seen
    return digest


@pytest.mark.timeout(300)
def test_a_seed_repeats_hours_with_groups_retention_transactions_and_tokens():
    assert check(8_000) == check(8_000)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_simulated_day_has_no_anomaly(capsys):
    started_s = time.process_time()
    check(100_000)
    with capsys.disabled():
        print(f"\n100,000 simulated seconds: {time.process_time() - started_s:.1f} s of processor time")
