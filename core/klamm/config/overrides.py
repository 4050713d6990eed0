"""The arguments `--set KEY=VALUE`, `--bind` and `--data-dir`, which override the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from klamm.api.provider import Provider, ProviderKind
from klamm.config.config_tables import ConfigTables, Put
from klamm.config.misplaced_keys import place_of_kafkas
from klamm.config.part_resolver import default_parts, provider_of, table_of
from klamm.config.plugin_registry import PluginError, PluginRegistry
from klamm.config.problems import Problem, did_you_mean
from klamm.config.server_settings import ListenerSettings, ServerSettings
from klamm.config.setting import specs_of

_PARTS: Final = {ProviderKind.CONNECTION_GATE: "gates", ProviderKind.THROTTLE: "throttles"}
_NAME: Final = "NAME"


def apply_overrides(
    config: ConfigTables,
    plugins: PluginRegistry,
    overrides: Sequence[str],
    bind: str | None,
    data_dir: str | None,
    puts: Sequence[Put] = (),
) -> None:
    """Apply the arguments of the command line to the tables, and then `puts`; report problems to `config`."""
    _Overrides(config, plugins).apply(overrides, bind, data_dir, puts)


class _Overrides:
    def __init__(self, config: ConfigTables, plugins: PluginRegistry) -> None:
        self._config = config
        self._plugins = plugins

    def apply(self, overrides: Sequence[str], bind: str | None, data_dir: str | None, puts: Sequence[Put]) -> None:
        of_parts = []
        listeners = list(self._config.table(("listeners",)) or {"default": {}})
        # The known keys depend on the handler sets and extensions. So arguments that choose handler sets or extensions
        # are applied first, wherever they stand.
        for text in sorted(overrides, key=_chooses_parts, reverse=True):
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                self._config.problems.append(Problem(f"--set {text}", "", "must be KEY=VALUE"))
                continue
            paths = self._resolve(key.strip())
            if not paths:
                of_parts.append(text)
            for path in paths:
                self._put(path, _value(value.strip()), f"--set {text}")
        self._refuse_unknown_listeners(listeners)
        # Kafka's names of gate and throttle settings depend on the parts that the listeners have at this point.
        for text in of_parts:
            self._put_in_parts(text)
        if bind is not None:
            first = next(iter(self._config.table(("listeners",))), "default")
            self._put(("listeners", first, "bind"), bind, f"--bind {bind}")
        if data_dir is not None:
            self._put(("server", "data_dir"), str(Path(data_dir).absolute()), f"--data-dir {data_dir}")
        for put in puts:
            self._put(put.path, put.value, put.key)

    def _refuse_unknown_listeners(self, listeners: Sequence[str]) -> None:
        """Report listeners that only the command line names and that have no address.

        Their names are probably misspelled.
        """
        for path, source in list(self._config.overridden.items()):
            head, _, rest = path.partition(".")
            name = rest.partition(".")[0]
            known = any(path.startswith(f"listeners.{listener}.") for listener in listeners)
            if head != "listeners" or known or f"listeners.{name}.bind" in self._config.overridden:
                continue
            self._config.tables["listeners"].pop(name, None)
            message = f"there is no such listener, and a new one needs a bind{did_you_mean(name, listeners)}"
            self._config.problems.append(Problem(source, f"listeners.{name}", message))

    def _put_in_parts(self, text: str) -> None:
        """Apply Kafka's name of a gate or throttle setting to every listener that has the part."""
        key, _equals, value = (word.strip() for word in text.partition("="))
        listeners = list(self._config.table(("listeners",)) or {"default": {}})
        used = {listener: self._names_of_parts(listener) for listener in listeners}
        owners = set()
        found = False
        for kind, names_key in _PARTS.items():
            for one in self._plugins.providers(kind):
                name = one.provider.name
                for setting_name, listener in _settings_of(one.provider, key, listeners):
                    owners.add(name)
                    for each in listeners if listener is None else [listener]:
                        if name in used[each][names_key]:
                            found = True
                            self._put(("listeners", each, name, setting_name), _value(value), f"--set {text}")
        if found:
            return
        other = place_of_kafkas(key)
        message = f"unknown key; {other}" if other else f"unknown key{did_you_mean(key, self._known())}"
        if owners:
            message = f"belongs to {' and '.join(sorted(owners))}, which no listener uses"
        self._config.problems.append(Problem(f"--set {text}", key, message))

    def _default_api_set(self) -> str:
        with contextlib.suppress(PluginError):
            return self._plugins.default(ProviderKind.API_SET)
        return ""

    def _names_of_parts(self, listener: str) -> dict[str, Sequence[str]]:
        table = self._config.table(("listeners", listener))
        api_set = table.get("api_set", self._default_api_set())
        found: dict[str, Sequence[str]] = {}
        for kind, key in _PARTS.items():
            names = table.get(key)
            if names is None and isinstance(api_set, str):
                names = default_parts(self._config, self._plugins, kind, key, api_set)
            found[key] = _listed(names)
        return found

    def _put(self, path: tuple[str, ...], value: Any, source: str) -> None:
        """Set one key, and create missing tables."""
        table = self._config.tables
        for key in path[:-1]:
            below = table.get(key)
            if not isinstance(below, dict):
                below = table[key] = {}
            table = below
        _forget_nested(table, path[-1])
        table[path[-1]] = value
        self._config.overridden[".".join(path)] = source

    def _resolve(self, key: str) -> list[tuple[str, ...]]:
        """Return the paths that a key sets: those of Kafka's name, or the path itself."""
        listeners = self._config.table(("listeners",)) or {"default": {}}
        for name, spec in specs_of(ServerSettings).items():
            if key in (spec.kafka, f"server.{name}"):
                return [("server", name)]
        for name, spec in specs_of(ListenerSettings).items():
            if key == spec.kafka:
                return [("listeners", listener, name) for listener in listeners]
        sets = self._api_sets()
        owners: list[tuple[str, ...]] = [
            (*table_of(table), name) for table, names in sets.items() for name in names if key == name
        ]
        if owners:
            return owners
        for table in sorted(sets, key=len, reverse=True):
            if key.startswith(f"{table}."):
                return [(*table_of(table), key.removeprefix(f"{table}."))]
        head, _, rest = key.partition(".")
        if rest and head in self._extensions():
            return [(head, rest)]
        if head == "listeners" and rest.count("."):
            listener, _, rest = rest.partition(".")
            return [("listeners", listener, *rest.split("."))]
        if head in ("server", "plugins") and rest:
            return [(head, *rest.split("."))]
        return []

    def _extensions(self) -> Sequence[str]:
        """Return the extensions that the server uses; the value may be text from the command line."""
        return _listed(self._config.table(("server",)).get("extensions", ()))

    def _api_sets(self) -> dict[str, list[str]]:
        """Return the names of the settings of each api set that a listener uses."""
        found: dict[str, list[str]] = {}
        listeners = self._config.table(("listeners",)) or {"default": {}}
        for table in listeners.values():
            name = table.get("api_set") if isinstance(table, dict) else None
            name = self._default_api_set() if name is None else name
            if not isinstance(name, str):
                continue
            provider = str(provider_of(self._config, name))
            try:
                settings = self._plugins.resolve(ProviderKind.API_SET, provider).provider.load_settings()
                found[name] = list(specs_of(settings)) if settings is not None else []
            except Exception:
                # The error is reported when the handler set is resolved.
                found[name] = []
        return found

    def _known(self) -> list[str]:
        kafka = [
            spec.kafka for kind in (ServerSettings, ListenerSettings) for spec in specs_of(kind).values() if spec.kafka
        ]
        return [*kafka, *(name for names in self._api_sets().values() for name in names)]


