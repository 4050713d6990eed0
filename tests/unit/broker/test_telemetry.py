"""Client telemetry: subscriptions, their configs, pushes of metrics, and what is refused."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.wire.compression import Codec, compress
from klamm.wire.messages import list_config_resources
from klamm.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from klamm.wire.messages.push_telemetry import PushTelemetryRequest
from klamm_broker.telemetry.otlp import MetricPoint, TelemetryError, read_metrics
from tests.unit.broker.broker_harness import BrokerHarness
from tests.unit.broker.test_configs import APPEND, CLIENT_METRICS, DELETE, SET, SUBTRACT, alter, describe

SUBSCRIBE = [("metrics", SET, "org.apache.kafka."), ("interval.ms", SET, "1000")]


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def pushed(name: str, value: float, *, delta: bool = False) -> bytes:
    """`MetricsData` with one point."""
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


def test_without_a_subscription_nothing_is_wanted(harness: BrokerHarness) -> None:
    got = subscription(harness)
    assert (got.error_code, got.requested_metrics, got.push_interval_ms) == (0, [], 300_000)
    assert got.accepted_compression_types == [4, 3, 1, 2]
    assert got.telemetry_max_bytes == 1_048_576
    assert any(got.client_instance_id)


def test_subscriptions_that_match_add_up(harness: BrokerHarness) -> None:
    assert alter(harness, CLIENT_METRICS, "a", *SUBSCRIBE, ("match", SET, "client_id=me.*")) == 0
    assert alter(harness, CLIENT_METRICS, "b", ("metrics", SET, "other.,org.apache.kafka.")) == 0
    assert alter(harness, CLIENT_METRICS, "c", ("metrics", SET, "*"), ("match", SET, "client_id=nobody")) == 0
    got = subscription(harness, client_id="me-too")
    assert (sorted(got.requested_metrics), got.push_interval_ms) == (["org.apache.kafka.", "other."], 1000)
    others = subscription(harness, client_id="not-me")
    assert (others.push_interval_ms, others.subscription_id != got.subscription_id) == (300_000, True)
    assert subscription(harness, client_id="nobody").requested_metrics == ["*"]


def test_configs_are_kept_listed_and_described(harness: BrokerHarness) -> None:
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
def test_bad_configs(harness: BrokerHarness, change: Any, error: ErrorCode) -> None:
    assert alter(harness, CLIENT_METRICS, "a", change) == error
    assert alter(harness, CLIENT_METRICS, "", *SUBSCRIBE) == ErrorCode.INVALID_REQUEST


def test_pushed_values_are_shown_and_increments_added(harness: BrokerHarness) -> None:
    alter(harness, CLIENT_METRICS, "a", *SUBSCRIBE)
    got = subscription(harness)
    assert push(harness, got, pushed("gauge", 1.5)) == 0
    harness.advance_ms(1000)
    assert push(harness, got, compress(Codec.ZSTD, pushed("sum", 2.0, delta=True)), compression_type=4) == 0
    harness.advance_ms(1000)
    assert push(harness, got, compress(Codec.GZIP, pushed("sum", 3.0, delta=True)), compression_type=1) == 0
    assert values(harness) == {"gauge": 1.5, "sum": 5.0}


def test_when_clients_may_ask_and_push(harness: BrokerHarness) -> None:
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


def test_what_is_no_metrics_is_refused(harness: BrokerHarness) -> None:
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
    # Unpacks to more than ten times the limit.
    bomb = zlib.compress(bytes(20_000_000), wbits=31)
    assert push(harness, got, bomb, compression_type=1) == ErrorCode.INVALID_RECORD
    got.client_instance_id = bytes(16)
    assert push(harness, got) == ErrorCode.INVALID_REQUEST


def test_silent_clients_are_forgotten(harness: BrokerHarness) -> None:
    alter(harness, CLIENT_METRICS, "a", *SUBSCRIBE)
    got = subscription(harness)
    assert push(harness, got, pushed("gauge", 1.0)) == 0
    harness.broker.telemetry.expire(harness.clock.wall_ms() + 60_000)
    assert values(harness) == {"gauge": 1.0}
    harness.broker.telemetry.expire(harness.clock.wall_ms() + 60_001)
    assert values(harness) == {}


def test_reading_metrics() -> None:
    assert list(read_metrics(pushed("m", 2.5))) == [MetricPoint("m", (("topic", "t"),), 2.5, False, False)]
    assert list(read_metrics(pushed("m", 2.5, delta=True))) == [MetricPoint("m", (("topic", "t"),), 2.5, True, True)]
    whole = pushed("m", 2.5)
    for end in range(1, len(whole)):
        with pytest.raises(TelemetryError):
            list(read_metrics(whole[:end]))
