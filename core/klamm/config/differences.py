"""The differences between two configurations, key by key, with the time at which a running server applies each.

`klamm diff` prints them. A reload reports those that wait for the next start. The functions keep no state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from klamm.api.part import Part
from klamm.config.plan import ListenerPlan, PartPlan, ServerPlan
from klamm.config.plugin_registry import load_factory
from klamm.config.setting import specs_of

_LIVE: Final = {"io_threads", "processors", "log_level", "log_levels"}
_OF_SERVER: Final = "a server makes its folders, queues and handler threads once"
_OF_API_SETS: Final = "a server opens its handler sets once"
_OF_PARENT: Final = "the workers stay, because another change needs a new parent"
_OF_LISTENER: Final = "a listener keeps its socket and its parts"
_COMES: Final = "now: it starts to listen"
_GOES: Final = "now: its port is closed, and its connections end"
_OF_PART: Final = "this part reads it once"


class Difference(NamedTuple):
    """A table that differs, and the keys whose values differ. Without keys, the table as a whole differs.

    `part` is the part that the table belongs to; None for a table of klamm itself. If `known_when` is not empty, `when`
    returns it.
    """

    table: str
    keys: tuple[str, ...] = ()
    part: PartPlan | None = None
    known_when: str = ""

    def __str__(self) -> str:
        """Return the table and its keys, without values, which may be secrets."""
        return f"[{self.table}] {', '.join(self.keys)}".rstrip()

    @property
    def when(self) -> str:
        """Return the time at which a running server applies this, with the reason if that is the next start."""
        if self.known_when:
            return self.known_when
        if self.part is not None:
            factory = load_factory(self.part.found)
            takes = getattr(factory, "reconfigure", None) is not Part.reconfigure
            takes |= getattr(factory, "reconfigure_parts", None) is not Part.reconfigure_parts
            takes &= not set(self.keys).difference(_live_keys(self.part, self.keys))
            return "now, if the part accepts the values" if takes else f"at the next start: {_OF_PART}"
        if self.keys and _LIVE.issuperset(self.keys):
            return "now"
        return f"at the next start: {_OF_SERVER if self.table == 'server' else _OF_LISTENER}"


def differences(old: ServerPlan, new: ServerPlan) -> Iterator[Difference]:
    """Yield the differences, table by table. Keys that a running server applies are in a separate difference."""
    yield from _of_settings("server", old.server, new.server)
    before, after = ({plan.name: plan for plan in one.listeners} for one in (old, new))
    for name in before | after:
        if name in before and name in after:
            yield from _of_listener(before[name], after[name])
        else:
            why = why_not_live(old, new, after.get(name) or before[name])
            live = _COMES if name in after else _GOES
            yield Difference(f"listeners.{name}", known_when=f"at the next start: {why}" if why else live)
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


def needs_parent(old: ServerPlan, new: ServerPlan) -> bool:
    """Return True if sockets or parts that the parent of workers has opened would have other settings."""
    names = {one.name for one in old.listeners} & {one.name for one in new.listeners}
    return _of_parent(old, names) != _of_parent(new, names)


def _of_parent(plan: ServerPlan, names: Collection[str]) -> list[object]:
    listeners = {
        one.name: (one.node, _bound(one), plan.more_ports(one.api_set)) for one in plan.listeners if one.name in names
    }
    return [listeners, plan.server.worker_count, plan.server.data_dir, [part.name for part in plan.extensions]]


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
    yield from found or [Difference(f"listeners.{old.name}")]


def _of_settings(table: str, old: Any, new: Any, part: PartPlan | None = None) -> Iterator[Difference]:
    if old is None or type(old) is not type(new):
        return
    specs = specs_of(type(old)).values()
    changed = [one.name for one in specs if getattr(old, one.attribute) != getattr(new, one.attribute)]
    live_keys = _LIVE if part is None else _live_keys(part, changed)
    live = [key for key in changed if key in live_keys]
    for keys in (live, [key for key in changed if key not in live]):
        if keys:
            yield Difference(table, tuple(keys), part)


def _live_keys(part: PartPlan, keys: Collection[str]) -> Collection[str]:
    """Return the keys that a part can apply; all of `keys` if the part decides about them together."""
    live_keys: Collection[str] | None = getattr(load_factory(part.found), "live_keys", None)
    return keys if live_keys is None else live_keys


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
        if other is None or other == part:
            continue
        table = prefix + (tables[number] if tables else part.name)
        found = [*_of_settings(table, part.settings, other.settings, other)]
        for key, below in part.parts.items():
            found += _of_parts(f"{table}.", below, other.parts.get(key, ()))
        yield from found or [Difference(table, (), other)]
