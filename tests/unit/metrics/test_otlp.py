"""Tests of traces and metrics for an OpenTelemetry collector, read back with its own messages."""

from types import SimpleNamespace

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from klamm import RequestEvent, RequestOutcome
from klamm.api.observer import StageTimes
from klamm.config.problems import ConfigError
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.compression import Codec
from klamm.wire.messages import metadata, produce
from klamm.wire.records import Record, encode_batch
from klamm_metrics import otlp_traces
from klamm_metrics.otlp import ExportLoop
from tests.otlp_collector import Collector, pairs
from tests.waiting import wait_until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.close()


def traced(collector, **settings):
    wanted = {"endpoint": f"{collector.url}/v1/traces", "sample_ratio": 1.0, "interval_ms": 3_600_000, **settings}
    return [
        'listeners.default.observers=["otlp_traces"]',
        *(f"listeners.default.otlp_traces.{key}={wanted[key]}" for key in wanted),
    ]


def dropped(server):
    (family,) = server.server.services.metrics.collect(lambda name: name == "klamm:type=OtlpTraces,name=DroppedTotal")
    return sum(sample.value for sample in family.samples)


def test_a_request_is_a_span_with_its_stages(collector):
    with EmbeddedServer(traced(collector)) as server:
        server.create_topic("orders")
        server.produce("orders", "a", headers=[("traceparent", PARENT.encode())])
    spans = collector.spans()
    (span,) = [each for each in spans if each.name == "Produce"]
    assert {
        ("messaging.system", "kafka"),
        ("messaging.destination.name", "orders"),
        ("klamm.listener", "default"),
        ("klamm.outcome", "answered"),
        ("user.name", "User:ANONYMOUS"),
    } <= set(pairs(span.attributes))
    assert [(link.trace_id.hex(), link.span_id.hex()) for link in span.links] == [tuple(PARENT.split("-")[1:3])]
    stages = [each for each in spans if each.parent_span_id == span.span_id]
    assert {each.trace_id for each in stages} == {span.trace_id}
    assert "local" in {each.name for each in stages}
    assert min(each.start_time_unix_nano for each in stages) == span.start_time_unix_nano
    assert max(each.end_time_unix_nano for each in stages) == span.end_time_unix_nano
    assert span.status.code == 0


def test_the_span_has_the_error_of_the_response(collector):
    with EmbeddedServer(traced(collector)) as server, RawClient(server.address()) as client:
        client.call(metadata.MetadataRequest([metadata.MetadataRequestTopic(name="?")]), 8)
    (span,) = [each for each in collector.spans() if each.name == "Metadata"]
    assert ("error.type", "INVALID_TOPIC_EXCEPTION") in pairs(span.attributes)
    assert (span.status.code, span.status.message) == (2, "INVALID_TOPIC_EXCEPTION")


def batch(*parents, codec=Codec.NONE):
    records = [Record(timestamp_ms=1, value=b"v", headers=[("traceparent", each)]) for each in parents]
    return bytes(encode_batch(records, codec=codec))


@pytest.mark.parametrize(
    "records",
    [
        batch(b"\xff" * 64, b"", None, b"00-0-0-0", b"x" * 1_000),
        batch(PARENT.encode(), codec=Codec.GZIP),
        batch(PARENT.encode())[:-1],
        batch(PARENT.encode())[:20],
        b"",
        None,
    ],
    ids=["odd", "zipped", "cut", "no-batch", "empty", "null"],
)
def test_records_without_a_usable_parent_give_no_link(collector, records, caplog):
    with EmbeddedServer(traced(collector)) as server, RawClient(server.address()) as client:
        server.create_topic("t")
        data = [produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(0, records)])]
        client.call(produce.ProduceRequest(None, -1, 10_000, data), 8)
    (span,) = [each for each in collector.spans() if each.name == "Produce"]
    assert list(span.links) == []
    assert "otlp_traces" not in caplog.text


def test_links_are_limited_and_unique(collector):
    parents = [f"00-{number:032x}-{number:016x}-01".encode() for number in range(1, 21)]
    with EmbeddedServer(traced(collector)) as server, RawClient(server.address()) as client:
        server.create_topic("t")
        data = [produce.PartitionProduceData(0, batch(*parents[:3], *parents))]
        topics = [produce.TopicProduceData("t", partition_data=data)]
        client.call(produce.ProduceRequest(None, -1, 10_000, topics), 8)
    (span,) = [each for each in collector.spans() if each.name == "Produce"]
    assert [int(link.trace_id.hex(), 16) for link in span.links] == list(range(1, 9))


def test_only_the_first_small_batch_is_read(collector):
    with EmbeddedServer(traced(collector)) as server, RawClient(server.address()) as client:
        server.create_topic("t", 2)
        large = bytes(
            encode_batch([Record(timestamp_ms=1, value=bytes(17_000), headers=[("traceparent", PARENT.encode())])])
        )
        data = [produce.PartitionProduceData(0, large), produce.PartitionProduceData(1, batch(PARENT.encode()))]
        topics = [produce.TopicProduceData("t", partition_data=data)]
        client.call(produce.ProduceRequest(None, -1, 10_000, topics), 8)
    (span,) = [each for each in collector.spans() if each.name == "Produce"]
    assert list(span.links) == []


