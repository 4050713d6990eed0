"""The configs that clients describe and alter, of topics and of the broker, with the source of each value.

A value is looked for in Kafka's order: the topic's own, this broker's dynamic one, the dynamic default of all brokers,
the settings, Kafka's default. Follows Kafka's `ConfigHelper`, `LogConfig` and `DynamicBrokerConfig`.
"""

from __future__ import annotations

import enum
import itertools
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm.config import specs_of
from klamm_broker.configs.topic_config import INTERNAL_CONFIGS, TOPIC_CONFIGS, ConfigType, parse
from klamm_broker.log import LogConfig
from klamm_broker.settings import BrokerSettings

if TYPE_CHECKING:
    from klamm import ServerContext
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


class Operation(enum.IntEnum):
    """`AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Synonym(NamedTuple):
    """One place where a value was found."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config as described to clients; `synonyms` has every source of a value, the effective one first."""

    name: str
    value: str | None
    kind: ConfigType
    source: ConfigSource
    read_only: bool
    synonyms: tuple[Synonym, ...]
    doc: str


_SPECS: Final = specs_of(BrokerSettings)
_TOPIC_KEY_OF: Final = {entry.broker_name: name for name, entry in TOPIC_CONFIGS.items() if entry.broker_name in _SPECS}
DYNAMIC_KEYS: Final = {broker_name: TOPIC_CONFIGS[name].kind for broker_name, name in _TOPIC_KEY_OF.items()}
"""Broker configs that can be changed while the broker runs, and their types: those that topics inherit."""

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
"""Broker keys that replace one that is not set, with the factor from their unit to milliseconds."""

_LONG_KEYS: Final = frozenset(
    {
        "connections.max.idle.ms",
        "queued.max.request.bytes",
        "log.cleaner.backoff.ms",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        "log.retention.check.interval.ms",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "delegation.token.expiry.check.interval.ms",
        "delegation.token.expiry.time.ms",
        "delegation.token.max.lifetime.ms",
        "offsets.retention.check.interval.ms",
    }
)


_LEVELS: Final = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}
"""Kafka's words for levels."""

_KINDS: Final = (
    (bool, ConfigType.BOOLEAN),
    (int, ConfigType.INT),
    (float, ConfigType.DOUBLE),
    (str, ConfigType.STRING),
    (Path, ConfigType.STRING),
)


def text_of(value: Any) -> str | None:
    """A value as Kafka writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ",".join(value)
    return str(value)


def topic_key_of(broker_name: str) -> str:
    """The topic config that a dynamic broker config is the default of; the name itself if there is none."""
    return _TOPIC_KEY_OF.get(broker_name, broker_name)


def check_value(name: str, text: str) -> None:
    """Raise KafkaError(INVALID_CONFIG) for a value that a topic config cannot have, or a config that does not exist."""
    parse(name, text)


def check_topic_configs(overrides: Mapping[str, str]) -> None:
    """Raise KafkaError(INVALID_CONFIG) for unknown topic configs and bad values."""
    for name, text in overrides.items():
        check_value(name, text)


def is_list(name: str) -> bool:
    """Whether a topic config is a list."""
    return name in TOPIC_CONFIGS and TOPIC_CONFIGS[name].kind is ConfigType.LIST


class BrokerKey(NamedTuple):
    """One broker config: its value in the settings (None: not set), and its description."""

    name: str
    value: str | None
    default: str | None
    kind: ConfigType
    doc: str


def server_keys(server: ServerContext, node_id: int) -> list[BrokerKey]:
    """Configs of the server that the broker runs in: its addresses, its directory and its own settings."""
    listeners = server.listeners.values()
    described = [
        ("broker.id", str(node_id), "-1", ConfigType.INT, "Id of this node; as node.id."),
        ("process.roles", "broker,controller", "", ConfigType.LIST, "The roles of this node."),
        ("log.dirs", str(server.data_dir), None, ConfigType.LIST, "Directory of the logs."),
        (
            "listeners",
            ",".join(f"{one.name.upper()}://{one.bound}" for one in listeners),
            "PLAINTEXT://:9092",
            ConfigType.LIST,
            "Addresses that the server is bound to.",
        ),
        (
            "advertised.listeners",
            ",".join(f"{one.name.upper()}://{one.advertised}" for one in listeners),
            None,
            ConfigType.LIST,
            "Addresses that clients connect to.",
        ),
        (
            "listener.security.protocol.map",
            ",".join(f"{one.name.upper()}:{one.security_protocol}" for one in listeners),
            "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
            ConfigType.STRING,
            "The security protocol of each listener.",
        ),
    ]
    keys = [BrokerKey(*each) for each in described]
    for each in server.configs():
        # A listener's own key has the type of the server's.
        kind = _kind_of(re.sub(r"^listener\.name\.[^.]+\.", "", each.name), each.kind)
        keys.append(BrokerKey(each.name, text_of(each.value), text_of(each.default), kind, each.doc))
    return keys


def logger_levels() -> list[ConfigEntry]:
    """The loggers that write the log, and their levels, in Kafka's words."""
    names = ["root", *sorted(name for name in logging.root.manager.loggerDict if name.split(".")[0] == "klamm")]
    return [
        ConfigEntry(
            name,
            _LEVELS.get(level := logging.getLogger(name).getEffectiveLevel(), logging.getLevelName(level)),
            ConfigType.UNKNOWN,
            ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            True,
            (),
            "",
        )
        for name in names
    ]


