"""The configs that a group may have: kinds, defaults, bounds and parsing. Follows Kafka's `GroupConfig`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm_broker.configs.topic_config import ConfigType
from klamm_broker.numbers import INT32_MAX

if TYPE_CHECKING:
    from klamm_broker.settings import BrokerSettings

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

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
READ_COMMITTED: Final = "read_committed"
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3})\d*)?S)?)?", re.IGNORECASE
)

LESS_THAN: Final = (
    (CONSUMER_HEARTBEAT_INTERVAL, CONSUMER_SESSION_TIMEOUT),
    (SHARE_HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT),
    (STREAMS_HEARTBEAT_INTERVAL, STREAMS_SESSION_TIMEOUT),
)
"""Pairs of configs of which the first must be less than the second."""


class GroupConfigKey(NamedTuple):
    """One config. `parse` raises ValueError; `minimum` and `maximum` are the broker's, for whole numbers only."""

    name: str
    kind: ConfigType
    default: int | str
    doc: str
    parse: Callable[[str], int | str]
    minimum: int = 1
    maximum: int = INT32_MAX
    has_broker_key: bool = True
    other_broker_key: str = ""
    maximum_key: str = ""

    @property
    def broker_key(self) -> str:
        """The broker config that the default follows; the config's own name if there is none, as in Kafka."""
        return self.other_broker_key or (f"group.{self.name}" if self.has_broker_key else self.name)

    def parsed(self, text: str) -> int | str:
        """The value. Raises KafkaError(INVALID_CONFIG)."""
        try:
            value = self.parse(text.strip())
        except ValueError as error:
            raise invalid(f"Invalid value {text} for configuration {self.name}: {error}") from None
        if isinstance(value, int):
            kind, _, rest = self.name.partition(".")
            if value < self.minimum:
                raise invalid(f"{self.name} must be greater than or equal to group.{kind}.min.{rest}")
            if value > self.maximum:
                most = self.maximum_key or f"group.{kind}.max.{rest}"
                raise invalid(f"{self.name} must be less than or equal to {most}")
        return value


def group_config_keys(settings: BrokerSettings) -> dict[str, GroupConfigKey]:
    """All configs by name."""

    def bounded(name: str, doc: str) -> GroupConfigKey:
        kind, _, rest = name.partition(".")
        value, minimum, maximum = (
            getattr(settings, f"group_{kind}_{bound}{rest}".replace(".", "_")) for bound in ("", "min.", "max.")
        )
        parse = _number_from_zero if minimum == 0 else _whole_number
        return GroupConfigKey(name, ConfigType.INT, value, doc, parse, minimum, maximum)

    def free(name: str, default: str, doc: str, parse: Callable[[str], str], kind: ConfigType) -> GroupConfigKey:
        return GroupConfigKey(name, kind, default, doc, parse, has_broker_key=False)

    keys = (
        bounded(CONSUMER_SESSION_TIMEOUT, "How long a member of this group may be silent."),
        bounded(CONSUMER_HEARTBEAT_INTERVAL, "Time between two heartbeats of a member of this group."),
        free(
            DEAD_LETTER_COPY,
            "false",
            "Whether a dead letter has the key and the value of its record, or its headers alone.",
            _boolean,
            ConfigType.BOOLEAN,
        ),
        free(
            DEAD_LETTER_TOPIC,
            "",
            "The dead-letter topic of this share group: what it gives up is written there. Empty: there is none.",
            _dead_letter_topic,
            ConfigType.STRING,
        ),
        free(
            SHARE_AUTO_OFFSET_RESET,
            LATEST,
            "Where a share group begins to read a partition: latest, earliest, or by_duration:PT…, that long ago.",
            _reset,
            ConfigType.STRING,
        ),
        bounded(SHARE_DELIVERY_COUNT_LIMIT, "How often a record is delivered to a share group before it is archived."),
        bounded(SHARE_HEARTBEAT_INTERVAL, "Time between two heartbeats of a member of this share group."),
        free(
            SHARE_ISOLATION_LEVEL,
            "read_uncommitted",
            "Whether a share group gets records of transactions that are open or aborted.",
            _isolation,
            ConfigType.STRING,
        ),
        bounded(SHARE_MAX_RECORD_LOCKS, "Most records in flight in a partition of this share group."),
        bounded(SHARE_RECORD_LOCK_DURATION, "How long a member of this share group holds an acquired record."),
        free(
            SHARE_RENEW_ENABLE,
            "true",
            "Whether a member of this share group may extend the locks of its records (KIP-1222).",
            _boolean,
            ConfigType.BOOLEAN,
        ),
        bounded(SHARE_SESSION_TIMEOUT, "How long a member of this share group may be silent."),
        *_streams_keys(settings, bounded),
    )
    return {key.name: key for key in keys}


