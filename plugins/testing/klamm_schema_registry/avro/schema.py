"""`parse`: reads an Avro schema from its JSON, by the rules of the specification."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from klamm_schema_registry.avro.defaults import check_defaults
from klamm_schema_registry.avro.reading import unreadable
from klamm_schema_registry.avro.text import canonical_text, normalized_text
from klamm_schema_registry.avro.types import NO_DEFAULT, PRIMITIVE, AvroField, AvroType
from klamm_schema_registry.formats import ParsedSchema, Steps, strict_json

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NAMED: Final = ("record", "error", "enum", "fixed")
_MAX_DEPTH: Final = 64
_ORDERS: Final = ("ascending", "descending", "ignore")
_OF_TYPE: Final[Mapping[str, frozenset[str]]] = {
    "record": frozenset({"type", "name", "namespace", "doc", "aliases", "fields"}),
    "error": frozenset({"type", "name", "namespace", "doc", "aliases", "fields"}),
    "enum": frozenset({"type", "name", "namespace", "doc", "aliases", "symbols", "default"}),
    "fixed": frozenset({"type", "name", "namespace", "doc", "aliases", "size"}),
    "array": frozenset({"type", "items"}),
    "map": frozenset({"type", "values"}),
}
_OF_FIELD: Final = frozenset({"name", "type", "doc", "default", "order", "aliases"})


class AvroSchema(ParsedSchema):
    """An Avro schema. `referenced` are the names of types that other schemas define."""

    def __init__(self, root: AvroType, referenced: frozenset[str]) -> None:
        self.root = root
        self._referenced = referenced
        self.has_references = bool(referenced)

    def canonical(self) -> str:
        return canonical_text(self.root, self._referenced)

    def normalized(self) -> str:
        return normalized_text(self.root, self._referenced)

    def check_new(self) -> None:
        check_defaults(self.root)

    def resolved(self) -> str:
        return canonical_text(self.root, frozenset())

    def unreadable(self, written: ParsedSchema, steps: Steps) -> list[str]:
        assert isinstance(written, AvroSchema)
        return unreadable(self.root, written.root, steps)


def parse(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Return the schema in a text. `references` are the texts of the schemas that it needs. Raises ValueError."""
    parser = _Parser()
    for referenced in references.values():
        parser.type_of(strict_json(referenced), "", 0)
    known = frozenset(parser.names)
    return AvroSchema(parser.type_of(strict_json(text), "", 0), known)


