"""`load_plan`, which makes a `ServerPlan` from a TOML file and command-line overrides, without opening anything."""

from __future__ import annotations

import contextlib
import copy
import os
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from klamm.api.provider import ProviderKind
from klamm.config.checks import MAX_PORT, parse_host_port
from klamm.config.config_tables import ConfigTables, Put
from klamm.config.misplaced_keys import OF_SASL, PART_KEYS, kind_of_part, place_of, place_of_part
from klamm.config.overrides import apply_overrides
from klamm.config.part_resolver import PartResolver, default_parts, name_defaults, provider_of, table_of
from klamm.config.plan import Endpoint, ListenerPlan, PartPlan, ServerPlan
from klamm.config.plugin_registry import PluginError, PluginRegistry
from klamm.config.problems import ConfigError, Problem, did_you_mean
from klamm.config.security_warnings import NO_AUTHORIZER, security_warnings
from klamm.config.server_settings import ListenerSettings, PluginsSettings, ServerSettings
from klamm.config.setting import UNKNOWN_KEY, SettingSpec, check_value, flatten, specs_of
from klamm.config.tables import read_tables
from klamm.shared.addresses import UNIX_PREFIX

_SECTIONS: Final = ("server", "plugins", "listeners")
# The limit of Linux; those of other systems are about the same.
_UNIX_PATH_MAX_BYTES: Final = 107
ANY_HOST: Final = frozenset({"", "0.0.0.0", "::"})


def load_plan(
    file: Path | None,
    plugins: PluginRegistry,
    overrides: Sequence[str] = (),
    *,
    bind: str | None = None,
    data_dir: str | None = None,
    files: bool = False,
    defaults: Mapping[str, object] | None = None,
    more_parts: Mapping[str, Sequence[str]] | None = None,
) -> ServerPlan:
    """Return the plan, after all checks that need no bound port. Raises ConfigError with all problems found.

    - `overrides` are `--set` arguments, `KEY=VALUE`. `bind` moves the first listener. `data_dir` is relative to the
      current directory, unlike paths in the file.
    - With `files`, this also calls the method `problems` of the parts' settings (see `setting`), which checks that
      files can be used. A start and `klamm check` do that. A reload does not, because parts keep what they have read.
    - `defaults` are values for settings of handler sets for which neither the file nor the command line gives a value.
    - `more_parts` maps keys, e.g. `filters`, to names of parts. Every listener, or the server, gets these parts before
      the parts that it names.
    """
    tables, text = read_tables(file)

    def plan_with(puts: Sequence[Put] = (), *, files: bool | Collection[str] = files) -> ServerPlan:
        config = ConfigTables(file, copy.deepcopy(tables), text)
        name_defaults(config, plugins)
        apply_overrides(config, plugins, overrides, bind, data_dir, puts)
        # Again, for listeners that only the command line names.
        name_defaults(config, plugins)
        planner = _Planner(config, plugins, files)
        planner.set_defaults(defaults or {})
        planner.add_parts(more_parts or {})

        def checked(listeners: Collection[str]) -> list[Problem]:
            tables_of = tuple(f"listeners.{name}." for name in listeners)
            return [each for each in plan_with(puts, files=listeners).warnings if each.key.startswith(tables_of)]

        return replace(
            planner.plan(),
            changed=lambda puts: plan_with(puts, files=True),
            place=lambda path, message: config.problem(tuple(path), message),
            checked=checked,
        )

    return plan_with()


