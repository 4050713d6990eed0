"""The configs that a group may have: kinds, defaults, bounds and parsing. Follows Kafka's `GroupConfig`.

`GroupConfigs` uses the table. The functions keep no state, so any thread may call them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.topic_config import ConfigType, TopicConfig, parse_as

CONSUMER_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SHARE_RECORD_LOCK_DURATION: Final = "share.record.lock.duration.ms"
SHARE_DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
SHARE_MAX_RECORD_LOCKS: Final = "share.partition.max.record.locks"
SHARE_AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION_LEVEL: Final = "share.isolation.level"
SHARE_RENEW_ENABLE: Final = "share.renew.acknowledge.enable"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY: Final = "errors.deadletterqueue.copy.record.enable"
STREAMS_SESSION_TIMEOUT: Final = "streams.session.timeout.ms"
STREAMS_HEARTBEAT_INTERVAL: Final = "streams.heartbeat.interval.ms"
STREAMS_NUM_STANDBY_REPLICAS: Final = "streams.num.standby.replicas"
STREAMS_INITIAL_REBALANCE_DELAY: Final = "streams.initial.rebalance.delay.ms"
STREAMS_ASSIGNMENT_INTERVAL: Final = "streams.assignment.interval.ms"
STREAMS_ASSIGNOR_NAME: Final = "streams.assignor.name"
STREAMS_RACK_AWARE_TAGS: Final = "streams.rack.aware.assignment.tags"

_DOCS: Final = {
    CONSUMER_SESSION_TIMEOUT: "Longest time for which a member of this group may be silent.",
    CONSUMER_HEARTBEAT_INTERVAL: "Time between two heartbeats of a member of this group.",
    SHARE_SESSION_TIMEOUT: "Longest time for which a member of this share group may be silent.",
    SHARE_HEARTBEAT_INTERVAL: "Time between two heartbeats of a member of this share group.",
    SHARE_RECORD_LOCK_DURATION: "Time for which a member of this share group holds an acquired record.",
    SHARE_DELIVERY_COUNT_LIMIT: "Number of deliveries after which a record of this share group is archived.",
    SHARE_MAX_RECORD_LOCKS: "Maximum number of records in flight in a partition of this share group.",
    SHARE_AUTO_OFFSET_RESET: "Where a share group starts in a partition: latest, earliest, or by_duration:PT…, that"
    " long ago.",
    SHARE_ISOLATION_LEVEL: "Isolation level: read_uncommitted gives a share group also the records of open and aborted"
    " transactions.",
    SHARE_RENEW_ENABLE: "Allow members of this share group to extend the locks of their records (KIP-1222).",
    DEAD_LETTER_TOPIC: "Dead-letter topic of this share group: records that it archives undelivered are written there."
    " Empty: none.",
    DEAD_LETTER_COPY: "Copy the key and the value of a record to its dead letter, not only its headers.",
    STREAMS_SESSION_TIMEOUT: "Longest time for which a member of this streams group may be silent.",
    STREAMS_HEARTBEAT_INTERVAL: "Time between two heartbeats of a member of this streams group.",
    STREAMS_NUM_STANDBY_REPLICAS: "Standby copies of the state of each task of this streams group.",
    STREAMS_INITIAL_REBALANCE_DELAY: "Time that this streams group waits for more members before its first assignment.",
    STREAMS_ASSIGNMENT_INTERVAL: "Shortest time between two assignments of this streams group.",
    STREAMS_RACK_AWARE_TAGS: "Keys of client tags over whose values this streams group distributes the standby copies"
    " of a task.",
    STREAMS_ASSIGNOR_NAME: "The assignor of this streams group, one of group.streams.assignors.",
}

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"
_SEPARATOR: Final = r"\s*,\s*"
_BY_DURATION: Final = "by_duration:"
# A string, which `re` compiles at its first use: compiling it here would slow down each start.
_DURATION: Final = r"(?i)P(?=.)(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3})\d*)?S)?)?"

_LESS_THAN: Final = (
    (CONSUMER_HEARTBEAT_INTERVAL, CONSUMER_SESSION_TIMEOUT),
    (SHARE_HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT),
    (STREAMS_HEARTBEAT_INTERVAL, STREAMS_SESSION_TIMEOUT),
)
"""Pairs of configs. The first config of a pair must be less than the second."""


class GroupConfigKey(NamedTuple):
    """One config. `default`, `minimum` and `maximum` come from the broker's settings; None means no bound.

    `broker_key` is the broker config that determines the default. If there is none, it is the config's own name, as in
    Kafka.
    """

    config: TopicConfig
    default: Any
    broker_key: str
    minimum: int | None = None
    maximum: int | None = None

    def parse(self, text: str) -> Any:
        """Return the value, which may exceed the broker's bounds. Raises KafkaError(INVALID_CONFIG)."""
        name = self.config.name
        if name == STREAMS_RACK_AWARE_TAGS:
            _check_tags(name, text.strip())
        value = parse_as(self.config, text)
        if name == SHARE_AUTO_OFFSET_RESET:
            _check_reset(name, value)
        return value

    def check_bounds(self, value: Any) -> None:
        """Raise KafkaError(INVALID_CONFIG) for a value beyond the broker's bounds."""
        name = self.config.name
        if self.minimum is not None and self.maximum is not None and not self.minimum <= value <= self.maximum:
            raise _invalid(f"{name} must be in the range {self.minimum} to {self.maximum} inclusive.")
        if self.maximum is not None and value > self.maximum:
            raise _invalid(f"{name} must be less than or equal to {self.maximum}")

    def limited(self, value: Any) -> Any:
        """Return the value, limited to the broker's bounds. The bounds may have changed since the value was set."""
        value = value if self.minimum is None else max(value, self.minimum)
        return value if self.maximum is None else min(value, self.maximum)


