"""Subscriptions to metrics of clients: the configs of the resource type CLIENT_METRICS, and the clients that match.

Follows Kafka's `ClientMetricsConfigs` and `ClientMetricsManager`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError, RequestContext
from klamm_broker.configs.config_registry import ConfigEntry, ConfigSource, ResourceType, Synonym
from klamm_broker.configs.topic_config import ConfigType
from klamm_broker.storage.config_rows import replace_configs
from klamm_broker.storage.store import Store

ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 300_000
_MIN_INTERVAL_MS: Final = 100
_MAX_INTERVAL_MS: Final = 3_600_000
METRICS: Final = "metrics"
INTERVAL: Final = "interval.ms"
MATCH: Final = "match"


class _Key(NamedTuple):
    kind: ConfigType
    default: str
    doc: str


_KEYS: Final = {
    METRICS: _Key(ConfigType.LIST, "", "Names, or prefixes of names, of the metrics that clients push; * means all."),
    INTERVAL: _Key(ConfigType.INT, str(DEFAULT_INTERVAL_MS), "Interval between a client's pushes."),
    MATCH: _Key(
        ConfigType.LIST,
        "",
        "Clients of the subscription: NAME=REGEX pairs that must all match; none means every client.",
    ),
}

_ATTRIBUTES: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def attributes_of(instance_id: str, context: RequestContext) -> dict[str, str]:
    """Return the client attributes that a subscription can match."""
    connection = context.connection
    return {
        "client_instance_id": instance_id,
        "client_id": context.client_id or "",
        "client_software_name": connection.client_software_name,
        "client_software_version": connection.client_software_version,
        "client_source_address": context.client_address.host,
        "client_source_port": str(context.client_address.port),
    }


class Subscription(NamedTuple):
    """One subscription, parsed."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, re.Pattern[str]]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Return True if the subscription matches a client with these attributes."""
        return all(pattern.fullmatch(attributes[name]) for name, pattern in self.patterns.items())


def parse(values: Mapping[str, str]) -> Subscription:
    """Return the subscription that these configs describe.

    Raises KafkaError: INVALID_REQUEST for an unknown config or an interval out of bounds, INVALID_CONFIG for other
    errors.
    """
    for name in values:
        if name not in _KEYS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no client metrics config {name}")
    text = values.get(INTERVAL, str(DEFAULT_INTERVAL_MS)).strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{INTERVAL} must be an integer")
    if not _MIN_INTERVAL_MS <= int(text) <= _MAX_INTERVAL_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{INTERVAL} must be between {_MIN_INTERVAL_MS} and {_MAX_INTERVAL_MS}"
        )
    patterns = dict(_pattern(item) for item in _items(values.get(MATCH, "")))
    return Subscription(tuple(_items(values.get(METRICS, ""))), int(text), patterns)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _pattern(item: str) -> tuple[str, re.Pattern[str]]:
    # Imported here, because most servers have no patterns and start faster without this module.
    from klamm.shared import JavaRegexError, compile_java

    name, _equals, pattern = (part.strip() for part in item.partition("="))
    try:
        if name in _ATTRIBUTES and pattern and "=" not in pattern:
            return name, compile_java(pattern)
    except JavaRegexError:
        pass
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item}")


class ClientMetricsConfigs:
    """The configs of all subscriptions. Any thread may read; callers make one change at a time. `version` rises with
    each change.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._own: dict[str, dict[str, str]] = {}
        self._parsed: dict[str, Subscription] = {}
        self.version = 0

    def load(self) -> None:
        """Load the configs from the store. Raises StoreError."""
        stored: dict[str, dict[str, str]] = {}
        for subscription, name, value in self._store.read(
            "SELECT resource_name, name, value FROM configs WHERE resource_type = ?", (ResourceType.CLIENT_METRICS,)
        ):
            stored.setdefault(subscription, {})[name] = value
        self._own = stored
        self._parsed = {name: parse(values) for name, values in stored.items()}

    def names(self) -> list[str]:
        """Return the names of all subscriptions."""
        return sorted(self._own)

    def subscriptions(self) -> list[Subscription]:
        """Return all subscriptions, parsed."""
        return list(self._parsed.values())

    def own(self, name: str) -> dict[str, str]:
        """Return the configs set for a subscription; empty if it does not exist."""
        return dict(self._own.get(name, {}))

    def replace(self, name: str, values: Mapping[str, str]) -> None:
        """Replace all configs of a subscription, durably. Without configs, it is deleted. Raises StoreError,
        KafkaError.
        """
        parsed = parse(values)
        self._store.write_and_wait(replace_configs(ResourceType.CLIENT_METRICS, name, values))
        # New dictionaries, because other threads may iterate over the old ones.
        self._own = {key: each for key, each in self._own.items() if key != name}
        self._parsed = {key: each for key, each in self._parsed.items() if key != name}
        if values:
            self._own = {**self._own, name: dict(values)}
            self._parsed = {**self._parsed, name: parsed}
        self.version += 1

    def describe(self, name: str, names: Collection[str] | None) -> list[ConfigEntry]:
        """Return the configs of a subscription: the named ones, or all if no names are given. If it does not exist, it
        has the defaults.
        """
        own = self._own.get(name, {})
        return [_entry(key, own.get(key)) for key in _KEYS if not names or key in names]


def _entry(name: str, own: str | None) -> ConfigEntry:
    key = _KEYS[name]
    if own is None:
        return ConfigEntry(name, key.default, key.kind, ConfigSource.DEFAULT_CONFIG, False, (), key.doc)
    source = ConfigSource.CLIENT_METRICS_CONFIG
    return ConfigEntry(name, own, key.kind, source, False, (Synonym(name, own, source),), key.doc)
