"""Differences between two configurations, key by key, and when a running server applies them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from klamm.api.part import Part
from klamm.config.plan import ListenerPlan, PartPlan, ServerPlan
from klamm.config.plugin_registry import load_factory
from klamm.config.setting import specs_of

_LIVE: Final = {"io_threads", "processors", "log_level"}
_OF_SERVER: Final = "a server makes its folders, queues and handler threads once"
_OF_LISTENER: Final = "a listener keeps its socket and its parts"
_OF_PART: Final = "this part reads it once"


class Difference(NamedTuple):
    """One table, and its keys with other values; without keys the table itself is new or gone.

    `part` is the part whose table it is; None for a table of klamm itself.
    """

    table: str
    keys: tuple[str, ...] = ()
    part: PartPlan | None = None

    def __str__(self) -> str:
        """Return the table and its keys, without values, which may be secrets."""
        return f"[{self.table}] {', '.join(self.keys)}".rstrip()

    @property
    def when(self) -> str:
        """Return when a running server applies it, and why not before."""
        if self.part is not None:
            factory = load_factory(self.part.found)
            takes = getattr(factory, "reconfigure", None) is not Part.reconfigure
            takes |= getattr(factory, "reconfigure_parts", None) is not Part.reconfigure_parts
            return "now, if the part accepts the values" if takes else f"at the next start: {_OF_PART}"
        if self.keys and _LIVE.issuperset(self.keys):
            return "now"
        return f"at the next start: {_OF_SERVER if self.table == 'server' else _OF_LISTENER}"


def differences(old: ServerPlan, new: ServerPlan) -> Iterator[Difference]:
    """Return what differs, table by table; keys that a running server applies have a difference of their own."""
    yield from _of_settings("server", old.server, new.server)
    before, after = ({plan.name: plan for plan in one.listeners} for one in (old, new))
    for name in before | after:
        if name in before and name in after:
            yield from _of_listener(before[name], after[name])
        else:
            yield Difference(f"listeners.{name}")
    yield from _of_parts("", old.api_sets.values(), new.api_sets.values(), names=old.api_sets)
    yield from _of_parts("server.", [old.request_scheduler], [new.request_scheduler])
    yield from _of_parts("", old.extensions, new.extensions)


def _of_listener(old: ListenerPlan, new: ListenerPlan) -> Iterator[Difference]:
    if old == new:
        return
    found = [*_of_settings(f"listeners.{old.name}", old.settings, new.settings)]
    found += _of_parts(f"listeners.{old.name}.", old.all_parts, new.all_parts)
    # What `[server]` says for all listeners may differ alone.
    yield from found or [Difference(f"listeners.{old.name}")]


def _of_settings(table: str, old: Any, new: Any, part: PartPlan | None = None) -> Iterator[Difference]:
    if old is None or type(old) is not type(new):
        return
    specs = specs_of(type(old)).values()
    changed = [one.name for one in specs if getattr(old, one.attribute) != getattr(new, one.attribute)]
    live = [key for key in changed if part is None and key in _LIVE]
    for keys in (live, [key for key in changed if key not in live]):
        if keys:
            yield Difference(table, tuple(keys), part)


def _of_parts(
    prefix: str, old: Iterable[PartPlan], new: Iterable[PartPlan], names: Iterable[str] = ()
) -> Iterator[Difference]:
    """Compare parts of the same provider; parts that are new or gone are in the key that names them."""
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
