"""The configs of groups: session timeout and heartbeat interval of consumer groups, over the broker's (KIP-848).

A group has configs whether it exists or not. Follows Kafka's `GroupConfig` and `GroupConfigManager`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from klamm import ErrorCode, KafkaError
from klamm_broker.configs.registry import ConfigEntry, ConfigSource, ResourceType, Synonym
from klamm_broker.configs.topic_config import INT32_MAX, ConfigType

if TYPE_CHECKING:
    from klamm_broker.settings import BrokerSettings
    from klamm_broker.storage.store import Store

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


class _Key(NamedTuple):
    default: int
    minimum: int
    maximum: int
    doc: str

    @property
    def text(self) -> str:
        return str(self.default)


class BrokerSynonyms(Protocol):
    """Every source of a broker config's value, the effective one first."""

    def __call__(self, name: str, /) -> Collection[Synonym]: ...


class GroupConfigs:
    """Own configs of groups, and the values in force. From any thread; changes are serialized by the caller."""

    def __init__(self, settings: BrokerSettings, store: Store) -> None:
        self._store = store
        self._own: dict[str, dict[str, str]] = {}
        self._keys: dict[str, _Key] = {
            SESSION_TIMEOUT: _Key(
                settings.group_consumer_session_timeout_ms,
                settings.group_consumer_min_session_timeout_ms,
                settings.group_consumer_max_session_timeout_ms,
                "How long a member of this group may be silent.",
            ),
            HEARTBEAT_INTERVAL: _Key(
                settings.group_consumer_heartbeat_interval_ms,
                settings.group_consumer_min_heartbeat_interval_ms,
                settings.group_consumer_max_heartbeat_interval_ms,
                "Time between two heartbeats of a member of this group.",
            ),
        }

    def load(self) -> None:
        """Read the configs back. Raises StoreError."""
        for group_id, name, value in self._store.read(
            "SELECT resource_name, name, value FROM configs WHERE resource_type = ?", (ResourceType.GROUP,)
        ):
            if name in self._keys:
                self._own.setdefault(group_id, {})[name] = value

    def session_timeout_ms(self, group_id: str) -> int:
        """How long a member may be silent."""
        return self._value(group_id, SESSION_TIMEOUT)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Time between two heartbeats of a member."""
        return self._value(group_id, HEARTBEAT_INTERVAL)

    def _value(self, group_id: str, name: str) -> int:
        own = self._own.get(group_id)
        key = self._keys[name]
        if own is None or name not in own:
            return key.default
        # The bounds may have changed in the settings.
        return min(max(int(own[name]), key.minimum), key.maximum)

    def own(self, group_id: str) -> dict[str, str]:
        """What is set for this group."""
        return dict(self._own.get(group_id, {}))

    def group_ids(self) -> list[str]:
        """The groups that have configs."""
        return sorted(self._own)

    def check(self, values: Mapping[str, str]) -> None:
        """Raise KafkaError(INVALID_CONFIG) for unknown names and bad values."""
        effective = {name: key.default for name, key in self._keys.items()}
        for name, text in values.items():
            key = self._keys.get(name)
            if key is None:
                raise _invalid(f"Unknown group config name: {name}")
            effective[name] = value = _parsed(name, text)
            bound = f"group.{name.replace('consumer.', 'consumer.{}.', 1)}"
            if value < key.minimum:
                raise _invalid(f"{name} must be greater than or equal to {bound.format('min')}")
            if value > key.maximum:
                raise _invalid(f"{name} must be less than or equal to {bound.format('max')}")
        if effective[SESSION_TIMEOUT] <= effective[HEARTBEAT_INTERVAL]:
            raise _invalid(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")

    def replace(self, group_id: str, values: Mapping[str, str]) -> None:
        """Set all configs of a group, durably. Raises StoreError."""
        self._store.write_and_wait(
            [
                (
                    "DELETE FROM configs WHERE resource_type = ? AND resource_name = ?",
                    (ResourceType.GROUP, group_id),
                ),
                *(
                    (
                        "INSERT INTO configs (resource_type, resource_name, name, value) VALUES (?, ?, ?, ?)",
                        (ResourceType.GROUP, group_id, name, value),
                    )
                    for name, value in values.items()
                ),
            ]
        )
        if values:
            self._own[group_id] = dict(values)
        else:
            self._own.pop(group_id, None)

    def describe(self, group_id: str, names: Collection[str] | None, synonyms: BrokerSynonyms) -> list[ConfigEntry]:
        """The configs of a group: of these names, or all if none."""
        own = self._own.get(group_id, {})
        return [
            self._entry(name, own.get(name), tuple(synonyms(f"group.{name}")))
            for name in self._keys
            if not names or name in names
        ]

    def _entry(self, name: str, own: str | None, inherited: tuple[Synonym, ...]) -> ConfigEntry:
        key = self._keys[name]
        if own is None:
            return ConfigEntry(name, key.text, ConfigType.INT, inherited[0].source, False, inherited, key.doc)
        value = str(int(own))
        first = Synonym(name, value, ConfigSource.GROUP_CONFIG)
        return ConfigEntry(name, value, ConfigType.INT, first.source, False, (first, *inherited), key.doc)


def _parsed(name: str, text: str) -> int:
    trimmed = text.strip()
    if not re.fullmatch(r"[+-]?[0-9]+", trimmed) or not -INT32_MAX - 1 <= int(trimmed) <= INT32_MAX:
        raise _invalid(f"Invalid value {text} for configuration {name}: Not a number of type INT")
    if int(trimmed) < 1:
        raise _invalid(f"Invalid value {text} for configuration {name}: Value must be at least 1")
    return int(trimmed)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
