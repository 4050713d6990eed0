"""`load_plan`: a TOML file and command-line overrides → a `ServerPlan`, with nothing opened, bound or started."""

from __future__ import annotations

import contextlib
import copy
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from klamm.api.contracts import contract_of, contract_problem
from klamm.api.provider import ProviderKind
from klamm.config import toml_positions as positions
from klamm.config.overrides import apply_overrides
from klamm.config.plugin_registry import Found, PluginError, PluginRegistry, load_factory
from klamm.config.problems import ConfigError, Problem, did_you_mean
from klamm.config.setting import SettingSpec, check_value, convert, specs_of
from klamm.config.settings import ListenerSettings, PluginsSettings, ServerSettings
from klamm.config.tables import read_tables

_SECTIONS: Final = ("server", "plugins", "listeners")
ANY_HOST: Final = frozenset({"", "0.0.0.0", "::"})
Endpoint = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PartPlan:
    """One part that a listener or the server uses: a provider and its settings.

    `parts` are the parts of the part, by the settings that name them, e.g. the mechanisms of an authenticator.
    """

    name: str
    found: Found
    settings: Any
    parts: Mapping[str, tuple[PartPlan, ...]] = field(default_factory=dict)

    @property
    def distribution(self) -> str:
        """Which package it comes from."""
        return self.found.source.distribution

    def describe(self) -> str:
        """Kind, name and origin, for who is told of loaded plugins."""
        source = self.found.source
        return f"{self.found.kind.label} {self.name} of {source.distribution} {source.version}"

    def load(self) -> None:
        """Import the code of the part and of its parts. Raises PluginError, also for a class that does not fit."""
        factory = load_factory(self.found)
        if isinstance(factory, type):
            self._check(factory)
        for parts in self.parts.values():
            for part in parts:
                part.load()

    def build(self, *arguments: Any) -> Any:
        """Import the factory and call it with the settings. Raises PluginError, also if it makes what does not fit."""
        factory = load_factory(self.found)
        if isinstance(factory, type):
            self._check(factory)
        below = {key: tuple(part.build() for part in parts) for key, parts in self.parts.items()}
        try:
            made = factory(self.settings, *arguments, **below)
        except Exception as error:
            raise PluginError(
                f'the {self.found.kind.label} "{self.name}" of {self.distribution} cannot be made: {error!r}'
            ) from error
        if not isinstance(factory, type):
            self._check(type(made))
        return made

    def _check(self, made: type) -> None:
        contract = contract_of(self.found.kind)
        problem = None if contract is None else contract_problem(made, contract)
        if problem is not None:
            raise PluginError(f'the {self.found.kind.label} "{self.name}" of {self.distribution}: {problem}')


@dataclass(frozen=True, slots=True)
class ListenerPlan:
    """One listener, with every name resolved."""

    name: str
    settings: ListenerSettings
    bind: Endpoint
    advertise: Endpoint | None
    transport: PartPlan
    authenticator: PartPlan | None
    authorizer: PartPlan | None
    gates: tuple[PartPlan, ...]
    throttles: tuple[PartPlan, ...]
    observers: tuple[PartPlan, ...]
    assigner: PartPlan
    api_set: str

    def _fields_of_parts(self) -> Iterator[tuple[str, tuple[PartPlan, ...]]]:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, PartPlan):
                yield each.name, (value,)
            elif isinstance(value, tuple) and value and isinstance(value[0], PartPlan):
                yield each.name, value

    @property
    def all_parts(self) -> tuple[PartPlan, ...]:
        """Every part of the listener."""
        return tuple(part for _name, parts in self._fields_of_parts() for part in parts)

    def counterpart(self, part: PartPlan) -> PartPlan | None:
        """The part of the same kind and name, whatever its settings."""
        for _name, parts in self._fields_of_parts():
            for other in parts:
                if (other.found, other.name) == (part.found, part.name):
                    return other
        return None

    def with_part(self, old: PartPlan, new: PartPlan) -> ListenerPlan:
        """The plan with one part instead of another."""
        for name, parts in self._fields_of_parts():
            if old in parts:
                changed: Any = tuple(new if part == old else part for part in parts)
                if isinstance(getattr(self, name), PartPlan):
                    changed = new
                changes: dict[str, Any] = {name: changed}
                return replace(self, **changes)
        return self


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """What a server is made of. `api_sets` are by the names that listeners use."""

    server: ServerSettings
    request_scheduler: PartPlan
    listeners: tuple[ListenerPlan, ...]
    api_sets: Mapping[str, PartPlan]
    extensions: tuple[PartPlan, ...]
    source: Path | None
    warnings: tuple[Problem, ...] = field(default=(), compare=False)

    def counterpart(self, part: PartPlan) -> PartPlan | None:
        """The scheduler, handler set or extension of the same provider and name, whatever its settings."""
        for other in (self.request_scheduler, *self.api_sets.values(), *self.extensions):
            if (other.found, other.name) == (part.found, part.name):
                return other
        return None

    def with_part(self, old: PartPlan, new: PartPlan) -> ServerPlan:
        """The plan with another scheduler, handler set or extension in place of `old`."""
        return replace(
            self,
            request_scheduler=new if self.request_scheduler == old else self.request_scheduler,
            api_sets={name: new if part == old else part for name, part in self.api_sets.items()},
            extensions=tuple(new if part == old else part for part in self.extensions),
        )


