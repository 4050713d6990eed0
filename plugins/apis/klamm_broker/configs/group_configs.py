"""The configs of groups, which override the broker's: consumer (KIP-848), share (KIP-932), streams groups (KIP-1071).

A group has configs whether it exists or not. Follows Kafka's `GroupConfig` and `GroupConfigManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from klamm import KafkaError, clipped
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.broker_keys import text_of
from klamm_broker.configs.config_registry import ConfigEntry, ConfigSource, ResourceType, Synonym
from klamm_broker.configs.group_config_keys import (
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
    DEAD_LETTER_COPY,
    DEAD_LETTER_TOPIC,
    READ_COMMITTED,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_DELIVERY_COUNT_LIMIT,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_ISOLATION_LEVEL,
    SHARE_MAX_RECORD_LOCKS,
    SHARE_RECORD_LOCK_DURATION,
    SHARE_RENEW_ENABLE,
    SHARE_SESSION_TIMEOUT,
    STREAMS_ASSIGNMENT_INTERVAL,
    STREAMS_HEARTBEAT_INTERVAL,
    STREAMS_INITIAL_REBALANCE_DELAY,
    STREAMS_NUM_STANDBY_REPLICAS,
    STREAMS_RACK_AWARE_TAGS,
    STREAMS_SESSION_TIMEOUT,
    check,
    group_config_keys,
)
from klamm_broker.storage.config_rows import replace_configs
from klamm_broker.storage.store import Store


class StreamsGroupConfigs:
    """Values by group id: the group's own, or the broker's."""

    def __init__(self, number: Callable[[str, str], int], value: Callable[[str, str], Any]) -> None:
        """`number` and `value` take a group id and the name of a config."""
        self._number = number
        self._value = value

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the longest time for which a member may be silent."""
        return self._number(group_id, STREAMS_SESSION_TIMEOUT)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the time between two heartbeats of a member."""
        return self._number(group_id, STREAMS_HEARTBEAT_INTERVAL)

    def num_standby_replicas(self, group_id: str) -> int:
        """Return the number of standby copies of each task's state."""
        return self._number(group_id, STREAMS_NUM_STANDBY_REPLICAS)

    def initial_rebalance_delay_ms(self, group_id: str) -> int:
        """Return the time that a new group waits for more members."""
        return self._number(group_id, STREAMS_INITIAL_REBALANCE_DELAY)

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the minimum time between two assignments."""
        return self._number(group_id, STREAMS_ASSIGNMENT_INTERVAL)

    def rack_aware_assignment_tags(self, group_id: str) -> tuple[str, ...]:
        """Return the keys of client tags over whose values standby copies are distributed."""
        return tuple(self._value(group_id, STREAMS_RACK_AWARE_TAGS))


log = logging.getLogger("klamm.broker.configs")


class BrokerSynonyms(Protocol):
    """Returns every source of a broker config's value, the effective one first."""

    def __call__(self, name: str, /) -> Collection[Synonym]: ...


class GroupConfigs:
    """Own configs of groups, and the effective values. Any thread may call it; the caller serializes changes."""

    def __init__(self, settings: BrokerSettings, store: Store) -> None:
        self._store = store
        self._own: dict[str, dict[str, str]] = {}
        self._keys = group_config_keys(settings)
        self._assignors = settings.group_streams_assignors
        self.streams = StreamsGroupConfigs(self._number, self._value)
        """Configs of streams groups."""
        self.max_share_sessions = settings.group_share_max_share_sessions
        """Maximum number of share sessions of the broker."""
        self.max_share_session_partitions = settings.fetch_session_max_partitions
        """Maximum number of partitions in all share sessions together."""

    def load(self) -> None:
        """Read the configs back. Raises StoreError."""
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

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the longest time for which a member of a consumer group may be silent."""
        return self._number(group_id, CONSUMER_SESSION_TIMEOUT)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the time between two heartbeats of a member of a consumer group."""
        return self._number(group_id, CONSUMER_HEARTBEAT_INTERVAL)

    def share_session_timeout_ms(self, group_id: str) -> int:
        """Return the longest time for which a member of a share group may be silent."""
        return self._number(group_id, SHARE_SESSION_TIMEOUT)

    def share_heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the time between two heartbeats of a member of a share group."""
        return self._number(group_id, SHARE_HEARTBEAT_INTERVAL)

    def share_record_lock_duration_ms(self, group_id: str) -> int:
        """Return the time for which a member of a share group holds an acquired record."""
        return self._number(group_id, SHARE_RECORD_LOCK_DURATION)

    def share_delivery_count_limit(self, group_id: str) -> int:
        """Return the number of deliveries after which a record is archived."""
        return self._number(group_id, SHARE_DELIVERY_COUNT_LIMIT)

    def share_partition_max_record_locks(self, group_id: str) -> int:
        """Return the maximum number of records in flight in a partition of a share group."""
        return self._number(group_id, SHARE_MAX_RECORD_LOCKS)

    def share_auto_offset_reset(self, group_id: str) -> str:
        """Return the start of a share group: `earliest`, `latest`, or `by_duration:` and an ISO 8601 duration."""
        return str(self._value(group_id, SHARE_AUTO_OFFSET_RESET))

    def share_reads_committed(self, group_id: str) -> bool:
        """Return True if a share group gets only records of committed transactions."""
        return bool(self._value(group_id, SHARE_ISOLATION_LEVEL) == READ_COMMITTED)

    def share_may_renew(self, group_id: str) -> bool:
        """Return True if members of a share group may extend the locks of their records."""
        return bool(self._value(group_id, SHARE_RENEW_ENABLE))

    def dead_letter_topic(self, group_id: str) -> str:
        """Return the dead-letter topic of a share group; empty if it has none."""
        return str(self._value(group_id, DEAD_LETTER_TOPIC))

    def copies_dead_letters(self, group_id: str) -> bool:
        """Return True if dead letters have the keys and values of their records."""
        return bool(self._value(group_id, DEAD_LETTER_COPY))

    def _number(self, group_id: str, name: str) -> int:
        return int(self._keys[name].limited(self._value(group_id, name)))

    def _value(self, group_id: str, name: str) -> Any:
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

    def describe(self, group_id: str, names: Collection[str] | None, synonyms: BrokerSynonyms) -> list[ConfigEntry]:
        """Return the configs of a group: those of `names`, or all if it is None."""
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