class _Planner:
    def __init__(self, config: ConfigTables, plugins: PluginRegistry, files: bool | Collection[str]) -> None:
        self.config = config
        self.plugins = plugins
        self.files = files
        self.parts = PartResolver(config, plugins, files)
        config.place_of = self.place_of

    def place_of(self, key: str, value: object) -> str | None:
        """Return where an unknown key belongs."""
        if isinstance(value, dict) and any(
            one.provider.name == key for one in self.plugins.providers(ProviderKind.EXTENSION)
        ):
            return f"write the settings of an extension in its own table: [{key}]"
        part = place_of_part(key, self.plugins) if isinstance(value, dict) else None
        return part or place_of(key, value, self.specs_of_api_sets())

    def set_defaults(self, defaults: Mapping[str, object]) -> None:
        """Set other defaults for the settings of handler sets."""
        for name, specs in self.specs_of_api_sets().items() if defaults else ():
            given = flatten(self.config.table(table_of(name)), specs)
            for key, value in defaults.items():
                if key in specs and key not in given:
                    self.config.set_default((*table_of(name), key), value)

    def add_parts(self, parts: Mapping[str, Sequence[str]]) -> None:
        """Add parts to every listener, and to the server, before those that they name."""
        listeners = self.config.tables.get("listeners")
        tables = [*listeners.values()] if isinstance(listeners, dict) else []
        of_server = specs_of(ServerSettings)
        for key, names in parts.items():
            for table in [self.config.tables.setdefault("server", {})] if key in of_server else tables:
                own = table.get(key, []) if isinstance(table, dict) else None
                if isinstance(own, list):
                    table[key] = [*(name for name in names if name not in own), *own]

    def plan(self) -> ServerPlan:
        # The settings of the request scheduler are in the table below [server] that has the scheduler's name.
        scheduler_table = self.config.table(("server",)).get("request_scheduler") or ""
        server = self.config.settings(ServerSettings, "server", leave_out=(scheduler_table,))
        self.config.settings(PluginsSettings, "plugins")
        listeners = self.config.table(("listeners",))
        if not listeners:
            self.config.report(("listeners",), "no listener is configured; a file needs at least [listeners.NAME]")
        authorizer = self.config.table(("server",)).get("authorizer")
        plans = [self.listener(name, authorizer if isinstance(authorizer, str) else None) for name in listeners]
        sound = [plan for plan in plans if plan is not None]
        users = self.api_set_users(listeners)
        parts = {name: self.parts.api_set(name, users) for name in users}
        opened = [each for plan in sound for each in self.of_nodes(plan, self.nodes_of(plan, parts))]
        self.check_ports(opened)
        scheduler = None
        if server is not None:
            scheduler = self.named(
                ProviderKind.REQUEST_SCHEDULER, server.request_scheduler, ("server",), "request_scheduler"
            )
        extensions: list[PartPlan | None] = []
        # If a key of [server] is wrong, the extensions and their tables are checked all the same.
        named = self.config.names_at(("server", "extensions")) if server is None else server.extensions
        for name in named:
            self.parts.common_tables.add(name)
            extensions.append(self.parts.part(ProviderKind.EXTENSION, name, ("server",), "extensions"))
        if len(sound) > 1:
            self.check_shared(sound)
        if scheduler is not None:
            self.check_listener_names(scheduler, listeners)
        if server is not None and server.workers != 1:
            self.check_workers(parts, extensions)
        self.check_sections(parts)
        if self.config.problems or server is None or scheduler is None:
            raise ConfigError(self.config.problems)
        resolved = {name: part for name, part in parts.items() if part is not None}
        used = tuple(part for part in extensions if part is not None)
        plan = ServerPlan(server, scheduler, tuple(sound), resolved, used, self.config.file)
        if self.files:
            warnings = [*self.config.warnings, *(self.config.problem(*one) for one in security_warnings(plan))]
            plan = replace(plan, warnings=tuple(warnings))
        return replace(plan, listeners=tuple(opened))

    def of_nodes(self, plan: ListenerPlan, count: int) -> list[ListenerPlan]:
        """Return the listeners of all nodes that one configured listener describes."""
        ports = plan.settings.node_ports
        if ports and len(ports) != count - 1:
            wanted = f"must have {count - 1} ports, for the nodes after the first, not {len(ports)}"
            self.config.report(("listeners", plan.name, "node_ports"), wanted)
            return [plan]
        return [plan.of_node(node) for node in range(count)]

    def nodes_of(self, plan: ListenerPlan, parts: Mapping[str, PartPlan | None]) -> int:
        """Return the number of nodes for which a listener is opened."""
        part = parts.get(plan.api_set)
        followed = part.found.provider.nodes_of if part is not None else ""
        if not followed:
            return _nodes_of(part)
        for other in parts.values():
            if other is not None and other.found.provider.name == followed:
                return _nodes_of(other)
        self.config.report(
            ("listeners", plan.name, "api_set"), f'needs a listener with the api set "{followed}" beside it'
        )
        return 1

    def named(self, kind: ProviderKind, provider: str | None, path: tuple[str, ...], key: str) -> PartPlan | None:
        """Return the part that a key names; without a name, report that the kind has no default."""
        if provider is None:
            self.parts.default(kind, path, key)
            return None
        return self.parts.part(kind, provider, path, key)

    def listener(self, name: str, default_authorizer: str | None) -> ListenerPlan | None:
        path = ("listeners", name)
        table = self.config.table(path)
        # Tables below a listener are settings of its parts; a part must use each of them.
        own = {key for key, spec in specs_of(ListenerSettings).items() if typing.get_origin(spec.kind) is dict}
        parts = {key for key, value in table.items() if isinstance(value, dict) and key not in own}
        before = len(self.config.problems)
        settings: ListenerSettings | None = self.config.settings(ListenerSettings, *path, leave_out=sorted(parts))
        if settings is None:
            # If a key is wrong, the parts are checked all the same, with the valid keys.
            settings = self.valid_settings(table, parts)
        bind, advertise = self.addresses(path, settings)
        named = _NamedParts(self, path, settings)
        one, many, used = named.one, named.many, named.used
        transport = one(ProviderKind.TRANSPORT, "transport", settings.transport)
        authenticator = authorizer = None
        if settings.authenticator is not None:
            authenticator = one(ProviderKind.AUTHENTICATOR, "authenticator", settings.authenticator)
        authorizer_name = default_authorizer if settings.authorizer is None else settings.authorizer
        if authorizer_name not in (None, NO_AUTHORIZER):
            authorizer = one(ProviderKind.AUTHORIZER, "authorizer", authorizer_name)
        gates, filters = many(ProviderKind.CONNECTION_GATE, "gates"), many(ProviderKind.REQUEST_FILTER, "filters")
        throttles = many(ProviderKind.THROTTLE, "throttles")
        observers = many(ProviderKind.REQUEST_OBSERVER, "observers")
        assigner = one(ProviderKind.PROCESSOR_ASSIGNER, "assigner", settings.assigner)
        for key in sorted(parts - used):
            self.config.report((*path, key), self.unused_table(name, key, used))
        if settings.api_set is None:
            self.parts.default(ProviderKind.API_SET, path, "api_set")
        if len(self.config.problems) > before or transport is None or assigner is None or bind is None:
            return None
        assert settings.api_set is not None
        return ListenerPlan(
            name,
            settings,
            bind,
            advertise,
            transport,
            authenticator,
            authorizer,
            gates,
            filters,
            throttles,
            observers,
            assigner,
            settings.api_set,
        )

    def unused_table(self, listener: str, name: str, used: Collection[str]) -> str:
        """Return the problem with a table below a listener that no part uses."""
        kind = kind_of_part(name, self.plugins)
        if kind in OF_SASL:
            return f"belongs to a {kind.label}: write [listeners.{listener}.sasl.{name}]"
        if kind is not None:
            return f"belongs to a {kind.label} that this listener does not name; add {PART_KEYS[kind].format(name)}"
        return f"no part of this listener has that name{did_you_mean(name, used)}"

    def addresses(self, path: tuple[str, ...], settings: ListenerSettings) -> tuple[Endpoint | None, Endpoint | None]:
        """Return the address to bind, or None if it is wrong, and the advertised address, or None if it is unset."""
        bind = self.endpoint(path, "bind", settings.bind, parse_endpoint)
        advertise = None
        if settings.advertise is not None and settings.advertise.startswith(UNIX_PREFIX):
            self.config.report((*path, "advertise"), "must be HOST:PORT: responses cannot name a socket's path")
        elif settings.advertise is not None:
            advertise = self.endpoint(path, "advertise", settings.advertise, parse_host_port)
        if advertise is not None and advertise[0] in ANY_HOST:
            self.config.report((*path, "advertise"), "must name a host that clients can connect to")
        if bind is not None and bind[0].startswith(UNIX_PREFIX) and settings.proxy_protocol != "off":
            message = "does not work on a Unix domain socket: its peers have no address"
            self.config.report((*path, "proxy_protocol"), message)
        elif bind is not None and bind[0].startswith(UNIX_PREFIX) and settings.node_ports:
            self.config.report((*path, "node_ports"), "does not work on a Unix domain socket: it has no ports")
        elif settings.proxy_protocol != "off" and not settings.trusted_proxies:
            self.config.report(
                (*path, "trusted_proxies"), f'must name a proxy if proxy_protocol is "{settings.proxy_protocol}"'
            )
        return bind, advertise

    def valid_settings(self, table: Mapping[str, Any], parts: Iterable[str]) -> ListenerSettings:
        right = {}
        for name, spec in specs_of(ListenerSettings).items():
            if name in table and name not in parts:
                with contextlib.suppress(ValueError):
                    right[name] = check_value(spec, table[name], self.config.base)
        return ListenerSettings(**right)

    def endpoint(self, path: tuple[str, ...], key: str, text: str, parse: Callable[[str], Endpoint]) -> Endpoint | None:
        try:
            return parse(text)
        except ValueError as error:
            self.config.report((*path, key), str(error))
            return None

    def check_ports(self, listeners: Sequence[ListenerPlan]) -> None:
        taken: list[tuple[Endpoint, str]] = []
        for plan in listeners:
            host, port = plan.bind
            key = ("listeners", plan.configured_as or plan.name, "bind")
            if port > MAX_PORT:
                self.config.report(key, f"node {plan.node + 1} would need port {port}")
            for (other_host, other_port), other in taken:
                if host == other_host and host.startswith(UNIX_PREFIX):
                    self.config.report(("listeners", plan.name, "bind"), f"{host} is taken by listener {other}")
                same_host = host == other_host or not ANY_HOST.isdisjoint((host, other_host))
                if port and port == other_port and same_host:
                    self.config.report(key, f"port {port} is taken by listener {other}")
                if plan.name == other:
                    self.config.report(key, f'"{plan.name}" is the name of a listener of another node')
            taken.append((plan.bind, plan.name))

    def check_shared(self, listeners: Sequence[ListenerPlan]) -> None:
        """Check that a setting that applies to all listeners together has the same value on each."""
        seen: dict[tuple[str, str], tuple[Any, str]] = {}
        for plan in listeners:
            for part in (*plan.gates, *plan.throttles):
                for name, spec in specs_of(type(part.settings)).items() if part.settings is not None else ():
                    if spec.per_server:
                        value = getattr(part.settings, spec.attribute)
                        first, other = seen.setdefault((part.name, name), (value, plan.name))
                        if value != first:
                            self.config.report(
                                ("listeners", plan.name, part.name, name),
                                f"applies to all listeners together, but listener {other} has another value:"
                                f" write it once, in [{part.name}]",
                            )

    def check_listener_names(self, scheduler: PartPlan, listeners: Collection[str]) -> None:
        for name, spec in specs_of(type(scheduler.settings)).items() if scheduler.settings is not None else ():
            if spec.names_listeners:
                for listener in getattr(scheduler.settings, spec.attribute):
                    if listener not in listeners:
                        message = f'there is no listener "{listener}"{did_you_mean(listener, listeners)}'
                        self.config.report(("server", scheduler.name, name), message)

    def check_workers(self, api_sets: Mapping[str, PartPlan | None], extensions: Iterable[PartPlan | None]) -> None:
        """Report each handler set and extension that does not declare that it works with several worker processes."""
        key = ("server", "workers")
        if not hasattr(os, "fork"):
            self.config.report(key, "needs a system that can fork processes")
        for name, part in api_sets.items():
            if part is not None and part.found.provider.workers != "each":
                message = f'must be 1: the api set "{name}" keeps its state in one process'
                self.config.report(key, f"{message}, which several workers would not share")
        for part in extensions:
            if part is not None and not part.found.provider.workers:
                message = f'must be 1: the extension "{part.name}" does not declare how it works with several'
                self.config.report(key, f"{message} worker processes")

    def api_set_users(self, listeners: Mapping[str, Any]) -> dict[str, list[str]]:
        users: dict[str, list[str]] = {}
        for listener, table in listeners.items():
            name = table.get("api_set") if isinstance(table, dict) else None
            if isinstance(name, str):
                users.setdefault(name, []).append(listener)
        return users

    def specs_of_api_sets(self) -> dict[str, Mapping[str, SettingSpec]]:
        """Return the settings of the handler sets that listeners use, by the names of their tables."""
        found: dict[str, Mapping[str, SettingSpec]] = {}
        for name in self.api_set_users(self.config.table(("listeners",))):
            provider = str(provider_of(self.config, name))
            with contextlib.suppress(PluginError, ImportError, AttributeError, TypeError):
                settings = self.plugins.resolve(ProviderKind.API_SET, provider).provider.load_settings()
                found[name] = specs_of(settings) if settings is not None else {}
        return found

    def check_sections(self, api_sets: Mapping[str, PartPlan | None]) -> None:
        several = {table_of(name)[0] for name in api_sets} - set(api_sets)
        for key, value in self.config.tables.items():
            if key in several and isinstance(value, dict):
                self.check_tables_below(key, value, api_sets)
            elif key not in _SECTIONS and key not in api_sets and key not in self.parts.common_tables:
                place = self.config.place_of(key, value)
                if place or not isinstance(value, dict):
                    self.config.report(
                        (key,), f"{UNKNOWN_KEY} at the top of the file" + (f"; {place}" if place else "")
                    )
                    continue
                known = [name for name, plan in api_sets.items() if plan is not None]
                hint = did_you_mean(key, (*_SECTIONS, *known, *sorted(self.parts.common_tables)))
                self.config.report((key,), f"unknown table; no listener uses a part or api set of that name{hint}")

    def check_tables_below(self, provider: str, table: Mapping[str, Any], api_sets: Collection[str]) -> None:
        """Check a table `[PROVIDER]` if listeners use only `[PROVIDER.NAME]`: each key must be a used `NAME`."""
        used = [name for name in api_sets if table_of(name)[0] == provider]
        for key, value in table.items():
            name = f"{provider}.{key}"
            if name not in used:
                others = f"; the listeners use [{'], ['.join(used)}]"
                if isinstance(value, dict):
                    message = f'no listener has api_set = "{name}"' + (did_you_mean(name, used) or others)
                else:
                    message = UNKNOWN_KEY + others
                self.config.report((provider, key), message)