def load_plan(
    file: Path | None,
    plugins: PluginRegistry,
    overrides: Sequence[str] = (),
    *,
    bind: str | None = None,
    data_dir: str | None = None,
    files: bool = False,
) -> ServerPlan:
    """Check everything that can be checked without binding. Raises ConfigError with all problems found.

    With `files` the parts' settings are asked for their `problems` too (see `setting`): whether the files that they
    name can be used, as before a start. Without it is how a reload wants it, which keeps what it cannot read.
    `overrides` are `--set` arguments, `KEY=VALUE`; `bind` moves the first listener; `data_dir` is relative to the
    current directory, unlike paths in the file.
    """
    tables, text = read_tables(file)
    return _Planner(file, tables, text, plugins, files).plan(overrides, bind, data_dir)


class _Planner:
    def __init__(
        self, file: Path | None, tables: dict[str, Any], text: str, plugins: PluginRegistry, files: bool
    ) -> None:
        self.file = file
        self.files = files
        self.base = file.parent if file is not None else Path()
        self.tables = tables
        self.text = text
        self.plugins = plugins
        self.problems: list[Problem] = []
        self.overridden: dict[str, str] = {}
        self.common_tables: set[str] = set()
        self.origins: dict[tuple[str, ...], tuple[str, ...]] = {}

    def plan(self, overrides: Sequence[str], bind: str | None, data_dir: str | None) -> ServerPlan:
        apply_overrides(self, overrides, bind, data_dir)
        # A table below [server] holds the settings of the scheduler that it names.
        scheduler_table = self.table(("server",)).get("request_scheduler", "")
        server = self.settings(ServerSettings, "server", leave_out=(scheduler_table,))
        self.settings(PluginsSettings, "plugins")
        listeners = self.table(("listeners",))
        if not listeners:
            self.report(("listeners",), "no listener is configured; a file needs at least [listeners.NAME]")
        plans = [self.listener(name) for name in listeners]
        sound = [plan for plan in plans if plan is not None]
        self.check_ports(sound)
        parts = {name: self.api_set(name, users) for name, users in self.api_set_users(listeners).items()}
        scheduler = None
        extensions: list[PartPlan | None] = []
        if server is not None:
            scheduler = self.part(
                ProviderKind.REQUEST_SCHEDULER, server.request_scheduler, ("server",), "request_scheduler"
            )
            for name in server.extensions:
                self.common_tables.add(name)
                extensions.append(self.part(ProviderKind.EXTENSION, name, ("server",), "extensions"))
        if len(sound) > 1:
            self.check_shared(sound)
        if scheduler is not None:
            self.check_listener_names(scheduler, listeners)
        self.check_sections(parts)
        if self.problems or server is None or scheduler is None:
            raise ConfigError(self.problems)
        resolved = {name: part for name, part in parts.items() if part is not None}
        used = tuple(part for part in extensions if part is not None)
        return ServerPlan(server, scheduler, tuple(sound), resolved, used, self.file)

    # ---- places

    def report(self, path: tuple[str, ...], message: str) -> None:
        for depth in range(len(path), 0, -1):
            if path[:depth] in self.origins:
                path = (*self.origins[path[:depth]], *path[depth:])
                break
        place = self.overridden.get(".".join(path), "")
        if not place and self.file is not None:
            position = positions.find(self.text, path)
            place = f"{self.file}:{position[0]}:{position[1]}" if position else str(self.file)
        problem = Problem(place, ".".join(path), message)
        if problem not in self.problems:
            self.problems.append(problem)

    def table(self, path: tuple[str, ...]) -> dict[str, Any]:
        here: Any = self.tables
        for depth, key in enumerate(path, 1):
            here = here.get(key, {})
            if not isinstance(here, dict):
                self.report(path[:depth], "must be a table")
                return {}
        return dict(here)

    def settings(self, kind: type, *path: str, leave_out: Sequence[str] = ()) -> Any:
        table = {key: value for key, value in self.table(path).items() if key not in leave_out}
        prefix = ".".join(path) + "."
        # What came by `--set` may be text where a number is meant.
        lenient = {key.removeprefix(prefix) for key in self.overridden if key.startswith(prefix)}
        return convert(kind, table, lambda key, message: self.report((*path, key), message), self.base, lenient=lenient)

    # ---- parts

    def listener(self, name: str) -> ListenerPlan | None:
        path = ("listeners", name)
        table = self.table(path)
        # Tables below a listener are the settings of its parts, and belong to nobody until a part claims them.
        own = {key for key, spec in specs_of(ListenerSettings).items() if typing.get_origin(spec.kind) is dict}
        parts = {key for key, value in table.items() if isinstance(value, dict) and key not in own}
        before = len(self.problems)
        settings: ListenerSettings | None = self.settings(ListenerSettings, *path, leave_out=sorted(parts))
        if settings is None:
            # One wrong key must not hide what is wrong with the parts: they are checked with what is right.
            settings = self.sound_settings(table, parts)
        bind = self.endpoint(path, "bind", settings.bind)
        advertise = self.endpoint(path, "advertise", settings.advertise) if settings.advertise is not None else None
        if advertise is not None and advertise[0] in ANY_HOST:
            self.report((*path, "advertise"), "must name a host that clients can connect to")
        if settings.proxy_protocol != "off" and not settings.trusted_proxies:
            self.report(
                (*path, "trusted_proxies"), f'must name a proxy if proxy_protocol is "{settings.proxy_protocol}"'
            )
        used: set[str] = set()

        def one(kind: ProviderKind, key: str, provider: str) -> PartPlan | None:
            used.add(provider)
            return self.part(kind, provider, path, key)

        def many(kind: ProviderKind, key: str) -> tuple[PartPlan, ...]:
            names = getattr(settings, key)
            if names is None:
                names = self.wanted_parts(kind, key, settings.api_set)
            for name in {name for name in names if names.count(name) > 1}:
                self.report((*path, key), f'"{name}" is listed more than once')
            found = [one(kind, key, provider) for provider in names]
            return tuple(part for part in found if part is not None)

        transport = one(ProviderKind.TRANSPORT, "transport", settings.transport)
        authenticator = authorizer = None
        if settings.authenticator is not None:
            authenticator = one(ProviderKind.AUTHENTICATOR, "authenticator", settings.authenticator)
        if settings.authorizer is not None:
            authorizer = one(ProviderKind.AUTHORIZER, "authorizer", settings.authorizer)
        gates = many(ProviderKind.CONNECTION_GATE, "gates")
        throttles = many(ProviderKind.THROTTLE, "throttles")
        observers = many(ProviderKind.REQUEST_OBSERVER, "observers")
        assigner = one(ProviderKind.PROCESSOR_ASSIGNER, "assigner", settings.assigner)
        for key in sorted(parts - used):
            self.report((*path, key), f"no part of this listener has that name{did_you_mean(key, used)}")
        if len(self.problems) > before or transport is None or assigner is None or bind is None:
            return None
        return ListenerPlan(
            name,
            settings,
            bind,
            advertise,
            transport,
            authenticator,
            authorizer,
            gates,
            throttles,
            observers,
            assigner,
            settings.api_set,
        )

    def wanted_parts(self, kind: ProviderKind, key: str, api_set: str) -> tuple[str, ...]:
        """The parts of a listener that names none, for an api set; without those that are not installed."""
        try:
            found = self.plugins.resolve(ProviderKind.API_SET, str(self.table((api_set,)).get("provider", api_set)))
        except PluginError:
            # Reported where the api set itself is looked for.
            return ()
        wanted: tuple[str, ...] = getattr(found.provider, key)
        known = {one.provider.name for one in self.plugins.providers(kind)} if wanted else ()
        return tuple(name for name in wanted if name in known)

    def sound_settings(self, table: Mapping[str, Any], parts: Iterable[str]) -> ListenerSettings:
        right = {}
        for name, spec in specs_of(ListenerSettings).items():
            if name in table and name not in parts:
                with contextlib.suppress(ValueError):
                    right[name] = check_value(spec, table[name], self.base)
        return ListenerSettings(**right)

    def part(self, kind: ProviderKind, provider: str, path: tuple[str, ...], key: str) -> PartPlan | None:
        try:
            found = self.plugins.resolve(kind, provider)
        except PluginError as error:
            self.report((*path, key), str(error))
            return None
        return self.with_settings(provider, found, (*path, provider), common=(provider,))

    def api_set(self, name: str, users: Sequence[str]) -> PartPlan | None:
        provider = self.table((name,)).get("provider", name)
        if not isinstance(provider, str):
            self.report((name, "provider"), "must be a string")
            return None
        try:
            found = self.plugins.resolve(ProviderKind.API_SET, provider)
        except PluginError as error:
            self.report((name, "provider") if name in self.tables else ("listeners", users[0], "api_set"), str(error))
            return None
        return self.with_settings(name, found, (name,), leave_out=("provider",))

    def with_settings(
        self,
        name: str,
        found: Found,
        path: tuple[str, ...],
        leave_out: Sequence[str] = (),
        common: tuple[str, ...] = (),
    ) -> PartPlan | None:
        """A part and its settings: the table at `path`, over what the one at `common` says for all of its name."""
        try:
            kind = found.provider.load_settings()
        except Exception as error:
            self.report(path, f"the settings of {found.source.distribution} cannot be loaded: {error!r}")
            return None
        if common:
            self.common_tables.add(common[0])
            self.inherit(path, common)
        if kind is None:
            for key in self.table(path):
                if key not in leave_out:
                    self.report((*path, key), f'the {found.kind.label} "{found.provider.name}" has no settings')
            return PartPlan(name, found, None)
        below = {name for key in self.naming_keys(kind) for name in self.names_at((*path, key))}
        below |= self.tables_of_others(kind, path, below)
        settings = self.settings(kind, *path, leave_out=(*leave_out, *below))
        if settings is None:
            return None
        parts: dict[str, tuple[PartPlan, ...]] = {}
        for key, spec in self.naming_keys(kind).items():
            assert spec.parts is not None
            made = [self.part_below(spec.parts, name, path, key) for name in getattr(settings, spec.attribute)]
            parts[spec.attribute] = tuple(part for part in made if part is not None)
        if self.files:
            self.look_at_files(settings, path)
        return PartPlan(name, found, settings, parts)

    def look_at_files(self, settings: Any, path: tuple[str, ...]) -> None:
        problems: Callable[[], Iterable[tuple[str, str]]] | None = getattr(settings, "problems", None)
        if problems is None:
            return
        try:
            for key, message in problems():
                self.report((*path, *key.split(".")) if key else path, message)
        except Exception as error:
            self.report(path, f"cannot be checked: {error!r}")

    def tables_of_others(self, kind: type, path: tuple[str, ...], named: Collection[str]) -> set[str]:
        """Tables of parts that nothing here names: wrong, but for those in a table that listeners share."""
        found = set()
        table = self.table(path)
        for key, spec in self.naming_keys(kind).items():
            assert spec.parts is not None
            for one in self.plugins.providers(spec.parts):
                name = one.provider.name
                if name not in named and isinstance(table.get(name), dict):
                    found.add(name)
                    if (*path, name) not in self.origins:
                        self.report((*path, name), f"is of a {spec.parts.label} that {key} does not name")
        return found

    def part_below(self, kind: ProviderKind, provider: str, path: tuple[str, ...], key: str) -> PartPlan | None:
        try:
            found = self.plugins.resolve(kind, provider)
        except PluginError as error:
            self.report((*path, key), str(error))
            return None
        return self.with_settings(provider, found, (*path, provider))

    @staticmethod
    def naming_keys(kind: type) -> dict[str, SettingSpec]:
        return {key: spec for key, spec in specs_of(kind).items() if spec.parts is not None}

    def names_at(self, path: tuple[str, ...]) -> list[str]:
        names = self.table(path[:-1]).get(path[-1], ())
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    def inherit(self, path: tuple[str, ...], common: tuple[str, ...]) -> None:
        """Fill up the table at `path` with what the one at `common` says and it does not."""
        shared = self.table(common)
        if not shared:
            return
        own: Any = self.tables
        for key in path:
            own = own.setdefault(key, {})
            if not isinstance(own, dict):
                return
        for key, value in shared.items():
            if key not in own:
                own[key] = copy.deepcopy(value)
                self.origins[(*path, key)] = (*common, key)

    # ---- checks across listeners

    def endpoint(self, path: tuple[str, ...], key: str, text: str) -> Endpoint | None:
        try:
            return parse_endpoint(text)
        except ValueError as error:
            self.report((*path, key), str(error))
            return None

    def check_ports(self, listeners: Sequence[ListenerPlan]) -> None:
        taken: list[tuple[Endpoint, str]] = []
        for plan in listeners:
            host, port = plan.bind
            for (other_host, other_port), other in taken:
                same_host = host == other_host or not ANY_HOST.isdisjoint((host, other_host))
                if port and port == other_port and same_host:
                    self.report(("listeners", plan.name, "bind"), f"port {port} is taken by listener {other}")
            taken.append((plan.bind, plan.name))

    def check_shared(self, listeners: Sequence[ListenerPlan]) -> None:
        """What counts for all listeners together must be the same for each."""
        seen: dict[tuple[str, str], tuple[Any, str]] = {}
        for plan in listeners:
            for part in (*plan.gates, *plan.throttles):
                for name, spec in specs_of(type(part.settings)).items() if part.settings is not None else ():
                    if spec.per_server:
                        value = getattr(part.settings, spec.attribute)
                        first, other = seen.setdefault((part.name, name), (value, plan.name))
                        if value != first:
                            self.report(
                                ("listeners", plan.name, part.name, name),
                                f"is for all listeners together, and listener {other} has another value:"
                                f" write it once, in [{part.name}]",
                            )

    def check_listener_names(self, scheduler: PartPlan, listeners: Collection[str]) -> None:
        for name, spec in specs_of(type(scheduler.settings)).items() if scheduler.settings is not None else ():
            if spec.names_listeners:
                for listener in getattr(scheduler.settings, spec.attribute):
                    if listener not in listeners:
                        message = f'there is no listener "{listener}"{did_you_mean(listener, listeners)}'
                        self.report(("server", scheduler.name, name), message)

    def api_set_users(self, listeners: Mapping[str, Any]) -> dict[str, list[str]]:
        users: dict[str, list[str]] = {}
        for listener, table in listeners.items():
            name = table.get("api_set", "broker") if isinstance(table, dict) else None
            if isinstance(name, str):
                users.setdefault(name, []).append(listener)
        return users

    def check_sections(self, api_sets: Collection[str]) -> None:
        for key in self.tables:
            if key not in _SECTIONS and key not in api_sets and key not in self.common_tables:
                hint = did_you_mean(key, (*_SECTIONS, *api_sets, *sorted(self.common_tables)))
                self.report((key,), f"unknown table; no listener uses a part or api set of that name{hint}")


def parse_endpoint(text: str) -> Endpoint:
    """`HOST:PORT`, IPv6 hosts in brackets. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ValueError(f'must be HOST:PORT with a port up to 65535, not "{text}"')
    return host.removeprefix("[").removesuffix("]"), int(port)
