"""The server's own settings by Kafka's names: DescribeConfigs of a broker lists them, and AlterConfigs changes them.

A listener's setting has two names: Kafka's plain name, which applies to all listeners, and `listener.name.NAME.key`,
which applies to one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from klamm.api.described_config import DescribedConfig
from klamm.config.config_tables import Put
from klamm.config.plan import ServerPlan
from klamm.config.setting import SettingSpec, specs_of

_NUMBERS: Final = (bool, int, float)
_OWN_NAME: Final = "listener.name.NAME."


class DynamicSetting(NamedTuple):
    """A setting that can change while the server runs, and the paths in the configuration that it sets."""

    described: DescribedConfig
    paths: tuple[tuple[str, ...], ...]


def described_configs(plan: ServerPlan) -> list[DescribedConfig]:
    """Return the numeric settings of the server and its listeners that have a name in Kafka, and all dynamic settings.

    A setting of the first listener has Kafka's plain name. A setting of another listener is named
    `listener.name.NAME.key`, and is listed if its value differs from the first listener's, or if it is dynamic.
    """
    configs = list(_numbers_of(plan.server))
    if plan.listeners:
        first = list(_numbers_of(plan.listeners[0].settings))
        configs += first
        for listener in plan.listeners[1:]:
            if listener.node > 0:
                continue
            prefix = f"listener.name.{listener.name.lower()}."
            configs += [
                own._replace(name=prefix + own.name)
                for own, other in zip(_numbers_of(listener.settings), first, strict=True)
                if own.value != other.value
            ]
    dynamic = dynamic_settings(plan)
    configs = [
        each._replace(per_node=dynamic[each.name].described.per_node) if each.name in dynamic else each
        for each in configs
    ]
    listed = {config.name for config in configs}
    # Dynamic settings that are not listed yet: those of parts, and those with the same value as the first listener's.
    configs += [each.described for name, each in dynamic.items() if name not in listed]
    return configs


def _numbers_of(settings: Any) -> Iterator[DescribedConfig]:
    for spec in specs_of(type(settings)).values():
        # A `kafka` without a dot is a name of klamm's own, which Kafka does not have.
        if spec.kafka is not None and "." in spec.kafka and spec.kind in _NUMBERS:
            yield _described(spec.kafka, settings, spec)


def _described(name: str, settings: Any, spec: SettingSpec) -> DescribedConfig:
    return DescribedConfig(name, getattr(settings, spec.attribute), spec.default, spec.kind, spec.doc, spec.dynamic)


def dynamic_settings(plan: ServerPlan) -> dict[str, DynamicSetting]:
    """Return all settings of server, listeners and parts that can change while the server runs, by Kafka's name."""
    found: dict[str, DynamicSetting] = {}

    def add(name: str, path: tuple[str, ...], settings: Any, spec: SettingSpec) -> None:
        before = found.get(name)
        described = _described(name, settings, spec) if before is None else before.described
        is_own = path[0] == "listeners" and not spec.per_server
        described = described._replace(per_node=is_own and (before is None or described.per_node))
        found[name] = DynamicSetting(described, (*(before.paths if before is not None else ()), path))

    for spec in _dynamic_of(plan.server):
        add(str(spec.kafka), ("server", spec.name), plan.server, spec)
    # A listener has the same settings on every node, so those of the first node suffice.
    for listener in (each for each in plan.listeners if each.node == 0):
        own = f"listener.name.{listener.name.lower()}."
        top = ("listeners", listener.name)
        tables: list[tuple[tuple[str, ...], Any]] = [(top, listener.settings)]
        tables += [((*top, part.name), part.settings) for part in listener.all_parts if part.settings is not None]
        for path, settings in tables:
            for spec in _dynamic_of(settings):
                name = str(spec.kafka)
                if name.startswith(_OWN_NAME):
                    add(own + name.removeprefix(_OWN_NAME), (*path, spec.name), settings, spec)
                    continue
                add(name, (*path, spec.name), settings, spec)
                if not spec.per_server:
                    add(own + name, (*path, spec.name), settings, spec)
    return found


def _dynamic_of(settings: Any) -> Iterator[SettingSpec]:
    """Yield one dynamic setting for each of Kafka's names.

    If several settings share a name, e.g. one for each kind of key store, yield the one that is set.
    """
    by_name: dict[str | None, SettingSpec] = {}
    for spec in specs_of(type(settings)).values():
        if spec.dynamic and (spec.kafka not in by_name or getattr(settings, spec.attribute) is not None):
            by_name[spec.kafka] = spec
    yield from by_name.values()


def puts_of(plan: ServerPlan, values: Mapping[str, str]) -> list[Put]:
    """Return a `Put` for each path that these values of dynamic settings set.

    Values for one listener come after values for all listeners, so that they replace them. Raises ValueError for a name
    that is not a dynamic setting.
    """
    known = dynamic_settings(plan)
    puts = []
    for name in sorted(values, key=lambda name: (name.startswith("listener.name."), name)):
        if name not in known:
            raise ValueError(f"{name}: cannot be changed while the server runs")
        puts += [Put(path, values[name].strip(), name) for path in known[name].paths]
    return puts
