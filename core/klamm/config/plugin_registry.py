"""`PluginRegistry`, which finds the plugins: klamm's own and third-party ones use the same entry-point group, `klamm`.

An installed plugin is not active: loading its entry point only registers names. A broken plugin causes only a warning,
unless a configuration names a part that is not found and that the plugin may provide: then the start fails.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pluggy

from klamm.api import hookspecs
from klamm.api.provider import Provider, ProviderKind
from klamm.config.entry_points import EntryPoint, installed_entry_points
from klamm.config.problems import did_you_mean
from klamm.logs.causes import failure
from klamm.shared.version import PLUGIN_API, __version__

log = logging.getLogger("klamm.plugins")

GROUP: Final = "klamm"


class Source(NamedTuple):
    """The origin of a plugin."""

    entry_point: str
    distribution: str
    version: str


class Found(NamedTuple):
    """A provider and its source."""

    kind: ProviderKind
    provider: Provider
    source: Source


class PluginError(Exception):
    """Raised if a provider cannot be used: it is unknown, ambiguous, blocked or broken."""


class _PluginManager(pluggy.PluginManager):
    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        # Most functions of a plugin's module are not hooks.
        return super().parse_hookimpl_opts(plugin, name) if name.startswith("klamm_") else None


class PluginRegistry:
    """All providers of all installed plugins. A command or an `EmbeddedServer` makes one, on its own thread.

    - `block` names entry points that are not loaded, or providers that are left out, as `KIND:NAME` or
      `KIND:NAME@DISTRIBUTION`. E.g. `sasl_mechanism:PLAIN@klamm` lets another distribution's provider replace klamm's.
    - `environment` can restrict the plugins further. `KLAMM_LOAD_PLUGINS` lists the only third-party plugins to load;
      if it is empty, only klamm's own are loaded. `KLAMM_TRACE_PLUGINS=1` prints each loaded plugin.
    - `entry_points` are by default the installed entry points of the group `klamm`.
    """

    def __init__(
        self,
        block: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        entry_points: Iterable[EntryPoint] | None = None,
    ) -> None:
        self._environment = os.environ if environment is None else environment
        self._manager = _PluginManager("klamm")
        self._manager.add_hookspecs(hookspecs)
        self._sources: dict[str, Source] = {}
        self._found: dict[ProviderKind, list[Found]] = {}
        self.broken: list[tuple[Source, BaseException]] = []
        self.blocked: set[str] = set(block)
        self.blocked_providers: list[Found] = []
        for one in sorted(self.blocked):
            _check_blocked(one)
        self._load(installed_entry_points(GROUP) if entry_points is None else entry_points)

    def _load(self, entry_points: Iterable[EntryPoint]) -> None:
        allowed = self._environment.get("KLAMM_LOAD_PLUGINS")
        trace = self._environment.get("KLAMM_TRACE_PLUGINS") == "1"
        names = None if allowed is None else {name.strip() for name in allowed.split(",") if name.strip()}
        installed = list(entry_points)
        known = [entry_point.name for entry_point in installed]
        for name in sorted(one for one in self.blocked.difference(known) if ":" not in one):
            # Not an error, because several machines with different plugins may use the same file.
            log.warning('the plugin "%s" is blocked but not installed%s', name, did_you_mean(name, known))
        for entry_point in installed:
            distribution = entry_point.dist
            source = Source(
                entry_point.name,
                distribution.name if distribution else "?",
                distribution.version if distribution else "?",
            )
            own = source.distribution == "klamm"
            if entry_point.name in self.blocked or (names is not None and not own and entry_point.name not in names):
                self.blocked.add(entry_point.name)
                continue
            try:
                plugin = entry_point.load()
                _check_plugin_api(plugin)
                self._register(plugin, f"{source.distribution}:{entry_point.name}", source)
            except Exception as error:
                self.broken.append((source, error))
                log.warning(
                    "plugin %s of %s cannot be loaded: %s; `pip uninstall %s` removes it",
                    entry_point.name,
                    source.distribution,
                    failure(error),
                    source.distribution,
                )
                continue
            if trace:
                print(f"klamm: plugin {entry_point.name} of {source.distribution} {source.version}", file=sys.stderr)

    def add(self, plugin: object, name: str) -> None:
        """Register a plugin object, for tests and embedding.

        Does nothing if an entry point has already registered the object.
        """
        if self._manager.is_registered(plugin):
            return
        self._register(plugin, name, Source(name, name, "?"))
        self._found.clear()

    def _register(self, plugin: object, name: str, source: Source) -> None:
        self._manager.register(plugin, name)
        for caller in self._manager.get_hookcallers(plugin) or ():
            if not caller.has_spec():
                self._manager.unregister(plugin)
                hooks = [kind.hook for kind in ProviderKind]
                raise PluginError(f"there is no hook {caller.name}{did_you_mean(caller.name, hooks)}")
            options = [option for one in caller.get_hookimpls() if one.plugin is plugin for option in _options(one)]
            if options:
                self._manager.unregister(plugin)
                raise PluginError(
                    f"{caller.name}: klamm does not support {options[0]}=True. It collects the providers of all "
                    "plugins, and the configuration chooses among them; `block` in [plugins] leaves one out"
                )
        self._sources[name] = source

    def providers(self, kind: ProviderKind) -> list[Found]:
        """Return all providers of a kind, sorted by name. The hooks run at the first call."""
        found = self._found.get(kind)
        if found is None:
            every = sorted(self._call_hook(kind), key=lambda one: one.provider.name)
            found = self._found[kind] = [one for one in every if not self._is_blocked(one)]
            self.blocked_providers += [one for one in every if self._is_blocked(one)]
            unused = {one for one in self.blocked if one.partition(":")[0] == _kind_name(kind)}
            for name in sorted(unused.difference(*(_blocked_by(one) for one in every))):
                log.warning('the provider "%s" is blocked but not installed', name)
        return found

    def _is_blocked(self, found: Found) -> bool:
        return not self.blocked.isdisjoint(_blocked_by(found))

    def _call_hook(self, kind: ProviderKind) -> Iterator[Found]:
        for implementation in getattr(self._manager.hook, kind.hook).get_hookimpls():
            source = self._sources[implementation.plugin_name]
            try:
                for provider in implementation.function():
                    if not isinstance(provider, Provider):
                        raise TypeError(f"a Provider was expected, not {provider!r}")
                    yield Found(kind, provider, source)
            except Exception as error:
                self.broken.append((source, error))
                log.warning(
                    "plugin %s of %s: %s failed: %s", source.entry_point, source.distribution, kind.hook, failure(error)
                )

    def resolve(self, kind: ProviderKind, name: str, others: Sequence[str] = ()) -> Found:
        """Return the provider of that name.

        Raises PluginError if there is none, with the known names and the broken plugins, or if there are several.
        `others` are further names for the message, which are valid without a provider.
        """
        matches = [found for found in self.providers(kind) if found.provider.name == name]
        if len(matches) == 1:
            return matches[0]
        if matches:
            owners = " and by ".join(
                sorted(f"{found.source.entry_point} of {found.source.distribution}" for found in matches)
            )
            blocks = " or ".join(sorted(f'"{_blocked_by(found)[1]}"' for found in matches))
            raise PluginError(f'the {kind.label} "{name}" is provided by {owners}; block one of them: {blocks}')
        known = [*others, *(found.provider.name for found in self.providers(kind))]
        message = f'unknown {kind.label} "{name}"{did_you_mean(name, known)}'
        raise PluginError(message + self._known_and_broken(known))

    def default(self, kind: ProviderKind) -> str:
        """Return the name of the provider that is used if a configuration names none.

        Raises PluginError if no provider is marked as the default, or if several are.
        """
        found = [one for one in self.providers(kind) if one.provider.default]
        if len(found) == 1:
            return found[0].provider.name
        if found:
            owners = " and ".join(f'"{one.provider.name}" of {one.source.distribution}' for one in found)
            raise PluginError(f"more than one {kind.label} is marked as the default, {owners}; name one")
        known = [one.provider.name for one in self.providers(kind)]
        raise PluginError(f"no {kind.label} is the default; name one{self._known_and_broken(known)}")

    def _known_and_broken(self, known: Sequence[str]) -> str:
        message = f" (known: {', '.join(known)})" if known else ""
        for source, error in self.broken:
            message += f"; the plugin {source.entry_point} of {source.distribution} is broken: {failure(error)}"
        if self.blocked:
            message += f"; blocked: {', '.join(sorted(self.blocked))}"
        return message

    def all(self) -> list[Found]:
        """Return all providers of all kinds."""
        return [found for kind in ProviderKind for found in self.providers(kind)]


def load_factory(found: Found) -> Any:
    """Import and return a provider's factory. Raises PluginError with the distribution and the cause."""
    try:
        return found.provider.load_factory()
    except Exception as error:
        what = f'the {found.kind.label} "{found.provider.name}" of {found.source.distribution}'
        raise PluginError(f"{what} cannot be loaded: {failure(error)}") from error


