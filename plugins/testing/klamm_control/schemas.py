"""Makes JSON Schemas (2020-12, as in OpenAPI 3.1) of annotations, and checks values against them, for `routes`."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

Schema: TypeAlias = dict[str, Any]
Components: TypeAlias = dict[str, Schema]

_NULL: Final = "null"
_SCALARS: Final[dict[Any, str]] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): _NULL}
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    _NULL: (type(None),),
    "array": (list,),
    "object": (dict,),
}
_WORDS: Final = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
}
_SHOWN_CHARACTERS: Final = 80


def schema_of(annotation: Any, components: Components) -> Schema:
    """Return the schema of an annotation. Schemas of typed dictionaries go into `components`, by name.

    Raises TypeError for an annotation without an equivalent in JSON.
    """
    if annotation in (Any, object):
        return {}
    if annotation in _SCALARS:
        return {"type": _SCALARS[annotation]}
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return {**schema_of(arguments[0], components), "description": arguments[1]}
    if origin in (Required, NotRequired):
        return schema_of(arguments[0], components)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return _either([schema_of(each, components) for each in arguments])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1], components)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": schema_of(arguments[0], components)}
    if is_typeddict(annotation):
        return _named(annotation, components)
    raise TypeError(f"no schema for {annotation!r}")


def members_of(kind: Any, components: Components) -> dict[str, tuple[Schema, bool]]:
    """Return the members of a typed dictionary, each with its schema and True if it is required."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: (schema_of(hint, components), name in kind.__required_keys__) for name, hint in hints.items()}


def _named(kind: Any, components: Components) -> Schema:
    name = kind.__name__
    if name not in components:
        # Add it before its members, because these may refer to it.
        schema = components[name] = {"type": "object"}
        members = members_of(kind, components)
        schema["description"] = (kind.__doc__ or "").partition("\n")[0]
        schema["properties"] = {member: each for member, (each, _needed) in members.items()}
        schema["required"] = [member for member, (_each, needed) in members.items() if needed]
    return {"$ref": f"#/components/schemas/{name}"}


def _either(found: list[Schema]) -> Schema:
    if all(isinstance(each.get("type"), str) for each in found):
        names = list(dict.fromkeys(each["type"] for each in found))
        joined = {key: value for each in found for key, value in each.items()} | {"type": names}
        if "enum" in joined and _NULL in names:
            joined["enum"] = [*joined["enum"], None]
        return joined
    return {"anyOf": found}


def types_of(schema: Schema) -> list[str]:
    """Return the JSON types that a schema accepts; none if it accepts all."""
    found = schema.get("type", [])
    return [found] if isinstance(found, str) else list(found)


def problem_of(value: Any, schema: Schema) -> str:
    """Return the problem with a JSON value, or with an element of its array or object, as text, or an empty text."""
    names = types_of(schema)
    if names and not any(_is_of(value, name) for name in names):
        return f"must be {_in_words(schema)}, not {_shown(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be {_in_words(schema)}, not {_shown(value)}"
    inside: list[Any] = []
    if isinstance(value, list):
        inside, schema = value, schema.get("items", {})
    elif isinstance(value, dict):
        inside, schema = list(value.values()), schema.get("additionalProperties", {})
    return next((f"has an element that {problem}" for each in inside if (problem := problem_of(each, schema))), "")


def converted(text: str, schema: Schema) -> Any:
    """Return the value of a text in a path or a query. Raises ValueError, which names the expected type."""
    value: Any = text
    for name in types_of(schema):
        try:
            value = _OF_TEXT[name](text) if name in _OF_TEXT else value
        except (ValueError, KeyError):
            raise ValueError(f"must be {_in_words(schema)}, not {_shown(text)}") from None
    problem = problem_of(value, schema)
    if problem:
        raise ValueError(problem)
    return value


_OF_TEXT: Final[dict[str, Any]] = {
    "integer": int,
    "number": float,
    "boolean": {"true": True, "false": False}.__getitem__,
}


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, _TYPES[name])


def _in_words(schema: Schema) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(each for each in schema["enum"] if each is not None)
    return " or ".join(_WORDS[name] for name in types_of(schema) if name != _NULL)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
