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
        """Return the name of the pluggy hook."""
        return self.value

    @property
    def label(self) -> str:
        """Return the name of the kind in messages, e.g. `api set`."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Provider:
    """One part that a TOML file can name.

    `name`      the part's name in TOML; unique within its kind.
    `factory`   `"package.module:Class"`; called as `Class(settings)` once per use.
    `settings`  `"package.module:SettingsClass"` (see `klamm.setting`) or the class itself; None if there are none.
    `summary`   one line for `klamm plugins`.
    `default`   True for the part that is used if a configuration names none of its kind; only one provider of a kind
                may set it.
    `workers`   for an api set or extension: whether it works with several `[server] workers`. `each`: it runs in each
                worker process; the processes share only the listening sockets. `parent`: an extension that runs once,
                in the process that starts the workers; `ServerServices.metrics` there has the metrics of all workers.
                Unset: a configuration with several workers is refused.

    Only for an api set:

    `gates`             the connection gates of a listener that names none; gates that are not installed are left out.
    `throttles`         the throttles of a listener that names none, in the same way.
    `nodes_of`          another api set that must have a listener too: this set gets the same number of nodes.
    `has_cluster_acls`  True if the set forwards to a cluster and fills `klamm.acl.ClusterAcls`.
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
        """Return the settings class, and import it if `settings` is its name."""
        if isinstance(self.settings, str):
            settings: type = _load(self.settings)
            return settings
        return self.settings


def _load(path: object) -> Any:
    module, _, attribute = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not (module and attribute):
        raise ValueError(f'a Provider names its code as "package.module:Name", not {path!r}')
    return getattr(importlib.import_module(module), attribute)
