"""The configs of consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071).

They override the broker's configs. A group may have configs before it exists. Follows Kafka's `GroupConfig` and
`GroupConfigManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from klamm import KafkaError, clipped
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.broker_keys import text_of
from klamm_broker.configs.config_registry import ConfigEntry, ConfigSource, ResourceType, Synonym
from klamm_broker.configs.group_config_keys import check, group_config_keys
from klamm_broker.storage.config_rows import replace_configs
from klamm_broker.storage.store import Store

log = logging.getLogger("klamm.broker.configs")


class GroupConfigs:
    """The configs that are set for groups, and the effective values. Any thread may read; callers make one change at a
    time.
    """

    def __init__(self, settings: BrokerSettings, store: Store) -> None:
        self._store = store
        self._own: dict[str, dict[str, str]] = {}
        self._keys = group_config_keys(settings)
        self._assignors = settings.group_streams_assignors
        self.max_share_sessions = settings.group_share_max_share_sessions
        """Maximum number of share sessions of the broker."""
        self.max_share_session_partitions = settings.fetch_session_max_partitions
        """Maximum number of partitions in all share sessions together."""

    def load(self) -> None:
        """Read the stored configs. Raises StoreError."""
        for group_id, name, value in self._store.read(
            "SELECT resource_name, name, value FROM configs WHERE resource_type = ?", (ResourceType.GROUP,)
        ):
            if name in self._keys and self._is_valid(group_id, name, value):
                self._own.setdefault(group_id, {})[name] = value

    def _is_valid(self, group_id: str, name: str, value: str) -> bool:
        try:
            self._keys[name].parse(value)
        except KafkaError as error:
            log.error("group %s: its config %s=%s is not in force: %s", clipped(group_id), name, value, error.message)
            return False
        return True

    def number(self, group_id: str, name: str) -> int:
        """Return the value of a config that is a number, within the broker's bounds."""
        return int(self._keys[name].limited(self.value(group_id, name)))

    def value(self, group_id: str, name: str) -> Any:
        """Return the group's own value of a config, or the broker's; its type is that of the config."""
        key = self._keys[name]
        own = self._own.get(group_id)
        return key.default if own is None or name not in own else key.parse(own[name])

    def own(self, group_id: str) -> dict[str, str]:
        """Return the configs that are set for this group."""
        return dict(self._own.get(group_id, {}))

    def group_ids(self) -> list[str]:
        """Return the groups that have configs."""
        return sorted(self._own)

    def check(self, values: Mapping[str, str]) -> None:
        """Raise KafkaError(INVALID_CONFIG) for unknown names and bad values."""
        check(values, self._keys, self._assignors)

    def replace(self, group_id: str, values: Mapping[str, str]) -> None:
        """Set all configs of a group, durably. Raises StoreError."""
        self._store.write_and_wait(replace_configs(ResourceType.GROUP, group_id, values))
        if values:
            self._own[group_id] = dict(values)
        else:
            self._own.pop(group_id, None)

    def describe(
        self, group_id: str, names: Collection[str] | None, synonyms: Callable[[str], Collection[Synonym]]
    ) -> list[ConfigEntry]:
        """Return the configs of a group: those in `names`, or all if `names` is None.

        `synonyms` returns every source of a broker config's value, the effective source first.
        """
        own = self._own.get(group_id, {})
        return [
            self._entry(name, own.get(name), tuple(synonyms(self._keys[name].broker_key)))
            for name in self._keys
            if not names or name in names
        ]

    def _entry(self, name: str, own: str | None, inherited: tuple[Synonym, ...]) -> ConfigEntry:
        key = self._keys[name]
        kind, doc, value = key.config.kind, key.config.doc, text_of(key.default)
        inherited = inherited or (Synonym(name, value, ConfigSource.DEFAULT_CONFIG),)
        if own is None:
            return ConfigEntry(name, value, kind, inherited[0].source, False, inherited, doc)
        value = text_of(key.parse(own))
        first = Synonym(name, value, ConfigSource.GROUP_CONFIG)
        return ConfigEntry(name, value, kind, first.source, False, (first, *inherited), doc)
