"""Which errors a response carries, for metrics: Kafka's `AbstractResponse.errorCounts`, less its count of NONE.

Runs for every response, so what `response_errors` knows of a class is made into functions that look at nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from klamm.wire.response_errors import Plan, plan_of

ErrorCounts: TypeAlias = dict[int, int]
_Walk: TypeAlias = Callable[[Any, ErrorCounts], None]


def has_only_own_code(response_class: type) -> bool:
    """Whether `error_code` is all there is to count."""
    plan = plan_of(response_class)
    return plan.codes == ("error_code",) and not plan.lists


def error_counter(response_class: type) -> Callable[[Any], ErrorCounts | None]:
    """A function that counts the codes other than NONE in all error fields of a response; None if there are none."""
    plan = plan_of(response_class)
    if not plan.codes and not plan.lists:
        return _no_errors
    walk = _walker(plan)

    def count(response: Any) -> ErrorCounts | None:
        found: ErrorCounts = {}
        walk(response, found)
        return found or None

    return count


def _no_errors(_: Any) -> None:
    return None


def _own_code(struct: Any, found: ErrorCounts) -> None:
    code = struct.error_code
    if code:
        found[code] = found.get(code, 0) + 1


def _walker(plan: Plan) -> _Walk:
    if plan.codes == ("error_code",) and not plan.lists:
        return _own_code
    below = [(field, _walker(inner)) for field, inner in plan.lists]
    if len(below) == 1 and not plan.codes:
        return _list_walker(*below[0])
    codes = plan.codes

    def walk_all(struct: Any, found: ErrorCounts) -> None:
        for field in codes:
            code = getattr(struct, field)
            if code:
                found[code] = found.get(code, 0) + 1
        for field, walk in below:
            for item in getattr(struct, field) or ():
                walk(item, found)

    return walk_all


def _list_walker(field: str, walk: _Walk) -> _Walk:
    if walk is _own_code:

        def codes(struct: Any, found: ErrorCounts) -> None:
            for item in getattr(struct, field) or ():
                code = item.error_code
                if code:
                    found[code] = found.get(code, 0) + 1

        return codes

    def deeper(struct: Any, found: ErrorCounts) -> None:
        for item in getattr(struct, field) or ():
            walk(item, found)

    return deeper
