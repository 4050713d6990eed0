"""The error codes inside a response, whatever it is the response of.

Many responses have no error code of their own but one per topic, partition, group or resource. Which fields those are
is read off the message classes, once for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from klamm.wire.struct_base import WireStruct

_NAMES: Final = ("name", "topic", "topic_name", "group_id", "resource_name", "transactional_id", "user", "key")


class Plan(NamedTuple):
    """Where a struct has errors: fields of its own, and lists of structs that have some. `name` tells what it is of."""

    codes: tuple[str, ...]
    lists: tuple[tuple[str, Plan], ...]
    name: str | None
    topic_id: bool


_NOTHING: Final = Plan((), (), None, False)


def _element(annotation: str, known: dict[str, Any]) -> type | None:
    """The struct in an annotation such as `list[X] | None`."""
    name = annotation.removesuffix(" | None")
    if not name.startswith("list["):
        return None
    element = known.get(name.removeprefix("list[").removesuffix("]"))
    return element if isinstance(element, type) and issubclass(element, WireStruct) else None


_plans: Final[dict[type, Plan]] = {}


def plan_of(kind: type) -> Plan:
    """Where the errors of a message class are."""
    plan = _plans.get(kind)
    if plan is None:
        plan = _plans[kind] = _make_plan(kind)
    return plan


def _make_plan(kind: type) -> Plan:
    declared = next((one for one in kind.__mro__ if WireStruct in one.__bases__), None)
    if declared is None:
        return Plan(("error_code",), (), None, False) if hasattr(kind, "error_code") else _NOTHING
    constructor = vars(declared)["__init__"]
    annotations: dict[str, str] = constructor.__annotations__
    codes, lists = [], []
    for field, annotation in annotations.items():
        if field.endswith("error_code"):
            codes.append(field)
        element = _element(annotation, constructor.__globals__)
        if element is not None:
            below = plan_of(element)
            if below.codes or below.lists:
                lists.append((field, below))
    name = next((field for field in _NAMES if field in annotations), None)
    return Plan(tuple(codes), tuple(lists), name, "topic_id" in annotations)


def has_errors_inside(kind: type) -> bool:
    """Whether responses of a class have error codes other than a field `error_code` of their own."""
    plan = plan_of(kind)
    return bool(plan.lists) or any(field != "error_code" for field in plan.codes)


def first_error(response: Any) -> int:
    """The first error code that is not 0, the response's own before those inside; 0 if there is none."""
    plan = plan_of(type(response))
    return _first(response, plan) if plan is not _NOTHING else 0


def _first(struct: Any, plan: Plan) -> int:
    for field in plan.codes:
        code: int = getattr(struct, field)
        if code:
            return code
    for field, below in plan.lists:
        for item in getattr(struct, field) or ():
            code = _first(item, below)
            if code:
                return code
    return 0


def named_errors(response: Any, name_of_topic: Callable[[bytes], str]) -> dict[str, int]:
    """The first error of each topic, group or other resource that has one, by its name.

    `name_of_topic` gives the name for a topic id, where a response has nothing else.
    """
    found: dict[str, int] = {}
    _collect(response, plan_of(type(response)), name_of_topic, found)
    return found


def _collect(struct: Any, plan: Plan, name_of_topic: Callable[[bytes], str], found: dict[str, int]) -> None:
    if plan.name is not None:
        name = getattr(struct, plan.name) or (name_of_topic(struct.topic_id) if plan.topic_id else "")
        code = _first(struct, plan)
        if code and name:
            found.setdefault(name, code)
    for field, below in plan.lists:
        for item in getattr(struct, field) or ():
            _collect(item, below, name_of_topic, found)
