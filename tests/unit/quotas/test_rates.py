"""Tests of `Rate` and `TokenBucket`: Kafka's arithmetic, with values worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.runtime import Rate, TokenBucket


def test_a_first_burst_counts_over_ten_whole_windows():
    rate = Rate()
    rate.record(5000, 100)
    # No window has ended, so ten are assumed: 5000 / 10 s.
    assert rate.measure(100) == 500
    # Half of the current window is added.
    assert rate.measure(600) == pytest.approx(5000 / 10.5)


def test_throttle_time_brings_the_rate_down_to_the_bound():
    rate = Rate()
    rate.record(12_000, 0)
    # 1200 a second where 1000 are allowed: (1200 - 1000) / 1000 * 10 s.
    assert rate.throttle_time_ms(1000, 0) == 2000
    rate.record(-2000, 0)
    assert rate.throttle_time_ms(1000, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_time_ms(1000, 0) == 1


def test_throttle_time_is_rounded_as_in_java():
    rate = Rate()
    rate.record(40_010, 0)
    # 1 / 4000 of ten seconds.
    assert rate.throttle_time_ms(4000, 0) == 3
    rate.record(-1, 0)
    assert rate.throttle_time_ms(4000, 0) == 2


def test_old_samples_expire_and_the_oldest_that_overlaps_stays():
    rate = Rate(samples=2, window_ms=1000)
    rate.record(100, 0)
    rate.record(100, 1500)
    assert rate.measure(1900) == pytest.approx(200 / 1.9)
    # The first sample was last changed at 0, two windows before 2000.
    assert rate.measure(2000) == pytest.approx(100 / 1.5)
    # Both samples have expired, so one window is assumed.
    assert rate.measure(3500) == 0


def test_a_rate_without_records_is_zero():
    assert Rate().measure(77) == 0
    assert Rate().throttle_time_ms(1, 77) == 0


@given(st.lists(st.integers(1, 3_000_000), min_size=1, max_size=80))
def test_a_client_that_obeys_the_throttle_time_gets_its_bound_and_no_more(sizes):
    rate, bound, now_ms, sent = Rate(), 1_000_000, 0, 0
    for size in sizes:
        rate.record(size, now_ms)
        sent += size
        now_ms += rate.throttle_time_ms(bound, now_ms)
    # The ten windows before the start count as unused.
    assert sent <= bound * (now_ms / 1000 + 10) * 1.01


def test_a_bucket_is_full_at_first_and_can_be_overdrawn_once():
    bucket = TokenBucket(samples=11, window_ms=1000)
    assert bucket.tokens(5, 0) == 55
    bucket.take(80, 5, 0)
    assert bucket.tokens(5, 0) == -25
    assert bucket.throttle_time_ms(5, 0) == 5000
    assert bucket.throttle_time_ms(5, 4000) == 1000
    assert bucket.throttle_time_ms(5, 5000) == 0
    assert bucket.tokens(5, 10**9) == 55


def test_a_bucket_whose_rate_falls_holds_no_more_than_the_new_burst():
    bucket = TokenBucket(samples=10, window_ms=1000)
    assert bucket.tokens(100, 0) == 1000
    assert bucket.tokens(1, 1) == 10


def test_kafkas_example_of_a_burst_owes_twelve_seconds():
    """From KIP-599: with quota 5, 100 samples of a second, and a burst of 560, twelve seconds are owed."""
    bucket = TokenBucket(samples=100, window_ms=1000)
    bucket.take(560, 5, 0)
    assert bucket.throttle_time_ms(5, 0) == 12_000


def test_no_throttle_time_is_longer_than_a_response_can_carry():
    rate = Rate()
    rate.record(5_000_000_000, 0)
    assert rate.throttle_time_ms(1, 0) == 2**31 - 1
    assert rate.throttle_time_ms(5e-324, 0) == 2**31 - 1
    bucket = TokenBucket()
    bucket.take(1, 1e-7, 0)
    assert bucket.throttle_time_ms(1e-7, 0) == 2**31 - 1
