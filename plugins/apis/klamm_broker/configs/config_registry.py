"""The configs of topics and of the broker that clients describe and alter, with the source of each value.

The first of these values applies, as in Kafka: the topic's own, this broker's dynamic value, the dynamic default of all
brokers, the settings, Kafka's default. Any thread may read; a change holds `ConfigRegistry.changing`. Follows Kafka's
`ConfigHelper`, `LogConfig` and `DynamicBrokerConfig`.
"""

from __future__ import annotations

import enum
import itertools
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm.config import PER_BROKER
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.broker_keys import (
    INHERITED_KEYS,
    LISTENER_PREFIX,
    SPECS,
    BrokerKey,
    broker_keys,
    text_of,
    topic_key_of,
)
from klamm_broker.configs.topic_config import INTERNAL_CONFIGS, TOPIC_CONFIGS, ConfigType, parse
from klamm_broker.configs.unused_configs import DYNAMIC_ONLY, UNUSED_CONFIGS, check_unused, unused_keys
from klamm_broker.live_settings import DYNAMIC, LiveSettings
from klamm_broker.log.config import LogConfig
from klamm_broker.storage.config_rows import replace_configs
from klamm_broker.storage.store import Store

log = logging.getLogger("klamm.broker.configs")


class ResourceType(enum.IntEnum):
    """`ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(enum.IntEnum):
    """`DescribeConfigsResponse.ConfigSource`."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Operation(enum.IntEnum):
    """`AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Synonym(NamedTuple):
    """One source of a value."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One config as described to clients; `synonyms` has every source of a value, the effective one first."""

    name: str
    value: str | None
    kind: ConfigType
    source: ConfigSource
    read_only: bool
    synonyms: tuple[Synonym, ...]
    doc: str


DEFAULT_BROKERS: Final = ""
"""Resource name of the dynamic defaults of all brokers."""

_MS_PER_HOUR: Final = 3_600_000
_MS_PER_MINUTE: Final = 60_000
_FALLBACKS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "log.retention.ms": (("log.retention.minutes", _MS_PER_MINUTE), ("log.retention.hours", _MS_PER_HOUR)),
    "log.roll.ms": (("log.roll.hours", _MS_PER_HOUR),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _MS_PER_HOUR),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}
"""The broker keys that apply instead of a key that is not set, with the factor from their unit to milliseconds."""

_OF_LISTENER: Final = re.compile(re.escape(LISTENER_PREFIX) + r"[^.]+\.")


def check_value(name: str, text: str) -> None:
    """Raise KafkaError(INVALID_CONFIG) for an invalid value of a topic config, or an unknown config."""
    parse(name, text)


def check_topic_configs(overrides: Mapping[str, str]) -> None:
    """Raise KafkaError(INVALID_CONFIG) for unknown topic configs and bad values."""
    for name, text in overrides.items():
        check_value(name, text)


def is_list(name: str) -> bool:
    """Return True if a topic config is a list."""
    return name in TOPIC_CONFIGS and TOPIC_CONFIGS[name].kind is ConfigType.LIST


