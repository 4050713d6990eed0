"""`--set KEY=VALUE`, `--bind` and `--data-dir`: said on the command line, they win over the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm.api.provider import ProviderKind
from klamm.config.plugin_registry import PluginError
from klamm.config.problems import Problem, did_you_mean
from klamm.config.setting import specs_of
from klamm.config.settings import ListenerSettings, ServerSettings

if TYPE_CHECKING:
    from klamm.api.provider import Provider
    from klamm.config.plan import _Planner

_PARTS: Final = {ProviderKind.CONNECTION_GATE: "gates", ProviderKind.THROTTLE: "throttles"}
_NAME: Final = "NAME"


def apply_overrides(planner: _Planner, overrides: Sequence[str], bind: str | None, data_dir: str | None) -> None:
    """Put them into the planner's tables, and note who said what."""
    of_parts = []
    listeners = list(planner.table(("listeners",)) or {"default": {}})
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            planner.problems.append(Problem(f"--set {text}", "", "must be KEY=VALUE"))
            continue
        paths = _resolve(planner, key.strip())
        if not paths:
            of_parts.append(text)
        for path in paths:
            put(planner, path, _value(value.strip()), f"--set {text}")
    _refuse_strangers(planner, listeners)
    # Now all is said of which parts there are.
    for text in of_parts:
        _put_in_parts(planner, text)
    if bind is not None:
        first = next(iter(planner.table(("listeners",))), "default")
        put(planner, ("listeners", first, "bind"), bind, f"--bind {bind}")
    if data_dir is not None:
        put(planner, ("server", "data_dir"), str(Path(data_dir).absolute()), f"--data-dir {data_dir}")


def _refuse_strangers(planner: _Planner, listeners: Sequence[str]) -> None:
    """A listener that the command line alone speaks of, and gives no address, is a misspelled one."""
    for path, said in list(planner.overridden.items()):
        head, _, rest = path.partition(".")
        name = rest.partition(".")[0]
        known = any(path.startswith(f"listeners.{listener}.") for listener in listeners)
        if head != "listeners" or known or f"listeners.{name}.bind" in planner.overridden:
            continue
        planner.tables["listeners"].pop(name, None)
        message = f"there is no such listener, and a new one needs a bind{did_you_mean(name, listeners)}"
        planner.problems.append(Problem(said, f"listeners.{name}", message))


def _put_in_parts(planner: _Planner, text: str) -> None:
    """Kafka's name for something of gates or throttles holds for every listener that has them."""
    key, _equals, value = (word.strip() for word in text.partition("="))
    listeners = list(planner.table(("listeners",)) or {"default": {}})
    used = {listener: _names_of_parts(planner, listener) for listener in listeners}
    owners = set()
    found = False
    for kind, names_key in _PARTS.items():
        for one in planner.plugins.providers(kind):
            name = one.provider.name
            for setting_name, listener in _settings_of(one.provider, key, listeners):
                owners.add(name)
                for each in listeners if listener is None else [listener]:
                    if name in used[each][names_key]:
                        found = True
                        put(planner, ("listeners", each, name, setting_name), _value(value), f"--set {text}")
    if found:
        return
    message = f"unknown key{did_you_mean(key, _known(planner))}"
    if owners:
        message = f"belongs to {' and '.join(sorted(owners))}, which no listener has"
    planner.problems.append(Problem(f"--set {text}", key, message))


def _names_of_parts(planner: _Planner, listener: str) -> dict[str, Sequence[str]]:
    table = planner.table(("listeners", listener))
    api_set = table.get("api_set", "broker")
    found: dict[str, Sequence[str]] = {}
    for kind, key in _PARTS.items():
        names = table.get(key)
        if names is None and isinstance(api_set, str):
            names = planner.wanted_parts(kind, key, api_set)
        found[key] = _listed(names)
    return found


def _settings_of(provider: Provider, key: str, listeners: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """The settings of a part that Kafka calls so, and the listener that the name is about, if it is about one."""
    try:
        settings = provider.load_settings()
    except (ImportError, AttributeError):
        return
    for name, spec in specs_of(settings).items() if settings is not None else ():
        # What names a listener in Kafka is said by the listener itself here.
        if spec.kafka is None or spec.kind is bool:
            continue
        if key == spec.kafka:
            yield name, None
        for listener in listeners:
            if key in (spec.kafka.replace(_NAME, each) for each in (listener, listener.lower())) and key != spec.kafka:
                yield name, listener


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
    import tomli

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
    return _listed(planner.table(("server",)).get("extensions", ()))


def _listed(names: Any) -> Sequence[str]:
    """A list of names, which may have come as text."""
    if isinstance(names, str):
        return [name.strip() for name in names.split(",")]
    return names if isinstance(names, (list, tuple)) else ()


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