class ConfigRegistry:
    """Dynamic broker configs, and the effective configs of topics.

    `server_keys` gives the server's configs, which are read-only here.
    Dynamic are those broker configs that topics inherit. `on_change` is called once changed ones are in force.
    `topic_overrides` gives the configs of each topic, which changed defaults must fit.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        on_change: Callable[[], None],
        topic_overrides: Callable[[], Iterable[tuple[str, Mapping[str, str]]]] = tuple,
        server_keys: Callable[[], Iterable[BrokerKey]] = tuple,
    ) -> None:
        self.changing = threading.Lock()
        """Held from reading the configs that a change starts from until it is stored."""
        self._store = store
        self._topic_overrides = topic_overrides
        self._server_keys = server_keys
        self._on_change = on_change
        self._node_name = str(settings.node_id)
        self._dynamic: dict[str, dict[str, str]] = {self._node_name: {}, DEFAULT_BROKERS: {}}
        self._keys = {key.name: key for key in _broker_keys(settings)}
        self._inherited = self._inherited_with(self._dynamic)
        self._default_log_config = LogConfig(self._inherited)

    def load(self) -> None:
        """Read the dynamic configs back. One that cannot be in force is reported and left out. Raises StoreError."""
        for resource, name, value in self._store.read(
            "SELECT resource_name, name, value FROM configs WHERE resource_type = ? ORDER BY resource_name, name",
            (ResourceType.BROKER,),
        ):
            if resource not in self._dynamic:
                continue
            wanted = {**self._dynamic, resource: {**self._dynamic[resource], name: value}}
            try:
                if name not in DYNAMIC_KEYS:
                    raise KafkaError(ErrorCode.INVALID_CONFIG, "it cannot be changed while the broker runs")
                self._apply(wanted)
            except KafkaError as error:
                log.error("the dynamic broker config %s=%s is not in force: %s", name, value, error.message)

    def _apply(self, dynamic: dict[str, dict[str, str]]) -> None:
        """Apply these dynamic configs. Raises KafkaError(INVALID_CONFIG) without having changed anything."""
        inherited = self._inherited_with(dynamic)
        self._default_log_config = LogConfig(inherited)
        self._inherited = inherited
        self._dynamic = dynamic

    # Topics

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The settings of a topic's logs. Raises KafkaError(INVALID_CONFIG)."""
        return LogConfig({**self._inherited, **overrides}) if overrides else self._default_log_config

    def log_config_in_force(self, topic: str, overrides: Mapping[str, str]) -> LogConfig:
        """As `log_config`, but one that does not fit with the others is reported and left out.

        That may be once defaults have changed in the settings, or configs were written by another release.
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
        """The configs of a topic that has these overrides: those of these names that exist, or all if there are none.

        As in Kafka, an empty list of names stands for all, and internal configs are described if the topic has them.
        Overrides are described as they are parsed (` 5 ` is 5, TRUE is true), or with `as_written` as they are.
        """
        asked = set(names) if names else None
        there = itertools.chain(TOPIC_CONFIGS, INTERNAL_CONFIGS.keys() & overrides.keys())
        wanted = [name for name in there if asked is None or name in asked]
        return [self._topic_entry(name, overrides, as_written) for name in wanted]

    def _topic_entry(self, name: str, overrides: Mapping[str, str], as_written: bool) -> ConfigEntry:
        entry = TOPIC_CONFIGS.get(name) or INTERNAL_CONFIGS[name]
        synonyms = self._described_synonyms(entry.broker_name) if entry.broker_name is not None else []
        if entry.broker_name is not None and entry.broker_name not in _SPECS:
            synonyms = [Synonym(entry.broker_name, text_of(entry.default), ConfigSource.DEFAULT_CONFIG)]
        value = self._inherited.get(name, text_of(entry.default))
        if name in overrides:
            value = overrides[name] if as_written else text_of(parse(name, overrides[name]))
            synonyms.insert(0, Synonym(name, value, ConfigSource.TOPIC_CONFIG))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        return ConfigEntry(name, value, entry.kind, source, False, tuple(synonyms), entry.doc)

    def _inherited_with(self, dynamic: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """What topics inherit if these are the dynamic configs."""
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
        # Minus one, "for ever", is the same in every unit.
        return str(max(-1, int(found.value) * factor))

    # Broker

    def describe_broker(self, resource_name: str, names: Collection[str] | None = None) -> list[ConfigEntry]:
        """The configs of this broker, or those set as dynamic defaults (an empty name): of these names, or all if none.

        Raises KafkaError(INVALID_REQUEST) for another broker.
        """
        self.check_broker_name(resource_name)
        asked = set(names) if names else None
        keys = [key for key in self._keys.values() if asked is None or key.name in asked]
        if resource_name != DEFAULT_BROKERS:
            others = [key for key in self._server_keys() if asked is None or key.name in asked]
            return [*map(self._broker_entry, keys), *map(_static_entry, others)]
        defaults = self._dynamic[DEFAULT_BROKERS]
        return [_default_entry(key, defaults[key.name]) for key in keys if key.name in defaults]

    def check_broker_name(self, resource_name: str) -> None:
        """Raise KafkaError(INVALID_REQUEST) unless it is this broker's id, or empty for the dynamic defaults."""
        if resource_name not in self._dynamic:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {self._node_name}, not {resource_name}",
            )

    def _broker_entry(self, key: BrokerKey) -> ConfigEntry:
        synonyms = tuple(self._described_synonyms(key.name))
        first = synonyms[0] if synonyms and synonyms[0].name == key.name else None
        return ConfigEntry(
            key.name,
            first.value if first is not None else key.value,
            key.kind,
            first.source if first is not None else ConfigSource.DEFAULT_CONFIG,
            key.name not in DYNAMIC_KEYS,
            synonyms,
            key.doc,
        )

    def _described_synonyms(self, name: str) -> list[Synonym]:
        """By source, without the keys in other units that come before the first of this name, as in Kafka."""
        by_source = sorted(self._synonyms(name, self._dynamic), key=lambda each: each.source)
        return list(itertools.dropwhile(lambda each: each.name != name, by_source))

    def _synonyms(self, name: str, dynamic: Mapping[str, Mapping[str, str]]) -> Iterable[Synonym]:
        """Every source of a broker config's value, the effective one first."""
        for other in (name, *(fallback for fallback, _factor in _FALLBACKS.get(name, ()))):
            for resource, source in (
                (self._node_name, ConfigSource.DYNAMIC_BROKER_CONFIG),
                (DEFAULT_BROKERS, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            ):
                if other in dynamic[resource]:
                    yield Synonym(other, dynamic[resource][other], source)
            key = self._keys.get(other)
            if key is None:
                continue
            if key.value != key.default:
                yield Synonym(other, key.value, ConfigSource.STATIC_BROKER_CONFIG)
            if key.default is not None:
                yield Synonym(other, key.default, ConfigSource.DEFAULT_CONFIG)

    def dynamic(self, resource_name: str) -> dict[str, str]:
        """The dynamic configs of this broker, or with an empty name those of all brokers. Raises KafkaError."""
        self.check_broker_name(resource_name)
        return dict(self._dynamic[resource_name])

    def check_dynamic(self, resource_name: str, values: Mapping[str, str]) -> None:
        """Raise KafkaError(INVALID_CONFIG) if these could not be in force: by themselves, or with a topic's own."""
        inherited = self._inherited_with({**self._dynamic, resource_name: dict(values)})
        LogConfig(inherited)
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
        """Replace the dynamic configs of a broker resource, durably, and let them take effect.

        Raises StoreError, KafkaError(INVALID_CONFIG) as `check_dynamic`.
        """
        self.check_dynamic(resource_name, values)
        self._store.write_and_wait(
            [
                (
                    "DELETE FROM configs WHERE resource_type = ? AND resource_name = ?",
                    (ResourceType.BROKER, resource_name),
                ),
                *(
                    (
                        "INSERT INTO configs (resource_type, resource_name, name, value) VALUES (?, ?, ?, ?)",
                        (ResourceType.BROKER, resource_name, name, value),
                    )
                    for name, value in values.items()
                ),
            ]
        )
        self._apply({**self._dynamic, resource_name: dict(values)})
        self._on_change()


def _static_entry(key: BrokerKey) -> ConfigEntry:
    synonyms = []
    if key.value != key.default:
        synonyms.append(Synonym(key.name, key.value, ConfigSource.STATIC_BROKER_CONFIG))
    if key.default is not None:
        synonyms.append(Synonym(key.name, key.default, ConfigSource.DEFAULT_CONFIG))
    return ConfigEntry(key.name, key.value, key.kind, synonyms[0].source, True, tuple(synonyms), key.doc)


def _default_entry(key: BrokerKey, value: str) -> ConfigEntry:
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return ConfigEntry(key.name, value, key.kind, source, False, (Synonym(key.name, value, source),), key.doc)


def _broker_keys(settings: BrokerSettings) -> Iterable[BrokerKey]:
    for spec in _SPECS.values():
        yield BrokerKey(
            spec.name,
            text_of(getattr(settings, spec.attribute)),
            text_of(spec.default),
            DYNAMIC_KEYS.get(spec.name) or _kind_of(spec.name, spec.kind),
            spec.doc,
        )


def _kind_of(name: str, kind: Any) -> ConfigType:
    if name in _LONG_KEYS:
        return ConfigType.LONG
    return next((known for python, known in _KINDS if kind in (python, python | None)), ConfigType.LIST)
