"""Warnings of `klamm check` and `klamm serve` about settings that are valid, but insecure or without effect."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm.config.checks import check_private
from klamm.config.plugin_registry import PluginError, load_factory
from klamm.config.setting import specs_of
from klamm.shared.addresses import UNIX_PREFIX

if TYPE_CHECKING:
    from klamm.config.plan import ListenerPlan, PartPlan, ServerPlan


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The protection of a listener, for the method `warnings` of a settings class (see `setting`).

    `loopback`           True if only this machine can connect to its address.
    `encrypted`          True if its transport encrypts the bytes.
    `proves_principals`  True if its transport can verify the identity of a client, e.g. by a certificate.
    `authorized`         True if it has an authorizer.
    `has_cluster_acls`   True if its handler set forwards to a cluster and knows its ACLs (`Provider.has_cluster_acls`).
    """

    name: str
    loopback: bool
    encrypted: bool
    proves_principals: bool
    authorized: bool
    has_cluster_acls: bool = False


NO_AUTHORIZER: Final = "none"
"""`authorizer = "none"`: the listener has no authorizer, even if `[server] authorizer` names one."""

Warning = tuple[tuple[str, ...], str]


def security_warnings(plan: ServerPlan) -> Iterator[Warning]:
    """Yield the path of a key and a message for each risk. Checks the modes of files, but opens no file or port."""
    yield from _private_paths(plan.server, ("server",))
    scheduler = plan.request_scheduler
    useless: Callable[[int], Iterable[tuple[str, str]]] | None = getattr(scheduler.settings, "warnings", None)
    if useless is not None:
        for key, message in useless(plan.server.io_threads):
            yield ("server", scheduler.name, key), message
    for listener in plan.listeners:
        yield from _listener_warnings(plan, listener)
    for name, part in plan.api_sets.items():
        yield from _private_paths(part.settings, tuple(name.split(".", 1)))
    for part in plan.extensions:
        yield from _private_paths(part.settings, (part.name,))


def is_loopback(host: str) -> bool:
    """Return True if only this machine can connect to a listener that is bound to the host."""
    if host in ("127.0.0.1", "::1", "localhost") or host.startswith(UNIX_PREFIX):
        return True
    # Most listeners of a laptop or a test have one of these hosts, and start faster without the import below.
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listener_warnings(plan: ServerPlan, listener: ListenerPlan) -> Iterator[Warning]:
    path = ("listeners", listener.name)
    security = _security_of(plan, listener)
    if not security.authorized:
        guarded = [one.name for one in plan.listeners if one.authorizer is not None and one.api_set == listener.api_set]
        if guarded and listener.settings.authorizer != NO_AUTHORIZER:
            yield (
                (*path, "authorizer"),
                f"every client may do everything here, even what listener {guarded[0]} of the same handler set "
                f'"{listener.api_set}" refuses; name an authorizer, or "{NO_AUTHORIZER}" if that is intended',
            )
        if not security.loopback:
            yield (
                (*path, "bind"),
                "other machines can connect, and there is no authorizer: every client may do everything",
            )
    if listener.settings.proxy_protocol == "optional":
        yield (
            (*path, "proxy_protocol"),
            "if the proxy adds no header, clients can send one of their own and so choose their address;"
            ' "required" refuses connections without one',
        )
    for part in listener.all_parts:
        yield from _part_warnings(part, (*path, part.name), security)


def _security_of(plan: ServerPlan, listener: ListenerPlan) -> ListenerSecurity:
    transport: Any = None
    # If the transport cannot be loaded, the start reports that.
    with contextlib.suppress(PluginError):
        transport = load_factory(listener.transport.found)
    proves: Callable[[Any], bool] = getattr(transport, "proves_principals", lambda settings: False)
    return ListenerSecurity(
        name=listener.name,
        loopback=is_loopback(listener.bind[0]),
        encrypted=getattr(transport, "security_protocol", "") == "SSL",
        proves_principals=proves(listener.transport.settings),
        authorized=listener.authorizer is not None,
        has_cluster_acls=plan.api_sets[listener.api_set].found.provider.has_cluster_acls,
    )


def _part_warnings(part: PartPlan, path: tuple[str, ...], security: ListenerSecurity) -> Iterator[Warning]:
    yield from _private_paths(part.settings, path)
    warnings: Callable[[ListenerSecurity], Iterable[tuple[str, str]]] | None = getattr(part.settings, "warnings", None)
    if warnings is not None:
        for key, message in warnings(security):
            yield ((*path, *key.split(".")) if key else path), message
    for parts in part.parts.values():
        for below in parts:
            yield from _part_warnings(below, (*path, below.name), security)


def _private_paths(settings: Any, path: tuple[str, ...]) -> Iterator[Warning]:
    for key, spec in specs_of(type(settings)).items() if settings is not None else ():
        value = getattr(settings, spec.attribute)
        if spec.private and isinstance(value, Path):
            message = check_private(value)
            if message:
                yield (*path, *key.split(".")), message