def test_names_are_cut_and_a_span_with_many_topics_names_none(collector):
    with EmbeddedServer(traced(collector)) as server, RawClient(server.address(), client_id="c" * 30_000) as client:
        for names in (["t" * 30_000], ["a", "b"]):
            client.call(metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in names]), 8)
    first, second = (dict(pairs(each.attributes)) for each in collector.spans() if each.name == "Metadata")
    assert (len(first["messaging.destination.name"]), len(first["messaging.client.id"])) == (249, 249)
    assert "messaging.destination.name" not in second


def test_an_error_that_klamm_does_not_know_is_its_number():
    times = StageTimes(1, 2, 3, 4, 5, 6)
    event = RequestEvent(None, RequestOutcome.ANSWERED, 999, None, None, 0, times)
    assert otlp_traces._error_of(event) == "999"


def test_spans_that_the_collector_refuses_are_counted(collector):
    collector.status = 400
    with EmbeddedServer(traced(collector, interval_ms=10)) as server, RawClient(server.address()) as client:
        client.call(metadata.MetadataRequest(None), 8)
        wait_until(lambda: dropped(server) >= 1)


def test_the_stop_waits_for_an_export_for_two_seconds():
    waited = []

    class Services:
        scheduler = SimpleNamespace(schedule=None)
        threads = SimpleNamespace(start=lambda run, name: SimpleNamespace(join=waited.append))

    exporter = SimpleNamespace(shutdown=lambda: waited.append("shutdown"))
    ExportLoop(Services(), "name", 10, lambda: None, exporter).close()
    assert waited == [2.0, "shutdown"]


def test_a_ratio_of_0_traces_nothing(collector):
    with EmbeddedServer(traced(collector, sample_ratio=0)) as server:
        server.create_topic("t")
    assert collector.bodies == []


def test_spans_beyond_the_queue_are_dropped_and_counted(collector):
    with EmbeddedServer(traced(collector, max_queued=2)) as server, RawClient(server.address()) as client:
        for _ in range(10):
            client.call(metadata.MetadataRequest(None), 8)
        count = dropped(server)
        assert count >= 7
    assert len([each for each in collector.spans() if not each.parent_span_id]) == 2


def test_a_collector_that_hangs_does_not_delay_requests_or_the_stop(collector):
    collector.go_on.clear()
    with EmbeddedServer(traced(collector, interval_ms=10)) as server, RawClient(server.address()) as client:
        for _ in range(10):
            client.call(metadata.MetadataRequest(None), 8)
    assert collector.bodies == []


def test_metrics_have_the_names_of_prometheus(collector):
    settings = ['server.extensions=["otlp_metrics"]', "otlp_metrics.interval_ms=3600000"]
    settings.append(f"otlp_metrics.endpoint={collector.url}/v1/metrics")
    with EmbeddedServer(settings) as server, RawClient(server.address()) as client:
        client.call(metadata.MetadataRequest(None), 8)
    found = collector.metrics()
    requests = found["kafka_network_requestmetrics_requests_total"].sum
    assert requests.is_monotonic
    assert (
        sum(point.as_double for point in requests.data_points if ("request", "Metadata") in pairs(point.attributes))
        == 1
    )
    times = found["kafka_network_requestmetrics_totaltimems"].histogram.data_points
    (point,) = [each for each in times if ("request", "Metadata") in pairs(each.attributes)]
    assert (point.count, sum(point.bucket_counts)) == (1, 1)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert found["kafka_network_requestchannel_requestqueuesize"].gauge.data_points


@pytest.mark.parametrize("value", [None, "text"])
def test_only_a_metric_without_a_number_is_left_out(collector, value, caplog):
    settings = ['server.extensions=["otlp_metrics"]', f"otlp_metrics.endpoint={collector.url}/v1/metrics"]
    with EmbeddedServer(settings) as server:
        server.server.services.metrics.gauge("klamm:type=Test,name=Odd", "A number.", lambda: value)
        server.server.services.metrics.gauge("klamm:type=Test,name=Large", "A number.", lambda: 2**64)
    assert "klamm_test_odd" not in collector.metrics()
    assert collector.metrics()["klamm_test_large"].gauge.data_points[0].as_double == 2**64
    assert "klamm:type=Test,name=Odd is left out" in caplog.text


def test_metrics_can_be_selected(collector):
    settings = ['server.extensions=["otlp_metrics"]', f"otlp_metrics.endpoint={collector.url}/v1/metrics"]
    with EmbeddedServer([*settings, 'otlp_metrics.include=["kafka_*"]', 'otlp_metrics.exclude=["kafka_log*"]']):
        pass
    assert collector.metrics()
    assert all(name.startswith("kafka_") and not name.startswith("kafka_log") for name in collector.metrics())


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://127.0.0.1/v1", "http://user:secret@127.0.0.1:4318/v1"])
def test_the_endpoint_is_a_url_without_a_user(url):
    with pytest.raises(ConfigError, match=r"otlp_metrics\.endpoint: must be a URL"):
        EmbeddedServer(['server.extensions=["otlp_metrics"]', f"otlp_metrics.endpoint={url}"])


def test_the_endpoint_has_a_path():
    with pytest.raises(ConfigError, match=r"otlp_metrics\.endpoint: must have a path, e\.g\. /v1/traces"):
        EmbeddedServer(['server.extensions=["otlp_metrics"]', "otlp_metrics.endpoint=http://127.0.0.1:4318"])