def group_config_keys(settings: BrokerSettings) -> dict[str, GroupConfigKey]:
    """Return all configs by name, in Kafka's order."""
    keys = (
        _bounded(settings, CONSUMER_SESSION_TIMEOUT, 1),
        _bounded(settings, CONSUMER_HEARTBEAT_INTERVAL, 1),
        _bounded(settings, SHARE_SESSION_TIMEOUT, 1),
        _bounded(settings, SHARE_HEARTBEAT_INTERVAL, 1),
        _bounded(settings, SHARE_RECORD_LOCK_DURATION, 1000),
        _bounded(settings, SHARE_DELIVERY_COUNT_LIMIT, 2),
        _bounded(settings, SHARE_MAX_RECORD_LOCKS, 100),
        _free(SHARE_AUTO_OFFSET_RESET, ConfigType.STRING, LATEST),
        _free(SHARE_ISOLATION_LEVEL, ConfigType.STRING, READ_UNCOMMITTED, (READ_COMMITTED, READ_UNCOMMITTED)),
        _free(SHARE_RENEW_ENABLE, ConfigType.BOOLEAN, True),
        _free(DEAD_LETTER_TOPIC, ConfigType.STRING, ""),
        _free(DEAD_LETTER_COPY, ConfigType.BOOLEAN, False),
        _bounded(settings, STREAMS_SESSION_TIMEOUT, 1),
        _bounded(settings, STREAMS_HEARTBEAT_INTERVAL, 1),
        _of_broker(
            STREAMS_NUM_STANDBY_REPLICAS,
            ConfigType.INT,
            settings.group_streams_num_standby_replicas,
            maximum=settings.group_streams_max_standby_replicas,
        ),
        _of_broker(STREAMS_INITIAL_REBALANCE_DELAY, ConfigType.INT, settings.group_streams_initial_rebalance_delay_ms),
        _bounded(settings, STREAMS_ASSIGNMENT_INTERVAL, 0),
        _of_broker(STREAMS_RACK_AWARE_TAGS, ConfigType.LIST, settings.group_streams_rack_aware_assignment_tags),
        _of_broker(
            STREAMS_ASSIGNOR_NAME, ConfigType.STRING, settings.group_streams_assignors[0], "group.streams.assignors"
        ),
    )
    return {key.config.name: key for key in keys}


