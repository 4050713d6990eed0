"""Tests of client telemetry: subscriptions, their configs, pushed metrics, and refused requests."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from klamm import ErrorCode, KafkaPrincipal
from klamm.wire.compression import Codec, compress
from klamm.wire.messages import list_config_resources
from klamm.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from klamm.wire.messages.push_telemetry import PushTelemetryRequest
from klamm_broker.telemetry.otlp import MetricPoint, TelemetryError, read_metrics
from klamm_broker.telemetry.values import MAX_BYTES, MAX_CLIENT_BYTES, MAX_POINTS, PushedValues
from tests.unit.broker.broker_harness import BrokerHarness
from tests.unit.broker.test_configs import APPEND, CLIENT_METRICS, DELETE, SET, SUBTRACT, alter, describe

SUBSCRIBE = [("metrics", SET, "org.apache.kafka."), ("interval.ms", SET, "1000")]


def field(number: int, data: bytes) -> bytes:
    size, rest = bytearray(), len(data)
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    return bytes([number << 3 | 2, *size, rest]) + data


def pushed(name: str, value: float, *, delta: bool = False) -> bytes:
    """Return `MetricsData` with one point."""
    point = field(7, field(1, b"topic") + field(2, field(1, b"t"))) + bytes([4 << 3 | 1]) + struct.pack("<d", value)
    kind = field(7, field(1, point) + bytes([2 << 3, 1, 3 << 3, 1])) if delta else field(5, field(1, point))
    return field(1, field(2, field(2, field(1, name.encode()) + kind)))


def subscription(harness: BrokerHarness, instance_id: bytes = bytes(16), client_id: str = "me") -> Any:
    return harness.call(GetTelemetrySubscriptionsRequest(instance_id), 0, client_id)


def push(harness: BrokerHarness, got: Any, data: bytes = b"", **fields: Any) -> int:
    request = PushTelemetryRequest(got.client_instance_id, got.subscription_id, metrics=data, **fields)
    code: int = harness.call(request, 0).error_code
    return code


def values(harness: BrokerHarness) -> dict[str, float]:
    family = next(
        each for each in harness.listener.services.metrics.collect() if each.name.endswith("ClientTelemetry,name=Value")
    )
    return {sample.labels["metric"]: sample.value for sample in family.samples}


def test_without_a_subscription_clients_push_nothing(harness: BrokerHarness) -> None:
    got = subscription(harness)
    assert (got.error_code, got.requested_metrics, got.push_interval_ms) == (0, [], 300_000)
    assert got.accepted_compression_types == [4, 3, 1, 2]
    assert got.telemetry_max_bytes == 1_048_576
    assert any(got.client_instance_id)


def test_matching_subscriptions_are_combined(harness: BrokerHarness) -> None:
    assert alter(harness, CLIENT_METRICS, "a", *SUBSCRIBE, ("match", SET, "client_id=me.*")) == 0
    assert alter(harness, CLIENT_METRICS, "b", ("metrics", SET, "other.,org.apache.kafka.")) == 0
    assert alter(harness, CLIENT_METRICS, "c", ("metrics", SET, "*"), ("match", SET, "client_id=nobody")) == 0
    got = subscription(harness, client_id="me-too")
    assert (sorted(got.requested_metrics), got.push_interval_ms) == (["org.apache.kafka.", "other."], 1000)
    others = subscription(harness, client_id="not-me")
    assert (others.push_interval_ms, others.subscription_id != got.subscription_id) == (300_000, True)
    assert subscription(harness, client_id="nobody").requested_metrics == ["*"]


def test_subscriptions_are_stored_listed_and_described(harness: BrokerHarness) -> None:
    assert alter(harness, CLIENT_METRICS, "a", *SUBSCRIBE) == 0
    for operation in (APPEND, SUBTRACT):
        changed = alter(harness, CLIENT_METRICS, "a", ("metrics", operation, "other."))
        assert changed == ErrorCode.INVALID_CONFIG
    harness.reopen()
    described = describe(harness, CLIENT_METRICS, "a", include_synonyms=True).configs
    sent = {
        each.name: (each.value, each.config_source, [(of.value, of.source) for of in each.synonyms])
        for each in described
    }
    assert sent == {
        "metrics": ("org.apache.kafka.", 7, [("org.apache.kafka.", 7)]),
        "interval.ms": ("1000", 7, [("1000", 7)]),
        "match": ("", 5, []),
    }
    for version in (0, 1):
        types = [CLIENT_METRICS] if version else []
        listed = harness.call(list_config_resources.ListConfigResourcesRequest(types), version).config_resources
        assert [(each.resource_name, each.resource_type) for each in listed] == [("a", CLIENT_METRICS)]
    assert alter(harness, CLIENT_METRICS, "a", *((name, DELETE, None) for name in ("metrics", "interval.ms"))) == 0
    assert harness.call(list_config_resources.ListConfigResourcesRequest(), 0).config_resources == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("nope", SET, "1"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "3600001"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "often"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "client_id"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "nope=x"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "client_id=("), ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_configs_are_refused(harness: BrokerHarness, change: Any, error: ErrorCode) -> None:
    assert alter(harness, CLIENT_METRICS, "a", change) == error
    assert alter(harness, CLIENT_METRICS, "", *SUBSCRIBE) == ErrorCode.INVALID_REQUEST


def test_pushed_values_are_shown_and_increments_are_added(harness: BrokerHarness) -> None:
    alter(harness, CLIENT_METRICS, "a", *SUBSCRIBE)
    got = subscription(harness)
    assert push(harness, got, pushed("gauge", 1.5)) == 0
    harness.advance_ms(1000)
    assert push(harness, got, compress(Codec.ZSTD, pushed("sum", 2.0, delta=True)), compression_type=4) == 0
    harness.advance_ms(1000)
    assert push(harness, got, compress(Codec.GZIP, pushed("sum", 3.0, delta=True)), compression_type=1) == 0
    assert values(harness) == {"gauge": 1.5, "sum": 5.0}


def test_clients_subscribe_and_push_at_most_once_an_interval(harness: BrokerHarness) -> None:
    alter(harness, CLIENT_METRICS, "a", *SUBSCRIBE)
    got = subscription(harness)
    assert subscription(harness, got.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(harness, got) == 0
    assert push(harness, got) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    harness.advance_ms(1000)
    assert push(harness, got) == 0
    alter(harness, CLIENT_METRICS, "a", ("metrics", SET, "*"))
    assert push(harness, got) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = subscription(harness, got.client_instance_id)
    assert (again.error_code, again.requested_metrics) == (0, ["*"])
    assert push(harness, again, terminating=True) == 0
    assert push(harness, again) == ErrorCode.INVALID_REQUEST


def test_data_that_is_not_metrics_is_refused(harness: BrokerHarness) -> None:
    alter(harness, CLIENT_METRICS, "a", *SUBSCRIBE)
    got = subscription(harness)
    assert push(harness, got, b"\x0a\xff") == ErrorCode.INVALID_RECORD
    harness.advance_ms(1000)
    assert push(harness, got, b"no zstd", compression_type=4) == ErrorCode.INVALID_RECORD
    harness.advance_ms(1000)
    assert push(harness, got, bytes(1_048_577)) == ErrorCode.TELEMETRY_TOO_LARGE
    harness.advance_ms(1000)
    assert push(harness, got, compression_type=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    harness.advance_ms(1000)
    # The data unpack to more than ten times the limit.
    bomb = zlib.compress(bytes(20_000_000), wbits=31)
    assert push(harness, got, bomb, compression_type=1) == ErrorCode.INVALID_RECORD
    got.client_instance_id = bytes(16)
    assert push(harness, got) == ErrorCode.INVALID_REQUEST


def test_silent_clients_are_removed(harness: BrokerHarness) -> None:
    alter(harness, CLIENT_METRICS, "a", *SUBSCRIBE)
    got = subscription(harness)
    assert push(harness, got, pushed("gauge", 1.0)) == 0
    harness.broker.telemetry.expire(harness.clock.wall_ms() + 60_000)
    assert values(harness) == {"gauge": 1.0}
    harness.broker.telemetry.expire(harness.clock.wall_ms() + 60_001)
    assert values(harness) == {}


def test_pushed_metrics_are_read_or_refused_as_a_whole() -> None:
    assert list(read_metrics(pushed("m", 2.5))) == [MetricPoint("m", (("topic", "t"),), 2.5, False)]
    assert list(read_metrics(pushed("m", 2.5, delta=True))) == [MetricPoint("m", (("topic", "t"),), 2.5, True)]
    whole = pushed("m", 2.5)
    for end in range(1, len(whole)):
        with pytest.raises(TelemetryError):
            list(read_metrics(whole[:end]))


METRIC = (1, 2, 2)
"""The fields that contain a metric. A point is in its fields 5 and 1, and its attributes are in field 7."""


def within(path: tuple[int, ...], data: bytes) -> bytes:
    for number in reversed(path):
        data = field(number, data)
    return data


@pytest.mark.parametrize(
    ("path", "number"),
    [((), 1), ((1,), 2), ((1, 2), 2), (METRIC, 5), ((*METRIC, 5), 1), ((*METRIC, 5, 1), 7), ((*METRIC, 7, 1, 7), 2)],
)
def test_a_few_bytes_with_many_fields_are_refused(harness: BrokerHarness, path: tuple[int, ...], number: int) -> None:
    """3 KiB can contain a million fields. Reading them takes seconds, and their values 100 MB."""
    packed = compress(Codec.GZIP, within(path, field(number, b"") * 1_000_000))
    assert len(packed) < 4096
    got = subscription(harness)
    assert push(harness, got, packed, compression_type=Codec.GZIP) == ErrorCode.INVALID_RECORD


def points(count: int, name_bytes: int = 10) -> Iterator[MetricPoint]:
    return (MetricPoint(str(number).zfill(name_bytes), (), 1.0, True) for number in range(count))


def test_the_metrics_kept_of_one_client_are_bounded() -> None:
    pushed_values = PushedValues()
    pushed_values.take(b"a", "me", points(2 * MAX_POINTS))
    ((_, _, kept),) = pushed_values.latest(1)
    assert len(kept) == MAX_POINTS
    pushed_values.take(b"a", "me", points(1))
    ((_, _, kept),) = pushed_values.latest(1)
    assert kept["0".zfill(10), ()] == 2.0, "known ones go on"
    pushed_values.take(b"b", "me", points(MAX_POINTS, 10_000))
    long_names = pushed_values.latest(1)[0][2]
    assert 40 < len(long_names) < 60
    assert pushed_values.size_bytes < 2 * MAX_CLIENT_BYTES


def test_the_metrics_kept_of_all_clients_are_bounded() -> None:
    """A client can use a new identity for each push."""
    pushed_values = PushedValues()
    count = 2 * MAX_BYTES // MAX_CLIENT_BYTES
    for number in range(count):
        pushed_values.take(number.to_bytes(16, "big"), str(number), points(60, 10_000))
    kept = [client_id for _, client_id, _ in pushed_values.latest(count)]
    assert kept == [str(number) for number in range(count - len(kept), count)], "the last ones"
    assert MAX_BYTES - MAX_CLIENT_BYTES < pushed_values.size_bytes <= MAX_BYTES
    for instance_id, _, _ in pushed_values.latest(count):
        pushed_values.forget(instance_id)
    assert pushed_values.size_bytes == 0
    assert pushed_values.latest(count) == []


def gauge(harness: BrokerHarness, name: str) -> float:
    (family,) = harness.listener.services.metrics.collect(lambda each: each == name)
    value = family.samples[0].value
    assert isinstance(value, int)
    return value


def test_the_owner_with_most_clients_loses_the_oldest_one(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drop the values of the client of this owner that was idle for longest."""
    monkeypatch.setattr("klamm_broker.telemetry.clients.MAX_CLIENTS", 10)
    harness.reopen()
    alter(harness, CLIENT_METRICS, "a", ("metrics", SET, "*"))
    harness.principal = KafkaPrincipal("alice")
    mine = [subscription(harness) for _ in range(3)]
    assert push(harness, mine[0], pushed("alice", 1)) == 0
    harness.principal = KafkaPrincipal("mallory")
    invented = [subscription(harness) for _ in range(20)]
    assert push(harness, invented[-7], pushed("oldest", 1)) == 0
    assert push(harness, invented[-6], pushed("next", 1)) == 0
    for each in invented[-5:]:
        assert push(harness, each) == 0

    assert values(harness) == {"alice": 1, "oldest": 1, "next": 1}
    assert gauge(harness, "kafka.server:type=ClientMetrics,name=ClientMetricsInstanceCount") == 10
    assert gauge(harness, "klamm:type=ClientTelemetry,name=MostOfOneOwner") == 7
    harness.principal = KafkaPrincipal("bob")
    subscription(harness)
    assert values(harness) == {"alice": 1, "next": 1}
    assert gauge(harness, "klamm:type=ClientTelemetry,name=MostOfOneOwner") == 6
    harness.broker.telemetry.expire(harness.clock.wall_ms() + 1_000_000)
    assert gauge(harness, "klamm:type=ClientTelemetry,name=MostOfOneOwner") == 0
