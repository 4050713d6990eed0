"""Tests of the recorder of requests: which are timed, the weight of samples, and counts of removed processors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm import StageTimes
from klamm.metrics.metrics_registry import MetricsRegistry
from klamm.metrics.requests import (
    MAX_EVERY,
    SAMPLE_INTERVAL_NS,
    RequestCount,
    RequestMetrics,
    RequestRecorder,
)
from klamm.wire.api_keys import ApiKey, spec_of

METADATA = int(ApiKey.METADATA)
MS = 1_000_000


def new_recorder(always_timed=lambda api_key: False):
    return RequestRecorder([(METADATA, range(0, 14))], always_timed)


def answered(recorder, version=12, errors=None):
    """Return a request that was counted and answered."""
    api = recorder.apis[METADATA]
    inline(api.by_version[version] if 0 <= version < len(api.by_version) else api.unknown)
    if errors is not None:
        recorder.count_errors(METADATA, errors)


@pytest.fixture
def registry():
    return MetricsRegistry()


@pytest.fixture
def metrics(registry):
    return RequestMetrics(registry, lambda api_key: spec_of(api_key).name)


@pytest.fixture
def recorder(metrics):
    return metrics.add(new_recorder())


def samples_of(registry, name):
    full = f"kafka.network:type=RequestMetrics,name={name}"
    (family,) = registry.collect(lambda one: one == full)
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def inline(count, now_ns=0):
    """Record a request that its processor runs, as the ledger does. Return its weight."""
    count.until_sample -= 1
    return count.sample(now_ns) if count.until_sample < 0 else 0


def queued(count, now_ns=0):
    """Record a request that goes to a handler, as the ledger does. Such requests are always timed."""
    count.until_sample -= 1
    return count.sample(now_ns) if count.until_sample < 0 else count.one()


@given(st.lists(st.integers(0, 3 * SAMPLE_INTERVAL_NS), min_size=1, max_size=1000))
def test_samples_stand_for_all_requests_up_to_the_last_sample(gaps):
    count, now_ns, weights = RequestCount(always=False), SAMPLE_INTERVAL_NS, []
    for gap in gaps:
        now_ns += gap
        weights.append(inline(count, now_ns))
    last = max(index for index, weight in enumerate(weights, 1) if weight)
    assert sum(weights) == last
    assert len(gaps) - last < MAX_EVERY


def test_rare_requests_are_all_timed():
    count = RequestCount(always=False)
    assert [inline(count, number * SAMPLE_INTERVAL_NS) for number in range(1, 300)] == [1] * 299


@pytest.mark.parametrize("gap_ns", [0, 1_000, 20_000, 100_000])
def test_frequent_requests_are_sampled_about_once_in_the_interval(gap_ns):
    count, requests = RequestCount(always=False), 20_000
    weights = [inline(count, number * gap_ns) for number in range(requests)]
    samples = sum(1 for weight in weights if weight)
    due = max(requests * gap_ns // SAMPLE_INTERVAL_NS, requests // MAX_EVERY)
    assert due / 2.1 <= samples <= due * 2.1 + 10
    assert max(weights) <= MAX_EVERY


def test_after_a_burst_requests_are_timed_again():
    count = RequestCount(always=False)
    for _ in range(5000):
        inline(count, 1)
    weights = [inline(count, number * 10 * SAMPLE_INTERVAL_NS) for number in range(1, MAX_EVERY + 40)]
    assert weights[-20:] == [1] * 20


@pytest.mark.parametrize("late", [False, True])
def test_an_api_that_is_always_timed_has_no_sample_of_more_than_one(late):
    count = RequestCount(always=not late)
    if late:
        for _ in range(105):
            inline(count)
        count.time_all()
        inline(count)
    assert {inline(count) for _ in range(500)} == {1}


def test_requests_that_are_always_timed_and_sampled_ones_of_one_api_are_counted_once_each():
    count = RequestCount(always=False)
    weights = 0
    for _ in range(1000):
        weights += inline(count)
        weights += queued(count)
    assert count.count == 2000
    assert 2000 - 2 * MAX_EVERY <= weights <= 2000


def test_the_time_of_each_stage_is_recorded(registry, recorder):
    times = StageTimes(1000 * MS, 1002 * MS, 1012 * MS, 1112 * MS, 1115 * MS, 1120 * MS)
    answered(recorder)
    recorder.apis[METADATA].times.record(times, throttle_time_ms=70, request_bytes=40, weight=1)
    stages = ("RequestQueue", "Local", "Remote", "Throttle", "ResponseQueue", "ResponseSend", "Total")
    found = {stage: samples_of(registry, f"{stage}TimeMs")[("Metadata",)].total for stage in stages}
    assert found == pytest.approx(
        {
            "RequestQueue": 2,
            "Local": 10,
            "Remote": 100,
            "Throttle": 70,
            "ResponseQueue": 3,
            "ResponseSend": 5,
            "Total": 120,
        }
    )
    assert samples_of(registry, "RequestBytes")[("Metadata",)].total == 40


def test_a_stage_that_was_not_entered_took_no_time_but_counts(registry, recorder):
    start_ns = 1000 * MS
    times = StageTimes(start_ns, start_ns, start_ns, start_ns, start_ns, start_ns + 4 * MS)
    recorder.apis[METADATA].times.record(times, 0, 40, 31)
    for stage in ("Remote", "Throttle", "ResponseQueue", "Local"):
        value = samples_of(registry, f"{stage}TimeMs")[("Metadata",)]
        assert (value.count, value.total) == (31, 0)
    assert samples_of(registry, "TotalTimeMs")[("Metadata",)].total == pytest.approx(31 * 4)


def test_errors_are_counted_one_by_one_and_none_by_response(registry, recorder):
    for errors in (None, {3: 2, 6: 1}, {3: 1}, None):
        answered(recorder, errors=errors)
    assert samples_of(registry, "ErrorsPerSec") == {
        ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"): 3,
        ("Metadata", "NOT_LEADER_OR_FOLLOWER"): 1,
        ("Metadata", "NONE"): 2,
    }


def test_an_error_code_without_a_name_is_reported_by_number(registry, recorder):
    answered(recorder, errors={12345: 1})
    assert samples_of(registry, "ErrorsPerSec")[("Metadata", "UNKNOWN_12345")] == 1


def test_the_counts_of_all_processors_are_added_up(registry, metrics, recorder):
    other = metrics.add(new_recorder())
    answered(recorder)
    answered(other)
    answered(other, version=1)
    assert samples_of(registry, "RequestsPerSec") == {("Metadata", "12"): 2, ("Metadata", "1"): 1}


def test_unsupported_versions_share_one_label(registry, recorder):
    for version in (-1, 99, 32767):
        answered(recorder, version=version)
    assert samples_of(registry, "RequestsPerSec") == {("Metadata", "unknown"): 3}


def test_apis_that_are_always_timed_are_timed_from_the_first_request():
    recorder = new_recorder(lambda api_key: api_key == METADATA)
    assert {inline(recorder.apis[METADATA].by_version[12]) for _ in range(500)} == {1}


def test_the_counts_of_processors_that_have_ended_stay(registry, metrics, recorder):
    short = metrics.add(RequestRecorder([(METADATA, range(0, 2))], lambda api_key: False))
    answered(short, version=1, errors={3: 1})
    answered(short, version=-1)
    answered(recorder)
    for one in (recorder, short):
        one.apis[METADATA].times.record((0, MS, 2 * MS, 3 * MS, 4 * MS, 5 * MS), 0, 100, 1)
    names = ("RequestsPerSec", "ErrorsPerSec", "RequestBytes", "TotalTimeMs")
    before = [samples_of(registry, name) for name in names]
    assert before[0] == {("Metadata", "12"): 1, ("Metadata", "1"): 1, ("Metadata", "unknown"): 1}
    for one in (short, recorder):
        metrics.end(one)
        assert [samples_of(registry, name) for name in names] == before
