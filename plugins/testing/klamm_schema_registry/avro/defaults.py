"""`check_defaults`: checks that the default of each field has the field's type, as Avro's Java library does."""

from __future__ import annotations

from typing import Any, Final

from klamm_schema_registry.avro.types import NO_DEFAULT, AvroType
from klamm_schema_registry.formats import Steps

_BITS: Final = {"int": 31, "long": 63}
_TEXT: Final = ("string", "bytes", "enum", "fixed")


def check_defaults(root: AvroType) -> None:
    """Raise ValueError if a default has another type than its field, and InvalidSchemaError after too many steps."""
    steps = Steps(problem="The defaults of the schema are too complex to be checked")
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        for field in each.fields:
            if field.default is not NO_DEFAULT and not _fits(field.type, field.default, steps):
                raise ValueError(f"Invalid default for field {field.name}: {str(field.default)[:200]}")
        waiting += [*each.types, *(field.type for field in each.fields)]


def _fits(kind: AvroType, value: Any, steps: Steps) -> bool:
    steps.take()
    if kind.kind == "union":
        # As in Java, the default may have the type of any branch, not only of the first.
        return any(_fits(branch, value, steps) for branch in kind.types)
    if kind.kind == "null":
        return value is None
    if kind.kind == "boolean":
        return isinstance(value, bool)
    if kind.kind in _TEXT:
        return isinstance(value, str)
    if kind.kind in _BITS:
        limit = 1 << _BITS[kind.kind]
        return type(value) is int and -limit <= value < limit
    if kind.kind in ("float", "double"):
        return type(value) in (int, float)
    if kind.kind == "array":
        return isinstance(value, list) and all(_fits(kind.types[0], each, steps) for each in value)
    if kind.kind == "map":
        return isinstance(value, dict) and all(_fits(kind.types[0], each, steps) for each in value.values())
    return isinstance(value, dict) and all(
        # A field without a value uses its own default, which is checked elsewhere.
        _fits(field.type, value[field.name], steps) if field.name in value else field.default is not NO_DEFAULT
        for field in kind.fields
    )
