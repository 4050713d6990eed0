"""The texts of Avro schemas: like Java's `Schema.toString`, and the normalized text of Confluent's registry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from typing import Any

from klamm_schema_registry.avro.types import NO_DEFAULT, AvroField, AvroType


def canonical_text(root: AvroType, referenced: Set[str]) -> str:
    """Return the schema as Java writes it. Types in `referenced` are written as names."""
    return _compact(_Canonical(set(referenced)).value(root, ""))


def normalized_text(root: AvroType, referenced: Set[str]) -> str:
    """Return the normalized text: aliases are sorted, and attributes that have no fixed place are sorted too."""
    return _compact(_Canonical(set(referenced), normal=True).value(root, ""))


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class _Canonical:
    """The conversion of types to JSON values. A named type is defined at its first occurrence."""

    def __init__(self, seen: set[str], *, normal: bool = False) -> None:
        self._seen = seen
        self._normal = normal

    def value(self, each: AvroType, space: str) -> Any:
        """Return the JSON value of a type within a namespace."""
        if each.kind == "union":
            return [self.value(branch, space) for branch in each.types]
        if each.kind in ("array", "map"):
            key = "items" if each.kind == "array" else "values"
            return {"type": each.kind, key: self.value(each.types[0], space), **self._others(each)}
        if not each.name:
            return {"type": each.kind, **self._others(each)} if each.attributes else each.kind
        if each.name in self._seen:
            return each.short_name if each.space == space else each.name
        self._seen.add(each.name)
        return self._definition(each, space)

    def _definition(self, each: AvroType, space: str) -> dict[str, Any]:
        found: dict[str, Any] = {"type": each.kind, "name": each.short_name}
        if each.space != space:
            found["namespace"] = each.space
        if each.doc is not None:
            found["doc"] = each.doc
        if each.kind == "enum":
            found["symbols"] = list(each.symbols)
            if each.default is not None:
                found["default"] = each.default
        elif each.kind == "fixed":
            found["size"] = each.size
        else:
            found["fields"] = [self._field(one, each.space) for one in each.fields]
        found.update(self._others(each))
        if each.aliases:
            found["aliases"] = [_relative(alias, each.space) for alias in self._names(each.aliases)]
        return found

    def _field(self, one: AvroField, space: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": one.name, "type": self.value(one.type, space)}
        if one.doc is not None:
            found["doc"] = one.doc
        if one.default is not NO_DEFAULT:
            found["default"] = one.default
        if one.order != "ascending":
            found["order"] = one.order
        if one.aliases:
            found["aliases"] = self._names(one.aliases)
        return {**found, **self._others(one)}

    def _others(self, each: AvroType | AvroField) -> dict[str, Any]:
        return dict(sorted(each.attributes.items())) if self._normal else each.attributes

    def _names(self, names: Iterable[str]) -> list[str]:
        return sorted(names) if self._normal else list(names)


def _relative(name: str, space: str) -> str:
    before, _, short = name.rpartition(".")
    return short if before == space else name