def _kind_name(kind: ProviderKind) -> str:
    return kind.name.lower()


def _blocked_by(found: Found) -> tuple[str, str]:
    """Return the two entries of `block` that exclude a provider: without and with its distribution."""
    name = f"{_kind_name(found.kind)}:{found.provider.name}"
    return name, f"{name}@{found.source.distribution}"


def _check_plugin_api(plugin: object) -> None:
    """Raise PluginError if a plugin requires another version of the hooks and contracts."""
    wanted = getattr(plugin, "PLUGIN_API", PLUGIN_API)
    if wanted != PLUGIN_API:
        other = "klamm" if isinstance(wanted, int) and wanted > PLUGIN_API else "the plugin"
        raise PluginError(f"it requires PLUGIN_API {wanted!r}, klamm {__version__} has {PLUGIN_API}: update {other}")


def _check_blocked(name: str) -> None:
    kind, colon, _ = name.partition(":")
    kinds = [_kind_name(one) for one in ProviderKind]
    if colon and kind not in kinds:
        raise PluginError(f'"{name}" cannot be blocked: there is no kind "{kind}"{did_you_mean(kind, kinds)}')


def _options(implementation: pluggy.HookImpl) -> list[str]:
    """Return the options of pluggy that an implementation has set."""
    names = ("wrapper", "hookwrapper", "tryfirst", "trylast")
    return [name for name in names if getattr(implementation, name, False)]
