"""The bounds of numbers in configs, in Kafka and in klamm."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from klamm.config.plugin_registry import PluginRegistry
from klamm.config.server_settings import ListenerSettings, ServerSettings
from klamm.config.setting import specs_of
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.group_config_keys import group_config_keys
from klamm_broker.configs.topic_config import TOPIC_CONFIGS, ConfigType, TopicConfig
from klamm_broker.configs.unused_configs import UNUSED_CONFIGS

_RANGE: Final = re.compile(r"\[(-?\d+),\.\.\.(?:,(-?\d+))?\](?: or (-?\d+))?")
_LARGEST: Final = frozenset({"INT": 2**31 - 1, "LONG": 2**63 - 1, "SHORT": 2**15 - 1}.values())
"""The largest numbers of the types. As a bound they mean nothing, because each number of the type is below."""


class Bounds(NamedTuple):
    """The lowest and the highest value. None means no bound."""

    lowest: float | None
    highest: float | None

    def __str__(self) -> str:
        if self.highest is not None:
            return f"{'any' if self.lowest is None else self.lowest} to {self.highest}"
        return "any" if self.lowest is None else f"at least {self.lowest}"


def of_validator(text: str) -> Bounds | None:
    """Return the bounds in the text of a validator of Kafka's; None if the text has no bounds."""
    if (found := _RANGE.fullmatch(text)) is None:
        return None
    lowest, highest, beside = (None if each is None else int(each) for each in found.groups())
    assert lowest is not None
    return _bounds(lowest if beside is None else min(lowest, beside), highest)


def _bounds(lowest: float | None, highest: float | None) -> Bounds:
    return Bounds(lowest, None if highest in _LARGEST else highest)


def of_klamm() -> dict[str, Bounds]:
    """Return the bounds of klamm's configs by kind and name: `topic:retention.ms`."""
    registry = PluginRegistry(environment={"KLAMM_LOAD_PLUGINS": ""})
    parts = [settings for found in registry.all() if (settings := found.provider.load_settings()) is not None]
    specs = [spec for settings in (ListenerSettings, ServerSettings, *parts) for spec in specs_of(settings).values()]
    found = {}
    for spec in specs:
        if spec.kafka and spec.kind in (int, float, int | None, float | None):
            found[f"broker:{spec.kafka}"] = _bounds(spec.minimum, spec.maximum)
    groups = [key.config for key in group_config_keys(BrokerSettings()).values()]
    for kind, configs in (("broker", UNUSED_CONFIGS.values()), ("topic", TOPIC_CONFIGS.values()), ("group", groups)):
        found |= {f"{kind}:{each.name}": _bounds(each.minimum, each.maximum) for each in configs if _is_number(each)}
    return found


def _is_number(config: TopicConfig) -> bool:
    return config.kind in (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE)


def unlike(validators: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each config for which klamm's bounds differ from those of Kafka's validator, with a text of both."""
    ours = of_klamm()
    for name, validator in sorted(validators.items()):
        theirs = of_validator(validator)
        if theirs is not None and name in ours and ours[name] != theirs:
            yield name, f"{theirs}, klamm takes {ours[name]}"
