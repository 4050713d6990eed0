"""Tests of group configs: they are described, changed, stored and applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm import ErrorCode
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.wire.messages.list_config_resources import ListConfigResourcesRequest
from klamm_broker.broker_settings import BrokerSettings
from tests.unit.broker.broker_harness import BrokerHarness
from tests.unit.broker.group_config_errors import GROUP_CONFIG_ERRORS
from tests.unit.broker.test_configs import GROUP, alter, describe, one, replace

SET, DELETE, APPEND = 0, 1, 2
SESSION = "consumer.session.timeout.ms"
INTERVAL = "consumer.heartbeat.interval.ms"
DEFAULT, OF_GROUP = 5, 8


@pytest.fixture
def harness(tmp_path: Path) -> BrokerHarness:
    harness = BrokerHarness(tmp_path)
    harness.open()
    return harness


def interval_of(harness: BrokerHarness, group_id: str) -> int:
    """Return the heartbeat interval of a member's response, in milliseconds."""
    request = ConsumerGroupHeartbeatRequest(group_id, "m", 0, None, None, 1000, ["t"], topic_partitions=[])
    reply = harness.send(request, 1)
    harness.broker.store.write_and_wait([])
    interval: int = reply.response.heartbeat_interval_ms
    return interval


def test_a_group_without_configs_has_the_defaults(harness: BrokerHarness) -> None:
    names = [config.name for config in describe(harness, GROUP, "g").configs]
    assert names[:2] == [SESSION, INTERVAL]
    assert all(name.startswith(("errors.deadletterqueue.", "share.", "streams.")) for name in names[2:])
    value, source, synonyms = one(harness, GROUP, "g", SESSION)
    assert (value, source) == ("45000", DEFAULT)
    assert synonyms == [("group.consumer.session.timeout.ms", "45000", DEFAULT)]
    assert describe(harness, GROUP, "").error_code == ErrorCode.INVALID_REQUEST
    harness.broker.close()


def test_changed_group_configs_apply_and_survive_a_restart(harness: BrokerHarness) -> None:
    assert alter(harness, GROUP, "g", (INTERVAL, SET, "7000"), validate_only=True) == 0
    assert interval_of(harness, "g") == 5_000
    assert alter(harness, GROUP, "g", (INTERVAL, SET, " 7000 ")) == 0
    assert (interval_of(harness, "g"), interval_of(harness, "h")) == (7_000, 5_000)
    value, source, synonyms = one(harness, GROUP, "g", INTERVAL)
    assert (value, source, synonyms[0]) == ("7000", OF_GROUP, (INTERVAL, "7000", OF_GROUP))
    assert alter(harness, GROUP, "g", (SESSION, SET, "50000")) == 0
    harness.reopen()
    assert one(harness, GROUP, "g", INTERVAL)[0] == "7000"
    assert one(harness, GROUP, "g", SESSION)[0] == "50000"
    listed = harness.call(ListConfigResourcesRequest([GROUP]), 1).config_resources
    assert [(each.resource_name, each.resource_type) for each in listed] == [("g", GROUP)]
    assert replace(harness, GROUP, "g", (SESSION, "60000")) == 0
    assert one(harness, GROUP, "g", INTERVAL)[1] == DEFAULT
    assert alter(harness, GROUP, "g", (SESSION, DELETE, None)) == 0
    assert harness.call(ListConfigResourcesRequest([GROUP]), 1).config_resources == []
    harness.broker.close()


@pytest.mark.parametrize(("name", "value", "message"), GROUP_CONFIG_ERRORS, ids=lambda each: each[:40])
def test_invalid_values_are_refused_with_kafkas_messages(
    harness: BrokerHarness, name: str, value: str, message: str
) -> None:
    wanted = AlterConfigsResource(GROUP, "g", [AlterableConfig(name, SET, value)])
    (result,) = harness.call(IncrementalAlterConfigsRequest([wanted]), 1).responses
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_CONFIG, message)
    assert replace(harness, GROUP, "g", (name, value)) == ErrorCode.INVALID_CONFIG
    assert one(harness, GROUP, "g", SESSION)[1] == DEFAULT
    harness.broker.close()


def test_an_invalid_stored_value_is_reported_and_ignored(
    harness: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    assert alter(harness, GROUP, "g", ("share.auto.offset.reset", SET, "earliest")) == 0
    statement = ("UPDATE configs SET value = 'EARLIEST' WHERE name = 'share.auto.offset.reset'", ())
    harness.broker.store.write_and_wait([statement])
    harness.reopen()
    assert harness.broker.group_configs.value("g", "share.auto.offset.reset") == "latest"
    assert "group g: its config share.auto.offset.reset=EARLIEST is not in force" in caplog.text
    harness.broker.close()


def test_a_session_timeout_must_exceed_the_heartbeat_interval(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(group_consumer_max_heartbeat_interval_ms=100_000)
    assert alter(harness, GROUP, "g", (INTERVAL, SET, "45000")) == ErrorCode.INVALID_CONFIG
    assert alter(harness, GROUP, "g", (INTERVAL, APPEND, "45000")) == ErrorCode.INVALID_CONFIG
    harness.broker.close()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"group_coordinator_rebalance_protocols": ("consumer",)}, "group.coordinator.rebalance.protocols"),
        ({"group_coordinator_rebalance_protocols": ("classic", "share")}, "group.coordinator.rebalance.protocols"),
        ({"group_consumer_assignors": ("best",)}, "group.consumer.assignors"),
        ({"group_consumer_assignors": ()}, "group.consumer.assignors"),
        ({"group_consumer_session_timeout_ms": 10_000}, "group.consumer.session.timeout.ms"),
        ({"group_consumer_min_session_timeout_ms": 70_000}, "group.consumer.min.session.timeout.ms"),
        ({"group_consumer_heartbeat_interval_ms": 20_000}, "group.consumer.heartbeat.interval.ms"),
        (
            {"group_consumer_heartbeat_interval_ms": 45_000, "group_consumer_max_heartbeat_interval_ms": 50_000},
            "group.consumer.heartbeat.interval.ms",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_reported(settings: dict[str, object], key: str) -> None:
    assert [each for each, _ in BrokerSettings(**settings).problems()] == [key]  # type: ignore[arg-type]
    assert list(BrokerSettings().problems()) == []
