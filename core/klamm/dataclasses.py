"""`dataclass`: that of Python, made in a third of the time, as a server has some hundred at its start.

Python compiles up to seven methods for each class. Here only `__init__` is compiled; the others are closures. What they
do is the same, and so are `fields`, `replace`, `asdict` and the like. There is no `InitVar`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

__all__ = ["dataclass"]

_FIELDS: Final = "__dataclass_fields__"
_MISSING: Final = dataclasses.MISSING


class _NotGiven:
    def __repr__(self) -> str:
        return "<factory>"


_NOT_GIVEN: Final = _NotGiven()


def _quick(
    cls: type[Any] | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    order: bool = False,
    kw_only: bool = False,
) -> Any:
    """Make a class a dataclass, like the decorator of Python with the same parameters."""
    if cls is None:
        return lambda one: _quick(one, frozen=frozen, slots=slots, eq=eq, order=order, kw_only=kw_only)
    if order:
        return dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq, order=True, kw_only=kw_only)(cls)
    # Python compares a class with those that it extends.
    extends = any(_FIELDS in vars(base) for base in cls.__mro__[1:])
    own = vars(cls)
    std: Any = dataclasses.dataclass
    made = std(init=False, repr=False, eq=False, frozen=frozen and extends, slots=slots, kw_only=kw_only)(cls)
    parameters = made.__dataclass_params__
    parameters.init, parameters.repr, parameters.eq, parameters.frozen = True, True, eq, frozen
    fields = dataclasses.fields(made)
    made.__init__ = _made_init(made, fields, frozen=frozen)
    if "__repr__" not in own:
        made.__repr__ = _made_repr([field.name for field in fields if field.repr])
    if eq:
        _compare(made, [field.name for field in fields if field.compare], own, frozen=frozen)
    if frozen and not extends:
        made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
        if slots:
            made.__getstate__, made.__setstate__ = _get_state, _set_state
    return made


def _made_init(cls: type[Any], fields: Sequence[dataclasses.Field[Any]], *, frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"_NOT_GIVEN": _NOT_GIVEN, "_set": object.__setattr__}
    positional: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    for field in fields:
        name = value = field.name
        if field.default is not _MISSING:
            names[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
        elif field.default_factory is not _MISSING:
            names[f"_make_{name}"] = field.default_factory
            default = "=_NOT_GIVEN"
            value = f"_make_{name}() if {name} is _NOT_GIVEN else {name}" if field.init else f"_make_{name}()"
        elif field.init:
            default = ""
        else:
            continue
        if field.init:
            (keywords if field.kw_only else positional).append(name + default)
        elif field.default is not _MISSING:
            value = f"_default_{name}"
        body.append(f" _set(_self, {name!r}, {value})" if frozen else f" _self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" _self.__post_init__()")
    listed = ", ".join(["_self", *positional, *(["*", *keywords] if keywords else [])])
    made: dict[str, Any] = {}
    exec(f"def __init__({listed}):\n" + ("\n".join(body) or " pass"), names, made)
    init: Callable[..., None] = made["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    init.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    return init


def _made_repr(names: list[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return __repr__


def _compare(cls: Any, names: list[str], own: Mapping[str, Any], *, frozen: bool) -> None:
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _self: ()

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    if "__eq__" not in own:
        cls.__eq__ = __eq__
    # A class that has `__eq__` alone has None, which was not asked for.
    if own.get("__hash__") is None:
        cls.__hash__ = __hash__ if frozen else None


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _quick
