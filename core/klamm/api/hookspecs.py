"""The hooks of klamm. Their docstrings are the reference; `docs/hooks.md` has a section for each hook.

A plugin package registers a module under the entry-point group `klamm` and marks functions with `klamm.hookimpl`.
Hooks run when a server is built, never per request.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from klamm.api.provider import Provider

hookspec = pluggy.HookspecMarker("klamm")
hookimpl = pluggy.HookimplMarker("klamm")
"""Marks a function or method of a plugin as the implementation of the hook with the same name."""


@hookspec
def klamm_transports() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Transports: factories of `klamm.Transport`. A listener names one with `transport = "…"`."""


@hookspec
def klamm_authenticators() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Authenticators: factories of `klamm.AuthenticatorFactory`. A listener names one with `authenticator = "…"`."""


@hookspec
def klamm_sasl_mechanisms() -> Iterable[Provider]:  # type: ignore[empty-body]
    """SASL mechanisms, for the authenticator `sasl`, which lists them in `mechanisms = ["…"]`."""


@hookspec
def klamm_credential_stores() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Credential stores, for the authenticator `sasl`, which lists them in `credential_stores = ["…"]`."""


@hookspec
def klamm_connection_gates() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Connection gates: factories of `klamm.ConnectionGate`. A listener lists them, in order, in `gates = ["…"]`."""


@hookspec
def klamm_throttles() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Throttles: factories of `klamm.Throttle`. A listener lists them in `throttles = ["…"]`."""


@hookspec
def klamm_authorizers() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Authorizers: factories of `klamm.Authorizer`. A listener names one with `authorizer = "…"`."""


@hookspec
def klamm_api_sets() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Handler sets: factories of `klamm.ApiSet`. A listener names one with `api_set = "…"`."""


@hookspec
def klamm_request_filters() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Filters: factories of `klamm.RequestFilter`. A listener lists them in `filters = ["…"]`, in order."""


@hookspec
def klamm_request_observers() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Observers: factories of `klamm.RequestObserver`. A listener lists them in `observers = ["…"]`."""


@hookspec
def klamm_processor_assigners() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Assigners: factories of `klamm.ProcessorAssigner`. A listener names one with `assigner = "…"`."""


@hookspec
def klamm_request_schedulers() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Request schedulers: factories of `klamm.RequestScheduler`, called with `(settings, capacity)`. The server names
    one with `request_scheduler = "…"`."""


@hookspec
def klamm_extensions() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Extensions: factories of `klamm.ServerExtension`. The server lists them in `extensions = ["…"]`."""


@hookspec
def klamm_commands() -> Iterable[Provider]:  # type: ignore[empty-body]
    """Subcommands of `klamm`: factories of functions `(arguments: list[str]) -> int`, the exit code."""