class _Parser:
    """A parser that turns JSON values into types. `names` has the named types that were defined so far."""

    def __init__(self) -> None:
        self.names: dict[str, AvroType] = {}

    def type_of(self, found: Any, space: str, depth: int) -> AvroType:
        if depth > _MAX_DEPTH:
            raise ValueError(f"types are nested more than {_MAX_DEPTH} levels deep")
        if isinstance(found, str):
            return self._by_name(found, space)
        if isinstance(found, list):
            return self._union(found, space, depth)
        if not isinstance(found, dict):
            raise ValueError(f"{_clipped(found)} is not a type")
        kind = found.get("type")
        if isinstance(kind, (dict, list)):
            return self.type_of(kind, space, depth + 1)
        if kind in PRIMITIVE:
            return AvroType(kind, attributes={key: found[key] for key in found if key != "type"})
        if kind in _NAMED:
            return self._named(kind, found, space, depth)
        if kind == "array":
            return self._container(kind, "items", found, space, depth)
        if kind == "map":
            return self._container(kind, "values", found, space, depth)
        if not isinstance(kind, str):
            raise ValueError(f'No "type": {_clipped(found)}')
        return self._by_name(kind, space)

    def _by_name(self, name: str, space: str) -> AvroType:
        if name in PRIMITIVE:
            return AvroType(name)
        full = name if "." in name or not space else f"{space}.{name}"
        known = self.names.get(full) or self.names.get(name)
        if known is None:
            raise ValueError(f'"{_clipped(name)}" is not a defined name.')
        return known

    def _union(self, branches: list[Any], space: str, depth: int) -> AvroType:
        types = [self.type_of(branch, space, depth + 1) for branch in branches]
        seen = set()
        for each in types:
            if each.kind == "union":
                raise ValueError("Nested union")
            if (each.name or each.kind) in seen:
                raise ValueError(f"Duplicate in union: {each.name or each.kind}")
            seen.add(each.name or each.kind)
        return AvroType("union", types=types)

    def _container(self, kind: str, key: str, found: Mapping[str, Any], space: str, depth: int) -> AvroType:
        if key not in found:
            raise ValueError(f"No {key} type: {_clipped(found)}")
        return AvroType(kind, types=[self.type_of(found[key], space, depth + 1)], attributes=_others(found, kind))

    def _named(self, kind: str, found: Mapping[str, Any], space: str, depth: int) -> AvroType:
        name = _full_name(found, space)
        if name in self.names:
            raise ValueError(f"Can't redefine: {name}")
        made = AvroType(kind, name, doc=_text_or_none(found, "doc"), attributes=_others(found, kind))
        made.aliases = tuple(
            alias if "." in alias or not made.space else f"{made.space}.{alias}" for alias in _strings(found, "aliases")
        )
        self.names[name] = made
        if kind == "enum":
            made.symbols = _symbols(found)
            made.default = _text_or_none(found, "default")
            if made.default is not None and made.default not in made.symbols:
                raise ValueError(f"The Enum Default: {made.default} is not in the enum symbol set")
        elif kind == "fixed":
            made.size = _size(found)
        else:
            made.fields = self._fields(found, made, depth)
        return made

    def _fields(self, found: Mapping[str, Any], record: AvroType, depth: int) -> list[AvroField]:
        listed = found.get("fields")
        if not isinstance(listed, list):
            raise ValueError(f"Record has no fields: {_clipped(found)}")
        names: set[str] = set()
        fields = []
        for each in listed:
            if not isinstance(each, dict) or "type" not in each:
                raise ValueError(f"No field type: {_clipped(each)}")
            name = _checked_name(each.get("name"))
            if name in names:
                raise ValueError(f"Duplicate field {name} in record {record.name}")
            names.add(name)
            order = str(each.get("order", "ascending")).lower()
            if order not in _ORDERS:
                raise ValueError(f"The order of a field must be one of {', '.join(_ORDERS)}, not {_clipped(order)}")
            fields.append(
                AvroField(
                    name,
                    self.type_of(each["type"], record.space, depth + 1),
                    each.get("default", NO_DEFAULT),
                    _text_or_none(each, "doc"),
                    order,
                    _strings(each, "aliases"),
                    {key: each[key] for key in each if key not in _OF_FIELD},
                )
            )
        return fields


def _full_name(found: Mapping[str, Any], space: str) -> str:
    name = found.get("name")
    if not isinstance(name, str):
        raise ValueError("No name in schema")
    before, _, short = name.rpartition(".")
    if not before:
        own = found.get("namespace")
        before = own if isinstance(own, str) else space
    for part in before.split(".") if before else ():
        _checked_name(part)
    if not before and short in PRIMITIVE:
        raise ValueError(f"Schemas may not be named after primitives: {short}")
    return f"{before}.{_checked_name(short)}" if before else _checked_name(short)


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError("No field name")
    if not _NAME.match(name):
        raise ValueError(f"Illegal character in: {_clipped(name)}" if name else "Empty name")
    return name


def _symbols(found: Mapping[str, Any]) -> tuple[str, ...]:
    listed = found.get("symbols")
    if not isinstance(listed, list):
        raise ValueError(f"Enum has no symbols: {_clipped(found)}")
    symbols = tuple(_checked_name(each) for each in listed)
    if len(set(symbols)) < len(symbols):
        raise ValueError("Duplicate enum symbol")
    return symbols


def _size(found: Mapping[str, Any]) -> int:
    size = found.get("size")
    if type(size) is not int or not 0 <= size < 1 << 31:
        raise ValueError(f"Invalid or no size: {_clipped(found)}")
    return size


def _strings(found: Mapping[str, Any], key: str) -> tuple[str, ...]:
    listed = found.get(key, [])
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise ValueError(f"{key} not an array of strings: {_clipped(listed)}")
    return tuple(listed)


def _text_or_none(found: Mapping[str, Any], key: str) -> str | None:
    text = found.get(key)
    return text if isinstance(text, str) else None


def _others(found: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {key: found[key] for key in found if key not in _OF_TYPE[kind]}


def _clipped(value: object) -> str:
    return str(value)[:200]
