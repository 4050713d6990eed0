"""Which requests are timed, what a sample weighs, and what becomes of counts when processors come and go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.metrics.registry import MetricsRegistry
from klamm.metrics.requests import (
    MAX_EVERY,
    SAMPLE_INTERVAL_NS,
    AnyVersion,
    RequestCount,
    RequestMetrics,
    RequestRecorder,
)
from klamm.testing import ManualClock
from klamm.wire.api_keys import ApiKey, spec_of

METADATA = int(ApiKey.METADATA)
MS = 1_000_000


class Handler:
    name = "Metadata"

    def __init__(self, counts):
        self.counts = counts


class Request:
    """What the recorder looks at of a RequestContext."""

    api_key, api_version, size_bytes = METADATA, 12, 40
    received_ns = handler_start_ns = local_end_ns = completed_ns = dequeued_ns = 0
    throttle_time_ms = weight = 0
    parked = False
    errors = None

    def __init__(self, recorder, **fields):
        self.handler = Handler(recorder.apis[METADATA].by_version)
        vars(self).update(fields)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def registry():
    return MetricsRegistry()


@pytest.fixture
def metrics(registry):
    return RequestMetrics(registry, lambda api_key: spec_of(api_key).name)


@pytest.fixture
def recorder(clock, metrics):
    return metrics.add(RequestRecorder(clock, [(METADATA, range(0, 14))], None))


def told(registry, name):
    full = f"kafka.network:type=RequestMetrics,name={name}"
    (family,) = registry.collect(lambda one: one == full)
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def inline(count, now_ns=0):
    """What the pump does with a request that it answers itself; its weight."""
    weight = count.sample(count.count + 1, now_ns) if count.until_sample < 1 else 0
    count.until_sample -= 1
    return weight


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
def test_frequent_requests_give_a_sample_in_about_the_interval(gap_ns):
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


@pytest.mark.parametrize("told_late", [False, True])
def test_an_api_that_is_always_timed_has_no_sample_of_more_than_one(told_late):
    count = RequestCount(always=not told_late)
    if told_late:
        for _ in range(105):
            inline(count)
        count.always()
        inline(count)
    assert {inline(count) for _ in range(500)} == {1}


def test_requests_that_are_always_timed_and_sampled_ones_of_one_api_are_counted_once_each():
    count = RequestCount(always=False)
    weights = 0
    for _ in range(1000):
        weights += inline(count)
        weights += count.one()
        count.until_sample -= 1
    assert count.count == 2000
    assert 2000 - 2 * MAX_EVERY <= weights <= 2000


def test_every_stage_has_its_time(clock, registry, recorder):
    request = Request(
        recorder,
        received_ns=1000 * MS,
        handler_start_ns=1002 * MS,
        local_end_ns=1012 * MS,
        completed_ns=1112 * MS,
        dequeued_ns=1115 * MS,
        parked=True,
        throttle_time_ms=70,
    )
    clock.advance_ms(120)
    recorder.answered(request)
    recorder.completed([request])
    stages = ("RequestQueue", "Local", "Remote", "Throttle", "ResponseQueue", "ResponseSend", "Total")
    times = {stage: told(registry, f"{stage}TimeMs")[("Metadata",)].total for stage in stages}
    assert times == pytest.approx(
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
    assert told(registry, "RequestBytes")[("Metadata",)].total == 40


def test_a_stage_that_was_not_entered_took_no_time_but_counts(clock, registry, recorder):
    request = Request(recorder, received_ns=1000 * MS, weight=31)
    clock.advance_ms(4)
    recorder.completed([request])
    for stage in ("Remote", "Throttle", "ResponseQueue", "Local"):
        value = told(registry, f"{stage}TimeMs")[("Metadata",)]
        assert (value.count, value.total) == (31, 0)
    assert told(registry, "TotalTimeMs")[("Metadata",)].total == pytest.approx(31 * 4)


def test_errors_are_counted_one_by_one_and_none_by_response(registry, recorder):
    for errors in (None, {3: 2, 6: 1}, {3: 1}, None):
        recorder.answered(Request(recorder, errors=errors))
    assert told(registry, "ErrorsPerSec") == {
        ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"): 3,
        ("Metadata", "NOT_LEADER_OR_FOLLOWER"): 1,
        ("Metadata", "NONE"): 2,
    }


def test_an_error_code_that_has_no_name_is_told_by_number(registry, recorder):
    recorder.answered(Request(recorder, errors={12345: 1}))
    assert told(registry, "ErrorsPerSec")[("Metadata", "UNKNOWN_12345")] == 1


def test_recorders_of_all_processors_add_up(clock, registry, metrics, recorder):
    other = metrics.add(RequestRecorder(clock, [(METADATA, range(0, 14))], None))
    recorder.answered(Request(recorder))
    other.answered(Request(other))
    other.answered(Request(other, api_version=1))
    assert told(registry, "RequestsPerSec") == {("Metadata", "12"): 2, ("Metadata", "1"): 1}


def test_versions_that_nobody_serves_are_one_label(registry, recorder):
    counts = AnyVersion(recorder.apis[METADATA].unknown)
    for version in (-1, 99, 32767):
        recorder.answered(Request(recorder, api_version=version, handler=Handler(counts)))
    assert told(registry, "RequestsPerSec") == {("Metadata", "unknown"): 3}
