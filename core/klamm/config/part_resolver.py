"""`PartResolver`, which makes `PartPlan`s from the names and tables of parts.

Each plan is made on one thread, with a `PartResolver` and tables that no other thread uses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from klamm.api.provider import ProviderKind
from klamm.config.config_tables import ConfigTables
from klamm.config.plan import PartPlan
from klamm.config.plugin_registry import Found, PluginError, PluginRegistry
from klamm.config.problems import did_you_mean
from klamm.config.server_settings import ListenerSettings, ServerSettings
from klamm.config.setting import SettingSpec, specs_of
from klamm.logs.causes import failure


def table_of(api_set: str) -> tuple[str, ...]:
    """Return the path of a handler set's table from the name that listeners use: `[NAME]`, or `[PROVIDER.NAME]`."""
    return tuple(api_set.split(".", 1))


def provider_of(config: ConfigTables, api_set: str) -> object:
    """Return the provider that the handler set's table names; by default the first word of the set's name."""
    path = table_of(api_set)
    return config.table(path).get("provider", path[0])


def default_parts(
    config: ConfigTables, plugins: PluginRegistry, kind: ProviderKind, key: str, api_set: str
) -> tuple[str, ...]:
    """Return the default parts of a listener that names none.

    These are the parts that its handler set names and that are installed.
    """
    try:
        found = plugins.resolve(ProviderKind.API_SET, str(provider_of(config, api_set)))
    except PluginError:
        # The error is reported when the handler set itself is resolved.
        return ()
    wanted: tuple[str, ...] = getattr(found.provider, key)
    known = {one.provider.name for one in plugins.providers(kind)} if wanted else ()
    return tuple(name for name in wanted if name in known)


def name_defaults(config: ConfigTables, plugins: PluginRegistry) -> None:
    """Name the default provider in each table that names none; a kind without a default stays unset."""
    tables: list[tuple[tuple[str, ...], type]] = [(("server",), ServerSettings)]
    tables += [(("listeners", name), ListenerSettings) for name in config.table(("listeners",))]
    for path, settings in tables:
        for key, spec in specs_of(settings).items():
            if spec.provider is not None:
                with contextlib.suppress(PluginError):
                    config.set_default((*path, key), plugins.default(spec.provider))


