import json
import random

import pytest

from klamm.metrics import Family, Histogram, MetricsRegistry, Sample
from klamm.workers.joined_metrics import JoinedMetrics, JoinedRegistry
from klamm.workers.messages import MessageReader, encode, families_from_json, families_to_json

REQUESTS = "kafka.network:type=RequestMetrics,name=Requests"
TIME = "kafka.network:type=RequestMetrics,name=TotalTimeMs"
READY = "klamm:type=Workers,name=Ready"
CONNECTIONS = "kafka.server:type=socket-server-metrics,name=connection-count"


def report(requests, *, values=(), connections=0):
    """Return the families of a worker with these counts."""
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return [
        Family(REQUESTS, "counter", "Requests.", (Sample({"request": "Produce"}, requests),)),
        Family(TIME, "histogram", "Times.", (Sample({}, histogram.snapshot(1.0, range(4))),)),
        Family(CONNECTIONS, "gauge", "Connections.", (Sample({"listener": "a"}, connections),)),
    ]


def values_of(joined, name):
    (family,) = (one for one in joined.families() if one.name == name)
    return {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}


def test_counters_are_summed_and_gauges_have_the_label_of_their_worker():
    joined = JoinedMetrics()
    joined.update(1, report(3, values=[1, 2], connections=7))
    joined.update(2, report(4, values=[2, 5], connections=8))
    assert values_of(joined, REQUESTS) == {(("request", "Produce"),): 7}
    assert values_of(joined, CONNECTIONS) == {
        (("listener", "a"), ("worker", "1")): 7,
        (("listener", "a"), ("worker", "2")): 8,
    }
    (times,) = values_of(joined, TIME).values()
    assert (times.count, times.total) == (4, 10)
    assert times.bounds == ((1.0, 0), (2.0, 1), (4.0, 3), (8.0, 4))


def test_no_count_falls_when_workers_end():
    """The reports and ends are random.

    A worker's counts grow within a process, and begin at 0 with the next process.
    """
    rng, joined = random.Random(16), JoinedMetrics()
    counts = dict.fromkeys((1, 2, 3), 0)
    last = last_times = 0
    for _ in range(400):
        number = rng.choice((1, 2, 3))
        if rng.random() < 0.1:
            joined.worker_ended(number)
            counts[number] = 0
        else:
            counts[number] += rng.randrange(5)
            joined.update(number, report(counts[number], values=[1] * counts[number]))
        families = {family.name: family for family in joined.families()}
        if REQUESTS in families:
            (sample,), (times,) = families[REQUESTS].samples, families[TIME].samples
            assert sample.value >= last
            assert times.value.count >= last_times
            last, last_times = sample.value, times.value.count
    assert last > 100


def test_gauges_of_a_worker_that_has_ended_are_removed():
    joined = JoinedMetrics()
    joined.update(1, report(3, connections=7))
    joined.worker_ended(1)
    assert CONNECTIONS not in [family.name for family in joined.families()]
    joined.worker_ended(1)
    assert values_of(joined, REQUESTS) == {(("request", "Produce"),): 3}


def test_a_registry_has_the_metrics_of_parent_and_workers():
    joined, asked = JoinedMetrics(), []

    def refresh():
        asked.append(True)
        joined.update(1, report(len(asked)))

    registry = JoinedRegistry(joined, refresh)
    registry.gauge(READY, "Workers.", lambda: 1)
    assert [family.name for family in registry.collect()] == [REQUESTS, TIME, CONNECTIONS, READY]
    (wanted,) = registry.collect(lambda name: name == REQUESTS)
    assert wanted.samples[0].value == 2


def test_families_pass_the_channel_unchanged():
    registry = MetricsRegistry()
    registry.counter(REQUESTS, "Requests.", request="Fetch").add(5)
    registry.gauge(CONNECTIONS, "Connections.", lambda: 2.5)
    sent = [*registry.collect(), *report(1, values=[3])]
    (message,) = MessageReader().feed(encode("metrics", families=families_to_json(sent)))
    assert families_from_json(message["families"]) == [
        Family(one.name, one.kind, one.doc, tuple(Sample(dict(s.labels), s.value) for s in one.samples)) for one in sent
    ]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_messages_may_arrive_in_pieces_of_any_size(size):
    messages = [{"type": "ready", "addresses": {"a": "x"}}, {"type": "reloaded", "lines": ["a\nb", "ü"]}]
    data = b"".join(encode(**{"kind" if key == "type" else key: one[key] for key in one}) for one in messages)
    reader, got = MessageReader(), []
    for start in range(0, len(data), size):
        got += reader.feed(data[start : start + size])
    assert got == messages


def test_bytes_that_are_no_message_raise():
    with pytest.raises(json.JSONDecodeError):
        list(MessageReader().feed(b"x\n"))
