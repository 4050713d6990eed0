"""`--set KEY=VALUE`, `--bind` and `--data-dir`: said on the command line, they win over the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli

from klamm.config.problems import Problem, did_you_mean
from klamm.config.setting import specs_of
from klamm.config.settings import ListenerSettings, ServerSettings
from klamm.plugins import PluginError
from klamm.provider import ProviderKind

if TYPE_CHECKING:
    from klamm.config.plan import _Planner


def apply_overrides(planner: _Planner, overrides: Sequence[str], bind: str | None, data_dir: str | None) -> None:
    """Put them into the planner's tables, and note who said what."""
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            planner.problems.append(Problem(f"--set {text}", "", "must be KEY=VALUE"))
            continue
        paths = _resolve(planner, key.strip())
        if not paths:
            planner.problems.append(
                Problem(f"--set {text}", key.strip(), f"unknown key{did_you_mean(key.strip(), _known(planner))}")
            )
        for path in paths:
            put(planner, path, _value(value.strip()), f"--set {text}")
    if bind is not None:
        listeners = planner.table(("listeners",))
        first = next(iter(listeners), "default")
        put(planner, ("listeners", first, "bind"), bind, f"--bind {bind}")
    if data_dir is not None:
        put(planner, ("server", "data_dir"), str(Path(data_dir).absolute()), f"--data-dir {data_dir}")


def put(planner: _Planner, path: tuple[str, ...], value: Any, said: str) -> None:
    """Set one key, making tables on the way."""
    table = planner.tables
    for key in path[:-1]:
        below = table.get(key)
        if not isinstance(below, dict):
            below = table[key] = {}
        table = below
    _forget_nested(table, path[-1])
    table[path[-1]] = value
    planner.overridden[".".join(path)] = said


def _forget_nested(table: dict[str, Any], name: str) -> None:
    """Take away `[a] b.c = 1` when `"b.c"` is set: both spell one setting."""
    parts = name.split(".")
    for key in parts[:-1]:
        below = table.get(key)
        if not isinstance(below, dict):
            return
        table = below
    if len(parts) > 1:
        table.pop(parts[-1], None)


def _value(text: str) -> Any:
    try:
        return tomli.loads(f"value = {text}")["value"]
    except tomli.TOMLDecodeError:
        return text


def _resolve(planner: _Planner, key: str) -> list[tuple[str, ...]]:
    """Where a key goes: Kafka's name for something, or a path of tables."""
    listeners = planner.table(("listeners",)) or {"default": {}}
    for name, spec in specs_of(ServerSettings).items():
        if key in (spec.kafka, f"server.{name}"):
            return [("server", name)]
    for name, spec in specs_of(ListenerSettings).items():
        if key == spec.kafka:
            return [("listeners", listener, name) for listener in listeners]
    sets = _api_sets(planner)
    owners: list[tuple[str, ...]] = [(table, name) for table, names in sets.items() for name in names if key == name]
    if owners:
        return owners
    head, _, rest = key.partition(".")
    if rest and (head in sets or head in _extensions(planner)):
        return [(head, rest)]
    if head == "listeners" and rest.count("."):
        listener, _, rest = rest.partition(".")
        return [("listeners", listener, *rest.split("."))]
    if head in ("server", "plugins") and rest:
        return [(head, *rest.split("."))]
    return []


def _extensions(planner: _Planner) -> Sequence[str]:
    """The extensions that the server uses, which may have come as text."""
    names = planner.table(("server",)).get("extensions", ())
    if isinstance(names, str):
        return [name.strip() for name in names.split(",")]
    return names if isinstance(names, list) else ()


def _api_sets(planner: _Planner) -> dict[str, list[str]]:
    """The settings' names of each api set that a listener uses."""
    found: dict[str, list[str]] = {}
    listeners = planner.table(("listeners",)) or {"default": {}}
    for table in listeners.values():
        name = table.get("api_set", "broker") if isinstance(table, dict) else "broker"
        if not isinstance(name, str):
            continue
        provider = str(planner.table((name,)).get("provider", name))
        try:
            settings = planner.plugins.resolve(ProviderKind.API_SET, provider).provider.load_settings()
        except (PluginError, ImportError, AttributeError):
            settings = None
        found[name] = list(specs_of(settings)) if settings is not None else []
    return found


def _known(planner: _Planner) -> list[str]:
    kafka = [
        spec.kafka for kind in (ServerSettings, ListenerSettings) for spec in specs_of(kind).values() if spec.kafka
    ]
    return [*kafka, *(name for names in _api_sets(planner).values() for name in names)]
