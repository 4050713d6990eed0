"""Tests of broker configs that Kafka can change at run time and that have no effect in klamm."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm import ErrorCode
from tests.unit.broker.broker_harness import BrokerHarness
from tests.unit.broker.test_configs import (
    BOOLEAN,
    BROKER,
    DEFAULT,
    DELETE,
    DOUBLE,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT,
    INT,
    LONG,
    SET,
    alter,
    describe,
    one,
)


def test_throttles_of_a_reassignment_are_stored_and_described_where_they_are_set(harness: BrokerHarness) -> None:
    # `kafka-reassign-partitions --throttle` sets these, and removes them at the end.
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    assert describe(harness, BROKER, "1", *rates).configs == []
    assert alter(harness, BROKER, "1", *((rate, SET, "1000000") for rate in rates)) == 0
    harness.reopen()
    for rate in rates:
        assert one(harness, BROKER, "1", rate) == ("1000000", DYNAMIC_BROKER, [(rate, "1000000", DYNAMIC_BROKER)])
    (config,) = describe(harness, BROKER, "1", rates[0]).configs
    assert (config.config_type, config.read_only) == (LONG, False)
    assert alter(harness, BROKER, "1", *((rate, DELETE, None) for rate in rates)) == 0
    assert describe(harness, BROKER, "1", *rates).configs == []


def test_throttles_differ_by_node(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(nodes=2)
    assert alter(harness, BROKER, "1", ("leader.replication.throttled.rate", SET, "-1")) == ErrorCode.INVALID_REQUEST
    assert alter(harness, BROKER, "1", ("leader.replication.throttled.rate", SET, "5")) == 0
    assert one(harness, BROKER, "1", "leader.replication.throttled.rate")[:2] == ("5", DYNAMIC_BROKER)
    assert harness.broker.configs.describe_broker(2, "2", ["leader.replication.throttled.rate"]) == []
    harness.broker.close()


# `kafka-configs --describe --all` of Apache Kafka 4.4.0 shows them like this.
WITHOUT_EFFECT = {
    "background.threads": ("10", INT),
    "follower.fetch.last.tiered.offset.enable": ("false", BOOLEAN),
    "group.coordinator.cached.buffer.max.bytes": ("1048588", INT),
    "log.cleaner.dedupe.buffer.size": ("134217728", LONG),
    "log.cleaner.io.buffer.load.factor": ("0.9", DOUBLE),
    "log.cleaner.io.buffer.size": ("524288", INT),
    "log.cleaner.io.max.bytes.per.second": ("1.7976931348623157E308", DOUBLE),
    "log.cleaner.threads": ("1", INT),
    "num.replica.fetchers": ("1", INT),
    "remote.fetch.max.wait.ms": ("500", INT),
    "remote.list.offsets.request.timeout.ms": ("30000", LONG),
    "remote.log.index.file.cache.total.size.bytes": ("1073741824", LONG),
    "remote.log.manager.copier.thread.pool.size": ("10", INT),
    "remote.log.manager.copy.max.bytes.per.second": ("9223372036854775807", LONG),
    "remote.log.manager.expiration.thread.pool.size": ("10", INT),
    "remote.log.manager.fetch.max.bytes.per.second": ("9223372036854775807", LONG),
    "remote.log.manager.follower.thread.pool.size": ("2", INT),
    "remote.log.reader.threads": ("10", INT),
    "share.coordinator.cached.buffer.max.bytes": ("1048588", INT),
}


def test_configs_without_effect_are_described_as_in_kafka(harness: BrokerHarness) -> None:
    described = {each.name: each for each in describe(harness, BROKER, "1", *WITHOUT_EFFECT).configs}
    assert {name: (each.value, each.config_type) for name, each in described.items()} == WITHOUT_EFFECT
    assert all((each.config_source, each.read_only) == (DEFAULT, False) for each in described.values())


@pytest.mark.parametrize("resource", ["1", ""])
@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_configs_without_effect_are_changed(harness: BrokerHarness, resource: str, name: str) -> None:
    value = "true" if WITHOUT_EFFECT[name][1] == BOOLEAN else "1500000"
    assert alter(harness, BROKER, resource, (name, SET, value)) == 0
    source = DYNAMIC_BROKER if resource else DYNAMIC_DEFAULT
    assert one(harness, BROKER, "1", name)[:2] == (value, source)
    assert alter(harness, BROKER, resource, (name, SET, "x")) == ErrorCode.INVALID_REQUEST
    assert one(harness, BROKER, "1", name)[0] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.cleaner.threads", "0"),
        ("num.replica.fetchers", "0"),
        ("log.cleaner.io.buffer.size", "-1"),
        ("log.cleaner.dedupe.buffer.size", "1048576"),
        ("group.coordinator.cached.buffer.max.bytes", "524287"),
        ("remote.log.manager.copy.max.bytes.per.second", "0"),
    ],
)
def test_configs_without_effect_keep_kafkas_bounds(harness: BrokerHarness, name: str, value: str) -> None:
    assert alter(harness, BROKER, "1", (name, SET, value)) == ErrorCode.INVALID_REQUEST


def test_the_number_of_threads_that_close_logs_changes_at_once(harness: BrokerHarness) -> None:
    assert alter(harness, BROKER, "", ("num.recovery.threads.per.data.dir", SET, "3")) == 0
    assert harness.broker.live.current.num_recovery_threads_per_data_dir == 3
    asked: list[int] = []
    close = harness.broker.logs.close
    harness.broker.logs.close = lambda threads=1: (asked.append(threads), close(threads))[1]  # type: ignore[method-assign]
    harness.reopen()
    assert asked == [3]
