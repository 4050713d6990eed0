"""The differences between two configurations, key by key, with the time at which a running server applies each."""

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
    """A table that differs, and the keys whose values differ; without keys the table itself was added or removed.

    `part` is the part that the table belongs to; None for a table of klamm itself.
    """

    table: str
    keys: tuple[str, ...] = ()
    part: PartPlan | None = None

    def __str__(self) -> str:
        """Return the table and its keys, without values, which may be secrets."""
        return f"[{self.table}] {', '.join(self.keys)}".rstrip()

    @property
    def when(self) -> str:
        """Return the time at which a running server applies this, with the reason if that is the next start."""
        if self.part is not None:
            factory = load_factory(self.part.found)
            takes = getattr(factory, "reconfigure", None) is not Part.reconfigure
            takes |= getattr(factory, "reconfigure_parts", None) is not Part.reconfigure_parts
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
            yield Difference(f"listeners.{name}")
    yield from _of_parts("", old.api_sets.values(), new.api_sets.values(), names=old.api_sets)
    yield from _of_parts("server.", [old.request_scheduler], [new.request_scheduler])
    yield from _of_parts("", old.extensions, new.extensions)


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
    live = [key for key in changed if part is None and key in _LIVE]
    for keys in (live, [key for key in changed if key not in live]):
        if keys:
            yield Difference(table, tuple(keys), part)


def _of_parts(
    prefix: str, old: Iterable[PartPlan], new: Iterable[PartPlan], names: Iterable[str] = ()
) -> Iterator[Difference]:
    """Compare the parts of the same provider. For a new or removed part, the key that names it differs."""
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
