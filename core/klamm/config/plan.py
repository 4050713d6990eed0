"""`ServerPlan`: the parts and settings of a server, after all names are resolved and before anything is opened.

A plan does not change after it is made, so any thread may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from klamm.api.contracts import contract_of, contract_problem, factory_problem
from klamm.api.part import Part
from klamm.api.provider import ProviderKind
from klamm.config.config_tables import Put
from klamm.config.plugin_registry import Found, PluginError, load_factory
from klamm.config.problems import ConfigError, Problem
from klamm.config.server_settings import ListenerSettings, ServerSettings
from klamm.config.setting import specs_of
from klamm.logs.causes import failure
from klamm.shared.addresses import UNIX_PREFIX

Endpoint = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PartPlan:
    """One part that a listener or the server uses: a provider and its settings.

    `parts` are this part's own parts, e.g. the mechanisms of an authenticator, keyed by the settings that name them.
    """

    name: str
    found: Found
    settings: Any
    parts: Mapping[str, tuple[PartPlan, ...]] = field(default_factory=dict)

    @property
    def distribution(self) -> str:
        """Return the distribution that provides the part."""
        return self.found.source.distribution

    def settings_of_parts(self, other: PartPlan) -> dict[str, tuple[Any, ...]] | None:
        """Return the settings that another plan has for this part's own parts; None if the plans name other parts."""
        if not _same_parts(self.parts, other.parts):
            return None
        return {key: tuple(part.settings for part in parts) for key, parts in other.parts.items()}

    def with_live(self, new: PartPlan, keys: Collection[str] | None) -> PartPlan:
        """Return `new`, but with this plan's values for every key not in `keys`.

        If `keys` is None, return `new` as it is.
        """
        if keys is None or self.settings is None:
            return new
        kept = [spec.attribute for spec in specs_of(type(self.settings)).values() if spec.name not in keys]
        settings = replace(new.settings, **{attribute: getattr(self.settings, attribute) for attribute in kept})
        return replace(new, settings=settings)

    def describe(self) -> str:
        """Return kind, name and origin, for log lines and admin events."""
        source = self.found.source
        return f"{self.found.kind.label} {self.name} of {source.distribution} {source.version}"

    def shown(self) -> dict[str, Any]:
        """Return what the part is, where it is from, its settings without secrets, and its own parts, as JSON."""
        # Only the console needs it, and each import delays a start.
        from klamm.config.shown import shown

        source = self.found.source
        return {
            "kind": self.found.kind.label,
            "name": self.name,
            "distribution": source.distribution,
            "version": source.version,
            "settings": shown(self.settings),
            "parts": [each.shown() for parts in self.parts.values() for each in parts],
        }

    def load(self) -> None:
        """Import the code of the part and of its own parts.

        Raises PluginError, also for a class that does not fit its contract.
        """
        self._factory()
        for parts in self.parts.values():
            for part in parts:
                part.load()

    def build(self, *arguments: Any) -> Any:
        """Import the factory, call it with the settings, and return the part.

        Raises PluginError, also if the result does not fit its contract.
        """
        factory = self._factory()
        below = {key: tuple(part.build() for part in parts) for key, parts in self.parts.items()}
        try:
            made = factory(self.settings, *arguments, **below)
        except Exception as error:
            raise PluginError(f"{self._what} cannot be made: {failure(error)}") from error
        if not isinstance(factory, type) and not self._is_own:
            contract = contract_of(self.found.kind)
            self._refuse(None if contract is None else contract_problem(type(made), contract))
        if isinstance(made, Part):
            made.origin = self.describe()
        return made

    def _factory(self) -> Any:
        factory = load_factory(self.found)
        contract = None if self._is_own else contract_of(self.found.kind)
        if contract is not None:
            arguments = 2 if self.found.kind is ProviderKind.REQUEST_SCHEDULER else 1
            self._refuse(factory_problem(factory, contract, arguments, self.parts))
        return factory

    @property
    def _is_own(self) -> bool:
        """Return True for a part of klamm. Tests check these parts against their contracts, so a start need not."""
        return self.distribution == "klamm"

    @property
    def _what(self) -> str:
        return f'the {self.found.kind.label} "{self.name}" of {self.distribution}'

    def _refuse(self, problem: str | None) -> None:
        if problem is not None:
            raise PluginError(f"{self._what}: {problem}")


def _same_parts(some: Mapping[str, tuple[PartPlan, ...]], others: Mapping[str, tuple[PartPlan, ...]]) -> bool:
    """Return True if both have the same providers under the same names, apart from settings.

    The parts of these parts must have equal settings too.
    """

    def kept(parts: Mapping[str, tuple[PartPlan, ...]]) -> dict[str, list[tuple[Any, ...]]]:
        return {key: [(part.found, part.name, part.parts) for part in each] for key, each in parts.items()}

    return kept(some) == kept(others)


