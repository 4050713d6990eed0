"""Functions that find the error codes inside a response of any API.

Many responses have no top-level error code, but an error code for each topic, partition, group or resource. The
generated classes declare these fields in `ERRORS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm.wire.struct_base import NO_ERROR_FIELDS, ErrorFields

_OWN_CODE: Final = ErrorFields(("error_code",), (), None, False)


def error_fields(kind: type) -> ErrorFields:
    """Return the error fields of a class. A class that was not generated has at most a top-level `error_code`."""
    found: ErrorFields | None = getattr(kind, "ERRORS", None)
    if found is not None:
        return found
    return _OWN_CODE if hasattr(kind, "error_code") else NO_ERROR_FIELDS


def has_errors_inside(kind: type) -> bool:
    """Return True if responses of a class have error codes besides a top-level `error_code`."""
    fields = error_fields(kind)
    return bool(fields.lists) or any(field != "error_code" for field in fields.codes)


def first_error(response: Any) -> int:
    """Return the first error code that is not 0, or 0 if there is none. The top-level error code comes first."""
    return _first(response, error_fields(type(response)))


def _first(struct: Any, fields: ErrorFields) -> int:
    for field in fields.codes:
        code: int = getattr(struct, field)
        if code:
            return code
    for field, below in fields.lists:
        for item in getattr(struct, field) or ():
            code = _first(item, below)
            if code:
                return code
    return 0


def named_errors(response: Any, name_of_topic: Callable[[bytes], str]) -> dict[str, int]:
    """Return the first error of each topic, group or other resource that has one, by its name.

    `name_of_topic` returns the name of a topic id, for responses that have only the id.
    """
    found: dict[str, int] = {}
    _collect(response, error_fields(type(response)), name_of_topic, found)
    return found


def _collect(struct: Any, fields: ErrorFields, name_of_topic: Callable[[bytes], str], found: dict[str, int]) -> None:
    if fields.named_by is not None:
        name = getattr(struct, fields.named_by) or (name_of_topic(struct.topic_id) if fields.has_topic_id else "")
        code = _first(struct, fields)
        if code and name:
            found.setdefault(name, code)
    for field, below in fields.lists:
        for item in getattr(struct, field) or ():
            _collect(item, below, name_of_topic, found)
