"""The numbers of errors in a response, for metrics: Kafka's `AbstractResponse.errorCounts`, without the count of NONE.

Errors are counted in every response, so counting must be fast. `Route` makes one function for each class of responses,
which reads only the fields that the class declares in `ERRORS`.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from klamm.wire.response_errors import error_fields
from klamm.wire.struct_base import ErrorFields

ErrorCounts: TypeAlias = dict[int, int]
_Walk: TypeAlias = Callable[[Any, ErrorCounts], None]


def has_only_own_code(response_class: type) -> bool:
    """Return True if `error_code` is the only field to count."""
    fields = error_fields(response_class)
    return fields.codes == ("error_code",) and not fields.lists


def error_counter(response_class: type) -> Callable[[Any], ErrorCounts | None]:
    """Return a function that counts the codes other than NONE in all error fields of a response of this class.

    The function returns None if there are no such codes.
    """
    fields = error_fields(response_class)
    if not fields.codes and not fields.lists:
        return _no_errors
    walk = _walker(fields)

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


def _walker(fields: ErrorFields) -> _Walk:
    if fields.codes == ("error_code",) and not fields.lists:
        return _own_code
    below = [(field, _walker(inner)) for field, inner in fields.lists]
    if len(below) == 1 and not fields.codes:
        return _list_walker(*below[0])
    codes = fields.codes

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