class PartResolver:
    """Finds the providers that a configuration names, makes their settings, and reports problems to `config`.

    `common_tables` are the top-level tables whose settings apply to all parts of the same name. With `files`, it also
    calls the method `problems` of settings, which checks files. If `files` is a collection of listener names, this
    applies only to the parts of those listeners.
    """

    def __init__(self, config: ConfigTables, plugins: PluginRegistry, files: bool | Collection[str]) -> None:
        self.config = config
        self.plugins = plugins
        self.files = files
        self.common_tables: set[str] = set()

    def part(self, kind: ProviderKind, provider: str, path: tuple[str, ...], key: str) -> PartPlan | None:
        """Resolve `provider`, named by `key` in the table at `path`.

        Return its plan, or None after reporting a problem.
        """
        try:
            found = self.plugins.resolve(kind, provider)
        except PluginError as error:
            self.config.report((*path, key), str(error))
            return None
        return self._with_settings(provider, found, (*path, provider), common=(provider,))

    def default(self, kind: ProviderKind, path: tuple[str, ...], key: str) -> str:
        """Return the default of a kind; report a problem and return an empty string if there is none."""
        try:
            return self.plugins.default(kind)
        except PluginError as error:
            self.config.report((*path, key), str(error))
            return ""

    def api_set(self, name: str, users: Mapping[str, Sequence[str]]) -> PartPlan | None:
        """Resolve the handler set `name`; return its plan, or None after reporting a problem.

        `users` are the listeners of each handler set.
        """
        path, table = table_of(name), self.config.table(table_of(name))
        named_by = ("listeners", users[name][0], "api_set")
        provider = provider_of(self.config, name)
        if not isinstance(provider, str):
            self.config.report((*path, "provider"), "must be a string")
            return None
        try:
            found = self.plugins.resolve(ProviderKind.API_SET, provider)
        except PluginError as error:
            self.config.report((*path, "provider") if "provider" in table else named_by, str(error))
            return None
        if len(path) > 1 and not table:
            there = [
                f"{path[0]}.{key}" for key, value in self.config.table(path[:1]).items() if isinstance(value, dict)
            ]
            self.config.report(named_by, f"there is no table [{name}]{did_you_mean(name, there)}")
            return None
        below = [table_of(other)[1] for other in users if other.startswith(f"{name}.")]
        return self._with_settings(name, found, path, leave_out=("provider", *below))

    def _with_settings(
        self,
        name: str,
        found: Found,
        path: tuple[str, ...],
        leave_out: Sequence[str] = (),
        common: tuple[str, ...] = (),
    ) -> PartPlan | None:
        """Return a part with the settings from the table at `path`, with defaults from the table at `common`."""
        try:
            kind = found.provider.load_settings()
            if kind is not None:
                specs_of(kind)
        except Exception as error:
            what = f'the {found.kind.label} "{found.provider.name}" of {found.source.distribution}'
            self.config.report(path, f"{what}: its settings cannot be loaded: {failure(error)}")
            return None
        if common:
            self.common_tables.add(common[0])
            self.config.inherit(path, common)
        if kind is None:
            for key in self.config.table(path):
                if key not in leave_out:
                    self.config.report((*path, key), f'the {found.kind.label} "{found.provider.name}" has no settings')
            return PartPlan(name, found, None)
        below = {name for key in self._naming_keys(kind) for name in self.config.names_at((*path, key))}
        below |= self._tables_of_others(kind, path, below)
        settings = self.config.settings(kind, *path, leave_out=(*leave_out, *below))
        if settings is None:
            return None
        parts: dict[str, tuple[PartPlan, ...]] = {}
        for key, spec in self._naming_keys(kind).items():
            assert spec.parts is not None
            made = [self._part_below(spec.parts, name, path, key) for name in getattr(settings, spec.attribute)]
            parts[spec.attribute] = tuple(part for part in made if part is not None)
        files = self.files
        if files if isinstance(files, bool) else path[0] == "listeners" and path[1] in files:
            self._look_at_files(settings, path)
        return PartPlan(name, found, settings, parts)

    def _look_at_files(self, settings: Any, path: tuple[str, ...]) -> None:
        problems: Callable[[], Iterable[tuple[str, str]]] | None = getattr(settings, "problems", None)
        if problems is None:
            return
        try:
            for key, message in problems():
                self.config.report((*path, *key.split(".")) if key else path, message)
        except Exception as error:
            self.config.report(path, f"cannot be checked: {failure(error)}")

    def _tables_of_others(self, kind: type, path: tuple[str, ...], named: Collection[str]) -> set[str]:
        """Return the tables whose parts no key selects.

        Report each as a problem, unless it comes from a table that listeners share.
        """
        found = set()
        table = self.config.table(path)
        for key, spec in self._naming_keys(kind).items():
            assert spec.parts is not None
            for one in self.plugins.providers(spec.parts):
                name = one.provider.name
                if name not in named and isinstance(table.get(name), dict):
                    found.add(name)
                    if (*path, name) not in self.config.origins:
                        message = f'belongs to a {spec.parts.label} that is not listed in "{key}"'
                        self.config.report((*path, name), message)
        return found

    def _part_below(self, kind: ProviderKind, provider: str, path: tuple[str, ...], key: str) -> PartPlan | None:
        try:
            found = self.plugins.resolve(kind, provider)
        except PluginError as error:
            self.config.report((*path, key), str(error))
            return None
        return self._with_settings(provider, found, (*path, provider))

    @staticmethod
    def _naming_keys(kind: type) -> dict[str, SettingSpec]:
        return {key: spec for key, spec in specs_of(kind).items() if spec.parts is not None}