@dataclass(frozen=True, slots=True)
class ListenerPlan:
    """The plan of one listener, with all names resolved."""

    name: str
    settings: ListenerSettings
    bind: Endpoint
    advertise: Endpoint | None
    transport: PartPlan
    authenticator: PartPlan | None
    authorizer: PartPlan | None
    gates: tuple[PartPlan, ...]
    filters: tuple[PartPlan, ...]
    throttles: tuple[PartPlan, ...]
    observers: tuple[PartPlan, ...]
    assigner: PartPlan
    api_set: str
    node: int = 0
    configured_as: str = ""
    """The name in the configuration if this is a further node, else empty; `name` is then the configured name."""

    def of_node(self, node: int) -> ListenerPlan:
        """Return this listener for the node at a position; name and port differ after the first."""
        if node == 0:
            return self
        return replace(
            self,
            name=f"{self.name}-{node + 1}",
            node=node,
            configured_as=self.name,
            bind=self._of_node(self.bind, node),
            advertise=None if self.advertise is None else self._of_node(self.advertise, node),
        )

    def _of_node(self, endpoint: Endpoint, node: int) -> Endpoint:
        host, port = endpoint
        ports = self.settings.node_ports
        # The ports of a different advertised address, e.g. of a proxy, count up from its own port.
        if ports and port == self.bind[1]:
            return host, ports[node - 1]
        return _next_port(endpoint, node)

    @property
    def many(self) -> tuple[PartPlan, ...]:
        """Return all gates, filters, throttles and observers."""
        return (*self.gates, *self.filters, *self.throttles, *self.observers)

    def _fields_of_parts(self) -> Iterator[tuple[str, tuple[PartPlan, ...]]]:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, PartPlan):
                yield each.name, (value,)
            elif isinstance(value, tuple) and value and isinstance(value[0], PartPlan):
                yield each.name, value

    @property
    def all_parts(self) -> tuple[PartPlan, ...]:
        """Return all parts of the listener."""
        return tuple(part for _name, parts in self._fields_of_parts() for part in parts)

    def counterpart(self, part: PartPlan) -> PartPlan | None:
        """Return this listener's part of the same kind and name, even if its settings differ."""
        for _name, parts in self._fields_of_parts():
            for other in parts:
                if (other.found, other.name) == (part.found, part.name):
                    return other
        return None

    def with_part(self, old: PartPlan, new: PartPlan) -> ListenerPlan:
        """Return the plan with one part instead of another."""
        for name, parts in self._fields_of_parts():
            if old in parts:
                changed: Any = tuple(new if part == old else part for part in parts)
                if isinstance(getattr(self, name), PartPlan):
                    changed = new
                changes: dict[str, Any] = {name: changed}
                return replace(self, **changes)
        return self


def _next_port(endpoint: Endpoint, step: int) -> Endpoint:
    host, port = endpoint
    if host.startswith(UNIX_PREFIX):
        return f"{host}-{step + 1}", 0
    return host, port + step if port else 0


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The plan of a server. `api_sets` maps each name in a listener's `api_set` to the plan of that handler set."""

    server: ServerSettings
    request_scheduler: PartPlan
    listeners: tuple[ListenerPlan, ...]
    api_sets: Mapping[str, PartPlan]
    extensions: tuple[PartPlan, ...]
    source: Path | None
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    changed: Callable[[Sequence[Put]], ServerPlan] | None = field(default=None, compare=False, repr=False)
    """Makes the plan again from the same file and command line, with these values on top; raises ConfigError."""
    place: Callable[[Sequence[str], str], Problem] | None = field(default=None, compare=False, repr=False)
    """Makes a `Problem` for the key at a path, including its file and line."""
    checked: Callable[[Collection[str]], Sequence[Problem]] | None = field(default=None, compare=False, repr=False)
    """Checks the files that the parts of these listeners name; returns warnings about these listeners. Raises
    ConfigError.
    """

    def error(self, path: Sequence[str], message: str) -> ConfigError:
        """Return the error of a key that turned out wrong when it was used."""
        problem = Problem("", ".".join(path), message) if self.place is None else self.place(path, message)
        return ConfigError([problem])

    def more_ports(self, api_set: str) -> Sequence[int]:
        """Return the ports that listeners of a handler set bind in addition to their own."""
        ports: Sequence[int] = getattr(self.api_sets[api_set].settings, "more_ports", ())
        return ports

    def counterpart(self, part: PartPlan) -> PartPlan | None:
        """Return the scheduler, handler set or extension of the same provider and name, even if its settings differ."""
        for other in (self.request_scheduler, *self.api_sets.values(), *self.extensions):
            if (other.found, other.name) == (part.found, part.name):
                return other
        return None

    def with_part(self, old: PartPlan, new: PartPlan) -> ServerPlan:
        """Return the plan with another scheduler, handler set or extension in place of `old`."""
        return replace(
            self,
            request_scheduler=new if self.request_scheduler == old else self.request_scheduler,
            api_sets={name: new if part == old else part for name, part in self.api_sets.items()},
            extensions=tuple(new if part == old else part for part in self.extensions),
        )