def check(values: Mapping[str, str], keys: Mapping[str, GroupConfigKey], assignors: tuple[str, ...]) -> None:
    """Raise KafkaError(INVALID_CONFIG) for unknown names and bad values, with Kafka's words."""
    for name in values:
        if name not in keys:
            raise _invalid(f"Unknown group config name: {name}")
    own = {name: key.parse(values[name]) for name, key in keys.items() if name in values}
    for name, value in own.items():
        keys[name].check_bounds(value)
    assignor = own.get(STREAMS_ASSIGNOR_NAME, assignors[0])
    if assignor not in assignors:
        registered = ", ".join(assignors)
        raise _invalid(
            f"{STREAMS_ASSIGNOR_NAME} '{assignor}' is not a registered task assignor."
            f" Registered assignors are: [{registered}]."
        )
    for smaller, larger in _LESS_THAN:
        if own.get(larger, keys[larger].default) <= own.get(smaller, keys[smaller].default):
            raise _invalid(f"{larger} must be greater than {smaller}")
    if own.get(DEAD_LETTER_TOPIC, "").startswith("__"):
        raise _invalid(f"{DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'")


def _bounded(settings: BrokerSettings, name: str, at_least: int) -> GroupConfigKey:
    """Return a config whose default and both bounds come from the broker."""
    kind, _, rest = name.partition(".")
    value, minimum, maximum = (
        getattr(settings, f"group_{kind}_{bound}{rest}".replace(".", "_")) for bound in ("", "min.", "max.")
    )
    config = TopicConfig(name, ConfigType.INT, value, _DOCS[name], minimum=at_least)
    return GroupConfigKey(config, value, f"group.{name}", minimum, maximum)


def _free(name: str, kind: ConfigType, default: Any, choices: tuple[str, ...] = ()) -> GroupConfigKey:
    """Return a config for which the broker has no setting."""
    return GroupConfigKey(TopicConfig(name, kind, default, _DOCS[name], choices=choices), default, name)


def _of_broker(
    name: str, kind: ConfigType, default: Any, broker_key: str = "", maximum: int | None = None
) -> GroupConfigKey:
    """Return a config whose default, and perhaps the upper bound, come from the broker."""
    at_least = 0 if kind is ConfigType.INT else None
    config = TopicConfig(name, kind, default, _DOCS[name], minimum=at_least)
    return GroupConfigKey(config, default, broker_key or f"group.{name}", maximum=maximum)


def reset_duration_ms(reset: str) -> int | None:
    """Return how many milliseconds in the past a group starts, if `share.auto.offset.reset` is a duration; else
    None.
    """
    return _duration_ms(reset[len(_BY_DURATION) :]) if reset.startswith(_BY_DURATION) else None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _check_tags(name: str, text: str) -> None:
    tags = re.split(_SEPARATOR, text) if text else []
    if len(set(tags)) != len(tags):
        raise _invalid(f"{name} must not contain duplicate tag keys.")
    if "" in tags:
        raise _invalid(f"Configuration '{name}' values must not be empty.")


def _check_reset(name: str, reset: str) -> None:
    try:
        known = reset in (EARLIEST, LATEST) or reset_duration_ms(reset) is not None
    except ValueError:
        known = False
    if not known:
        raise _invalid(
            f"Invalid value {reset} for configuration {name}: Invalid value `{reset}` for configuration {name}."
            " The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )


def _duration_ms(text: str) -> int:
    found = re.fullmatch(_DURATION, text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text} is not an ISO 8601 duration")
    days, hours, minutes, seconds, fraction = (each or "0" for each in found.groups())
    whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int(fraction.ljust(3, "0"))
