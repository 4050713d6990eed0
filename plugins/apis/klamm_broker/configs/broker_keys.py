"""All broker configs: those of the broker's settings, and those of the server around it.

Any thread may call the functions.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm import ServerContext
from klamm.config import CLUSTER_WIDE, specs_of
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.topic_config import TOPIC_CONFIGS, ConfigType

SPECS: Final = specs_of(BrokerSettings)
_TOPIC_KEY_OF: Final = {entry.broker_name: name for name, entry in TOPIC_CONFIGS.items() if entry.broker_name in SPECS}
INHERITED_KEYS: Final = {broker_name: TOPIC_CONFIGS[name].kind for broker_name, name in _TOPIC_KEY_OF.items()}
"""Broker configs that topics inherit, and their types. They change while the broker runs."""
LISTENER_PREFIX: Final = "listener.name."

# Python has one type for all integers. These keys have the types SHORT and LONG in Kafka, and all others INT.
_SHORT_KEYS: Final = frozenset(
    (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    )
)
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

_KINDS: Final = (
    (bool, ConfigType.BOOLEAN),
    (int, ConfigType.INT),
    (float, ConfigType.DOUBLE),
    (str, ConfigType.STRING),
    (Path, ConfigType.STRING),
)


def text_of(value: Any) -> str | None:
    """Return a value in Kafka's notation."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ",".join(value)
    if isinstance(value, dict):
        return ",".join(f"{key}:{each}" for key, each in value.items())
    return str(value)


def topic_key_of(broker_name: str) -> str:
    """Return the topic config that takes its default from a dynamic broker config; the name itself if there is none."""
    return _TOPIC_KEY_OF.get(broker_name, broker_name)


class BrokerKey(NamedTuple):
    """One broker config: its value in the settings (None: not set), and its description.

    `dynamic` is "cluster-wide" or "per-broker" for a config that can change while the broker runs, else empty.
    `per_node` is True if the nodes of one process may have different values.
    """

    name: str
    value: str | None
    default: str | None
    kind: ConfigType
    doc: str
    dynamic: str = ""
    per_node: bool = False


def server_keys(server: ServerContext, node_id: int, node: int) -> list[BrokerKey]:
    """Return configs of the server that runs the broker: its directory, its own settings, the addresses of one node.

    `node` is the node's position among the nodes, not its id.
    """
    listeners = [
        ((one.configured_as or one.name).upper(), one) for one in server.listeners.values() if one.node == node
    ]
    described = [
        ("broker.id", str(node_id), "-1", ConfigType.INT, "Id of this node; the same as node.id."),
        ("process.roles", "broker,controller", None, ConfigType.LIST, "Roles of this node: broker and controller."),
        ("log.dirs", str(server.data_dir), None, ConfigType.LIST, "Directory of the logs."),
        (
            "listeners",
            ",".join(f"{name}://{one.bound}" for name, one in listeners),
            "PLAINTEXT://:9092",
            ConfigType.LIST,
            "Addresses on which the server listens.",
        ),
        (
            "advertised.listeners",
            ",".join(f"{name}://{one.advertised}" for name, one in listeners),
            None,
            ConfigType.LIST,
            "Addresses to which clients connect.",
        ),
        (
            "listener.security.protocol.map",
            ",".join(f"{name}:{one.security_protocol}" for name, one in listeners),
            "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
            ConfigType.STRING,
            "The security protocol of each listener.",
        ),
    ]
    keys = [BrokerKey(*each) for each in described]
    for each in server.configs():
        # `listener.name.X.KEY` has the type of `KEY`.
        kind = _kind_of(re.sub(r"^listener\.name\.[^.]+\.", "", each.name), each.kind)
        value, default = text_of(each.value), text_of(each.default)
        keys.append(BrokerKey(each.name, value, default, kind, each.doc, each.dynamic, each.per_node))
    return keys


def broker_keys(settings: BrokerSettings) -> Iterable[BrokerKey]:
    """Yield the configs that are settings of the broker."""
    for spec in SPECS.values():
        yield BrokerKey(
            spec.name,
            text_of(getattr(settings, spec.attribute)),
            text_of(spec.default),
            INHERITED_KEYS.get(spec.name) or _kind_of(spec.name, spec.kind),
            spec.doc,
            CLUSTER_WIDE if spec.name in INHERITED_KEYS else spec.dynamic,
        )


@functools.cache
def _kind_of(name: str, kind: Any) -> ConfigType:
    if name in _LONG_KEYS:
        return ConfigType.LONG
    if name in _SHORT_KEYS:
        return ConfigType.SHORT
    if typing.get_origin(kind) is dict:
        return ConfigType.STRING
    return next((known for python, known in _KINDS if kind in (python, python | None)), ConfigType.LIST)
