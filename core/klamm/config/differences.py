"""The differences between two configurations, key by key, with the time at which a running server applies each.

`klamm diff` prints them. A reload reports what it has applied, and what waits for the next start. The functions keep no
state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from klamm.api.part import Part
from klamm.config.plan import ListenerPlan, PartPlan, ServerPlan
from klamm.config.plugin_registry import load_factory
from klamm.config.setting import specs_of

_LIVE: Final = {"io_threads", "processors", "log_level", "log_levels"}
_OF_SERVER: Final = "a server makes its folders, queues and handler threads once"
_OF_EXTENSIONS: Final = "a server opens its extensions once"
_OF_LOG: Final = "a process opens its log once"
_OF_METRICS: Final = "a server makes its metrics once"
_OF_KEYS: Final = {
    "extensions": _OF_EXTENSIONS,
    "log_file": _OF_LOG,
    "log_format": _OF_LOG,
    "metrics": _OF_METRICS,
    "metrics_max_clients": _OF_METRICS,
}
"""Reasons of keys of `[server]` that have one of their own."""
_OF_API_SETS: Final = "a server opens its handler sets once"
_OF_PARENT: Final = "the workers stay, because another change needs a new parent"
_OF_LISTENER: Final = "a listener keeps its socket and its parts"
_NOW: Final = "now"
_COMES: Final = "now: it starts to listen"
_GOES: Final = "now: its port is closed, and its connections end"
_REPLACED: Final = "now: the workers are replaced one after another"
_IF_ACCEPTED: Final = "now, if the part accepts the values"
_OF_PART: Final = "this part reads it once"
_NOT_ACCEPTED: Final = "the part does not accept the values while it runs"

LeftKeys: TypeAlias = tuple[str, str]
"""A table with keys that a reload has not applied, and the reason."""


class Difference(NamedTuple):
    """A table that differs, and the keys whose values differ. Without keys, the table as a whole differs.

    `part` is the part that the table belongs to; None for a table of klamm itself. `why` is the reason why a process
    that runs cannot apply this; empty if it can. `now` has what happens then.
    """

    table: str
    keys: tuple[str, ...] = ()
    part: PartPlan | None = None
    why: str = ""
    now: str = _NOW

    def __str__(self) -> str:
        """Return the table and its keys, without values, which may be secrets."""
        return f"[{self.table}] {', '.join(self.keys)}".rstrip()

    def when(self, replaces_workers: bool = False) -> str:
        """Return the time at which a running server applies this, with the reason if that is the next start.

        `replaces_workers` is the result of the function of this name for the same plans.
        """
        if not self.why:
            return self.now
        of_parent = self.part is not None and self.part.found.provider.workers == "parent"
        return _REPLACED if replaces_workers and not of_parent else f"at the next start: {self.why}"

    @property
    def why_left(self) -> str:
        """Return the reason why a reload that is over has not applied this."""
        return self.why or (_OF_PARENT if self.part is None else _NOT_ACCEPTED)


def differences(old: ServerPlan, new: ServerPlan) -> Iterator[Difference]:
    """Yield the differences, table by table. Keys that a running server applies are in a separate difference."""
    yield from _of_settings("server", old.server, new.server)
    before, after = ({plan.name: plan for plan in one.listeners} for one in (old, new))
    for name in before | after:
        if name in before and name in after:
            yield from _of_listener(before[name], after[name])
        else:
            why = why_not_live(old, new, after.get(name) or before[name])
            yield Difference(f"listeners.{name}", why=why, now=_COMES if name in after else _GOES)
    yield from _of_parts("", old.api_sets.values(), new.api_sets.values(), names=old.api_sets)
    yield from _of_parts("server.", [old.request_scheduler], [new.request_scheduler])
    yield from _of_parts("", old.extensions, new.extensions)


def why_not_live(old: ServerPlan, new: ServerPlan, listener: ListenerPlan) -> str:
    """Return why a running server cannot add or remove a listener that only one of the plans has; empty if it can.

    A handler set without listeners stays open until the server stops.
    """
    if old.server.worker_count > 1:
        # If no new parent is needed, new workers replace the present ones, and open the listeners of the new plan.
        return _OF_PARENT if needs_parent(old, new) else ""
    name = listener.api_set
    nodes, wanted = ({one.node for one in plan.listeners if one.api_set == name} for plan in (old, new))
    if not wanted or nodes == wanted or (not nodes and old.api_sets.get(name) == new.api_sets[name]):
        return ""
    return _OF_API_SETS


def replaces_workers(old: ServerPlan, new: ServerPlan) -> bool:
    """Return True if a reload replaces the workers for changes that a process that runs cannot apply."""
    return old.server.worker_count > 1 and not needs_parent(old, new)


def needs_parent(old: ServerPlan, new: ServerPlan) -> bool:
    """Return True if sockets, parts or a log that the parent of workers has opened would have other settings."""
    names = {one.name for one in old.listeners} & {one.name for one in new.listeners}
    return _of_parent(old, names) != _of_parent(new, names)


def _of_parent(plan: ServerPlan, names: Collection[str]) -> list[object]:
    listeners = {
        one.name: (one.node, _bound(one), plan.more_ports(one.api_set)) for one in plan.listeners if one.name in names
    }
    server = plan.server
    # Workers write to the log that the parent has opened, and it ends workers that exceed the deadline.
    own = server.worker_count, server.data_dir, server.log_file, server.log_format, server.shutdown_deadline_ms
    return [listeners, own, [part.name for part in plan.extensions]]


def _bound(plan: ListenerPlan) -> tuple[object, ...]:
    settings = plan.settings
    buffers = settings.socket_send_buffer_bytes, settings.socket_receive_buffer_bytes
    return plan.bind, settings.backlog, settings.unix_socket_mode, buffers


def _of_listener(old: ListenerPlan, new: ListenerPlan) -> Iterator[Difference]:
    if old == new:
        return
    found = [*_of_settings(f"listeners.{old.name}", old.settings, new.settings)]
    found += _of_parts(f"listeners.{old.name}.", old.all_parts, new.all_parts)
    # A default that `[server]` gives to all listeners may differ although the listener's table does not.
    yield from found or [Difference(f"listeners.{old.name}", why=_OF_LISTENER)]


def _of_settings(table: str, old: Any, new: Any, part: PartPlan | None = None) -> Iterator[Difference]:
    if old is None or type(old) is not type(new):
        return
    specs = specs_of(type(old)).values()
    changed = [one.name for one in specs if getattr(old, one.attribute) != getattr(new, one.attribute)]
    groups: dict[str, list[str]] = {"": []}
    for key in changed:
        groups.setdefault(_why(table, key) if part is None else _why_of_part(part, key), []).append(key)
    for why, keys in groups.items():
        if keys:
            yield Difference(table, tuple(keys), part, why, _NOW if part is None else _IF_ACCEPTED)


def _why(table: str, key: str) -> str:
    """Return why a running server or listener cannot apply a key; empty if it can."""
    if key in _LIVE:
        return ""
    return _OF_KEYS.get(key, _OF_SERVER) if table == "server" else _OF_LISTENER


def _why_of_part(part: PartPlan, key: str) -> str:
    """Return why a part cannot apply a key while it runs; empty if it can."""
    factory = load_factory(part.found)
    live_keys: Collection[str] | None = getattr(factory, "live_keys", None)
    takes = _overrides(factory, "reconfigure") and (live_keys is None or key in live_keys)
    return "" if takes else _OF_PART


def _overrides(factory: Any, method: str) -> bool:
    return getattr(factory, method, None) is not getattr(Part, method)


def _of_parts(
    prefix: str, old: Iterable[PartPlan], new: Iterable[PartPlan], names: Iterable[str] = ()
) -> Iterator[Difference]:
    """Compare the parts of the same provider.

    New and removed parts are left out, because the key that names them differs.
    """
    others = {(part.found, part.name): part for part in new}
    tables = list(names)
    for number, part in enumerate(old):
        other = others.get((part.found, part.name))
        if other is not None:
            yield from differences_of_part(prefix + (tables[number] if tables else part.name), part, other)


def differences_of_part(table: str, old: PartPlan, new: PartPlan) -> Iterator[Difference]:
    """Yield the differences of a part's table and of the tables of its own parts; none if the plans are equal."""
    if old == new:
        return
    found = [*_of_settings(table, old.settings, new.settings, new)]
    takes = _overrides(load_factory(new.found), "reconfigure_parts")
    for key, parts in old.parts.items():
        below = _of_parts(f"{table}.", parts, new.parts.get(key, ()))
        found += below if takes else (one._replace(why=one.why or _OF_PART) for one in below)
    yield from found or [Difference(table, (), new, _OF_PART)]