class ConfigRegistry:
    """Dynamic broker configs, and the effective configs of topics.

    Dynamic configs are the broker configs that topics inherit, settings of the broker (`live`), and settings of the
    server. `server_keys` returns the server's configs, and `change_server` checks and changes the dynamic ones.
    `on_change` is called when changes have taken effect. `topic_overrides` returns the configs of each topic; a changed
    default must not contradict them.

    The nodes of one process share all configs except their listeners' settings and the configs without effect. If there
    are several nodes, a single node can have dynamic values for only these two kinds.
    """

    def __init__(
        self,
        live: LiveSettings,
        store: Store,
        on_change: Callable[[], None],
        topic_overrides: Callable[[], Iterable[tuple[str, Mapping[str, str]]]] = tuple,
        server_keys: Callable[[int], Iterable[BrokerKey]] = lambda node_id: (),
        change_server: Callable[[Mapping[str, str], bool, Mapping[int, Mapping[str, str]]], None] = (
            lambda values, validate_only, of_nodes: None
        ),
    ) -> None:
        self.changing = threading.Lock()
        """Held from reading the current configs until the changed ones are stored. `follow` takes this lock; who calls
        `set_dynamic` or changes configs of topics takes it before. It is not reentrant."""
        self._store = store
        self._topic_overrides = topic_overrides
        self._server_keys = server_keys
        self._change_server = change_server
        self._on_change = on_change
        self._live = live
        self._first_node_id = live.current.node_id
        self._nodes = range(self._first_node_id, self._first_node_id + live.current.nodes)
        self._dynamic: dict[str, dict[str, str]] = {str(node_id): {} for node_id in self._nodes}
        self._dynamic[DEFAULT_BROKERS] = {}
        self._keys = _keys_of(live.current)
        self._inherited = self._inherited_with(self._dynamic)
        self._default_log_config = LogConfig(self._inherited)

    def load(self) -> None:
        """Read the stored dynamic configs; log and leave out those that contradict others. Raises StoreError."""
        for resource, name, value in self._store.read(
            "SELECT resource_name, name, value FROM configs WHERE resource_type = ? ORDER BY resource_name, name",
            (ResourceType.BROKER,),
        ):
            if resource not in self._dynamic:
                continue
            wanted = {**self._dynamic, resource: {**self._dynamic[resource], name: value}}
            try:
                self._check_dynamic_name(resource, name)
                self._check_server(wanted)
                self._apply(wanted)
            except KafkaError as error:
                log.error("the dynamic broker config %s=%s is not in force: %s", name, value, error.message)
        self._put_in_server(self._dynamic, validate_only=False)

    def _apply(self, dynamic: dict[str, dict[str, str]]) -> None:
        """Apply these dynamic configs. If it raises KafkaError(INVALID_CONFIG), nothing has changed."""
        inherited = self._inherited_with(dynamic)
        log_config = LogConfig(inherited)
        settings = self._live.with_values(self._of_broker(dynamic))
        self._default_log_config = log_config
        self._inherited = inherited
        self._dynamic = dynamic
        self._live.take(settings)

    def _merged(self, dynamic: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Return the dynamic configs that apply to all nodes; if there is only one node, with its own."""
        own = dynamic[str(self._first_node_id)] if len(self._nodes) == 1 else {}
        return {**dynamic[DEFAULT_BROKERS], **own}

    def _of_broker(self, dynamic: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        return {name: value for name, value in self._merged(dynamic).items() if name in DYNAMIC}

    def _put_in_server(self, dynamic: Mapping[str, Mapping[str, str]], *, validate_only: bool) -> None:
        values = {name: value for name, value in self._merged(dynamic).items() if name not in self._keys}
        of_nodes = {}
        if len(self._nodes) > 1:
            of_nodes = {
                node: {name: value for name, value in dynamic[str(node_id)].items() if name not in self._keys}
                for node, node_id in enumerate(self._nodes)
            }
        self._change_server(values, validate_only, of_nodes)

    def _check_server(self, dynamic: Mapping[str, Mapping[str, str]]) -> None:
        """Raise KafkaError(INVALID_CONFIG) if the server refuses the value of one of its own configs."""
        try:
            self._put_in_server(dynamic, validate_only=True)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _check_dynamic_name(self, resource_name: str, name: str) -> None:
        """Raise KafkaError for a config that this resource cannot have."""
        of_server = self._server_keys(self._first_node_id)
        key = self._keys.get(name) or next((each for each in of_server if each.name == name), None)
        _check_key(name, key, is_of_all=resource_name == DEFAULT_BROKERS, is_alone=len(self._nodes) == 1)

    # Topics

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return the settings of a topic's logs. Raises KafkaError(INVALID_CONFIG)."""
        return LogConfig({**self._inherited, **overrides}) if overrides else self._default_log_config

    def log_config_in_force(self, topic: str, overrides: Mapping[str, str]) -> LogConfig:
        """Return the settings of a topic's logs like `log_config`, but log and leave out configs that contradict
        others.

        Contradictions may appear when defaults in the settings have changed, or when another release wrote the configs.
        """
        try:
            return self.log_config(overrides)
        except KafkaError:
            fitting: dict[str, str] = {}
            for name, value in sorted(overrides.items()):
                try:
                    self.log_config({**fitting, name: value})
                except KafkaError as error:
                    log.error("topic %s: its config %s=%s is not in force: %s", topic, name, value, error.message)
                else:
                    fitting[name] = value
            return self.log_config(fitting)

    def describe_topic(
        self, overrides: Mapping[str, str], names: Collection[str] | None = None, *, as_written: bool = False
    ) -> list[ConfigEntry]:
        """Return the configs of a topic with these overrides: those in `names` that exist, or all if `names` is None.

        As in Kafka, an empty list of names means all, and internal configs are described if the topic has them set.
        Overrides are described as parsed (` 5 ` becomes 5, TRUE becomes true), or unchanged if `as_written` is True.
        """
        asked = set(names) if names else None
        there = itertools.chain(TOPIC_CONFIGS, INTERNAL_CONFIGS.keys() & overrides.keys())
        wanted = [name for name in there if asked is None or name in asked]
        return [self._topic_entry(name, overrides, as_written) for name in wanted]

    def _topic_entry(self, name: str, overrides: Mapping[str, str], as_written: bool) -> ConfigEntry:
        entry = TOPIC_CONFIGS.get(name) or INTERNAL_CONFIGS[name]
        synonyms = self._described_synonyms(entry.broker_name) if entry.broker_name is not None else []
        if entry.broker_name is not None and entry.broker_name not in SPECS:
            synonyms = [Synonym(entry.broker_name, text_of(entry.default), ConfigSource.DEFAULT_CONFIG)]
        value = self._inherited.get(name, text_of(entry.default))
        if name in overrides:
            value = overrides[name] if as_written else text_of(parse(name, overrides[name]))
            synonyms.insert(0, Synonym(name, value, ConfigSource.TOPIC_CONFIG))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        return ConfigEntry(name, value, entry.kind, source, False, tuple(synonyms), entry.doc)

    def _inherited_with(self, dynamic: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Return the configs that topics would inherit with these dynamic configs."""
        inherited = {}
        for name, entry in TOPIC_CONFIGS.items():
            if entry.broker_name is not None:
                value = self._broker_value(entry.broker_name, dynamic)
                if value is not None:
                    inherited[name] = value
        return inherited

    def _broker_value(self, name: str, dynamic: Mapping[str, Mapping[str, str]]) -> str | None:
        found = next(iter(self._synonyms(name, dynamic)), None)
        if found is None or found.value is None:
            return None
        factor = next((factor for other, factor in _FALLBACKS.get(name, ()) if other == found.name), 1)
        if factor == 1:
            return found.value
        # -1, "for ever", is the same in every unit.
        return str(max(-1, int(found.value) * factor))

    # Broker

    def describe_broker(
        self, node_id: int, resource_name: str, names: Collection[str] | None = None
    ) -> list[ConfigEntry]:
        """Return the configs of a node, or the dynamic defaults if the name is empty. If `names` is given, return only
        these.

        Raises KafkaError(INVALID_REQUEST) for the name of another broker.
        """
        check_broker_name(node_id, resource_name)
        asked = set(names) if names else None
        keys = [
            key._replace(value=str(node_id)) if key.name == "node.id" else key
            for key in self._keys.values()
            if asked is None or key.name in asked
        ]
        of_server = [key for key in self._server_keys(node_id) if asked is None or key.name in asked]
        if resource_name != DEFAULT_BROKERS:
            others = (self._broker_entry(key, resource_name) for key in of_server)
            own = (self._broker_entry(key, resource_name) for key in keys)
            return [*filter(_is_there, own), *(each for each in others if not _says_nothing(each))]
        keys += of_server
        defaults = self._dynamic[DEFAULT_BROKERS]
        return [_default_entry(key, defaults[key.name]) for key in keys if key.name in defaults]

    def _broker_entry(self, key: BrokerKey, node_name: str) -> ConfigEntry:
        synonyms = tuple(self._described_synonyms(key.name, key, node_name))
        first = synonyms[0] if synonyms and synonyms[0].name == key.name else None
        return ConfigEntry(
            key.name,
            first.value if first is not None else key.value,
            key.kind,
            first.source if first is not None else ConfigSource.DEFAULT_CONFIG,
            not key.dynamic,
            synonyms,
            key.doc,
        )

    def synonyms(self, name: str) -> list[Synonym]:
        """Return every source of a broker config's value, the effective one first."""
        return self._described_synonyms(name)

    def _described_synonyms(
        self, name: str, key: BrokerKey | None = None, node_name: str | None = None
    ) -> list[Synonym]:
        """Return the synonyms in the order of their sources. As in Kafka, the list begins with the first synonym of
        this very name: synonyms of other names before it, e.g. keys in other units, are left out.
        """
        by_source = sorted(self._synonyms(name, self._dynamic, key, node_name), key=lambda each: each.source)
        return list(itertools.dropwhile(lambda each: each.name != name, by_source))

    def _synonyms(
        self,
        name: str,
        dynamic: Mapping[str, Mapping[str, str]],
        own: BrokerKey | None = None,
        node_name: str | None = None,
    ) -> Iterable[Synonym]:
        """Yield every source of a value, the effective one first. `own` describes the key where the
        broker's settings may lack it, as for keys of the server and of listeners.
        """
        names = [name, *(fallback for fallback, _factor in _FALLBACKS.get(name, ()))]
        plain = _OF_LISTENER.sub("", name)
        if plain != name:
            names.append(plain)
        for other in names:
            for resource, source in (
                (node_name or str(self._first_node_id), ConfigSource.DYNAMIC_BROKER_CONFIG),
                (DEFAULT_BROKERS, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            ):
                if other in dynamic[resource]:
                    yield Synonym(other, dynamic[resource][other], source)
            key = own if own is not None and other == own.name else self._keys.get(other)
            if key is None:
                continue
            if key.value != key.default:
                yield Synonym(other, key.value, ConfigSource.STATIC_BROKER_CONFIG)
            if key.default is not None:
                yield Synonym(other, key.default, ConfigSource.DEFAULT_CONFIG)

    def dynamic(self, resource_name: str) -> dict[str, str]:
        """Return the dynamic configs of a node, or the dynamic defaults of all brokers if the name is empty."""
        return dict(self._dynamic[resource_name])

    def check_names(self, resource_name: str, names: Iterable[str]) -> None:
        """Raise KafkaError for configs that this resource cannot have: INVALID_CONFIG if the nodes share the config,
        else INVALID_REQUEST.
        """
        for name in names:
            self._check_dynamic_name(resource_name, name)

    def check_dynamic(self, resource_name: str, values: Mapping[str, str]) -> None:
        """Raise KafkaError if a value is invalid by itself, or contradicts other configs or the configs of a topic."""
        self.check_names(resource_name, values)
        _check_values(values)
        dynamic = {**self._dynamic, resource_name: dict(values)}
        inherited = self._inherited_with(dynamic)
        LogConfig(inherited)
        self._live.with_values(self._of_broker(dynamic))
        self._check_server(dynamic)
        self._check_topics(inherited)

    def _check_topics(self, inherited: Mapping[str, str]) -> None:
        for topic, overrides in self._topic_overrides():
            if not overrides:
                continue
            try:
                LogConfig({**inherited, **overrides})
            except KafkaError as error:
                if self._fits(overrides):
                    raise KafkaError(error.error_code, f"topic {topic}: {error.message}") from error

    def _fits(self, overrides: Mapping[str, str]) -> bool:
        try:
            self.log_config(overrides)
        except KafkaError:
            return False
        return True

    def set_dynamic(self, resource_name: str, values: Mapping[str, str]) -> None:
        """Replace the dynamic configs of a broker resource, durably, and apply them.

        Raises StoreError, and KafkaError(INVALID_CONFIG) like `check_dynamic`.
        """
        self.check_dynamic(resource_name, values)
        self._store.write_and_wait(replace_configs(ResourceType.BROKER, resource_name, values))
        self._apply({**self._dynamic, resource_name: dict(values)})
        self._put_in_server(self._dynamic, validate_only=False)
        self._on_change()

    def follow(self, settings: BrokerSettings) -> None:
        """Use new settings from the configuration file. Only keys that dynamic configs can override may have
        other values than before.

        Raises KafkaError(INVALID_CONFIG) like `check_dynamic`. If it raises, nothing has changed.
        """
        with self.changing:
            before = self._keys, self._default_log_config, self._inherited, self._dynamic
            static, current = self._live.static, self._live.current
            self._keys, self._live.static = _keys_of(settings), settings
            try:
                self._check_topics(self._inherited_with(self._dynamic))
                self._apply(self._dynamic)
            except BaseException:
                self._keys, self._default_log_config, self._inherited, self._dynamic = before
                self._live.static = static
                self._live.take(current)
                raise
        self._on_change()


def _keys_of(settings: BrokerSettings) -> dict[str, BrokerKey]:
    return {key.name: key for key in itertools.chain(broker_keys(settings), unused_keys())}


def _check_values(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        if name in INHERITED_KEYS:
            check_value(topic_key_of(name), value)
        elif name in UNUSED_CONFIGS:
            check_unused(name, value)


def _check_key(name: str, key: BrokerKey | None, *, is_of_all: bool, is_alone: bool) -> None:
    if key is None or not key.dynamic:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} cannot be changed while the broker runs")
    if key.dynamic == PER_BROKER and is_of_all:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can be changed for one broker, not for all")
    if not is_of_all and not is_alone and not key.per_node:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{name}: the nodes of this process share it; change it for all of them, with an empty broker name",
        )


def check_broker_name(node_id: int, resource_name: str) -> None:
    """Raise KafkaError(INVALID_REQUEST) unless the name is the node's id, or empty for the dynamic defaults."""
    if resource_name not in (str(node_id), DEFAULT_BROKERS):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {node_id}, not {resource_name}")


def _is_there(entry: ConfigEntry) -> bool:
    return bool(entry.synonyms) or entry.name not in DYNAMIC_ONLY


def _says_nothing(entry: ConfigEntry) -> bool:
    """Return True if a config has no value to describe: a listener's own key that is not set, or an empty default."""
    is_optional = entry.value is None or entry.name.startswith(LISTENER_PREFIX)
    return is_optional and entry.source == ConfigSource.DEFAULT_CONFIG and not entry.read_only


def _default_entry(key: BrokerKey, value: str) -> ConfigEntry:
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return ConfigEntry(key.name, value, key.kind, source, False, (Synonym(key.name, value, source),), key.doc)
