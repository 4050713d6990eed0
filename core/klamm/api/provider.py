"""Providers, which a plugin's hooks yield: small descriptors that name a part and the module with its code.

A hook such as `klamm_transports` yields `Provider`s. The factory is a string, imported only when a TOML file names the
provider, so an installed plugin costs nothing until it is used.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


class ProviderKind(enum.Enum):
    """The places in a listener or server that a provider can fill; the value is the hook that yields it."""

    TRANSPORT = "klamm_transports"
    AUTHENTICATOR = "klamm_authenticators"
    SASL_MECHANISM = "klamm_sasl_mechanisms"
    CREDENTIAL_STORE = "klamm_credential_stores"
    CONNECTION_GATE = "klamm_connection_gates"
    THROTTLE = "klamm_throttles"
    AUTHORIZER = "klamm_authorizers"
    API_SET = "klamm_api_sets"
    REQUEST_FILTER = "klamm_request_filters"
    REQUEST_OBSERVER = "klamm_request_observers"
    PROCESSOR_ASSIGNER = "klamm_processor_assigners"
    REQUEST_SCHEDULER = "klamm_request_schedulers"
    EXTENSION = "klamm_extensions"
    COMMAND = "klamm_commands"

    @property
    def hook(self) -> str:
        """Name of the pluggy hook."""
        return self.value

    @property
    def label(self) -> str:
        """Its name in messages, e.g. `api set`."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Provider:
    """One part that a TOML file can name.

    `name`      its name in TOML; unique within its kind.
    `factory`   `"package.module:Class"`; called as `Class(settings)` once per use.
    `settings`  `"package.module:SettingsClass"` (see `klamm.setting`) or the class itself; None takes no settings.
    `summary`   one line for `klamm plugins`.
    `default`   True for the part that is used if a configuration names none of its kind; only one provider of a kind
    may set it. `gates` for an api set: the connection gates of a listener that names none, if they are installed.
    `throttles` for an api set: the throttles of such a listener. `nodes_of` for an api set: another api set that also
    has a listener; listeners of this set have as many nodes as that one. `workers` for an api set or extension: if it
    may be used with `[server] workers`. `each`: it runs in each of the worker processes, which share nothing but the
    listening sockets. `parent`: an extension that runs once, in the process that starts the workers, where
    `ServerServices.metrics` has the metrics of all of them. Without it, several workers are refused. `has_cluster_acls`
    for an api set: it forwards to a cluster and fills `klamm.acl.ClusterAcls`.
    """

    name: str
    factory: str
    settings: str | type | None = None
    summary: str = ""
    gates: tuple[str, ...] = ()
    throttles: tuple[str, ...] = ()
    default: bool = False
    nodes_of: str = ""
    workers: Literal["", "each", "parent"] = ""
    has_cluster_acls: bool = False

    def load_factory(self) -> Callable[[Any], Any]:
        """Import and return the factory. Raises the import's exceptions, AttributeError or ValueError."""
        factory: Callable[[Any], Any] = _load(self.factory)
        return factory

    def load_settings(self) -> type | None:
        """Return the settings class, imported if it was given by name."""
        if isinstance(self.settings, str):
            settings: type = _load(self.settings)
            return settings
        return self.settings


def _load(path: object) -> Any:
    module, _, attribute = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not (module and attribute):
        raise ValueError(f'a Provider names its code as "package.module:Name", not {path!r}')
    return getattr(importlib.import_module(module), attribute)