def _chooses_parts(text: str) -> bool:
    """Return True if an argument chooses a handler set or extensions."""
    path = text.partition("=")[0].strip().split(".")
    return path == ["server", "extensions"] or (path[0] == "listeners" and path[2:] == ["api_set"])


def _settings_of(provider: Provider, key: str, listeners: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the settings of a part that have this name in Kafka, with the listener that the name contains, if any."""
    try:
        settings = provider.load_settings()
        specs = specs_of(settings) if settings is not None else {}
    except Exception:
        # The error is reported if a listener names the part.
        return
    for name, spec in specs.items():
        # Where the value of Kafka's key names a listener, klamm has a flag in the listener's table.
        if spec.kafka is None or spec.kind is bool:
            continue
        if key == spec.kafka:
            yield name, None
        for listener in listeners:
            if key in (spec.kafka.replace(_NAME, each) for each in (listener, listener.lower())) and key != spec.kafka:
                yield name, listener


def _forget_nested(table: dict[str, Any], name: str) -> None:
    """Remove `b.c = 1` from `[a]` if `"b.c"` is set, because both are the same setting."""
    parts = name.split(".")
    for key in parts[:-1]:
        below = table.get(key)
        if not isinstance(below, dict):
            return
        table = below
    if len(parts) > 1:
        table.pop(parts[-1], None)


def _value(text: str) -> Any:
    import tomli

    try:
        return tomli.loads(f"value = {text}")["value"]
    except tomli.TOMLDecodeError:
        return text


def _listed(names: Any) -> Sequence[str]:
    """Return a list of names; the value may be text from the command line."""
    if isinstance(names, str):
        return [name.strip() for name in names.split(",")]
    return names if isinstance(names, (list, tuple)) else ()
