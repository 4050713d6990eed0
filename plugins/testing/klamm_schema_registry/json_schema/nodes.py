"""`Loader`: turns a JSON Schema into nodes of one kind each, which `comparison` compares.

A schema with keywords of several kinds becomes an `allOf`, and a schema with several types an `anyOf`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from klamm_schema_registry.formats import Steps

TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_MAX_DEPTH: Final = 64
_NEWER: Final = re.compile(r"json-schema\.org/draft/20(19|20)-")
_CRITERIA: Final = ("allOf", "anyOf", "oneOf")
_KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "object": (
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "dependencies",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "dependentSchemas",
        "dependentRequired",
    ),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
}


@dataclass(slots=True, eq=False)
class Node:
    """A schema of one kind.

    `parts` are the parts of a combination; `target` returns the schema that a reference points to.
    """

    kind: str
    raw: Mapping[str, Any] = field(default_factory=dict)
    criterion: str = ""
    parts: list[Node] = field(default_factory=list)
    target: Callable[[], Node] | None = None
    integer: bool = False
    properties: dict[str, Node] = field(default_factory=dict)
    patterns: dict[str, Node] = field(default_factory=dict)
    dependencies: dict[str, Node] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    required_with: dict[str, frozenset[str]] = field(default_factory=dict)
    first_items: list[Node] = field(default_factory=list)
    all_items: Node | None = None
    # The schema of `additionalProperties` or `additionalItems`; `open` is False if no others are allowed.
    others: Node | None = None
    open: bool = True
    unevaluated: Node | None = None
    _text: str = ""
    _values: frozenset[str] | None = None

    @property
    def same_as(self) -> tuple[str, bool, str]:
        """A key that is equal for nodes with the same meaning."""
        self._text = self._text or json.dumps(self.raw, sort_keys=True)
        return self.kind, self.integer, self._text

    @property
    def values(self) -> frozenset[str]:
        """The values of `enum` or `const`, as JSON."""
        if self._values is None:
            listed = self.raw["enum"] if self.kind == "enum" else [self.raw["const"]]
            self._values = frozenset(json.dumps(each, sort_keys=True) for each in listed)
        return self._values


class Loader:
    """The loader of one schema's nodes. Raises ValueError for an invalid schema."""

    def __init__(self, root: Any, references: Mapping[str, Any]) -> None:
        declared = root.get("$schema") if isinstance(root, dict) else None
        self._newer = bool(_NEWER.search(declared)) if isinstance(declared, str) else False
        identity = root.get("$id", root.get("id")) if isinstance(root, dict) else None
        self._base = identity if isinstance(identity, str) else ""
        self._documents = {**references, "": root, self._base.rstrip("#"): root}
        self._root = root
        self._steps = Steps(problem="The schema is too complex")
        # By the id of the target's JSON value, because references may be written in many ways. `_documents` keeps the
        # values alive.
        self._referred_to: dict[int, Node] = {}
        self.root = self.node(root, 0)

    def node(self, found: Any, depth: int) -> Node:
        """Return the node of a JSON value."""
        self._steps.take()
        if depth > _MAX_DEPTH:
            raise ValueError(f"schemas are nested more than {_MAX_DEPTH} levels deep")
        if isinstance(found, bool):
            return Node("empty" if found else "false")
        if not isinstance(found, dict):
            raise ValueError(f"{str(found)[:200]} is not a schema")
        if isinstance(found.get("$ref"), str):
            return self._reference(found)
        parts = [*self._special(found, depth), *self._typed(found, depth)]
        if not parts:
            return Node("empty", found)
        return parts[0] if len(parts) == 1 else Node("combined", found, "allOf", parts)

    def _special(self, found: Mapping[str, Any], depth: int) -> Iterable[Node]:
        if "enum" in found:
            if not isinstance(found["enum"], list):
                raise ValueError("enum must be a list")
            yield Node("enum", found)
        for criterion in _CRITERIA:
            if criterion in found:
                listed = found[criterion]
                if not isinstance(listed, list) or not listed:
                    raise ValueError(f"{criterion} must be a list of schemas")
                yield Node("combined", found, criterion, [self.node(each, depth + 1) for each in listed])
        if "not" in found:
            yield Node("not", found, parts=[self.node(found["not"], depth + 1)])
        if "const" in found:
            yield Node("const", found)
        if "if" in found:
            yield Node("conditional", found)

    def _typed(self, found: Mapping[str, Any], depth: int) -> Iterable[Node]:
        declared = found.get("type")
        if declared is None:
            kinds = [kind for kind, keywords in _KEYWORDS.items() if any(each in found for each in keywords)]
            yield from (self._of_type(kind, found, depth) for kind in kinds)
            return
        types = declared if isinstance(declared, list) else [declared]
        for each in types:
            if not isinstance(each, str) or each not in TYPES:
                raise ValueError(f"unknown type: [{str(each)[:200]}]")
        if len(set(types)) < len(types):
            # Otherwise the loader would read the content once for each mention, at each level of nested types.
            raise ValueError("type names a type twice")
        nodes = [self._of_type(each, found, depth) for each in types]
        if isinstance(declared, list):
            yield Node("combined", found, "anyOf", nodes)
        else:
            yield from nodes

    def _of_type(self, kind: str, found: Mapping[str, Any], depth: int) -> Node:
        made = Node("number" if kind == "integer" else kind, found, integer=kind == "integer")
        if kind == "object":
            self._object(made, found, depth)
        elif kind == "array":
            self._array(made, found, depth)
        return made

    def _object(self, made: Node, found: Mapping[str, Any], depth: int) -> None:
        made.properties = self._nodes(found, "properties", depth)
        made.patterns = self._nodes(found, "patternProperties", depth)
        made.dependencies = self._nodes(found, "dependentSchemas", depth)
        required = _mapping(found, "dependentRequired")
        for name, each in _mapping(found, "dependencies").items():
            if isinstance(each, list):
                required = {**required, name: each}
            else:
                made.dependencies[name] = self.node(each, depth + 1)
        made.required_with = {name: frozenset(map(str, each)) for name, each in required.items()}
        listed = found.get("required", [])
        if not isinstance(listed, (list, bool)):
            raise ValueError("required must be a list")
        made.required = frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()
        self._rest(made, found, "additionalProperties", "unevaluatedProperties", depth)

    def _array(self, made: Node, found: Mapping[str, Any], depth: int) -> None:
        items, others = found.get("items"), "additionalItems"
        if self._newer:
            items, others = found.get("prefixItems"), "items"
        if isinstance(items, list):
            made.first_items = [self.node(each, depth + 1) for each in items]
        elif items is not None:
            made.all_items = self.node(items, depth + 1)
        if self._newer and items is None and isinstance(found.get("items"), dict):
            made.all_items = self.node(found["items"], depth + 1)
            return
        self._rest(made, found, others, "unevaluatedItems", depth)

    def _rest(self, made: Node, found: Mapping[str, Any], others: str, unevaluated: str, depth: int) -> None:
        rest = found.get(others)
        if isinstance(rest, bool):
            made.open = rest
        elif rest is not None:
            made.others = self.node(rest, depth + 1)
        if self._newer and unevaluated in found:
            made.unevaluated = self.node(found[unevaluated], depth + 1)

    def _nodes(self, found: Mapping[str, Any], key: str, depth: int) -> dict[str, Node]:
        return {name: self.node(each, depth + 1) for name, each in _mapping(found, key).items()}

    # ---- references

    def _reference(self, found: Mapping[str, Any]) -> Node:
        # Find the target now, so that a schema with a broken reference is not registered.
        pointed = self._pointed(found["$ref"])
        return Node("reference", found, target=lambda: self._resolved(pointed))

    def _resolved(self, pointed: Any) -> Node:
        if id(pointed) not in self._referred_to:
            self._referred_to[id(pointed)] = self.root if pointed is self._root else self.node(pointed, 0)
        return self._referred_to[id(pointed)]

    def _pointed(self, reference: str) -> Any:
        name, fragment = urldefrag(reference)
        document = self._documents.get(name)
        if document is None:
            self._steps.take_characters(len(self._base))
            document = self._documents.get(urljoin(self._base, name))
        if document is None:
            raise ValueError(f"{reference[:200]} refers to no schema: name it in references")
        for step in unquote(fragment).split("/")[1:] if fragment.startswith("/") else ():
            document = _step(document, step.replace("~1", "/").replace("~0", "~"), reference)
        if fragment and not fragment.startswith("/"):
            raise ValueError(f"{reference[:200]}: anchors are not supported")
        return document


def _step(document: Any, step: str, reference: str) -> Any:
    if isinstance(document, dict) and step in document:
        return document[step]
    if isinstance(document, list) and step.isdecimal() and int(step[:9]) < len(document):
        return document[int(step[:9])]
    raise ValueError(f"{reference[:200]} refers to nothing")


def _mapping(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = found.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} must be an object")
    return value