def _nodes_of(api_set: PartPlan | None) -> int:
    """Return the number of nodes of a handler set."""
    specs = specs_of(type(api_set.settings)).values() if api_set is not None and api_set.settings is not None else ()
    counts = [getattr(api_set.settings, spec.attribute) for spec in specs if api_set is not None and spec.counts_nodes]
    return max(counts, default=1)


class _NamedParts:
    """The parts that one listener names. `used` are their names."""

    def __init__(self, planner: _Planner, path: tuple[str, ...], settings: ListenerSettings) -> None:
        self._planner = planner
        self._path = path
        self._settings = settings
        self.used: set[str] = set()

    def one(self, kind: ProviderKind, key: str, provider: str | None) -> PartPlan | None:
        """Return the part that a key names."""
        self.used.add(provider or "")
        return self._planner.named(kind, provider, self._path, key)

    def many(self, kind: ProviderKind, key: str) -> tuple[PartPlan, ...]:
        """Return the parts that a key lists."""
        config = self._planner.config
        names = getattr(self._settings, key)
        if names is None:
            names = default_parts(config, self._planner.plugins, kind, key, self._settings.api_set or "")
        for name in {name for name in names if names.count(name) > 1}:
            config.report((*self._path, key), f'"{name}" is listed more than once')
        found = [self.one(kind, key, provider) for provider in names]
        return tuple(part for part in found if part is not None)


def parse_endpoint(text: str) -> Endpoint:
    """Return host and port of `HOST:PORT` (IPv6 hosts in brackets), or `unix:/PATH` and port 0. Raises ValueError."""
    if text.startswith(UNIX_PREFIX):
        path = text.removeprefix(UNIX_PREFIX)
        if not path.startswith("/") or path.endswith("/"):
            raise ValueError(f'must be unix: and the absolute path of the socket, not "{text}"')
        if len(os.fsencode(path)) > _UNIX_PATH_MAX_BYTES:
            raise ValueError(f"is longer than {_UNIX_PATH_MAX_BYTES} bytes, the limit for the path of a socket")
        return text, 0
    try:
        return parse_host_port(text)
    except ValueError as error:
        raise ValueError(str(error).replace(", not ", ", or unix:/PATH, not ", 1)) from error
