"""What went in and out, by topic and in all."""

from __future__ import annotations

from klamm import HistogramValue
from klamm.wire.messages import delete_topics, produce
from tests.unit.broker.broker_harness import BrokerHarness, fetch_request, records


def counts(harness: BrokerHarness, name: str) -> dict[str, float]:
    """The values of one metric by topic; the one for all under an empty name."""
    wanted = f"kafka.server:type=BrokerTopicMetrics,name={name}"
    (family,) = harness.listener.services.metrics.collect(lambda each: each == wanted)
    found = {}
    for sample in family.samples:
        assert not isinstance(sample.value, HistogramValue)
        found[sample.labels.get("topic", "")] = sample.value
    return found


def test_what_goes_in_and_out_is_counted_by_topic(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.create_topic("u")
    harness.produce("t", b"a", b"b", b"c")
    harness.produce("u", b"d")
    size = len(records(b"a", b"b", b"c"))
    assert counts(harness, "MessagesInPerSec") == {"": 4, "t": 3, "u": 1}
    assert counts(harness, "BytesInPerSec")["t"] == size
    assert counts(harness, "BytesOutPerSec") == {"": 0, "t": 0, "u": 0}
    harness.fetch("t")
    harness.fetch("t", 3)
    assert counts(harness, "BytesOutPerSec") == {"": size, "t": size, "u": 0}
    assert counts(harness, "TotalFetchRequestsPerSec")["t"] == 2


def test_what_is_refused_is_counted(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    spoilt = bytearray(records(b"a"))
    spoilt[-1] ^= 1
    data = produce.PartitionProduceData(0, bytes(spoilt))
    harness.call(produce.ProduceRequest(None, -1, 1000, [produce.TopicProduceData("t", partition_data=[data])]), 9)
    assert counts(harness, "TotalProduceRequestsPerSec")["t"] == 1
    assert counts(harness, "FailedProduceRequestsPerSec")["t"] == 1
    assert counts(harness, "BytesInPerSec")["t"] == 0
    harness.call(fetch_request("t", (0, 5)), 12)
    assert counts(harness, "FailedFetchRequestsPerSec")["t"] == 1


def test_the_count_for_all_never_falls(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.produce("t", b"a")
    harness.call(delete_topics.DeleteTopicsRequest(topic_names=["t"]), 5)
    assert counts(harness, "MessagesInPerSec") == {"": 1}
