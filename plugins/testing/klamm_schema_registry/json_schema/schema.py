"""`parse`: reads a JSON Schema from its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from klamm_schema_registry.formats import ParsedSchema, Steps, strict_json
from klamm_schema_registry.json_schema.comparison import unreadable
from klamm_schema_registry.json_schema.nodes import Loader, Node


class JsonSchema(ParsedSchema):
    """A JSON Schema."""

    def __init__(self, value: Any, root: Node) -> None:
        self._value = value
        self.root = root

    def canonical(self) -> str:
        return json.dumps(self._value, separators=(",", ":"), ensure_ascii=False)

    def normalized(self) -> str:
        return json.dumps(self._value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def unreadable(self, written: ParsedSchema, steps: Steps) -> list[str]:
        assert isinstance(written, JsonSchema)
        return unreadable(self.root, written.root, steps)


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Return the schema in a text. `references` are the texts of the schemas to which it refers. Raises ValueError."""
    value = strict_json(text)
    loader = Loader(value, {name: strict_json(each) for name, each in references.items()})
    return JsonSchema(value, loader.root)
