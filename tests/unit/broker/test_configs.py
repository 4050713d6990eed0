"""Tests of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: values, their sources, and their effects."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.config import DescribedConfig
from klamm.wire.messages import alter_configs, describe_configs, incremental_alter_configs
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs import changes as config_changes
from klamm_broker.configs.topic_config import TOPIC_CONFIGS
from klamm_broker.configs.unused_configs import DYNAMIC_ONLY, UNUSED_CONFIGS
from tests.unit.broker.broker_harness import BrokerHarness

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = range(1, 6)
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST = range(1, 8)


def describe(harness: BrokerHarness, kind: int, name: str, *keys: str, version: int = 4, **fields: Any) -> Any:
    resource = describe_configs.DescribeConfigsResource(kind, name, list(keys) or None)
    (result,) = harness.call(describe_configs.DescribeConfigsRequest([resource], **fields), version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def one(harness: BrokerHarness, kind: int, name: str, key: str) -> tuple[str, int, list[tuple[str, str, int]]]:
    (config,) = describe(harness, kind, name, key, include_synonyms=True).configs
    return config.value, config.config_source, [(each.name, each.value, each.source) for each in config.synonyms]


def alter(harness: BrokerHarness, kind: int, name: str, *changes: tuple[str, int, str | None], **fields: Any) -> int:
    resource = incremental_alter_configs.AlterConfigsResource(
        kind, name, [incremental_alter_configs.AlterableConfig(*change) for change in changes]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource], **fields)
    (result,) = harness.call(request, 1).responses
    assert bool(result.error_message) == bool(result.error_code)
    code: int = result.error_code
    return code


def replace(harness: BrokerHarness, kind: int, name: str, *configs: tuple[str, str | None], **fields: Any) -> int:
    resource = alter_configs.AlterConfigsResource(
        kind, name, [alter_configs.AlterableConfig(*config) for config in configs]
    )
    (result,) = harness.call(alter_configs.AlterConfigsRequest([resource], **fields), 2).responses
    code: int = result.error_code
    return code


def retention_ms(harness: BrokerHarness) -> int:
    topic = harness.broker.topics.get("t")
    assert topic is not None
    value: int = topic.partitions[0].log.config.retention_ms
    return value


# Describing


@pytest.mark.parametrize("version", range(1, 5))
def test_topic_describes_all_its_configs(harness: BrokerHarness, version: int) -> None:
    harness.create_topic("t", retention_ms="5000")
    result = describe(harness, TOPIC, "t", version=version, include_synonyms=True, include_documentation=version >= 3)
    assert result.error_code == 0
    configs = {config.name: config for config in result.configs}
    assert configs.keys() == TOPIC_CONFIGS.keys()
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("5000", TOPIC_CONFIG, False)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "5000", TOPIC_CONFIG)
    ]
    size = configs["segment.bytes"]
    assert [(each.name, each.value, each.source) for each in size.synonyms] == [
        ("log.segment.bytes", "1073741824", DEFAULT)
    ]
    if version >= 3:
        assert (retention.config_type, size.config_type, configs["cleanup.policy"].config_type) == (LONG, INT, LIST)
        assert all(config.documentation for config in result.configs)


def test_an_internal_config_is_described_for_a_topic_that_has_it(harness: BrokerHarness) -> None:
    harness.create_topic("t", internal_segment_bytes="1000")
    harness.create_topic("plain")
    (config,) = describe(harness, TOPIC, "t", "internal.segment.bytes").configs
    assert (config.value, config.config_source, config.config_type) == ("1000", TOPIC_CONFIG, INT)
    assert describe(harness, TOPIC, "plain", "internal.segment.bytes").configs == []
    assert "internal.segment.bytes" in {config.name for config in describe(harness, TOPIC, "t").configs}


def test_documentation_and_synonyms_are_returned_only_on_request(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    (config,) = describe(harness, TOPIC, "t", "cleanup.policy").configs
    assert (config.documentation, config.synonyms) == (None, [])


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "1")])
def test_an_empty_list_of_keys_means_all(harness: BrokerHarness, kind: int, name: str) -> None:
    harness.create_topic("t")
    resource = describe_configs.DescribeConfigsResource(kind, name, [])
    (result,) = harness.call(describe_configs.DescribeConfigsRequest([resource]), 4).results
    assert result.configs == describe(harness, kind, name).configs != []


def test_unknown_keys_are_left_out(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    result = describe(harness, TOPIC, "t", "nope", "preallocate")
    assert [(config.name, config.value) for config in result.configs] == [("preallocate", "false")]


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_resources_are_not_described(harness: BrokerHarness, kind: int, name: str, error: ErrorCode) -> None:
    result = describe(harness, kind, name)
    assert (result.error_code, result.configs) == (error, [])


def test_an_unknown_type_refuses_the_whole_request(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    resources = [describe_configs.DescribeConfigsResource(kind, "t") for kind in (TOPIC, 77)]
    results = harness.call(describe_configs.DescribeConfigsRequest(resources), 4).results
    assert [(each.resource_type, each.error_code, each.configs) for each in results] == [
        (TOPIC, ErrorCode.INVALID_REQUEST, []),
        (77, ErrorCode.INVALID_REQUEST, []),
    ]


def test_broker_describes_all_its_configs(harness: BrokerHarness) -> None:
    configs = {config.name: config for config in describe(harness, BROKER, "1").configs}
    assert len(configs) == len(BrokerSettings.__dataclass_fields__) + len(UNUSED_CONFIGS) - len(DYNAMIC_ONLY) + 6
    described = {
        name: (configs[name].value, configs[name].config_type, configs[name].read_only, configs[name].config_source)
        for name in (
            "num.partitions",
            "log.retention.ms",
            "log.retention.hours",
            "auto.create.topics.enable",
            "log.cleanup.policy",
            "broker.rack",
            "log.cleaner.min.cleanable.ratio",
        )
    }
    # Apache Kafka 4.3.1 describes the same.
    assert described == {
        "num.partitions": ("1", INT, True, DEFAULT),
        "log.retention.ms": (None, LONG, False, DEFAULT),
        "log.retention.hours": ("168", INT, True, DEFAULT),
        "auto.create.topics.enable": ("true", BOOLEAN, True, DEFAULT),
        "log.cleanup.policy": ("delete", LIST, False, DEFAULT),
        "broker.rack": (None, STRING, True, DEFAULT),
        "log.cleaner.min.cleanable.ratio": ("0.5", DOUBLE, False, DEFAULT),
    }


def test_broker_describes_configs_of_the_server(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.server_configs = [
        DescribedConfig("num.io.threads", 4, 8, int, "Threads."),
        DescribedConfig("connections.max.idle.ms", 600_000, 600_000, int, "Time."),
        DescribedConfig("listener.name.other.connections.max.idle.ms", 5, 600_000, int, "Time."),
    ]
    harness.open()
    described = {config.name: config for config in describe(harness, BROKER, "1", include_synonyms=True).configs}
    assert described.keys() >= {"num.io.threads", "listeners", "num.partitions"}
    assert all(described[name].read_only for name in ("num.io.threads", "listeners", "log.dirs"))
    assert (described["listeners"].value, described["listeners"].config_type) == ("DEFAULT://127.0.0.1:9092", LIST)
    assert described["advertised.listeners"].value == "DEFAULT://kafka.example.com:9192"
    assert described["log.dirs"].value == str(tmp_path)
    assert one(harness, BROKER, "1", "num.io.threads") == (
        "4",
        STATIC,
        [("num.io.threads", "4", STATIC), ("num.io.threads", "8", DEFAULT)],
    )
    idle = [described[name] for name in ("connections.max.idle.ms", "listener.name.other.connections.max.idle.ms")]
    assert [(each.value, each.config_type, each.config_source) for each in idle] == [
        ("600000", LONG, DEFAULT),
        ("5", LONG, STATIC),
    ]
    assert describe(harness, BROKER, "").configs == []
    assert alter(harness, BROKER, "1", ("num.io.threads", SET, "5")) == ErrorCode.INVALID_REQUEST
    harness.broker.close()


def test_broker_describes_its_loggers(harness: BrokerHarness) -> None:
    logging.getLogger("klamm.broker.topics").setLevel(logging.WARNING)
    described = {config.name: config for config in describe(harness, LOGGER, "1").configs}
    assert described.keys() >= {"root", "klamm.broker.topics"}
    entry = described["klamm.broker.topics"]
    assert (entry.value, entry.config_source, entry.read_only) == ("WARN", 6, False)
    assert [config.name for config in describe(harness, LOGGER, "1", "root", "nope").configs] == ["root"]


def test_client_metrics_that_do_not_exist_have_the_defaults(harness: BrokerHarness) -> None:
    result = describe(harness, CLIENT_METRICS, "x")
    assert result.error_code == 0
    found = {config.name: (config.value, config.config_source) for config in result.configs}
    assert found == {"metrics": ("", 5), "interval.ms": ("300000", 5), "match": ("", 5)}


def test_a_value_that_is_missing_is_refused_before_others(harness: BrokerHarness) -> None:
    wrong = ("interval.ms", APPEND, "1"), ("metrics", APPEND, None)
    assert alter(harness, CLIENT_METRICS, "a", *wrong) == ErrorCode.INVALID_REQUEST
    assert alter(harness, CLIENT_METRICS, "a", wrong[0]) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("kind", [GROUP, CLIENT_METRICS])
def test_a_list_operation_on_another_config_is_refused_before_the_name(harness: BrokerHarness, kind: int) -> None:
    assert alter(harness, kind, "", ("interval.ms", 2, "1")) == ErrorCode.INVALID_CONFIG
    assert alter(harness, kind, "", ("interval.ms", SET, "1")) == ErrorCode.INVALID_REQUEST


def test_settings_are_static(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(num_partitions=3, log_retention_hours=1, log_segment_bytes=2**20)
    harness.create_topic("t")
    assert one(harness, BROKER, "1", "num.partitions") == (
        "3",
        STATIC,
        [("num.partitions", "3", STATIC), ("num.partitions", "1", DEFAULT)],
    )
    assert one(harness, TOPIC, "t", "segment.bytes")[:2] == ("1048576", STATIC)
    # The value of a key in another unit is described, but the key is not listed as a synonym.
    assert one(harness, TOPIC, "t", "retention.ms") == ("3600000", DEFAULT, [])
    assert retention_ms(harness) == 3_600_000
    harness.broker.close()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 604_800_000),
        ({"log_retention_hours": 2}, 7_200_000),
        ({"log_retention_hours": 2, "log_retention_minutes": 3}, 180_000),
        ({"log_retention_hours": 2, "log_retention_minutes": 3, "log_retention_ms": 4}, 4),
        ({"log_retention_hours": -1}, -1),
        ({"log_retention_minutes": -1}, -1),
    ],
)
def test_the_key_with_the_finest_unit_applies(tmp_path: Path, settings: dict[str, int], expected: int) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(**settings)
    harness.create_topic("t")
    assert retention_ms(harness) == expected
    harness.broker.close()


def test_defaults_of_settings_and_topics_agree(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    for config in describe(harness, TOPIC, "t").configs:
        default = TOPIC_CONFIGS[config.name].default
        text = ",".join(default) if isinstance(default, tuple) else str(default)
        assert config.value == (text.lower() if isinstance(default, bool) else text), config.name


def test_settings_that_follow_missing_keys_have_their_defaults(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    synonyms = [("log.local.retention.ms", "-2", DEFAULT)]
    assert one(harness, TOPIC, "t", "local.retention.ms") == ("-2", DEFAULT, synonyms)


def test_values_are_described_as_they_are_parsed(harness: BrokerHarness) -> None:
    harness.create_topic("t", cleanup_policy=" delete , compact ,delete", retention_ms=" +5 ", preallocate="TRUE")
    assert one(harness, TOPIC, "t", "cleanup.policy")[0] == "delete,compact"
    assert one(harness, TOPIC, "t", "retention.ms")[0] == "5"
    assert one(harness, TOPIC, "t", "preallocate")[0] == "true"


# Changing topics


def test_topic_configs_are_set_and_deleted(harness: BrokerHarness) -> None:
    harness.create_topic("t", segment_bytes="2000000")
    assert alter(harness, TOPIC, "t", ("retention.ms", SET, "1000"), ("segment.bytes", DELETE, None)) == 0
    assert one(harness, TOPIC, "t", "retention.ms")[:2] == ("1000", TOPIC_CONFIG)
    assert one(harness, TOPIC, "t", "segment.bytes")[:2] == ("1073741824", DEFAULT)
    assert retention_ms(harness) == 1000
    harness.reopen()
    assert retention_ms(harness) == 1000
    assert one(harness, TOPIC, "t", "segment.bytes")[:2] == ("1073741824", DEFAULT)


def test_elements_of_list_configs_are_added_and_removed(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    assert alter(harness, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == 0
    assert one(harness, TOPIC, "t", "cleanup.policy")[0] == "delete,compact"
    assert alter(harness, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == 0
    assert one(harness, TOPIC, "t", "cleanup.policy")[0] == "delete,compact"
    assert alter(harness, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert one(harness, TOPIC, "t", "cleanup.policy")[0] == "compact"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("nope", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", APPEND, "burn"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", APPEND, ""), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", 9, "compact"), ErrorCode.INVALID_REQUEST),
        (("min.compaction.lag.ms", SET, str(2**63 - 1)), ErrorCode.NONE),
    ],
)
def test_invalid_changes_are_refused(
    harness: BrokerHarness, change: tuple[str, int, str | None], error: ErrorCode
) -> None:
    harness.create_topic("t")
    assert alter(harness, TOPIC, "t", ("preallocate", SET, "true"), change) == error
    assert one(harness, TOPIC, "t", "preallocate")[0] == ("false" if error else "true")


def test_contradictory_values_are_refused(harness: BrokerHarness) -> None:
    harness.create_topic("t", max_compaction_lag_ms="1000")
    assert alter(harness, TOPIC, "t", ("min.compaction.lag.ms", SET, "2000")) == ErrorCode.INVALID_CONFIG
    assert one(harness, TOPIC, "t", "min.compaction.lag.ms")[0] == "0"


def test_config_that_is_named_twice_is_refused(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    assert alter(harness, TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")) == (
        ErrorCode.INVALID_REQUEST
    )
    resource = incremental_alter_configs.AlterConfigsResource(
        TOPIC, "t", [incremental_alter_configs.AlterableConfig("retention.ms", SET, "1")]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource, resource])
    assert {each.error_code for each in harness.call(request, 1).responses} == {ErrorCode.INVALID_REQUEST}
    assert retention_ms(harness) == 604_800_000


def test_resources_that_cannot_be_changed(harness: BrokerHarness) -> None:
    change = ("retention.ms", SET, "1")
    assert alter(harness, TOPIC, "nope", change) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(harness, TOPIC, "nope", ("retention.ms", SET, "x")) == ErrorCode.INVALID_CONFIG
    assert alter(harness, TOPIC, "", change) == ErrorCode.INVALID_REQUEST
    assert alter(harness, TOPIC, "no name", change) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert alter(harness, BROKER, "2", ("log.retention.ms", SET, "1")) == ErrorCode.INVALID_REQUEST
    assert alter(harness, GROUP, "g", change) == ErrorCode.INVALID_CONFIG
    assert alter(harness, GROUP, "", ("consumer.session.timeout.ms", SET, "45000")) == ErrorCode.INVALID_REQUEST
    assert replace(harness, GROUP, "g", ("retention.ms", "1")) == ErrorCode.INVALID_CONFIG


def test_validate_only_changes_nothing(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    assert alter(harness, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True) == 0
    assert alter(harness, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True) == ErrorCode.INVALID_CONFIG
    assert alter(harness, BROKER, "1", ("log.retention.ms", SET, "1"), validate_only=True) == 0
    assert replace(harness, TOPIC, "t", ("retention.ms", "1"), validate_only=True) == 0
    assert retention_ms(harness) == 604_800_000


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all(harness: BrokerHarness, version: int) -> None:
    harness.create_topic("t", segment_bytes="2000000")
    resource = alter_configs.AlterConfigsResource(TOPIC, "t", [alter_configs.AlterableConfig("retention.ms", "7")])
    (result,) = harness.call(alter_configs.AlterConfigsRequest([resource]), version).responses
    assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "t")
    topic = harness.broker.topics.get("t")
    assert topic is not None
    assert topic.overrides == {"retention.ms": "7"}


def test_alter_configs_refuses_invalid_values(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    assert replace(harness, TOPIC, "t", ("retention.ms", None)) == ErrorCode.INVALID_REQUEST
    assert replace(harness, TOPIC, "t", ("nope", "1")) == ErrorCode.INVALID_CONFIG
    assert replace(harness, TOPIC, "nope", ("retention.ms", "1")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Changing the broker


def test_dynamic_broker_configs_reach_topics(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    assert alter(harness, BROKER, "", ("log.retention.ms", SET, "2000")) == 0
    assert retention_ms(harness) == 2000
    assert alter(harness, BROKER, "1", ("log.retention.ms", SET, "1000")) == 0
    assert retention_ms(harness) == 1000
    assert one(harness, TOPIC, "t", "retention.ms") == (
        "1000",
        DYNAMIC_BROKER,
        [
            ("log.retention.ms", "1000", DYNAMIC_BROKER),
            ("log.retention.ms", "2000", DYNAMIC_DEFAULT),
            ("log.retention.hours", "168", DEFAULT),
        ],
    )
    assert one(harness, BROKER, "1", "log.retention.ms")[:2] == ("1000", DYNAMIC_BROKER)
    assert one(harness, BROKER, "", "log.retention.ms") == (
        "2000",
        DYNAMIC_DEFAULT,
        [("log.retention.ms", "2000", DYNAMIC_DEFAULT)],
    )
    harness.reopen()
    assert retention_ms(harness) == 1000
    assert alter(harness, BROKER, "1", ("log.retention.ms", DELETE, None)) == 0
    assert alter(harness, BROKER, "", ("log.retention.ms", DELETE, None)) == 0
    assert retention_ms(harness) == 604_800_000


def test_a_topics_own_config_precedes_the_default(harness: BrokerHarness) -> None:
    harness.create_topic("t", retention_ms="5")
    assert alter(harness, BROKER, "1", ("log.retention.ms", SET, "1000")) == 0
    assert retention_ms(harness) == 5


def test_elements_of_broker_list_configs_are_added_and_removed(harness: BrokerHarness) -> None:
    assert alter(harness, BROKER, "1", ("log.cleanup.policy", APPEND, "compact")) == 0
    assert one(harness, BROKER, "1", "log.cleanup.policy")[0] == "delete,compact"


def test_a_list_that_is_not_set_is_changed_from_the_first_default(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    assert alter(harness, BROKER, "1", ("log.cleanup.policy", SET, "compact")) == 0
    assert alter(harness, BROKER, "", ("log.cleanup.policy", APPEND, "compact")) == 0
    assert one(harness, BROKER, "", "log.cleanup.policy")[0] == "delete,compact"
    assert alter(harness, TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact")) == 0
    assert one(harness, TOPIC, "t", "cleanup.policy")[0] == "delete"


@pytest.mark.parametrize(
    "change",
    [("node.id", SET, "2"), ("num.partitions", SET, "2"), ("nope", SET, "2"), ("log.retention.ms", SET, "x")],
)
def test_broker_configs_that_cannot_be_changed(harness: BrokerHarness, change: tuple[str, int, str]) -> None:
    assert alter(harness, BROKER, "1", change) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("validate_only", [False, True])
def test_min_insync_replicas_of_one_broker_is_refused(harness: BrokerHarness, validate_only: bool) -> None:
    name = "min.insync.replicas"
    code = alter(harness, BROKER, "1", (name, SET, "2"), validate_only=validate_only)
    assert code == ErrorCode.INVALID_CONFIG
    assert replace(harness, BROKER, "1", (name, "2")) == ErrorCode.INVALID_CONFIG
    assert one(harness, BROKER, "1", name)[0] == "1"
    assert alter(harness, BROKER, "", (name, SET, "2")) == 0
    assert one(harness, BROKER, "1", name)[0] == "2"


def test_min_insync_replicas_that_is_stored_for_one_broker_stays_until_it_is_deleted(harness: BrokerHarness) -> None:
    name = "min.insync.replicas"
    harness.broker.store.write_and_wait([("INSERT INTO configs VALUES (4, '1', ?, '2')", (name,))])
    harness.reopen()
    assert alter(harness, BROKER, "1", ("log.retention.ms", SET, "1000")) == 0
    assert one(harness, BROKER, "1", name)[0] == "2"
    assert alter(harness, BROKER, "1", (name, SET, "3")) == ErrorCode.INVALID_CONFIG
    assert alter(harness, BROKER, "1", (name, DELETE, None)) == 0
    assert one(harness, BROKER, "1", name)[0] == "1"


MIN_LAG, MAX_LAG = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("resource", ["1", ""])
def test_defaults_that_contradict_each_other_are_refused(
    harness: BrokerHarness, resource: str, validate_only: bool
) -> None:
    assert alter(harness, BROKER, "1", (MAX_LAG, SET, "1000")) == 0
    code = alter(harness, BROKER, resource, (MIN_LAG, SET, "2000"), validate_only=validate_only)
    assert code == ErrorCode.INVALID_REQUEST
    harness.reopen()
    assert one(harness, BROKER, "1", MAX_LAG)[0] == "1000"
    assert one(harness, BROKER, "1", MIN_LAG)[0] == "0"


def test_a_default_that_contradicts_a_topics_own_config_is_refused(harness: BrokerHarness) -> None:
    harness.create_topic("t", min_compaction_lag_ms="2000")
    assert alter(harness, BROKER, "1", (MAX_LAG, SET, "1000")) == ErrorCode.INVALID_REQUEST
    assert alter(harness, BROKER, "1", (MAX_LAG, SET, "2000")) == 0
    harness.reopen()
    assert one(harness, TOPIC, "t", "max.compaction.lag.ms")[0] == "2000"


def test_the_broker_starts_without_stored_defaults_that_contradict_each_other(
    harness: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in ((MAX_LAG, "1000"), (MIN_LAG, "2000"), ("log.retention.ms", "x"), ("nope", "1")):
        harness.broker.store.write_and_wait([("INSERT INTO configs VALUES (4, '1', ?, ?)", (name, value))])
    harness.reopen()
    assert one(harness, BROKER, "1", MAX_LAG)[0] == "1000"
    assert one(harness, BROKER, "1", MIN_LAG)[0] == "0"
    assert [record.getMessage().split(" is not in force")[0] for record in caplog.records if record.levelno > 30] == [
        f"the dynamic broker config {MIN_LAG}=2000",
        "the dynamic broker config log.retention.ms=x",
        "the dynamic broker config nope=1",
    ]


def test_the_broker_starts_without_a_stored_topic_config_that_is_contradictory(
    harness: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create_topic("t", min_compaction_lag_ms="2000", retention_ms="7")
    harness.produce("t", b"x")
    harness.reopen(log_cleaner_max_compaction_lag_ms=1000)
    assert retention_ms(harness) == 7
    assert "topic t: its config min.compaction.lag.ms=2000 is not in force" in caplog.text
    assert b"x" in bytes(harness.fetch("t").records)
    topic = harness.broker.topics.get("t")
    assert topic is not None
    harness.broker.topics.add_partitions(topic, 2)
    assert alter(harness, BROKER, "1", ("log.retention.ms", SET, "1000")) == 0
    harness.reopen()
    assert topic is not None
    assert one(harness, TOPIC, "t", "min.compaction.lag.ms")[0] == "2000"


def test_settings_that_contradict_each_other_are_a_problem() -> None:
    settings = BrokerSettings(log_cleaner_min_compaction_lag_ms=2, log_cleaner_max_compaction_lag_ms=1)
    assert [key for key, _message in settings.problems()] == [MIN_LAG]


def test_simultaneous_changes_are_all_kept(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic("t")
    started = threading.Barrier(2, timeout=0.2)
    check = config_changes._apply

    def slow(*arguments: Any) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            started.wait()
        check(*arguments)

    monkeypatch.setattr(config_changes, "_apply", slow)
    changes = [("retention.ms", SET, "5"), ("segment.ms", SET, "6")]
    threads = [threading.Thread(target=alter, args=(harness, TOPIC, "t", change)) for change in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one(harness, TOPIC, "t", "retention.ms")[0] == "5"
    assert one(harness, TOPIC, "t", "segment.ms")[0] == "6"


def test_settings_that_a_part_refuses_change_nothing(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    broker, before = harness.broker, harness.broker.live.current

    def refuse(settings: BrokerSettings) -> None:
        if settings != before:
            raise RuntimeError("out of order")

    broker.live.subscribe(refuse)
    with pytest.raises(RuntimeError, match="out of order"):
        broker.configs.follow(dataclasses.replace(before, message_max_bytes=7, offset_metadata_max_bytes=7))
    assert (broker.live.current, broker.live.static) == (before, before)
    assert one(harness, BROKER, "1", "message.max.bytes")[0] == str(before.message_max_bytes)
    assert one(harness, TOPIC, "t", "max.message.bytes")[0] == str(before.message_max_bytes)
