"""`unreadable`: finds out if one JSON Schema accepts all values of another, by the rules of Confluent's registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

from klamm.shared import compile_re2
from klamm_schema_registry.formats import Steps
from klamm_schema_registry.json_schema.messages import message
from klamm_schema_registry.json_schema.nodes import Node

Difference: TypeAlias = tuple[str, tuple[str, ...]]
"""A kind of difference, and the path to its place, relative to the compared pair."""

_COMPILING_STEPS: Final = 400
_KEPT_PATTERNS: Final = 64
_UPPER: Final = ("MAXIMUM", "EXCLUSIVE_MAXIMUM", "MAX_LENGTH", "MAX_ITEMS", "MAX_PROPERTIES", "MAX_CONTAINS")
_BOUNDS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "string": (("maxLength", "MAX_LENGTH"), ("minLength", "MIN_LENGTH")),
    "number": (
        ("maximum", "MAXIMUM"),
        ("minimum", "MINIMUM"),
        ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM"),
        ("exclusiveMinimum", "EXCLUSIVE_MINIMUM"),
    ),
    "object": (("maxProperties", "MAX_PROPERTIES"), ("minProperties", "MIN_PROPERTIES")),
    "array": (
        ("maxItems", "MAX_ITEMS"),
        ("minItems", "MIN_ITEMS"),
        ("maxContains", "MAX_CONTAINS"),
        ("minContains", "MIN_CONTAINS"),
    ),
}


def unreadable(reader: Node, writer: Node, steps: Steps) -> list[str]:
    """Return the reasons why the reader's schema refuses values of the writer's schema; an empty list if it accepts
    all.
    """
    found = _Comparison(steps).of(writer, reader)
    # Clients choose the length of property names, and each path contains them.
    steps.take_characters(sum(len(name) for _, path in found for name in path))
    return [message(kind, path) for kind, path in found]


class _Comparison:
    """The comparison of an original schema with its update. It finds the differences that are incompatible.

    A schema may contain itself, e.g. a list. Such an inner pair counts as compatible while it is compared.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._known: dict[tuple[int, int], list[Difference]] = {}
        # Targets of references are created during the comparison. Keep them, because `_known` has their ids as keys.
        self._kept: list[Node] = []
        self._compiled: dict[str, Any] = {}
        self._rules: Mapping[str, Callable[[Node, Node], list[Difference]]] = {
            "string": self._strings,
            "number": self._numbers,
            "const": self._constants,
            "enum": self._enums,
            "combined": self._combined,
            "not": self._negations,
            "object": self._objects,
            "array": self._arrays,
        }

    def of(self, original: Node | None, update: Node | None, *path: str) -> list[Difference]:
        """Return the differences of a pair at a path."""
        if update is None:
            return []
        if original is None:
            return [("SCHEMA_ADDED", path)]
        self._steps.take()
        original, update = self._target(original), self._target(update)
        pair = (id(original), id(update))
        if pair not in self._known:
            self._known[pair] = []
            self._kept += (original, update)
            self._known[pair] = self._of_pair(original, update)
        # A chain of definitions doubles the differences at each level.
        self._steps.take(len(self._known[pair]))
        return [(kind, (*path, *rest)) for kind, rest in self._known[pair]]

    def _target(self, node: Node) -> Node:
        for _ in range(100):
            if node.target is None:
                return node
            node = node.target()
        return Node("empty")

    def _of_pair(self, original: Node, update: Node) -> list[Difference]:
        if self._fits_a_combination(original, update):
            return []
        if original.kind != update.kind:
            if original.kind == "false" or update.kind == "empty":
                return []
            is_bytes = [node.raw.get("connect.type") == "bytes" for node in (original, update)]
            return [] if all(is_bytes) else [("TYPE_CHANGED", ())]
        rule = self._rules.get(original.kind)
        return [] if rule is None else rule(original, update)

    def _fits_a_combination(self, original: Node, update: Node) -> bool:
        if (original.kind == "combined") == (update.kind == "combined"):
            return False
        if update.kind == "combined":
            one_is_enough = len(update.parts) == 1 or update.criterion in ("anyOf", "oneOf")
            return one_is_enough and any(not self.of(original, part) for part in update.parts)
        one_is_enough = len(original.parts) == 1 or original.criterion == "allOf"
        return one_is_enough and any(not self.of(part, update) for part in original.parts)

    # ---- values

    def _strings(self, original: Node, update: Node) -> list[Difference]:
        found = _bounds("string", original, update)
        old, new = original.raw.get("pattern"), update.raw.get("pattern")
        if new is not None and old != new:
            found.append(("PATTERN_ADDED" if old is None else "PATTERN_CHANGED", ("pattern",)))
        return found

    def _numbers(self, original: Node, update: Node) -> list[Difference]:
        found = _bounds("number", original, update)
        old, new = _number(original.raw.get("multipleOf")), _number(update.raw.get("multipleOf"))
        if new is not None and old != new:
            if old is None:
                found.append(("MULTIPLE_OF_ADDED", ("multipleOf",)))
            elif old and new % old == 0:
                found.append(("MULTIPLE_OF_EXPANDED", ("multipleOf",)))
            elif not new or old % new != 0:
                found.append(("MULTIPLE_OF_CHANGED", ("multipleOf",)))
        if update.integer and not original.integer:
            found.append(("TYPE_NARROWED", ()))
        return found

    def _constants(self, original: Node, update: Node) -> list[Difference]:
        return [] if original.values == update.values else [("ENUM_ARRAY_CHANGED", ("const",))]

    def _enums(self, original: Node, update: Node) -> list[Difference]:
        old, new = original.values, update.values
        self._steps.take_elements(len(old) + len(new))
        if new >= old:
            return []
        return [("ENUM_ARRAY_NARROWED" if old >= new else "ENUM_ARRAY_CHANGED", ("enum",))]

    def _negations(self, original: Node, update: Node) -> list[Difference]:
        return [("NOT_TYPE_EXTENDED", ("not",))] if self.of(update.parts[0], original.parts[0]) else []

    # ---- combinations

    def _combined(self, original: Node, update: Node) -> list[Difference]:
        one_old, one_new = len(original.parts) == 1, len(update.parts) == 1
        extended = (
            update.criterion == "anyOf"
            or (one_old and (one_new or update.criterion == "oneOf"))
            or (one_new and original.criterion == "allOf")
        )
        if original.criterion != update.criterion and not extended:
            return [("COMBINED_TYPE_CHANGED", ())]
        old, new = self._distinct(original.parts), self._distinct(update.parts)
        found: list[Difference] = []
        if len(old) < len(new) and update.criterion == "allOf":
            found.append(("PRODUCT_TYPE_EXTENDED", ()))
        elif len(old) > len(new) and original.criterion in ("anyOf", "oneOf"):
            found.append(("SUM_TYPE_NARROWED", ()))
        fits = [[index for index, part in enumerate(new) if not self.of(each, part)] for each in old]
        if _matched(fits, self._steps) < min(len(old), len(new)):
            found.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ()))
        return found

    def _distinct(self, parts: list[Node]) -> list[Node]:
        found: dict[tuple[str, bool, str], Node] = {}
        for part in parts:
            # The text of a combination contains the texts of its parts.
            self._steps.take_characters(len(part.same_as[2]))
            found[part.same_as] = part
        return list(found.values())

    # ---- objects

    def _objects(self, original: Node, update: Node) -> list[Difference]:
        self._steps.take_elements(len(original.required) + len(update.required))
        required = update.required - original.required
        found: list[Difference] = [
            ("REQUIRED_ATTRIBUTE_ADDED", ("required", name))
            for name, node in update.properties.items()
            if name in required and name in original.properties and not _has_default(node)
        ]
        for name in {**original.properties, **update.properties}:
            found += self._property(name, original, update)
        found += self._dependencies(original, update)
        found += self._others(original, update, "ADDITIONAL_PROPERTIES", "additionalProperties")
        found += self._unevaluated(original, update, "UNEVALUATED_PROPERTIES", "unevaluatedProperties")
        return found + _bounds("object", original, update)

    def _property(self, name: str, original: Node, update: Node) -> list[Difference]:
        old, new = original.properties.get(name), update.properties.get(name)
        path = ("properties", name)
        if old is not None and new is not None:
            return self.of(old, new, *path)
        self._steps.take()
        if new is None:
            return self._removed("PROPERTY", old, _is_open(update), self._partial(update, name), path)
        required = name in update.required
        if _is_open(original):
            if self._target(new).kind == "empty":
                return []
            kind = "REQUIRED_PROPERTY" if required else "OPTIONAL_PROPERTY"
            default = "_WITH_DEFAULT" if required and _has_default(new) else ""
            return [(f"{kind}{default}_ADDED_TO_OPEN_CONTENT_MODEL", path)]
        found = self._added_to_partial("PROPERTY", new, self._partial(original, name), path)
        if required and not _has_default(new):
            found.append(("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path))
        return found

    def _removed(
        self, what: str, old: Node | None, is_open: bool, partial: Node | None, path: tuple[str, ...]
    ) -> list[Difference]:
        if is_open:
            return []
        if partial is not None:
            found = self.of(old, partial, *path)
            name = f"{what}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            return [*found, (name, path)] if found else []
        if old is not None and old.kind == "false":
            return []
        return [(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]

    def _added_to_partial(self, what: str, new: Node, partial: Node | None, path: tuple[str, ...]) -> list[Difference]:
        found = [] if partial is None else self.of(partial, new, *path)
        name = f"{what}_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return [*found, (name, path)] if found else []

    def _dependencies(self, original: Node, update: Node) -> list[Difference]:
        found: list[Difference] = []
        for name, new in update.required_with.items():
            old = original.required_with.get(name)
            self._steps.take(1 + len(new))
            if old is None:
                found.append(("DEPENDENCY_ARRAY_ADDED", ("dependencies", name)))
            elif not old >= new:
                kind = "EXTENDED" if new >= old else "CHANGED"
                found.append((f"DEPENDENCY_ARRAY_{kind}", ("dependencies", name)))
        for name, node in update.dependencies.items():
            if name in original.dependencies:
                found += self.of(original.dependencies[name], node, "dependencies", name)
            else:
                self._steps.take()
                found.append(("DEPENDENCY_SCHEMA_ADDED", ("dependencies", name)))
        return found

    def _others(self, original: Node, update: Node, what: str, key: str) -> list[Difference]:
        if original.open != update.open:
            return [] if update.open else [(f"{what}_REMOVED", (key,))]
        if original.others is None and update.others is not None:
            return [(f"{what}_NARROWED", (key,))]
        return self.of(original.others, update.others, key)

    def _unevaluated(self, original: Node, update: Node, what: str, key: str) -> list[Difference]:
        old, new = original.unevaluated, update.unevaluated
        if new is None:
            return []
        if new.kind == "false":
            return [] if old is not None and old.kind == "false" else [(f"{what}_REMOVED", (key,))]
        if old is None or (old.kind == "empty" and new.kind != "empty"):
            return [(f"{what}_NARROWED", (key,))]
        return [] if old.kind == "false" or new.kind == "empty" else self.of(old, new, key)

    # ---- arrays

    def _arrays(self, original: Node, update: Node) -> list[Difference]:
        found = self.of(original.all_items, update.all_items, "items")
        old, new = original.first_items, update.first_items
        for index in range(max(len(old), len(new))):
            path = ("items", str(index))
            if index < min(len(old), len(new)):
                found += self.of(old[index], new[index], *path)
                continue
            self._steps.take()
            if index < len(old):
                found += self._removed("ITEM", old[index], _is_open(update), _beyond(update), path)
            elif not _is_open(original):
                found += self._added_to_partial("ITEM", new[index], _beyond(original), path)
            elif self._target(new[index]).kind != "empty":
                found.append(("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", path))
        found += self._others(original, update, "ADDITIONAL_ITEMS", "additionalItems")
        found += self._unevaluated(original, update, "UNEVALUATED_ITEMS", "unevaluatedItems")
        found += _bounds("array", original, update)
        if update.raw.get("uniqueItems") is True and original.raw.get("uniqueItems") is not True:
            found.append(("UNIQUE_ITEMS_ADDED", ("uniqueItems",)))
        return found

    # ---- patterns

    def _partial(self, node: Node, name: str) -> Node | None:
        """Return the schema of a property without a name in the object: of a pattern, or of all other properties."""
        for pattern, found in node.patterns.items():
            self._steps.take()
            self._steps.take_characters(len(name))
            if self._pattern(pattern).search(name):
                return found
        return _beyond(node)

    def _pattern(self, text: str) -> Any:
        found = self._compiled.get(text)
        if found is None:
            self._steps.take(_COMPILING_STEPS)
            found = compile_re2(text)
            # The memory of compiled patterns is limited: one with a single property may take a megabyte.
            if len(self._compiled) < _KEPT_PATTERNS:
                self._compiled[text] = found
        return found


def _bounds(kind: str, original: Node, update: Node) -> list[Difference]:
    found: list[Difference] = []
    for key, name in _BOUNDS[kind]:
        old, new = _number(original.raw.get(key)), _number(update.raw.get(key))
        if new is None or old == new:
            continue
        if old is None:
            found.append((f"{name}_ADDED", (key,)))
        elif name in _UPPER and new < old:
            found.append((f"{name}_DECREASED", (key,)))
        elif name not in _UPPER and new > old:
            found.append((f"{name}_INCREASED", (key,)))
    return found


def _number(value: Any) -> Fraction | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # `repr` makes a fraction of the number as it is written, so that 0.1 is exactly a tenth. A whole number may have
    # thousands of digits, and is not converted to text.
    return Fraction(value if isinstance(value, int) else repr(value))


def _has_default(node: Node) -> bool:
    return "default" in node.raw


def _is_open(node: Node) -> bool:
    unevaluated = node.unevaluated
    may_have_more = unevaluated is None or unevaluated.kind == "empty"
    return node.open and node.others is None and not node.patterns and may_have_more


def _beyond(node: Node) -> Node | None:
    """Return the schema of the properties or items that a schema does not name, or None."""
    if node.others is not None:
        return node.others
    unevaluated = node.unevaluated
    is_partial = node.open and unevaluated is not None and unevaluated.kind not in ("false", "empty")
    return unevaluated if is_partial else None


def _matched(fits: list[list[int]], steps: Steps) -> int:
    """Return the size of the largest matching: how many elements can get a place, if each place takes one element.

    `fits` has the places that each element may take.
    """
    owner: dict[int, int] = {}

    def place(each: int, tried: set[int]) -> bool:
        for index in fits[each]:
            steps.take()
            if index not in tried:
                tried.add(index)
                if index not in owner or place(owner[index], tried):
                    owner[index] = each
                    return True
        return False

    return sum(place(each, set()) for each in range(len(fits)))
