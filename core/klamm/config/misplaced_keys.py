"""Hints for keys in the wrong table, e.g. Kafka's `log.dirs` at the top of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from klamm.api.provider import ProviderKind
from klamm.config.plugin_registry import PluginRegistry
from klamm.config.server_settings import ListenerSettings, ServerSettings
from klamm.config.setting import specs_of

PART_KEYS: Final = {
    ProviderKind.TRANSPORT: 'transport = "{}"',
    ProviderKind.AUTHENTICATOR: 'authenticator = "{}"',
    ProviderKind.AUTHORIZER: 'authorizer = "{}"',
    ProviderKind.CONNECTION_GATE: 'gates = ["{}"]',
    ProviderKind.REQUEST_FILTER: 'filters = ["{}"]',
    ProviderKind.THROTTLE: 'throttles = ["{}"]',
    ProviderKind.REQUEST_OBSERVER: 'observers = ["{}"]',
    ProviderKind.PROCESSOR_ASSIGNER: 'assigner = "{}"',
    ProviderKind.SASL_MECHANISM: 'mechanisms = ["{}"]',
    ProviderKind.CREDENTIAL_STORE: 'credential_stores = ["{}"]',
}
"""The TOML with which a listener, or its table `sasl`, names a part of each kind."""
OF_SASL: Final = (ProviderKind.SASL_MECHANISM, ProviderKind.CREDENTIAL_STORE)

_OTHER_NAMES: Final = {
    "log.dir": ("data_dir", "server"),
    "host.name": ("bind", "listeners.NAME"),
    "port": ("bind", "listeners.NAME"),
    "control.plane.listener.name": ("control_listeners", "server.priority"),
}


def place_of(key: str, value: object, api_sets: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the place where a key belongs; None if it is unknown.

    The key may be the first word of a dotted key. `api_sets` maps the tables of handler sets to their settings.
    """
    for name in _dotted(key, value):
        other = _OTHER_NAMES.get(name)
        if other is not None:
            return f'"{name}" is the key {other[0]} of [{other[1]}]'
        for settings, table in ((ServerSettings, "server"), (ListenerSettings, "listeners.NAME")):
            for spec in specs_of(settings).values():
                if name in (spec.kafka, spec.name):
                    return f'"{name}" is the key {spec.name} of [{table}]'
        for table, specs in api_sets.items():
            if name in specs:
                return f'"{name}" belongs below [{table}]'
    return None


def kind_of_part(name: str, plugins: PluginRegistry) -> ProviderKind | None:
    """Return the kind of a listener's part of that name, if there is one."""
    return next((kind for kind in PART_KEYS if any(one.provider.name == name for one in plugins.providers(kind))), None)


def place_of_part(name: str, plugins: PluginRegistry) -> str | None:
    """Return where the table of a part belongs; None if no part has that name."""
    kind = kind_of_part(name, plugins)
    if kind is None:
        return None
    if kind in OF_SASL:
        return f"it belongs into [listeners.NAME.sasl.{name}], beside {PART_KEYS[kind].format(name)}"
    return f"it belongs below a listener: [listeners.NAME.{name}], beside {PART_KEYS[kind].format(name)}"


def place_of_kafkas(key: str) -> str | None:
    """Return klamm's replacement for a key of Kafka that has another name in klamm; None for other keys."""
    return place_of(key, None, {}) if key in _OTHER_NAMES else None


def _dotted(key: str, value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for below, inner in value.items():
            yield from _dotted(f"{key}.{below}", inner)
    else:
        yield key