def _streams_keys(settings: BrokerSettings, bounded: Callable[[str, str], GroupConfigKey]) -> Iterator[GroupConfigKey]:
    yield bounded(STREAMS_ASSIGNMENT_INTERVAL, "Shortest time between two assignments of this streams group.")
    yield GroupConfigKey(
        STREAMS_ASSIGNOR_NAME,
        ConfigType.STRING,
        settings.group_streams_assignors[0],
        "The assignor of this streams group, one of group.streams.assignors.",
        lambda text: _assignor(text, settings.group_streams_assignors),
        other_broker_key="group.streams.assignors",
    )
    yield bounded(STREAMS_HEARTBEAT_INTERVAL, "Time between two heartbeats of a member of this streams group.")
    yield GroupConfigKey(
        STREAMS_INITIAL_REBALANCE_DELAY,
        ConfigType.INT,
        settings.group_streams_initial_rebalance_delay_ms,
        "How long this streams group waits for more members before its first assignment.",
        _number_from_zero,
        minimum=0,
    )
    yield GroupConfigKey(
        STREAMS_NUM_STANDBY_REPLICAS,
        ConfigType.INT,
        settings.group_streams_num_standby_replicas,
        "Standby copies of the state of each task of this streams group.",
        _number_from_zero,
        minimum=0,
        maximum=settings.group_streams_max_standby_replicas,
        maximum_key="group.streams.max.standby.replicas",
    )
    yield GroupConfigKey(
        STREAMS_RACK_AWARE_TAGS,
        ConfigType.LIST,
        ",".join(settings.group_streams_rack_aware_assignment_tags),
        "Keys of client tags over whose values this streams group distributes the standby copies of a task.",
        _tags,
    )
    yield bounded(STREAMS_SESSION_TIMEOUT, "How long a member of this streams group may be silent.")


def reset_duration_ms(reset: str) -> int | None:
    """How far back in time a group begins, if its `share.auto.offset.reset` says a duration."""
    return _duration_ms(reset[len(_BY_DURATION) :]) if reset.startswith(_BY_DURATION) else None


def invalid(message: str) -> KafkaError:
    """The error of a config that cannot be."""
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _whole_number(text: str) -> int:
    return _number_from(1, text)


def _number_from_zero(text: str) -> int:
    return _number_from(0, text)


def _number_from(minimum: int, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not -INT32_MAX - 1 <= int(text) <= INT32_MAX:
        raise ValueError("Not a number of type INT")
    if int(text) < minimum:
        raise ValueError(f"Value must be at least {minimum}")
    return int(text)


def _assignor(text: str, known: Sequence[str]) -> str:
    if text not in known:
        raise ValueError(f"String must be one of: {', '.join(known)}")
    return text


def _tags(text: str) -> str:
    tags = [each.strip() for each in text.split(",")] if text else []
    if len(set(tags)) != len(tags):
        raise ValueError("must not contain duplicate tag keys")
    return ",".join(tags)


def _boolean(text: str) -> str:
    if text.lower() not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return text.lower()


def _dead_letter_topic(text: str) -> str:
    if text.startswith("__"):
        raise ValueError("DLQ topic name must not start with '__'")
    return text


def _isolation(text: str) -> str:
    if text not in (READ_COMMITTED, "read_uncommitted"):
        raise ValueError("String must be one of: read_committed, read_uncommitted")
    return text


def _reset(text: str) -> str:
    if text.startswith(_BY_DURATION):
        _duration_ms(text[len(_BY_DURATION) :])
    elif text not in (EARLIEST, LATEST):
        raise ValueError("Must be earliest, latest, or by_duration:<duration> with an ISO 8601 duration")
    return text


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text} is not an ISO 8601 duration")
    days, hours, minutes, seconds, fraction = (each or "0" for each in found.groups())
    whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int(fraction.ljust(3, "0"))
