"""Functions that find fields in any message, for the filter `topic_prefix`.

`FieldChanges` finds fields by their names. The functions at the end find them by the type of entity that they name,
e.g. `topicName` (`ENTITY_FIELDS`).
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from klamm.wire.entity_fields import ENTITY_FIELDS
from klamm.wire.struct_base import WireStruct

Change = Callable[[Any], Any]


class _Plan(NamedTuple):
    fields: tuple[str, ...]
    below: tuple[tuple[str, _Plan], ...]


class FieldChanges:
    """A change of all values of fields with certain names, in every struct of a message, in place."""

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self._changes = changes

    def apply(self, message: WireStruct) -> None:
        """Change the values in a message. Null stays null."""
        plan = plan_of(type(message), frozenset(self._changes))
        if plan is not None:
            self._apply(message, plan)

    def _apply(self, part: Any, plan: _Plan) -> None:
        for name in plan.fields:
            value = getattr(part, name)
            if value is not None:
                change = self._changes[name]
                setattr(part, name, [change(one) for one in value] if value.__class__ is list else change(value))
        for name, below in plan.below:
            value = getattr(part, name)
            if value.__class__ is list:
                for element in value:
                    self._apply(element, below)
            elif value is not None:
                self._apply(value, below)


_PLANS: Final[dict[tuple[type, frozenset[str]], _Plan | None]] = {}


def plan_of(kind: type[WireStruct], names: frozenset[str]) -> _Plan | None:
    """Return the places in a message that have fields with these names, or None."""
    key = kind, names
    if key not in _PLANS:
        _PLANS[key] = _find(kind, names)
    return _PLANS[key]


def _find(kind: type[WireStruct], names: frozenset[str]) -> _Plan | None:
    # Generated classes have type annotations only in `__init__`.
    hints = typing.get_type_hints(vars(kind)["__init__"], vars(sys.modules[kind.__module__]))
    own, below = [], []
    for name in kind.__slots__:
        if name in names:
            own.append(name)
            continue
        struct = _struct_in(hints.get(name))
        found = plan_of(struct, names) if struct is not None else None
        if found is not None:
            below.append((name, found))
    return _Plan(tuple(own), tuple(below)) if own or below else None


def _struct_in(hint: Any) -> type[WireStruct] | None:
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        return hint if issubclass(hint, WireStruct) else None
    return next((found for one in typing.get_args(hint) if (found := _struct_in(one)) is not None), None)


# ---- by entity

_Step = tuple[str, str, int]
"""A field's name, and a condition: the name and the value of another field. Without a condition these are "" and 0."""

_PATHS: Final[dict[tuple[str, str], tuple[tuple[_Step, ...], ...]]] = {}


def entity_paths(message: WireStruct, entity_type: str) -> tuple[tuple[_Step, ...], ...]:
    """Return the paths to the fields that name entities of the type."""
    key = type(message).__name__, entity_type
    if key not in _PATHS:
        paths = ENTITY_FIELDS.get(key[0], {}).get(entity_type, ())
        _PATHS[key] = tuple(tuple(_step(one) for one in path.split(".")) for path in paths)
    return _PATHS[key]


def _step(text: str) -> _Step:
    name, _, condition = text.partition("?")
    code_field, _, code = condition.partition("=")
    return name, code_field, int(code or 0)


def entity_values(part: Any, path: tuple[_Step, ...]) -> Iterator[Any]:
    """Yield the names at a path, including null and empty names."""
    (name, code_field, code), rest = path[0], path[1:]
    if code_field and getattr(part, code_field) != code:
        return
    value = getattr(part, name)
    for one in value if value.__class__ is list else (value,):
        if not rest:
            yield one
        elif one is not None:
            yield from entity_values(one, rest)


def leave_out(part: Any, path: tuple[_Step, ...], hidden: Callable[[Any], bool]) -> None:
    """Remove the structs that have a hidden name at the path from their list or their field."""
    (name, _, _), rest = path[0], path[1:]
    value = getattr(part, name)
    is_list = value.__class__ is list
    if not rest:
        if is_list:
            setattr(part, name, [one for one in value if not hidden(one)])
        return
    if len(rest) == 1:
        field, code_field, code = rest[0]
        if is_list:
            value = [one for one in value if not _is_hidden(one, field, code_field, code, hidden)]
            setattr(part, name, value)
        elif value is not None and _is_hidden(value, field, code_field, code, hidden):
            value = None
            setattr(part, name, None)
    for one in value if is_list else () if value is None else (value,):
        leave_out(one, rest, hidden)


def _is_hidden(part: Any, field: str, code_field: str, code: int, hidden: Callable[[Any], bool]) -> bool:
    if code_field and getattr(part, code_field) != code:
        return False
    value = getattr(part, field)
    return value.__class__ is not list and hidden(value)
