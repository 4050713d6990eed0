"""Invalid configs of groups, with the error messages of Kafka 4.4."""

from __future__ import annotations

from typing import Final

from klamm_broker.configs.topic_config import ConfigType

_TOO_FEW: Final = "Value must be at least"
_NO_NUMBER: Final = f"Not a number of type {ConfigType.INT.name}"
_RESETS: Final = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."


def _invalid(name: str, value: str, reason: str) -> tuple[str, str, str]:
    return name, value, f"Invalid value {value} for configuration {name}: {reason}"


def _beyond(name: str, value: str, lowest: int, highest: int) -> tuple[str, str, str]:
    return name, value, f"{name} must be in the range {lowest} to {highest} inclusive."


def _reset(value: str) -> tuple[str, str, str]:
    name = "share.auto.offset.reset"
    return _invalid(name, value, f"Invalid value `{value}` for configuration {name}. {_RESETS}")


GROUP_CONFIG_ERRORS: Final = (
    _beyond("consumer.session.timeout.ms", "44999", 45_000, 60_000),
    _beyond("consumer.session.timeout.ms", "60001", 45_000, 60_000),
    _beyond("consumer.heartbeat.interval.ms", "4999", 5_000, 15_000),
    _beyond("consumer.heartbeat.interval.ms", "15001", 5_000, 15_000),
    _invalid("consumer.heartbeat.interval.ms", "0", f"{_TOO_FEW} 1"),
    _invalid("consumer.heartbeat.interval.ms", "many", _NO_NUMBER),
    _invalid("consumer.heartbeat.interval.ms", "99999999999", _NO_NUMBER),
    _beyond("share.session.timeout.ms", "44999", 45_000, 60_000),
    _reset("by_duration:tomorrow"),
    _reset("none"),
    _reset("LATEST"),
    _reset("BY_DURATION:PT1H"),
    _invalid("share.isolation.level", "serializable", "String must be one of: read_committed, read_uncommitted"),
    _invalid("share.delivery.count.limit", "1", f"{_TOO_FEW} 2"),
    _beyond("share.delivery.count.limit", "11", 2, 10),
    _invalid("share.record.lock.duration.ms", "999", f"{_TOO_FEW} 1000"),
    _invalid("share.partition.max.record.locks", "99", f"{_TOO_FEW} 100"),
    _invalid("share.renew.acknowledge.enable", "yes", "Expected value to be either true or false"),
    _beyond("streams.session.timeout.ms", "44999", 45_000, 60_000),
    _beyond("streams.session.timeout.ms", "60001", 45_000, 60_000),
    _invalid("streams.heartbeat.interval.ms", "x", _NO_NUMBER),
    _invalid("streams.num.standby.replicas", "-1", f"{_TOO_FEW} 0"),
    (
        "streams.num.standby.replicas",
        "3",
        "streams.num.standby.replicas must be less than or equal to 2",
    ),
    _invalid("streams.initial.rebalance.delay.ms", "-1", f"{_TOO_FEW} 0"),
    _beyond("streams.assignment.interval.ms", "15001", 0, 15_000),
    (
        "streams.assignor.name",
        "range",
        "streams.assignor.name 'range' is not a registered task assignor. Registered assignors are: [sticky].",
    ),
    (
        "streams.rack.aware.assignment.tags",
        "zone, zone",
        "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
    ),
    (
        "streams.rack.aware.assignment.tags",
        "zone,,rack",
        "Configuration 'streams.rack.aware.assignment.tags' values must not be empty.",
    ),
    (
        "errors.deadletterqueue.topic.name",
        "__letters",
        "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
    ),
    ("no.such.config", "2", "Unknown group config name: no.such.config"),
)
"""Name, value and message."""
