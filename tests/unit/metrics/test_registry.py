"""Tests of MetricsRegistry, Histogram and WindowedShare: collected values, and failing sources."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.metrics.metrics_registry import Histogram, MetricsRegistry
from klamm.metrics.windows import WindowedShare

S = 1_000_000_000


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 100))))
def test_a_histogram_has_each_value_below_the_first_bound_that_is_not_smaller(values):
    histogram = Histogram()
    for value, weight in values:
        histogram.add(value, weight)
    collected = histogram.snapshot(1.0, range(3, 30))
    assert collected.count == sum(weight for _, weight in values)
    assert collected.total == sum(value * weight for value, weight in values)
    for bound, below in collected.bounds:
        assert below == sum(weight for value, weight in values if value < bound)


def test_a_histogram_is_reported_in_another_unit():
    histogram = Histogram()
    histogram.add(3000)
    collected = histogram.snapshot(0.001, range(10, 13))
    assert collected.bounds == ((1.024, 0), (2.048, 0), (4.096, 1))
    assert collected.total == 3.0


def test_histograms_add_up():
    one, other = Histogram(), Histogram()
    one.add(5, 2)
    other.add(5)
    other.add(100)
    one.merge(other)
    assert (sum(one.counts), one.total) == (4, 115)
    assert one.counts[3] == 3


def test_a_source_that_raises_loses_only_its_own_samples_and_is_logged_once(caplog):
    registry = MetricsRegistry()
    registry.gauge("klamm:type=Test,name=Value", "A value.", lambda: 1.0, place="good")
    registry.gauge("klamm:type=Test,name=Value", "A value.", lambda: 1 / 0, place="bad")
    registry.counter("klamm:type=Test,name=Other", "Another.").add(3)
    with caplog.at_level(logging.ERROR, "klamm.metrics"):
        for _ in range(3):
            collected = {family.name: family.samples for family in registry.collect()}
    assert [(sample.labels, sample.value) for sample in collected["klamm:type=Test,name=Value"]] == [
        ({"place": "good"}, 1.0)
    ]
    assert [sample.value for sample in collected["klamm:type=Test,name=Other"]] == [3]
    assert len(caplog.records) == 1
    assert "klamm:type=Test,name=Value" in caplog.text


@pytest.mark.parametrize(
    "name",
    ["requests", "", "klamm:name=X,type=Y", "klamm:type=X", "klamm:type=X,name=", "9x:type=X,name=Y",
     "klamm:type=X,name=Y,place=here", "klamm:type=X,name=Y\n", "klämm:type=X,name=Y", "klamm:type=a b,name=Y"],
)  # fmt: skip
def test_a_name_that_is_no_mbean_is_refused_when_it_is_registered(name):
    registry = MetricsRegistry()
    for register in (
        lambda: registry.counter(name, "Doc."),
        lambda: registry.gauge(name, "Doc.", lambda: 1.0),
        lambda: registry.register(name, "gauge", "Doc.", list),
    ):
        with pytest.raises(ValueError, match="is not of the form DOMAIN:type=TYPE,name=NAME"):
            register()
    assert list(registry.collect()) == []


def test_a_metric_has_one_kind_and_labels_have_names():
    registry = MetricsRegistry()
    registry.counter("klamm:type=Test,name=Events", "Events.")
    with pytest.raises(ValueError, match="is a counter"):
        registry.gauge("klamm:type=Test,name=Events", "Events.", lambda: 1.0)
    for label in ("", "a b", "9a"):
        with pytest.raises(ValueError, match="cannot have a label"):
            registry.counter("klamm:type=Test,name=Other", "Others.", **{label: "x"})


def test_only_selected_metrics_are_read():
    registry = MetricsRegistry()
    registry.gauge("klamm:type=Test,name=Wanted", "", lambda: 1.0)
    registry.gauge("klamm:type=Test,name=Other", "", lambda: pytest.fail("was read"))
    assert [one.name for one in registry.collect(lambda name: name.endswith("Wanted"))] == [
        "klamm:type=Test,name=Wanted"
    ]


def test_a_gauge_can_be_removed():
    registry = MetricsRegistry()
    remove = registry.gauge("klamm:type=Test,name=Value", "", lambda: 1.0)
    remove()
    assert [family.samples for family in registry.collect()] == [()]


def test_a_share_covers_the_last_half_to_one_minute():
    share = WindowedShare(0)
    assert share.read(10 * S, 5 * S) == 0.5
    for second in range(20, 70, 5):
        share.read(second * S, 5 * S)
    assert share.read(70 * S, 5 * S) == 0.0
    assert share.read(80 * S, 15 * S) == pytest.approx(10 / 40, abs=0.1)


def test_a_share_does_not_depend_on_how_often_it_is_read():
    seldom, often = WindowedShare(0), WindowedShare(0)
    for second in range(1, 200):
        often.read(second * S, second * S // 4)
    seldom.read(150 * S, 150 * S // 4)
    assert often.read(200 * S, 50 * S) == seldom.read(200 * S, 50 * S) == 0.25


def test_a_share_of_several_threads_covers_all_their_time():
    assert WindowedShare(0).read(10 * S, 20 * S, capacity=8) == 0.25


def test_a_share_stays_between_0_and_1():
    share = WindowedShare(10)
    assert share.read(10, 5) == 0.0
    assert share.read(11, 500) == 1.0


def test_the_samples_of_a_removed_listener_are_removed():
    registry = MetricsRegistry()
    for listener in ("going", "staying"):
        registry.gauge("klamm:type=Test,name=Value", "A value.", lambda: 1.0, listener=listener)
        registry.counter("klamm:type=Test,name=Count", "A count.", listener=listener)
        samples = [({"listener": listener, "reason": "any"}, 2.0)]
        registry.register("klamm:type=Test,name=Read", "gauge", "Values.", lambda samples=samples: samples, listener)
    registry.gauge("klamm:type=Test,name=Value", "A value.", lambda: 1.0)
    registry.remove_listener("going")
    labels = {
        family.name: [sample.labels.get("listener") for sample in family.samples] for family in registry.collect()
    }
    assert labels == {
        "klamm:type=Test,name=Count": ["staying"],
        "klamm:type=Test,name=Read": ["staying"],
        "klamm:type=Test,name=Value": ["staying", None],
    }
